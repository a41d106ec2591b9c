"""A service whose parts are killed: its sandbox, its callers, and itself under load."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from genprm.sandbox import open_sandbox

from .test_load import at_once, expected, hang_up, numbered, told

CODE = {"problem": "p", "steps": ["1 + 1 = 2", "2 + 2 = 5"]}


def descendants(pid: int) -> list[int]:
    """Processes below a process."""
    parents = {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal():
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue  # it has ended meanwhile
    found: list[int] = []
    wave = {pid}
    while wave:
        wave = {child for child, parent in parents.items() if parent in wave}
        found += wave
    return found


@pytest.fixture(scope="module", autouse=True)
def confined():
    """What needs a sandbox says so where this machine gives none."""
    from genprm.errors import SandboxUnavailable

    try:
        open_sandbox("embedded").close()
    except SandboxUnavailable as error:
        pytest.skip(str(error))


def await_port(port: int) -> None:
    end = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            assert time.monotonic() < end
            time.sleep(0.05)


def test_a_killed_sandbox_is_made_anew_and_gives_no_verdict_meanwhile(start):
    service = start()
    before = service.post("/v1/verify", CODE).json()
    assert [step["verdict"] for step in before["steps"]] == ["correct", "incorrect"]
    for number in range(3):
        for pid in descendants(service.process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        # Other code, since results of code that ran are kept.
        body = {"problem": "p", "steps": [f"{number} + 10 = {number + 10}", f"{number} + 20 = {number}"]}
        answer = service.post("/v1/verify", body)
        assert answer.status_code in (200, 503)
        for step in answer.json().get("steps", []):
            if step["verdict"] == "unscored":
                assert "sandbox" in step["unscored_reason"]
            else:
                assert [check["status"] for check in step["votes"][0]["checks"]] == ["ok"]
    after = service.post("/v1/verify", {**CODE, "problem": "q"}).json()
    assert [step["verdict"] for step in after["steps"]] == ["correct", "incorrect"]


def test_a_sandbox_that_cannot_be_had_any_more_leaves_steps_unscored_with_the_reason(start):
    """The remote kind, whose service is killed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "genprm.cli", "sandbox", "serve", "--port", str(port)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as remote:
        try:
            await_port(port)
            service = start("sandbox.kind=http", f"sandbox.url=http://127.0.0.1:{port}")
            verdicts = [step["verdict"] for step in service.post("/v1/verify", CODE).json()["steps"]]
        finally:
            remote.kill()
    assert verdicts == ["correct", "incorrect"]
    body = {"problem": "p", "steps": ["3 + 3 = 6", "4 + 4 = 9"]}
    answer = service.post("/v1/verify", body)
    assert answer.status_code == 200
    for step in answer.json()["steps"]:
        assert (step["reward"], step["verdict"]) == (None, "unscored")
        assert "sandbox failed" in step["unscored_reason"]
    assert answer.json()["first_error"] is None
    pooled = service.post("/pooling", {"input": "p\n\n5 + 5 = 10<extra_0>"})
    assert (pooled.status_code, pooled.json()["error"]["type"]) == (422, "unscored")


def test_many_callers_that_leave_at_once_leave_nothing_behind(start):
    service = start("scripted.latency_seconds=30", "backend.max_in_flight=8", "sandbox.kind=off")
    gone: list[socket.socket] = [hang_up(service.url, "/v1/score", numbered(number)) for number in range(100)]
    service.until(lambda: sum(service.waiting()[key] for key in ("waiting", "in_flight")) == 100, 30)
    for connection in gone:
        connection.close()
    service.until(lambda: service.waiting() == {"waiting": 0, "in_flight": 0, "places": 1024}, 30)
    assert service.figure("genprm_solutions_cancelled_total") == 100
    service.until(lambda: service.figure("genprm_requests_in_flight") == 1)  # the question itself
    deadline = {"X-Request-Deadline": "0.2"}
    assert service.post("/v1/score", numbered(1), headers=deadline).status_code == 504


def test_sigterm_under_load_answers_all_that_came_before_and_refuses_the_rest(start):
    service = start("scripted.latency_seconds=0.05", "backend.max_in_flight=8", "sandbox.kind=off")

    async def scene() -> tuple[list[httpx.Response], list[int]]:
        under_way = asyncio.create_task(at_once(service.url, [numbered(number) for number in range(60)]))
        while sum(service.waiting()[key] for key in ("waiting", "in_flight")) < 60:
            await asyncio.sleep(0.02)
        service.terminate()
        late = []
        async with httpx.AsyncClient(base_url=service.url, timeout=60) as client:
            while not late or late[-1] == 200:
                late.append((await client.post("/v1/score", json=numbered(999))).status_code)
        return await under_way, late

    answers, late = asyncio.run(scene())
    assert [answer.status_code for answer in answers] == [200] * 60
    assert [told(answer.json()) for answer in answers] == [expected(number) for number in range(60)]
    assert late[-1] == 503
    assert service.end() == 0
    assert json.loads(service.lines[-1])["event"] == "ended"
