"""The client against a real service, and against one that fails in every way."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import genprm
from genprm.client import AsyncClient, Client
from genprm.errors import BackendUnavailable, ConfigError, InputError
from genprm.types import Solution

from .test_routes import timeless


def solutions(count: int) -> list[Solution]:
    return [
        Solution(id=f"s{n}", problem=f"What is {n} + 1?", steps=(f"{n} + 1 = {n + 1}", f"{n} * 2 = {n}"), answer="1")
        for n in range(1, count + 1)
    ]


def test_results_are_those_of_the_local_verifier(service):
    given = solutions(40)
    with genprm.load("scripted") as judge, Client(service.url) as client:
        local = {result.id: timeless(result) for result in judge.verify_many(given)}
        served = {result.id: timeless(result) for result in client.verify_many(given)}
        assert served == local
        assert timeless(client.verify(given[0])) == local["s1"]


def test_rows_are_taken_as_they_stand_in_files(service):
    with Client(service.url) as client:
        result = client.verify({"question": "q", "response": "1 + 1 = 2\n\n1 + 1 = 3", "id": 7})
    assert (result.id, result.first_error) == ("7", 1)


def test_scores_come_alone_and_in_lists(service):
    given = solutions(3)
    with Client(service.url) as client:
        one, many = client.score(given[0]), client.score(given)
        assert client.score([]) == []
    assert [score.id for score in many] == ["s1", "s2", "s3"]
    assert one.rewards == many[0].rewards
    assert (one.first_error, one.unscored_reasons) == (1, {})


def test_the_asynchronous_client_takes_streams_of_both_kinds(service):
    async def later():
        for solution in solutions(5):
            await asyncio.sleep(0)
            yield solution

    async def run():
        async with AsyncClient(service.url, concurrency=2) as client:
            many = [result.id async for result in client.verify_many(later())]
            score = await client.score(solutions(1)[0])
            return sorted(many), score.id

    assert asyncio.run(run()) == (["s1", "s2", "s3", "s4", "s5"], "s1")


def test_little_is_read_ahead_and_leaving_early_stops_the_work(service):
    read = []

    def source():
        for solution in solutions(200):
            read.append(solution.id)
            yield solution

    with Client(service.url, concurrency=4) as client:
        for _ in client.verify_many(source()):
            break
    assert len(read) < 150


def test_a_full_queue_is_waited_for(start):
    options = ("serve.queue=2", "scripted.latency_seconds=0.02", "backend.max_in_flight=2", "sandbox.kind=off")
    service = start(*options)
    with Client(service.url, concurrency=8) as client:
        found = sorted(result.id for result in client.verify_many(solutions(12)))
    assert found == sorted(f"s{n}" for n in range(1, 13))
    assert service.figure("genprm_requests_total", method="POST", route="/v1/verify", status="429") > 0


def test_what_the_service_finds_wrong_is_an_input_error_with_the_field(service):
    with Client(service.url) as client:
        with pytest.raises(InputError, match="is empty") as caught:
            client.verify({"problem": "p", "steps": [""]})
        assert caught.value.field == "steps[0]"
        with pytest.raises(InputError, match="is empty") as caught:
            client.score([solutions(1)[0], {"problem": "p", "steps": ["a", ""]}])
        assert caught.value.field == "[1].steps[1]"


def test_a_missing_token_is_said(start, monkeypatch):
    service = start("sandbox.kind=off", key="k")
    monkeypatch.delenv("GENPRM_API_KEY", raising=False)
    with Client(service.url) as client, pytest.raises(ConfigError, match="GENPRM_API_KEY"):
        client.verify(solutions(1)[0])
    with Client(service.url, api_key="k") as client:
        assert client.verify(solutions(1)[0]).id == "s1"
    monkeypatch.setenv("GENPRM_API_KEY", "k")
    with Client(service.url) as client:
        assert client.verify(solutions(1)[0]).id == "s1"


def test_a_timeout_is_the_services_deadline_too(start):
    service = start("scripted.latency_seconds=30", "sandbox.kind=off")
    with Client(service.url, timeout=0.4) as client, pytest.raises(BackendUnavailable, match=r"0\.4 seconds"):
        client.verify(solutions(1)[0])
    service.until(lambda: service.waiting()["in_flight"] == 0)


@pytest.mark.parametrize("url", ["", "localhost:8000", "ftp://x", "http://", "http://[", "http://a b"])
def test_an_address_that_is_none_is_said_at_once(url):
    with pytest.raises(ConfigError, match="no address"):
        Client(url)


def test_a_service_that_is_not_there_is_said_after_the_last_attempt():
    with Client("http://127.0.0.1:9", retries=2, backoff=0.01) as client:
        with pytest.raises(BackendUnavailable, match=r"http://127\.0\.0\.1:9 cannot be reached") as caught:
            client.verify(solutions(1)[0])
        assert "\n" not in str(caught.value)


class Scripted:
    """Answers what a test wrote down, and notes when it was asked."""

    def __init__(self, *answers: tuple[int, dict[str, str], object]):
        self.times: list[float] = []
        waiting = list(answers)
        scripted = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                scripted.times.append(time.monotonic())
                status, headers, body = waiting.pop(0)
                if status == 0:
                    return
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                for name, value in {"Content-Length": str(len(data)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def scripted():
    made = []

    def make(*answers):
        made.append(Scripted(*answers))
        return made[-1]

    yield make
    for one in made:
        one.close()


SCORE = {"id": "0", "rewards": [0.5], "first_error": -1, "reward": 0.5, "aggregation": "min", "model": "m"}
BUSY = {"error": {"type": "queue_full", "message": "full"}}


def test_retry_after_is_honoured_before_the_clients_own_pauses(scripted):
    server = scripted((429, {"Retry-After": "1"}, BUSY), (503, {}, BUSY), (0, {}, b""), (200, {}, SCORE))
    with Client(server.url, backoff=0.01) as client:
        assert client.score(solutions(1)[0]).rewards == (0.5,)
    first, second, _, fourth = server.times
    assert second - first >= 1
    assert fourth - second < 1


def test_patience_has_an_end(scripted):
    server = scripted((429, {"Retry-After": "3600"}, BUSY))
    with Client(server.url, patience=5) as client, pytest.raises(BackendUnavailable, match="full"):
        client.score(solutions(1)[0])
    assert len(server.times) == 1


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (200, b"<html>", "no JSON"),
        (200, {"id": "0"}, "is no Score"),
        (404, b"nothing", "no genprm service"),
        (500, {"error": "text"}, "no genprm service"),
        (504, {"error": {"type": "deadline", "message": "not judged within 3 seconds"}}, "not judged within 3"),
    ],
)
def test_answers_that_are_no_results_are_said(scripted, status, body, said):
    server = scripted((status, {}, body))
    with Client(server.url) as client, pytest.raises(BackendUnavailable, match=said):
        client.score(solutions(1)[0])
    assert len(server.times) == 1
