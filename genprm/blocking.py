"""Blocking calls on top of an asynchronous verifier.

They run an event loop in a thread of their own, so they also work inside a running loop, as in a notebook. Knows
nothing of how solutions are judged.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Coroutine, Iterable, Iterator
from types import TracebackType
from typing import Any, Self, TypeVar

from .config import Config
from .types import Solution, VerificationResult

T = TypeVar("T")


class Blocking(ABC):
    """Base of verifiers: they write `averify`, `astream` and `close`, and get the blocking forms."""

    def __init__(self, config: Config):
        self.config = config
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    @abstractmethod
    async def averify(self, solution: Solution) -> VerificationResult:
        """Judge one solution."""

    @abstractmethod
    def astream(self, solutions: Iterable[Solution]) -> AsyncGenerator[VerificationResult, None]:
        """Judge a stream of solutions; results come as they are done, and little is read ahead."""

    @abstractmethod
    def close(self) -> None:
        """Free what the verifier holds, and end the loop; safe to call twice."""

    def verify(self, solution: Solution) -> VerificationResult:
        """Judge one solution and wait for it."""
        return self._run(self.averify(solution))

    def verify_many(self, solutions: Iterable[Solution]) -> Iterator[VerificationResult]:
        """Judge a stream of solutions; results come as they are done. Leaving the loop early stops the work."""
        results: queue.Queue[VerificationResult | BaseException | None] = queue.Queue(self.config.backend.max_in_flight)
        left = threading.Event()

        async def produce() -> None:
            async def put(item: VerificationResult | BaseException | None) -> None:
                while not left.is_set():
                    try:
                        results.put_nowait(item)
                        return
                    except queue.Full:
                        await asyncio.sleep(0.01)

            stream = self.astream(solutions)
            try:
                async for result in stream:
                    await put(result)
                    if left.is_set():
                        break
                await put(None)
            except Exception as error:
                await put(error)
            finally:
                await stream.aclose()

        future = asyncio.run_coroutine_threadsafe(produce(), self._ensure_loop())
        try:
            while (item := results.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            left.set()
            future.cancel()

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._ensure_loop()).result()

    def _ensure_loop(self) -> asyncio.AbstractEventLoop:
        with self._starting:  # two threads may ask for the first time at once
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="genprm-loop", daemon=True)
                self._thread.start()
            return self._loop

    def _end_loop(self) -> None:
        """Cancel what runs in the loop and end its thread."""
        if self._loop is not None and self._thread is not None:
            self._run(_cancel_others())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._loop = self._thread = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


async def _cancel_others() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
