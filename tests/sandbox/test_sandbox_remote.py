"""The `http` kind against our own service and against one that isolates nothing."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
import uvicorn

from genprm.errors import SandboxUnavailable
from genprm.sandbox import Limits, open_sandbox
from genprm.sandbox.embedded import EmbeddedSandbox
from genprm.sandbox.remote import HttpSandbox
from genprm.sandbox.service import create_app

LIMITS = Limits(cpu_seconds=1, wall_seconds=3, memory_mb=256, output_bytes=100_000)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with EmbeddedSandbox(LIMITS, cache_size=0) as sandbox:
        config = uvicorn.Config(create_app(sandbox), host="127.0.0.1", port=0, log_level="error")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run)
        thread.start()
        while not server.started:
            assert thread.is_alive()
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        server.should_exit = True
        thread.join()


@pytest.fixture
def sandbox(url: str) -> Iterator[HttpSandbox]:
    with HttpSandbox(url, LIMITS) as made:
        yield made


class Careless(BaseHTTPRequestHandler):
    """SandboxFusion as started by hand: a plain subprocess."""

    requests: list[dict[str, Any]]
    reply: dict[str, Any] | None = None

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.requests.append(request)
        answer = self.reply
        if answer is None:
            done = subprocess.run(
                [sys.executable, "-c", request["code"]], capture_output=True, text=True, timeout=30, check=False
            )
            run = {
                "status": "Finished" if done.returncode == 0 else "Error",
                "return_code": done.returncode,
                "stdout": done.stdout,
                "stderr": done.stderr,
                "execution_time": 0.1,
            }
            answer = {"status": "Success" if done.returncode == 0 else "Failed", "run_result": run}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def careless() -> Iterator[tuple[str, type[Careless]]]:
    handler = type("Handler", (Careless,), {"requests": [], "reply": None})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", handler
    server.shutdown()
    thread.join()
    server.server_close()


def test_blocks_share_state_over_http_and_sessions_do_not(sandbox):
    session, other = sandbox.open(), sandbox.open()
    assert session.run_sync("import math\nprint('noise')\nx = 20").output == "noise"
    assert session.run_sync("x + 1").output == "21"
    assert "NameError" in other.run_sync("x").output
    assert asyncio.run(session.run("math.sqrt(x + 5)")).output == "5.0"
    assert sandbox.level == "http"


@pytest.mark.parametrize(
    ("block", "status", "shown"),
    [
        ("from sympy import *\nx = symbols('x')\nsolve(x**2 - 4)", "ok", "[-2, 2]"),
        ("def f():\n    return 1 / 0\nf()", "error", 'File "<block 1>", line 2, in f'),
        ("while True: pass", "timeout", "[stopped: "),
        ("x = bytearray(1 << 40)", "memory", "[stopped: more than 256 MB of memory]"),
        ("import os\nos._exit(0)", "died", ""),
        ("while True: print('x' * 10000)", "output_limit", "bytes of output]"),
        ("open('/etc/passwd')", "error", "Error"),
        ("exit()", "ok", ""),
        ("raise SystemExit(2)", "error", ""),
    ],
)
def test_statuses_over_http_are_those_of_the_embedded_kind(sandbox, block, status, shown):
    check = sandbox.open().run_sync(block)
    assert check.status == status
    assert shown in check.output
    assert "genprm" not in check.output


def test_a_service_that_isolates_nothing_is_refused(careless):
    url, _ = careless
    with pytest.raises(SandboxUnavailable, match="lets through what it must refuse") as caught:
        open_sandbox("http", url=url)
    assert {"read_file", "write_file", "network", "fork", "execute"} <= set(caught.value.missing)


def test_a_trusted_service_gets_exactly_the_published_request(careless):
    url, handler = careless
    with open_sandbox("http", LIMITS, url=url, trust=True) as sandbox:
        assert sandbox.level == "http-unverified"
        session = sandbox.open()
        assert session.run_sync("x = 6").status == "ok"
        assert session.run_sync("x * 7").output == "42"
        request = handler.requests[-1]
        assert {key: value for key, value in request.items() if key != "code"} == {
            "language": "python",
            "run_timeout": 3.0,
            "memory_limit_MB": 256,
        }
        assert "x * 7" in request["code"]


@pytest.mark.parametrize(
    "reply",
    [
        {"status": "SandboxError", "message": "out of pods"},
        {"status": "Success"},
        {"status": "Success", "run_result": None},
        {"status": "Failed", "run_result": {"stdout": "x"}},
        {"detail": "no"},
    ],
)
def test_a_service_that_fails_makes_a_run_unavailable(careless, reply):
    url, handler = careless
    with open_sandbox("http", LIMITS, url=url, trust=True) as sandbox:
        handler.reply = reply
        session = sandbox.open()
        before = len(handler.requests)
        check = session.run_sync("1")
        assert check.status == "unavailable"
        assert len(handler.requests) == before + 2
        handler.reply = None
        assert session.run_sync("2").output == "2"


def test_no_service_is_one_clear_error():
    with pytest.raises(SandboxUnavailable, match=r"no sandbox answers at http://127\.0\.0\.1:9"):
        open_sandbox("http", url="http://127.0.0.1:9/")


def test_closed_sandboxes_and_sessions_answer_unavailable(sandbox):
    session = sandbox.open()
    session.close()
    assert session.run_sync("1").status == "unavailable"
    other = sandbox.open()
    sandbox.close()
    sandbox.close()
    assert other.run_sync("1").status == "unavailable"


def post(url: str, **request: Any) -> dict[str, Any]:
    response = httpx.post(f"{url}/run_code", json=request, timeout=30)
    assert response.status_code == 200
    answer: dict[str, Any] = response.json()
    return answer


def test_the_service_answers_in_the_published_shape(url):
    answer = post(url, code="import sys\nprint('out')\nprint('<|x|>')\n1 + 1", language="python")
    assert answer["status"] == "Success"
    assert answer["run_result"].pop("execution_time") > 0
    assert answer["run_result"] == {"status": "Finished", "return_code": 0, "stdout": "out\n<|x|>\n", "stderr": ""}
    assert set(answer) == {"status", "message", "compile_result", "run_result", "executor_pod_name", "files"}


@pytest.mark.parametrize(
    ("code", "status", "return_code"),
    [
        ("1 / 0", "Error", 1),
        ("raise SystemExit(7)", "Error", 7),
        ("import os\nos._exit(5)", "Error", 5),
        ("import os, signal\nsignal.raise_signal(11)", "Error", 139),
        ("x = bytearray(1 << 40)", "Error", 137),
        ("while True: print('x' * 10000)", "Error", 137),
        ("import time\ntime.sleep(60)", "TimeLimitExceeded", None),
    ],
)
def test_the_service_reports_failures_as_published(url, code, status, return_code):
    answer = post(url, code=code, run_timeout=1, memory_limit_MB=64)
    assert answer["status"] == "Failed"
    assert (answer["run_result"]["status"], answer["run_result"]["return_code"]) == (status, return_code)


@pytest.mark.parametrize(
    "request_",
    [
        {"code": "1", "language": "bash"},
        {"code": "1", "stdin": "x"},
        {"code": "1", "files": {"a": "eA=="}},
        {"code": "#" * 200_000},
    ],
)
def test_the_service_says_what_it_does_not_offer(url, request_):
    answer = post(url, **request_)
    assert answer["status"] == "SandboxError"
    assert answer["run_result"] is None
    assert answer["message"]


def test_the_service_tells_its_level(url):
    health = httpx.get(f"{url}/health").json()
    assert health["status"] == "ok"
    assert health["level"] in ("L3", "L2", "L1", "L1'")
    assert "seccomp" in health["layers"]
