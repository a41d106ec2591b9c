"""Working on many rows at once without losing one.

Knows nothing of rows: it runs a bounded number of tasks over a stream, ends all of them when one fails, and reads no
further ahead than it works.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")


async def each(items: Iterable[Item], work: Callable[[Item], Awaitable[None]], in_flight: int) -> None:
    """Work on every item, at most `in_flight` at once, in the order of the stream.

    Raises:
        Exception: the first failure of `work`; what was under way is cancelled.
    """
    running: set[asyncio.Task[None]] = set()

    try:
        for item in items:
            if len(running) >= in_flight:
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            running.add(asyncio.create_task(_run(work, item)))
        for finished in asyncio.as_completed(running):
            await finished
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _run(work: Callable[[Item], Awaitable[None]], item: Item) -> None:
    await work(item)
