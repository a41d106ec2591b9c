"""Batches that do not depend on timing: a batch starts when every open slot of an event loop waits for the engine.

While one critique's code runs or its text is being put together, its slot is open and not waiting, so the batch
waits for it. What is in a batch then follows from the input alone, and so do the numbers that a batch rounds to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from typing import Any, Generic, TypeVar

Request = TypeVar("Request")

# A finished critique closes its slot and lets the next one open its own within a few turns of the event loop; the
# batch is looked at again after this many turns.
SETTLE_TURNS = 25


@dataclass(slots=True)
class _Waiting(Generic[Request]):
    slot: int
    request: Request
    future: asyncio.Future[Any]


class LockStep(Generic[Request]):
    """Collects the requests of one event loop's slots and runs them as batches, one batch at a time."""

    def __init__(self, run: Callable[[Sequence[Request]], Sequence[Any]], executor: ThreadPoolExecutor):
        """Prepare.

        Args:
            run: answers one batch, in the executor's thread; an answer that is an exception is raised at its asker.
            executor: one thread, shared by all event loops.
        """
        self._run = run
        self._executor = executor
        self._open: set[int] = set()
        self._waiting: dict[int, _Waiting[Request]] = {}
        self._numbers = count()
        self._flush: asyncio.Task[None] | None = None

    def open(self) -> int:
        """Register a slot; returns its number, which fixes its place in batches."""
        number = next(self._numbers)
        self._open.add(number)
        return number

    def leave(self, slot: int) -> None:
        """The slot is done; batches no longer wait for it."""
        self._open.discard(slot)
        self._consider()

    async def ask(self, slot: int, request: Request) -> Any:
        """Wait for the answer to one request; a slot asks one thing at a time."""
        waiting = _Waiting(slot, request, asyncio.get_running_loop().create_future())
        self._waiting[slot] = waiting
        self._consider()
        try:
            return await waiting.future
        finally:
            if self._waiting.get(slot) is waiting:
                del self._waiting[slot]

    def _ready(self) -> bool:
        return bool(self._waiting) and len(self._waiting) == len(self._open)

    def _consider(self) -> None:
        if self._flush is None and self._ready():
            self._flush = asyncio.ensure_future(self._flush_when_settled())

    async def _flush_when_settled(self) -> None:
        try:
            while self._ready():
                for _ in range(SETTLE_TURNS):
                    await asyncio.sleep(0)
                if self._ready():
                    await self._run_batch()
        finally:
            self._flush = None

    async def _run_batch(self) -> None:
        batch = [self._waiting.pop(slot) for slot in sorted(self._waiting)]
        loop = asyncio.get_running_loop()
        try:
            answers = await loop.run_in_executor(self._executor, self._run, [item.request for item in batch])
        except BaseException as error:
            for item in batch:
                if not item.future.done():
                    item.future.set_exception(error)
            if not isinstance(error, Exception):
                raise
            return
        for item, answer in zip(batch, answers, strict=True):
            if item.future.done():
                continue
            if isinstance(answer, Exception):
                item.future.set_exception(answer)
            else:
                item.future.set_result(answer)
