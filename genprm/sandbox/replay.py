"""Sessions for places that run whole programs only: each block is sent with the blocks before it.

The program carries the text of `inside/blocks.py`, so that a block behaves there as it does in the embedded
sandbox: earlier blocks silently, then the new one with its last value or its own frames' traceback.
"""

from __future__ import annotations

import asyncio
import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache

from ..types import CodeCheck
from .launch import INSIDE
from .limits import Limits
from .output import present

_EXIT_CODES = {40: "ok", 41: "error", 42: "memory"}
"""What the program ends with. Any other code means that the code ended the process itself: 0 too is no success."""

_DRIVER = """
def _host():
    import json, random, sys
    random.seed(0)
    history = json.loads({history!r})
    blocks = Blocks(sys.stdout)
    for earlier in history[:-1]:
        blocks.run(earlier, silent=True)
    status = blocks.run(history[-1])
    sys.stdout.flush()
    return {{OK: 40, ERROR: 41, MEMORY: 42}}[status]

raise SystemExit(_host())
"""


@cache
def _blocks_text() -> str:
    return (INSIDE / "blocks.py").read_text(encoding="utf-8")


def program(blocks: Sequence[str]) -> str:
    """One program that runs all blocks and shows the last; its exit code is the last block's status."""
    return _blocks_text() + _DRIVER.format(history=json.dumps(list(blocks)))


def status_of(exit_code: int | None) -> str:
    """The status that an exit code of `program` stands for."""
    return _EXIT_CODES.get(-1 if exit_code is None else exit_code, "died")


def result(source: str, status: str, raw: bytes, seconds: float, limits: Limits, note: str = "") -> CodeCheck:
    """A `CodeCheck` with the output as the model is shown it."""
    output = present(raw, limits, note=note)
    return CodeCheck.model_validate({"source": source, "status": status, "output": output, "seconds": seconds})


class Pool:
    """Threads made on first use, so that a sandbox can be opened before a fork of the process."""

    def __init__(self, workers: int):
        self.workers = workers
        self._lock = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None
        self._closed = False

    def submit(self, session: ReplaySession, source: str) -> Future[CodeCheck]:
        """Run one block in a thread."""
        with self._lock:
            if self._closed:
                done: Future[CodeCheck] = Future()
                done.set_result(_unavailable(source, "the sandbox is closed"))
                return done
            if self._executor is None:
                self._executor = ThreadPoolExecutor(self.workers, thread_name_prefix="genprm-sandbox")
            return self._executor.submit(session.step, source)

    def close(self) -> None:
        """Take no more work."""
        with self._lock:
            self._closed = True
            if self._executor is not None:
                self._executor.shutdown(wait=False, cancel_futures=True)


class ReplaySession(ABC):
    """A session whose state is the list of its earlier blocks."""

    def __init__(self, pool: Pool, limits: Limits):
        self._pool, self.limits = pool, limits
        self._history: list[str] = []
        self._lock = threading.Lock()
        self._closed = False

    async def run(self, source: str) -> CodeCheck:
        """Run one block after the blocks before it; never raises for what the code does."""
        return await asyncio.wrap_future(self._pool.submit(self, source))

    def run_sync(self, source: str) -> CodeCheck:
        """The same from plain threads, without an event loop."""
        return self._pool.submit(self, source).result()

    def close(self) -> None:
        """Nothing lives between blocks."""
        self._closed = True

    def step(self, source: str) -> CodeCheck:
        """One block, in the pool's thread."""
        with self._lock:
            if self._closed:
                return _unavailable(source, "the session is closed")
            check = self.execute([*self._history, source])
            if check.status in ("ok", "error"):
                self._history.append(source)
            return check

    @abstractmethod
    def execute(self, blocks: list[str]) -> CodeCheck:
        """Run the program of all blocks."""


def _unavailable(source: str, reason: str) -> CodeCheck:
    return CodeCheck(source=source, status="unavailable", output=f"[code execution failed: {reason}]", seconds=0.0)
