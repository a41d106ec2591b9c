"""Several OpenAI-style servers behind one service: shared load, a killed one left out, and its return."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

SCRIPT = Path(__file__).parent / "little_server.py"
BODY = {"problem": "p", "steps": ["a", "b", "c", "d"]}


class Little:
    """One little server, killed and started again on its port."""

    def __init__(self, seconds: float = 0.0, model: str = "big"):
        self.seconds, self.port = seconds, 0
        self.start(model)

    def start(self, model: str = "big") -> None:
        command = [sys.executable, str(SCRIPT), str(self.port), str(self.seconds), model]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def count(self) -> int:
        return httpx.get(f"http://127.0.0.1:{self.port}/count").json()


@pytest.fixture
def little() -> Iterator:
    """Starts little servers and ends them with the test."""
    made: list[Little] = []

    def make(**options) -> Little:
        made.append(Little(**options))
        return made[-1]

    yield make
    for server in made:
        if server.process.poll() is None:
            server.kill()


def in_front_of(start, *servers: Little, health: float = 0.2):
    urls = ", ".join(server.url for server in servers)
    return start(
        f"backend.base_url=[{urls}]", f"backend.health_seconds={health}", "backend.retries=2",
        "backend.backoff_seconds=0.05", "verify.mode=direct", "sandbox.kind=off", "model=auto", config="openai",
    )  # fmt: skip


def states(service) -> list[bool]:
    return [server["up"] for server in service.get("/health").json()["servers"]]


def test_two_servers_share_the_work_and_a_killed_one_is_left_out_until_it_returns(start, little):
    one, two = little(), little()
    service = in_front_of(start, one, two)
    service.until(lambda: states(service) == [True, True])
    for _ in range(10):
        assert service.post("/v1/score", BODY).status_code == 200
    assert min(one.count, two.count) >= 10

    two.kill()
    answers = [service.post("/v1/score", BODY) for _ in range(5)]
    assert [answer.status_code for answer in answers] == [200] * 5
    service.until(lambda: states(service) == [True, False])
    ready = service.get("/health/ready")
    assert (ready.status_code, ready.json()["reason"]) == (200, None)
    left_out = service.get("/health").json()["servers"][1]
    assert left_out["url"] == two.url
    assert "connection failed" in left_out["reason"]
    assert service.figure("genprm_server_up", server=one.url) == 1
    assert service.figure("genprm_server_up", server=two.url) == 0
    asked = service.figure("genprm_server_requests_total", server=two.url)
    for _ in range(5):
        assert service.post("/v1/score", BODY).status_code == 200
    assert service.figure("genprm_server_requests_total", server=two.url) == asked

    two.start()
    service.until(lambda: states(service) == [True, True])
    for _ in range(10):
        service.post("/v1/score", BODY)
    assert two.count >= 5
    for server in (one, two):
        assert service.figure("genprm_server_in_flight", server=server.url) == 0


def test_a_dead_engine_is_503_at_once_and_its_return_is_noticed_without_a_request(start, little):
    engine = little()
    service = in_front_of(start, engine)
    assert service.post("/v1/score", BODY).status_code == 200
    engine.kill()
    service.until(lambda: service.get("/health/ready").status_code == 503)
    begin = time.monotonic()
    for path, body in (("/v1/score", BODY), ("/v1/verify", BODY), ("/pooling", {"input": "p\n\na<extra_0>"})):
        answer = service.post(path, body)
        assert (answer.status_code, answer.json()["error"]["type"]) == (503, "unavailable")
        assert answer.headers["retry-after"] == "5"
    assert time.monotonic() - begin < 10
    assert "none of the engine's servers (1) answers" in service.get("/health").json()["reason"]
    engine.start()
    service.until(lambda: service.get("/health/ready").status_code == 200)
    assert service.post("/v1/score", BODY).status_code == 200
    assert service.waiting()["in_flight"] == 0


def test_an_engine_that_dies_in_the_middle_of_a_call_is_503_and_no_verdict(start, little):
    engine = little(seconds=30.0)
    service = in_front_of(start, engine)
    import threading

    answers: list[httpx.Response] = []
    caller = threading.Thread(target=lambda: answers.append(service.post("/v1/score", BODY)))
    caller.start()
    service.until(lambda: service.figure("genprm_server_in_flight", server=engine.url) == 4)
    engine.kill()
    caller.join(30)
    assert (answers[0].status_code, answers[0].json()["error"]["type"]) == (503, "unavailable")
    assert service.waiting() == {"waiting": 0, "in_flight": 0, "places": 1024}


def test_a_server_that_comes_back_with_another_model_stays_out(start, little):
    one, two = little(), little()
    service = in_front_of(start, one, two)
    two.kill()
    two.start(model="small")
    service.until(lambda: "serves small" in (service.get("/health").json()["servers"][1]["reason"] or ""))
    asked = two.count
    assert [service.post("/v1/score", BODY).status_code for _ in range(5)] == [200] * 5
    assert two.count == asked


def test_without_checks_failures_alone_take_a_server_out(start, little):
    one, two = little(), little()
    service = in_front_of(start, one, two, health=0)
    two.kill()
    assert [service.post("/v1/score", BODY).status_code for _ in range(5)] == [200] * 5
    assert states(service) == [True, True]
    assert service.figure("genprm_server_failures_total", server=two.url) >= 1


def test_the_servers_addresses_are_for_callers_with_the_token(start, little):
    service = start(f"backend.base_url={little().url}", "model=auto", "sandbox.kind=off", config="openai", key="k")
    (server,) = service.get("/health").json()["servers"]
    assert "url" not in server
    (server,) = service.get("/health", headers={"Authorization": "Bearer k"}).json()["servers"]
    assert server["url"].startswith("http://127.0.0.1:")


def test_an_engine_that_runs_here_has_no_servers(service):
    assert service.get("/health").json()["servers"] == []
    assert "genprm_server" not in service.get("/metrics").text
