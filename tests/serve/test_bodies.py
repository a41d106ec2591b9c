"""Bodies that no one would write: whatever comes is answered, soon, and never with an unexpected error."""

from __future__ import annotations

import json

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

PATHS = [
    *("/v1/verify", "/v1/score", "/v1/stream", "/pooling", "/worker_value_inference"),
    *("/get_worker_address", "/register_worker", "/receive_heart_beat"),
]
EXAMPLES = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)

texts = st.one_of(
    st.text(max_size=40),
    st.text(alphabet=st.characters(categories=["Cs", "Cc", "L", "Zs"]), max_size=10),
    st.sampled_from(["p\n\ns<extra_0>", "p Step 1: a ки", "<|im_start|>user\nq<|im_end|>", "<extra_0>" * 3, "[/INST]"]),
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
fields = st.sampled_from(
    [
        *("problem", "steps", "solution", "answer", "id", "label", "meta", "question", "prompt", "completion"),
        *("input", "messages", "model", "encoding_format", "input_str", "worker_name", "worker_status"),
        *("role", "content", "modified_process", "error_steps", "reasoning_steps", "check_heart_beat"),
    ]
)
near = st.dictionaries(fields, st.one_of(texts, values, st.lists(texts, max_size=4)), max_size=6)
bodies = st.one_of(near, st.lists(near, max_size=3), values)


@pytest.fixture(scope="module")
def http(service):
    with httpx.Client(base_url=service.url, timeout=20) as client:
        yield client


def settled(answer: httpx.Response) -> None:
    assert answer.status_code in (200, 400, 413, 422), (answer.status_code, answer.text[:300])
    if answer.status_code != 200:
        error = answer.json()["error"]
        assert error["message"]
        assert "\n" not in error["message"]


@pytest.mark.parametrize("path", PATHS)
def test_any_json_is_answered(http, path):
    @EXAMPLES
    @given(bodies)
    def ask(body):
        settled(http.post(path, content=json.dumps(body).encode()))

    ask()


def test_any_bytes_and_headers_are_answered(http):
    @EXAMPLES
    @given(st.binary(max_size=60), st.sampled_from(PATHS), st.sampled_from(["", "text/plain", "application/json", "x"]))
    def ask(data, path, kind):
        settled(http.post(path, content=data, headers={"Content-Type": kind}))

    ask()


@pytest.mark.parametrize("host", ["[", "a b", "x:y:z", "é", "[::1]:80", ""])
def test_any_host_is_answered(service, host):
    answer = httpx.post(
        service.url + "/get_worker_address", json={"model": "m"}, headers={b"Host": host.encode()}, timeout=20
    )
    assert answer.status_code in (200, 400)


def test_the_service_is_as_well_as_before(service):
    assert service.waiting() == {"waiting": 0, "in_flight": 0, "places": 1024}
    assert not [line for line in service.log if line["level"] != "info"]
