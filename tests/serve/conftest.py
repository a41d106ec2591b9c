"""The service as a process of its own, on a real socket."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from report.conftest import browser, chromium

# A browser is shared with the report's tests.
__all__ = ["browser", "chromium"]


class Running:
    """`genprm serve`, with the scripted judge unless told otherwise, on a free port."""

    def __init__(
        self, *overrides: str, key: str | None = None, options: tuple[str, ...] = (), config: str = "scripted"
    ):
        words = [word for override in overrides for word in ("--set", override)]
        command = [sys.executable, "-m", "genprm.cli", "serve", "--config", config, "--port", "0", *words, *options]
        env = {name: value for name, value in os.environ.items() if name != "GENPRM_API_KEY"}
        if key is not None:
            env["GENPRM_API_KEY"] = key
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        self.lines: list[str] = []
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._ready.wait(60) or self.process.poll() is not None:
            self.process.kill()
            raise AssertionError(f"the service did not start: {self.lines}")
        self.url = next(line for line in self.log if line["event"] == "ready")["url"]

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if '"event": "ready"' in line:
                self._ready.set()
        self._ready.set()

    @property
    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]

    def logged(self, event: str, **fields: Any) -> list[dict[str, Any]]:
        """Lines of one event, waited for until there is one."""
        end = time.monotonic() + 10
        while time.monotonic() < end:
            wanted = {"event": event, **fields}
            found = [line for line in self.log if wanted.items() <= line.items()]
            if found:
                return found
            time.sleep(0.02)
        raise AssertionError(f"no line {event} {fields} in {self.log}")

    def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        return httpx.post(self.url + path, json=body, timeout=60, **options)

    def get(self, path: str, **options: Any) -> httpx.Response:
        return httpx.get(self.url + path, timeout=60, **options)

    def figure(self, name: str, **labels: str) -> float:
        """One number of `/metrics`; 0 where it is not counted yet."""
        inside = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
        wanted = name + (f"{{{inside}}}" if inside else "")
        for line in self.get("/metrics").text.splitlines():
            if line.startswith(wanted + " "):
                return float(line.rsplit(" ", 1)[1])
        return 0.0

    def waiting(self) -> dict[str, int]:
        return self.get("/health").json()["solutions"]

    def until(self, condition, seconds: float = 10) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "it did not come about"
            time.sleep(0.02)

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def end(self, seconds: float = 20) -> int:
        """Exit code after SIGTERM."""
        if self.process.poll() is None:
            self.terminate()
        try:
            code = self.process.wait(seconds)
        finally:
            self.process.kill()
        self._reader.join(10)
        self.process.stdout.close()
        self.process.stderr.close()
        return code


@pytest.fixture(scope="session")
def service() -> Iterator[Running]:
    """One service that tests share; none of them may change it."""
    running = Running()
    yield running
    assert running.end() == 0
    assert [line for line in running.log if line["level"] not in ("info",)] == []


@pytest.fixture
def start() -> Iterator[Any]:
    """Starts services of a test's own and ends them with it."""
    started: list[Running] = []

    def begin(*overrides: str, **options: Any) -> Running:
        started.append(Running(*overrides, **options))
        return started[-1]

    yield begin
    for running in started:
        running.end()
