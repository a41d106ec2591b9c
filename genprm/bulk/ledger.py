"""What driver, reader and workers agree on: which chunks are under way, and what is known of each.

It outlives workers, so that a row's attempts are counted and finished rows kept when the process that judged them
ends. It holds a bounded number of chunks: the driver waits while so many are unfinished. Knows numbers and bytes
only; an actor is made of it, but it runs in any event loop.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Entry:
    rows: bytes
    tries: int = 0
    kept: dict[int, bytes] = field(default_factory=dict)
    charges: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Start:
    """What a worker is told when it takes up a chunk."""

    tries: int
    """1 for the first worker that takes it up."""
    kept: dict[int, bytes]
    """Results of rows, by their place in the chunk, that an earlier worker finished."""
    charges: dict[int, int]
    """Attempts at rows that were judged alone."""


class Ledger:
    """Chunks by number, from 0 without gaps."""

    def __init__(self, window: int):
        """Keep at most `window` unfinished chunks."""
        self._window = window
        self._open: dict[int, _Entry] = {}
        self._taken = 0
        self._closed = False
        self._changed = asyncio.Condition()

    async def put(self, rows: bytes) -> int:
        """Take in a chunk as soon as there is room; returns its number."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self._open) < self._window)
            number = self._taken
            self._open[number] = _Entry(rows)
            self._taken += 1
            self._changed.notify_all()
        return number

    async def close(self) -> None:
        """No more chunks will come."""
        async with self._changed:
            self._closed = True
            self._changed.notify_all()

    async def get(self, number: int) -> bytes | None:
        """A chunk's rows as soon as they are there; empty where it is finished, None behind the last one."""
        async with self._changed:
            await self._changed.wait_for(lambda: number < self._taken or self._closed)
        if number >= self._taken:
            return None
        entry = self._open.get(number)
        return b"" if entry is None else entry.rows

    async def begin(self, number: int) -> Start | None:
        """A worker takes up a chunk; None where it is finished already."""
        entry = self._open.get(number)
        if entry is None:
            return None
        entry.tries += 1
        return Start(entry.tries, dict(entry.kept), dict(entry.charges))

    async def keep(self, number: int, row: int, result: bytes) -> None:
        """A row is finished, though its chunk is not."""
        entry = self._open.get(number)
        if entry is not None:
            entry.kept[row] = result

    async def charge(self, number: int, row: int) -> None:
        """An attempt at a row begins; whatever ends it, it counts."""
        entry = self._open.get(number)
        if entry is not None:
            entry.charges[row] = entry.charges.get(row, 0) + 1

    async def finish(self, number: int) -> None:
        """The driver has a chunk's outcome."""
        async with self._changed:
            self._open.pop(number, None)
            self._changed.notify_all()

    async def state(self) -> tuple[int, int]:
        """How many chunks were taken in, and how many of them are unfinished."""
        return self._taken, len(self._open)
