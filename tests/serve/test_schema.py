"""The OpenAPI page holds: whatever schemathesis makes of it is answered with a documented status and shape."""

from __future__ import annotations

import json
import socket
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
EXAMPLES = settings(
    max_examples=30, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
POSTS = [
    *("/v1/verify", "/v1/score", "/v1/stream", "/pooling", "/worker_value_inference"),
    *("/get_worker_address", "/register_worker", "/receive_heart_beat", "/worker_get_status"),
]
GETS = ["/v1/models", "/health", "/health/live", "/health/ready", "/metrics"]


@pytest.fixture(scope="module")
def page(service):
    return schemathesis.openapi.from_url(f"{service.url}/openapi.json")


def test_every_route_of_the_page_is_asked_here(page):
    routes = {(operation.ok().path, operation.ok().method) for operation in page.get_all_operations()}
    assert routes == {*((path, "post") for path in POSTS), *((path, "get") for path in GETS)}


def ask(page, path: str, method: str, mode: GenerationMode) -> set[int]:
    """Statuses that came back."""
    seen = set()

    @EXAMPLES
    @given(page[path][method].as_strategy(generation_mode=mode))
    def one(case):
        seen.add(case.call_and_validate(checks=CHECKS, timeout=20).status_code)

    one()
    return seen


@pytest.mark.parametrize("path", POSTS)
def test_what_fits_the_page_is_answered_as_it_says(page, path):
    assert ask(page, path, "POST", GenerationMode.POSITIVE) <= {200, 422}


@pytest.mark.parametrize("path", [path for path in POSTS if path != "/worker_get_status"])
def test_what_does_not_fit_the_page_is_answered_as_it_says(page, path):
    assert 422 in ask(page, path, "POST", GenerationMode.NEGATIVE)


@pytest.mark.parametrize("path", GETS)
def test_what_is_only_asked_for_is_answered_as_the_page_says(page, path):
    assert ask(page, path, "GET", GenerationMode.POSITIVE) == {200}


def test_every_status_that_the_page_names_can_be_had(page, start):
    documented = {int(status) for status in page.raw_schema["paths"]["/v1/score"]["post"]["responses"]}
    service = start(
        "scripted.latency_seconds=0.5", "serve.queue=1", "serve.max_request_mb=0.01", "sandbox.kind=off", key="k"
    )
    token = {"Authorization": "Bearer k"}
    good = {"problem": "p", "steps": ["1 + 1 = 2"]}

    def status(body, **headers) -> int:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        url = f"{service.url}/v1/score"
        return httpx.post(url, content=content, headers={**token, **headers}, timeout=20).status_code

    seen = {
        status(good),
        status(b"{"),
        status(good, Authorization="Bearer x"),
        status(good, **{"Sec-Fetch-Site": "cross-site"}),
        status({"problem": "p", "steps": ["long" * 10_000]}),
        status({"problem": "p"}),
        status(good, **{"X-Request-Deadline": "0.1"}),
        _slow(service.url),
    }
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(status, {**good, "steps": ["1 + 1 = 2"] * 64})
        service.until(lambda: service.waiting()["in_flight"] == 1)
        seen.add(status(good))
        service.terminate()
        service.logged("draining")
        seen.add(status(good))
        assert first.result(30) == 200
    assert seen == documented


def _slow(url: str) -> int:
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        head = "POST /v1/score HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer k\r\nX-Request-Deadline: 0.2\r\n"
        connection.sendall(f"{head}Content-Length: 10\r\n\r\n{{".encode())
        return int(connection.recv(1000)[9:12])


def test_the_service_is_as_well_after_it_as_before(service):
    assert service.waiting() == {"waiting": 0, "in_flight": 0, "places": 1024}
    assert not [line for line in service.log if line["level"] != "info"]
