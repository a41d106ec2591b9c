"""Each critique once: what is in the verdict cache is not written again, and what is being written is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from pydantic import TypeAdapter

from .cache import VerdictCache
from .types import Ballot, Vote

_VOTES = TypeAdapter(tuple[Vote, ...])


class Recall:
    """Votes by key, from the cache or from the one task that is making them."""

    def __init__(self, cache: VerdictCache | None):
        self.cache = cache
        self._making: dict[tuple[int, str], asyncio.Future[None]] = {}

    async def once(self, key: str, make: Callable[[], Awaitable[Sequence[Ballot]]]) -> tuple[Sequence[Ballot], bool]:
        """The ballots of one critique, and whether they were remembered.

        Failed ones are not kept: what failed may succeed the next time.
        """
        if self.cache is None:
            return await make(), False
        loop = asyncio.get_running_loop()
        place = (id(loop), key)
        while True:
            if (kept := self.cache.get(key)) is not None:
                return _VOTES.validate_json(kept), True
            making = self._making.get(place)
            if making is None:
                break
            # Whoever makes it may be cancelled or fail; then the loop comes round and it is made here.
            await asyncio.wait([making])
        self._making[place] = done = loop.create_future()
        try:
            ballots = await make()
            votes = tuple(ballot for ballot in ballots if isinstance(ballot, Vote))
            if len(votes) == len(ballots):
                self.cache.put(key, _VOTES.dump_json(votes).decode())
            return ballots, False
        finally:
            del self._making[place]
            done.set_result(None)
