"""The service's own routes over a real socket: shapes to the letter, and what is wrong said in one line."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import httpx
import pytest

import genprm
from genprm.records import parse_record
from genprm.types import VerificationResult

TRIP = {
    "problem": "A class of 24 pupils pays 5 dollars each. How much is that?",
    "steps": ["There are 24 pupils.", "24 * 5 = 110, so they pay 110 dollars."],
    "answer": "120",
    "id": "trip",
}


def timeless(result: VerificationResult) -> dict:
    """A result without what a clock says."""
    row = result.model_dump()
    row["usage"].pop("seconds")
    for step in row["steps"]:
        for vote in step["votes"]:
            for check in vote["checks"]:
                check.pop("seconds")
    return row


def test_verify_answers_with_the_result_of_the_local_verifier(service):
    answer = service.post("/v1/verify", TRIP)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    with genprm.load("scripted") as judge:
        local = judge.verify(parse_record(TRIP))
    served = VerificationResult.model_validate_json(answer.content)
    assert timeless(served) == timeless(local)
    assert (served.id, served.first_error) == ("trip", 1)


def test_verify_splits_a_text_as_files_are_split_and_takes_the_same_aliases(service):
    body = {"question": "q", "response": "Step 1: 1 + 1 = 2\nStep 2: 2 + 2 = 5"}
    answer = service.post("/v1/verify", body).json()
    assert [step["text"] for step in answer["steps"]] == ["Step 1: 1 + 1 = 2\n", "Step 2: 2 + 2 = 5"]
    assert (answer["id"], answer["first_error"]) == ("0", 1)


def test_score_answers_an_object_for_a_solution_and_a_list_in_order_for_a_list(service):
    one = service.post("/v1/score", TRIP).json()
    assert set(one) == {
        *("id", "rewards", "unscored_reasons", "first_error", "stopped_early", "reward", "aggregation"),
        *("model", "usage"),
    }
    assert (one["id"], one["first_error"], one["unscored_reasons"]) == ("trip", 1, {})
    assert one["reward"] == min(one["rewards"])
    others = [{"problem": "p", "steps": [f"{n} + 1 = {n + 1}", f"{n} * 2 = {n}"]} for n in range(1, 4)]
    many = service.post("/v1/score", [TRIP, *others]).json()
    assert [row["id"] for row in many] == ["trip", "1", "2", "3"]
    assert many[0]["rewards"] == one["rewards"]
    assert [row["first_error"] for row in many] == [1, 1, 1, 1]


def test_an_unscored_step_is_null_with_its_reason(start):
    service = start("backend.max_context=1000", "sandbox.kind=off")
    body = {"problem": "p", "steps": ["1 + 1 = 2", "long " * 2000]}
    score = service.post("/v1/score", body).json()
    assert score["rewards"][1] is None
    assert "context" in score["unscored_reasons"]["1"]
    assert (score["reward"], score["first_error"]) == (None, None)
    step = service.post("/v1/verify", body).json()["steps"][1]
    assert (step["reward"], step["verdict"]) == (None, "unscored")
    for path, shape in (
        ("/pooling", {"input": f"p\n\n1 + 1 = 2<extra_0>{'long ' * 2000}<extra_0>"}),
        ("/worker_value_inference", {"input_str": f"p\n\n1 + 1 = 2<extra_0>{'long ' * 2000}<extra_0>"}),
    ):
        answer = service.post(path, shape)
        error = answer.json()["error"]
        assert (answer.status_code, error["type"], error["step"], error["input"]) == (422, "unscored", 1, 0)
        assert error["reason"] == score["unscored_reasons"]["1"]
        assert "step 1" in error["message"]


def events(text: str) -> list[tuple[str, dict]]:
    found = []
    for block in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if lines:
            found.append((lines["event"], json.loads(lines["data"])))
    return found


def test_stream_tells_each_step_in_order_and_then_the_result(service):
    answer = service.post("/v1/stream", TRIP)
    assert answer.headers["content-type"].startswith("text/event-stream")
    told = events(answer.text)
    assert [name for name, _ in told] == ["solution", "step", "step", "result"]
    assert told[0][1] == {"id": "trip", "problem": TRIP["problem"], "steps": TRIP["steps"]}
    assert [data for name, data in told if name == "step"] == told[-1][1]["steps"]
    assert told[-1][1]["first_error"] == 1


def test_a_step_is_told_before_the_solution_is_judged(start):
    service = start("scripted.latency_seconds=0.15", "verify.protocol=genprm", "sandbox.kind=off")
    seen = {}
    with httpx.stream("POST", service.url + "/v1/stream", json=TRIP, timeout=60) as answer:
        for line in answer.iter_lines():
            if line.startswith("event: "):
                seen.setdefault(line[7:], service.waiting()["in_flight"])
    assert (seen["step"], seen["result"]) == (1, 0)


def test_an_error_after_a_stream_began_is_its_last_event(start):
    service = start("scripted.latency_seconds=5", "sandbox.kind=off")
    answer = service.post("/v1/stream", TRIP, headers={"X-Request-Deadline": "0.3"})
    told = events(answer.text)
    assert [name for name, _ in told] == ["solution", "error"]
    assert told[-1][1]["error"]["type"] == "deadline"
    assert service.logged("request", route="/v1/stream", status=504)


def test_models_names_the_judge_and_what_fixes_its_verdicts(service):
    (card,) = service.get("/v1/models").json()["data"]
    result = service.post("/v1/verify", TRIP).json()
    assert card["id"] == result["model"] == "scripted"
    assert card["protocol"] == result["protocol"]
    assert card["config_sha256"] == result["config_sha256"]
    assert card["sandbox"] == result["sandbox"]


def test_health_is_ready_and_says_how_busy_it_is(service):
    assert service.get("/health/live").json() == {"status": "live"}
    assert service.get("/health/ready").json() == {"status": "ready", "reason": None}
    health = service.get("/health").json()
    assert (health["status"], health["model"]["id"], health["solutions"]["places"]) == ("ready", "scripted", 1024)


def test_metrics_count_requests_tokens_code_and_times(service):
    names = {"method": "POST", "route": "/v1/verify", "status": "200"}
    before = {
        "requests": service.figure("genprm_requests_total", **names),
        "code": service.figure("genprm_code_runs_total", status="ok"),
        "written": service.figure("genprm_tokens_total", kind="completion"),
        "wrong": service.figure("genprm_steps_total", verdict="incorrect"),
    }
    usage = service.post("/v1/verify", TRIP).json()["usage"]
    assert service.figure("genprm_requests_total", **names) == before["requests"] + 1
    assert service.figure("genprm_code_runs_total", status="ok") == before["code"] + usage["code_runs"]
    assert service.figure("genprm_tokens_total", kind="completion") == before["written"] + usage["completion_tokens"]
    assert service.figure("genprm_steps_total", verdict="incorrect") == before["wrong"] + 1
    text = service.get("/metrics").text
    for name in ("genprm_queue_length", "genprm_solutions_in_flight", "genprm_cache_hits_total"):
        assert f"\n{name} 0.0" in text
    for name in ("genprm_request_seconds", "genprm_solution_seconds", "genprm_wait_seconds"):
        assert f"{name}_bucket" in text


def test_the_pages_load_nothing_and_allow_only_themselves(service):
    for path in ("/", "/docs"):
        page = service.get(path)
        policy = page.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; ")
        assert "unsafe" not in policy
        assert "http" not in policy
        assert "http://" not in page.text.replace("http://www.w3.org", "")
        assert "https://" not in page.text


def test_openapi_describes_every_route_with_its_body(service):
    paths = service.get("/openapi.json").json()["paths"]
    wanted = {"/v1/verify", "/v1/score", "/v1/stream", "/v1/models", "/pooling", "/worker_value_inference"}
    wanted |= {"/get_worker_address", "/register_worker", "/receive_heart_beat", "/health", "/metrics"}
    assert wanted <= set(paths)
    for path in ("/v1/verify", "/v1/score", "/pooling", "/worker_value_inference"):
        assert paths[path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert path in service.get("/docs").text


GOOD = '{"problem": "p", "steps": ["s"]}'


@pytest.mark.parametrize(
    ("path", "body", "status", "type", "said"),
    [
        ("/v1/verify", b"", 400, "bad_json", "not JSON"),
        ("/v1/verify", b"{", 400, "bad_json", "not JSON"),
        ("/v1/verify", b"\xff\xfe", 400, "bad_json", "UTF-8"),
        ("/v1/verify", b'{"problem": NaN}', 400, "bad_json", "NaN"),
        ("/v1/verify", b"[" * 100_000, 400, "bad_json", "nested"),
        ("/v1/verify", b"1" * 5000, 400, "bad_json", "digits"),
        ("/v1/verify", b"[]", 422, "invalid", "a record must be an object, found a list"),
        ("/v1/verify", b"null", 422, "invalid", "null"),
        ("/v1/verify", b"{}", 422, "invalid", "problem"),
        ("/v1/verify", b'{"problem": "p"}', 422, "invalid", "steps"),
        ("/v1/verify", b'{"problem": 3, "steps": ["s"]}', 422, "invalid", "the number 3"),
        ("/v1/verify", b'{"problem": "p", "steps": []}', 422, "invalid", "has no steps"),
        ("/v1/verify", b'{"problem": "p", "steps": ["a", " "]}', 422, "invalid", "steps[1]: is empty"),
        ("/v1/verify", b'{"problem": "\\ud800", "steps": ["s"]}', 422, "invalid", "surrogate"),
        ("/v1/verify", b'{"problem": "p", "steps": ["%s"]}' % (b"x" * 10_000_000), 422, "invalid", "10,000,000"),
        ("/v1/score", b"[]", 422, "invalid", "empty list"),
        ("/v1/score", f"[{GOOD}, {{}}]".encode(), 422, "invalid", "[1].problem"),
        ("/v1/score", b'"text"', 422, "invalid", "found text"),
        ("/v1/stream", b"{}", 422, "invalid", "problem"),
        ("/pooling", b"{}", 422, "invalid", "input"),
        ("/pooling", b"[]", 422, "invalid", "the body must be an object"),
        ("/pooling", b'{"input": []}', 422, "invalid", "empty list"),
        ("/pooling", b'{"input": [1, 2]}', 422, "invalid", "token ids"),
        ("/pooling", b'{"input": "p\\n\\ns"}', 422, "invalid", "<extra_0>"),
        ("/pooling", b'{"input": "p s<extra_0>"}', 422, "invalid", "problem from the first step"),
        ("/pooling", b'{"input": "p\\n\\ns<extra_0>more"}', 422, "invalid", "4 characters follow"),
        ("/pooling", b'{"input": "p\\n\\ns<extra_0> <extra_0>"}', 422, "invalid", "steps[1]: is empty"),
        ("/pooling", b'{"input": "p\\n\\ns<extra_0>", "encoding_format": "base64"}', 422, "invalid", "base64"),
        ("/pooling", b'{"messages": []}', 422, "invalid", "messages"),
        ("/pooling", b'{"messages": [{"role": "user", "content": "p"}]}', 422, "invalid", "assistant message"),
        ("/pooling", b'{"messages": [{"role": "tool", "content": "p"}]}', 422, "invalid", "messages[0]"),
        ("/worker_value_inference", b"{}", 422, "invalid", "input_str"),
        ("/worker_value_inference", b'{"input_str": ["p\\n\\ns\\u043a\\u0438", 3]}', 422, "invalid", "input_str[1]"),
        ("/get_worker_address", b"{}", 422, "invalid", "model"),
        ("/register_worker", b'{"worker_name": ""}', 422, "invalid", "worker_name"),
        ("/receive_heart_beat", b"3", 422, "invalid", "the number 3"),
    ],
)
def test_a_bad_body_is_one_line_that_names_what_is_wrong(service, path, body, status, type, said):
    answer = httpx.post(service.url + path, content=body, timeout=60)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"]) == (status, type)
    assert said in error["message"]
    assert "\n" not in error["message"]
    assert len(error["message"]) < 300


def test_what_is_not_there_is_said_in_the_same_form(service):
    assert service.get("/v2/verify").json()["error"]["type"] == "not_found"
    wrong = service.get("/v1/verify")
    assert (wrong.status_code, wrong.json()["error"]["type"]) == (405, "method_not_allowed")
    assert wrong.headers["allow"] == "POST"


def test_a_request_keeps_the_id_it_came_with_in_answer_and_log(service):
    answer = service.post("/v1/score", TRIP, headers={"X-Request-Id": "mine-1"})
    assert answer.headers["x-request-id"] == "mine-1"
    (line,) = service.logged("request", request="mine-1")
    assert (line["status"], line["route"], line["solutions"], line["steps"]) == (200, "/v1/score", 1, 2)
    odd = service.post("/v1/score", TRIP, headers={"X-Request-Id": 'x"y {}'}).headers["x-request-id"]
    assert odd.isalnum()


def test_texts_are_logged_only_when_that_is_asked_for(service, start):
    service.post("/v1/verify", {**TRIP, "problem": "A secret puzzle"}, headers={"X-Request-Id": "quiet"})
    service.logged("request", request="quiet")
    assert "secret puzzle" not in "".join(service.lines)
    loud = start("serve.log_texts=true", "sandbox.kind=off")
    loud.post("/v1/verify", {**TRIP, "problem": "A secret puzzle"})
    (line,) = loud.logged("request", route="/v1/verify")
    assert line["texts"] == [{"id": "trip", "problem": "A secret puzzle", "steps": TRIP["steps"]}]


DOCS = (Path(__file__).parent.parent.parent / "docs" / "serving.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("command", [line[2:] for line in DOCS.splitlines() if line.startswith("$ curl")])
def test_every_example_of_the_docs_is_answered(service, command):
    words = shlex.split(command)
    url = next(word for word in words if word.startswith("localhost:8000")).replace("localhost:8000", service.url)
    data = words[words.index("-d") + 1].encode() if "-d" in words else None
    answer = httpx.request("GET" if data is None else "POST", url, content=data, timeout=60)
    assert answer.status_code == 200, answer.text
