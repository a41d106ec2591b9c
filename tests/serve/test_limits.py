"""Who may ask, how much, and where from."""

from __future__ import annotations

import socket

import httpx
import pytest

GOOD = {"problem": "p", "steps": ["1 + 1 = 2"]}


@pytest.fixture(scope="module")
def locked():
    from .conftest import Running

    running = Running("sandbox.kind=off", "serve.max_request_mb=0.5", key="s3cret-ü")
    yield running
    running.end()


def bearer(token: str) -> dict[bytes, bytes]:
    return {b"Authorization": f"Bearer {token}".encode()}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer("wrong"),
        {b"Authorization": b"Bearer"},
        bearer("s3cret"),
        bearer("s3cret-üü"),
        {b"Authorization": "Basic s3cret-ü".encode()},
        {b"Authorization": b"\xff\xfe"},
    ],
)
@pytest.mark.parametrize("path", ["/v1/verify", "/v1/score", "/v1/stream", "/pooling", "/worker_value_inference"])
def test_without_the_token_nothing_is_judged(locked, path, headers):
    answer = locked.post(path, GOOD, headers=headers)
    assert (answer.status_code, answer.json()["error"]["type"]) == (401, "unauthorized")
    assert answer.headers["www-authenticate"] == "Bearer"


def test_with_the_token_work_is_done_and_only_health_and_pages_are_open_to_all(locked):
    assert locked.post("/v1/score", GOOD, headers=bearer("s3cret-ü")).status_code == 200
    for path in ("/health", "/health/live", "/health/ready", "/", "/docs", "/openapi.json"):
        assert locked.get(path).status_code == 200
    for path in ("/metrics", "/v1/models", "/nowhere"):
        assert locked.get(path).status_code == 401
        assert locked.get(path, headers=bearer("s3cret-ü")).status_code in (200, 404)


def test_the_token_is_in_no_log_line(locked):
    locked.post("/v1/score", GOOD, headers=bearer("s3cret-ü"))
    locked.logged("request", route="/v1/score", status=200)
    assert "s3cret" not in "".join(locked.lines)


def test_a_long_body_is_refused_whether_it_says_its_length_or_not(locked):
    body = b'{"problem": "' + b"x" * 2_000_000 + b'"}'

    def pieces():
        for start in range(0, len(body), 50_000):
            yield body[start : start + 50_000]

    for content in (body, pieces()):
        answer = httpx.post(locked.url + "/v1/verify", content=content, headers=bearer("s3cret-ü"), timeout=30)
        assert (answer.status_code, answer.json()["error"]["type"]) == (413, "too_large")
        assert "524,288 bytes" in answer.json()["error"]["message"]


def test_a_caller_that_asks_before_sending_a_long_body_is_told_at_once(locked):
    host, port = locked.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        head = "POST /v1/verify HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 99999999\r\n"
        connection.sendall(head.encode() + "Authorization: Bearer s3cret-ü\r\n\r\n".encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 413")


def test_a_body_that_does_not_come_is_not_waited_for(start):
    service = start("serve.deadline_seconds=0.5", "sandbox.kind=off")
    host, port = service.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(b"POST /v1/verify HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{")
        assert connection.recv(1000).startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize("value", ["soon", "-1", "0", "nan", ""])
def test_a_deadline_that_is_no_time_is_refused(locked, value):
    headers = {**bearer("s3cret-ü"), b"X-Request-Deadline": value.encode()}
    answer = locked.post("/v1/score", GOOD, headers=headers)
    assert (answer.status_code, answer.json()["error"]["field"]) == (400, "X-Request-Deadline")


@pytest.mark.parametrize(
    ("site", "status"), [("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)]
)
def test_a_page_of_another_site_cannot_use_the_judge_through_a_browser(service, site, status):
    assert service.post("/v1/score", GOOD, headers={"Sec-Fetch-Site": site}).status_code == status


def test_it_listens_on_loopback_unless_told_otherwise(service):
    assert service.url.startswith("http://127.0.0.1:")


def test_another_address_without_a_token_is_warned_of(start):
    service = start("sandbox.kind=off", options=("--host", "0.0.0.0"))
    assert any("anyone who reaches" in line["event"] for line in service.log)


def test_a_taken_port_is_one_line_before_anything_is_loaded(service):
    import subprocess
    import sys

    port = service.url.rsplit(":", 1)[1]
    command = [sys.executable, "-m", "genprm.cli", "serve", "--config", "scripted", "--port", port]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1] == (
        f"genprm: cannot listen on 127.0.0.1 port {port}: Address already in use"
    )
    assert "Traceback" not in done.stderr
