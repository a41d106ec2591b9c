"""A bounded number of coroutines over a stream, with gates in place of work."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from genprm.streaming import in_flight


def run(items, start, most):
    async def collect():
        async with aclosing(in_flight(items, start, most)) as results:
            return [result async for result in results]

    return asyncio.run(collect())


@pytest.mark.parametrize("most", [1, 3, 50])
def test_every_item_is_run_once_and_no_more_than_the_bound_at_once(most):
    running = peak = 0

    async def start(item):
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await asyncio.sleep(0)
        running -= 1
        return item * item

    assert sorted(run(range(20), start, most)) == [n * n for n in range(20)]
    assert peak == min(most, 20)


def test_items_may_come_asynchronously():
    async def items():
        for n in range(5):
            await asyncio.sleep(0)
            yield n

    async def start(item):
        return item

    assert sorted(run(items(), start, 2)) == [0, 1, 2, 3, 4]


def test_little_is_read_ahead():
    read = []

    def items():
        for n in range(100):
            read.append(n)
            yield n

    async def start(item):
        await asyncio.sleep(0)
        return item

    async def first():
        async with aclosing(in_flight(items(), start, 4)) as results:
            return await anext(results)

    asyncio.run(first())
    assert len(read) == 4


def test_what_is_done_comes_before_a_failure_and_the_rest_is_cancelled():
    cancelled = []

    async def start(item):
        if item == "slow":
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.append(item)
                raise
        if item == "bad":
            raise ValueError("bad")
        return item

    seen = []

    async def collect():
        async with aclosing(in_flight(["bad", "good", "slow"], start, 3)) as results:
            async for result in results:
                seen.append(result)  # noqa: PERF401  # a comprehension would lose what came before the failure

    with pytest.raises(ValueError, match="bad"):
        asyncio.run(collect())
    assert (seen, cancelled) == (["good"], ["slow"])
