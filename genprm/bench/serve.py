"""The service under load: share of the least time, latencies, lost answers, and memory over a long run.

The service runs in a process of its own with the scripted engine at 20 ms a call, so that the limit is known: seats
over the seconds of a critique. The caller here is a bare HTTP client, since what is measured is the service's own
work. Each answer must carry the marker of its own solution.
"""

from __future__ import annotations

import asyncio
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .figure import figure
from .http import message

CALL_SECONDS = 0.02
CALLS_A_STEP = 3
"""The scripted engine is asked for a claim, for code and for a label."""
SEATS = 64
CALLERS = 500
STEPS = 3
SOAK_CALLERS = 256
WARM_SHARE = 0.2
"""Part of a soak after which memory is looked at: pools and caches fill at first."""

Memory = list[tuple[float, float]]
"""Seconds since the beginning, MiB."""


@dataclass(slots=True)
class Load:
    """What came back from one stretch of load."""

    seconds: list[float] = field(default_factory=list)
    """Of each answered request."""
    refused: int = 0
    failed: int = 0
    mixed: int = 0
    """Answers to another solution than was asked about."""
    late: int = 0
    """Requests of a steady load that found no free caller at their time."""

    def book(self, number: int, seconds: float, answer: tuple[int, bytes] | None) -> None:
        """Count one answer; None = the connection broke."""
        if answer is None or answer[0] not in (200, 429):
            self.failed += 1
        elif answer[0] == 429:
            self.refused += 1
        else:
            row = json.loads(answer[1])
            if row["id"] != f"marker-{number}" or len(row["rewards"]) != STEPS:
                self.mixed += 1
            self.seconds.append(seconds)

    def details(self) -> dict[str, Any]:
        """The counts, and latencies in milliseconds."""
        shares = statistics.quantiles(self.seconds, n=100) if len(self.seconds) > 1 else [0.0] * 99
        return {
            "answered": len(self.seconds),
            "refused": self.refused,
            "failed": self.failed,
            "mixed": self.mixed,
            "p50_ms": round(1000 * shares[49]),
            "p99_ms": round(1000 * shares[98]),
        }

    @property
    def sound(self) -> bool:
        """Nothing was lost or mixed."""
        return self.failed == self.mixed == 0


class _Connection(asyncio.Protocol):
    """One kept-alive connection that asks one thing at a time."""

    def __init__(self) -> None:
        self._data = b""
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        if (found := message(self._data)) is not None and self._answer is not None and not self._answer.done():
            head, body, self._data = found
            self._answer.set_result((int(head[9:12]), body))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionError("closed"))

    async def ask(self, number: int) -> tuple[int, bytes]:
        """Have one solution scored."""
        assert self._transport is not None
        steps = [f"{number} + {k} = {number + k}" for k in range(STEPS)]
        body = json.dumps({"id": f"marker-{number}", "problem": f"Problem {number}", "steps": steps}).encode()
        self._answer = asyncio.get_running_loop().create_future()
        head = f"POST /v1/score HTTP/1.1\r\nHost: bench\r\nContent-Length: {len(body)}\r\n\r\n"
        self._transport.write(head.encode() + body)
        return await self._answer

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.close()


@contextmanager
def scripted_service(*overrides: str, config: str = "scripted") -> Iterator[tuple[str, int, int]]:
    """A service in a process of its own: host, port and process id. Ended by SIGTERM, as a supervisor would."""
    words = [word for override in overrides for word in ("--set", override)]
    command = [sys.executable, "-m", "genprm.cli", "serve", "--config", config, "--port", "0", *words]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as file, subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=file) as process:
            try:
                host, port = _address(process, log)
                yield host, port, process.pid
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(60)


def _address(process: subprocess.Popen[bytes], log: Path) -> tuple[str, int]:
    end = time.monotonic() + 120
    while time.monotonic() < end and process.poll() is None:
        for line in log.read_text().splitlines():
            if '"event": "ready"' in line:
                host, _, port = json.loads(line)["url"].removeprefix("http://").rpartition(":")
                return host, int(port)
        time.sleep(0.05)
    raise RuntimeError(f"the service did not start: {log.read_text()[-500:]}")


@asynccontextmanager
async def _callers(host: str, port: int, count: int) -> AsyncIterator[list[_Connection]]:
    loop = asyncio.get_running_loop()
    connections = [(await loop.create_connection(_Connection, host, port))[1] for _ in range(count)]
    try:
        yield connections
    finally:
        for connection in connections:
            connection.close()


async def _full(host: str, port: int, seconds: float, callers: int) -> tuple[Load, float]:
    """As much as the service takes for some seconds: every caller asks again as soon as it is answered."""
    load, number = Load(), 0
    async with _callers(host, port, callers) as connections:
        await asyncio.gather(*(connection.ask(-1 - place) for place, connection in enumerate(connections[:SEATS])))
        begin = time.perf_counter()

        async def call(connection: _Connection) -> None:
            nonlocal number
            while number < callers or time.perf_counter() - begin < seconds:
                number += 1
                await _one(connection, number, load)

        await asyncio.gather(*(call(connection) for connection in connections))
        return load, time.perf_counter() - begin


async def _steady(
    host: str, port: int, pid: int, seconds: float, rate: float
) -> tuple[Load, list[tuple[float, float]]]:
    """Requests at an even rate; also (seconds, MiB) of the service's memory, once a second."""
    load = Load()
    memory: Memory = []
    tasks: set[asyncio.Task[None]] = set()
    async with _callers(host, port, SOAK_CALLERS) as connections:
        free = list(connections)

        async def call(number: int) -> None:
            connection = free.pop()
            await _one(connection, number, load)
            free.append(connection)

        begin, sent = time.perf_counter(), 0
        while (now := time.perf_counter() - begin) < seconds:
            if not memory or now - memory[-1][0] >= 1:
                memory.append((now, rss_mb(pid)))
            due = int(now * rate) - sent
            load.late += max(due - len(free), 0)
            for number in range(sent, sent + min(due, len(free))):
                task = asyncio.ensure_future(call(number))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            sent += due
            await asyncio.sleep(1 / rate)
        await asyncio.gather(*tasks)
        memory.append((time.perf_counter() - begin, rss_mb(pid)))
    return load, memory


async def _one(connection: _Connection, number: int, load: Load) -> None:
    start = time.perf_counter()
    answer = None
    with suppress(ConnectionError):
        answer = await connection.ask(number)
    load.book(number, time.perf_counter() - start, answer)
    if answer is None:
        raise RuntimeError(f"the service closed a connection at request {number}")
    if answer[0] == 429:
        await asyncio.sleep(0.1)


def bench_serve(*, seconds: float = 10.0, callers: int = CALLERS) -> list[dict[str, Any]]:
    """Critiques that `callers` at once get in some seconds, beside the most that the seats allow."""
    overrides = (f"scripted.latency_seconds={CALL_SECONDS}", f"backend.max_in_flight={SEATS}", "sandbox.kind=off")
    with scripted_service(*overrides) as (host, port, _):
        load, took = asyncio.run(_full(host, port, seconds, callers))
    least = len(load.seconds) * STEPS * CALLS_A_STEP * CALL_SECONDS / SEATS
    result = figure(
        "serve",
        least / took,
        0.8,
        "at least",
        ours_seconds=took,
        other_seconds=least,
        runs=len(load.seconds),
        unit="of the limit",
        callers=callers,
        requests_per_second=round(len(load.seconds) / took, 1),
        critiques_per_second=round(len(load.seconds) * STEPS / took, 1),
        **load.details(),
    )
    result["ok"] = result["ok"] and load.sound
    return [result]


def bench_soak(seconds: float, *, share: float = 0.5, most_mb: float = 20.0) -> list[dict[str, Any]]:
    """Memory of a service that works for long at a share of the limit.

    Args:
        seconds: how long.
        share: of the limit.
        most_mb: how much more memory it may hold at the end than once it is warm.
    """
    overrides = (f"scripted.latency_seconds={CALL_SECONDS}", f"backend.max_in_flight={SEATS}", "sandbox.kind=off")
    rate = share * SEATS / (STEPS * CALLS_A_STEP * CALL_SECONDS)
    with scripted_service(*overrides) as (host, port, pid):
        load, memory = asyncio.run(_steady(host, port, pid, seconds, rate))
    warm = [(at, size) for at, size in memory if at >= WARM_SHARE * seconds]
    slope = statistics.linear_regression(*zip(*warm, strict=True)).slope if len(warm) > 1 else 0.0
    result = figure(
        "serve_soak",
        warm[-1][1] - warm[0][1],
        most_mb,
        "at most",
        ours_seconds=memory[-1][0],
        other_seconds=seconds,
        runs=len(load.seconds),
        unit="MiB more",
        requests_per_second=round(rate, 1),
        rss_start_mb=round(memory[0][1], 1),
        rss_warm_mb=round(warm[0][1], 1),
        rss_end_mb=round(memory[-1][1], 1),
        rss_slope_mb_per_hour=round(3600 * slope, 2),
        late=load.late,
        **load.details(),
    )
    result["ok"] = result["ok"] and load.sound
    return [result]


def rss_mb(pid: int) -> float:
    """Resident memory of a process now, in MiB.

    Raises:
        RuntimeError: this system has no /proc.
    """
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        raise RuntimeError("memory of another process can be read on Linux only")
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 2**10
