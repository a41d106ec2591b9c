"""A bounded number of coroutines over a stream: results come as they are done, and little is read ahead.

Knows tasks, nothing of what they do.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable
from typing import Any, TypeVar

Item = TypeVar("Item")
Done = TypeVar("Done")


async def in_flight(
    items: Iterable[Item] | AsyncIterable[Item], start: Callable[[Item], Coroutine[Any, Any, Done]], most: int
) -> AsyncGenerator[Done, None]:
    """Run `start` on every item, `most` at once.

    No more items are read ahead than can be under way, so a long stream needs no more memory than a short one. What is
    done is handed over before a failure ends the stream. To be closed with `contextlib.aclosing`: what is then still
    under way is cancelled and waited for.
    """
    source = items.__aiter__() if isinstance(items, AsyncIterable) else _each(items)
    running: set[asyncio.Task[Done]] = set()
    exhausted = False
    try:
        while running or not exhausted:
            while not exhausted and len(running) < most:
                try:
                    item = await anext(source)
                except StopAsyncIteration:
                    exhausted = True
                    break
                running.add(asyncio.ensure_future(start(item)))
            if not running:
                break
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=lambda task: task.exception() is not None):
                yield task.result()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _each(items: Iterable[Item]) -> AsyncIterator[Item]:
    for item in items:
        yield item
