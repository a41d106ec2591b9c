"""Verdicts on prefixes of steps, each made once however many searches ask for it.

Knows verifiers; knows no tree. Searches that share this object share its table; processes share verdicts through the
verdict cache of the verifier.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from ..types import Solution, StepJudgment, Usage, VerificationResult
from ..verifier import GenPRM, Verifier

KEPT = 20_000
"""Prefixes whose verdicts stay in memory."""

_Key = tuple[str, tuple[str, ...], bool]
_Found = tuple[StepJudgment, ...]


class PrefixJudge:
    """Asks one verifier for the reward of a prefix's last step, or of all steps of a solution."""

    def __init__(self, verifier: Verifier):
        self.verifier = verifier
        self._known: OrderedDict[_Key, _Found] = OrderedDict()
        self._making: dict[tuple[int, _Key], asyncio.Future[None]] = {}

    @property
    def by_step(self) -> bool:
        """True where each step is judged with the steps before it alone, so that prefixes share their verdicts."""
        return isinstance(self.verifier, GenPRM) and self.verifier.judges_last_alone

    def knows(self, problem: str, steps: tuple[str, ...], *, whole: bool = False) -> bool:
        """Whether asking would cost nothing."""
        return (problem, steps, whole) in self._known

    async def last(self, problem: str, steps: tuple[str, ...]) -> tuple[_Found, Usage | None]:
        """The judgment of the last step, or none where judging ended before it; and its cost if it was made now."""

        async def make() -> VerificationResult:
            solution = Solution(id="", problem=problem, steps=steps)
            if isinstance(self.verifier, GenPRM):
                return await self.verifier.averify_last(solution)
            return await self.verifier.averify(solution)

        found, usage = await self._once((problem, steps, False), make)
        return tuple(step for step in found if step.index == len(steps) - 1), usage

    async def whole(self, problem: str, steps: tuple[str, ...]) -> tuple[_Found, Usage | None]:
        """The judgments of all steps in one go, and their cost if they were made now."""

        async def make() -> VerificationResult:
            return await self.verifier.averify(Solution(id="", problem=problem, steps=steps))

        return await self._once((problem, steps, True), make)

    async def _once(self, key: _Key, make: Callable[[], Awaitable[VerificationResult]]) -> tuple[_Found, Usage | None]:
        place = (id(asyncio.get_running_loop()), key)
        while True:
            if key in self._known:
                self._known.move_to_end(key)
                return self._known[key], None
            making = self._making.get(place)
            if making is None:
                break
            # Whoever makes it may be cancelled or fail; then the loop comes round and it is made here.
            await asyncio.wait([making])
        self._making[place] = done = asyncio.get_running_loop().create_future()
        try:
            result = await make()
            self._known[key] = result.steps
            while len(self._known) > KEPT:
                self._known.popitem(last=False)
            return result.steps, result.usage
        finally:
            del self._making[place]
            done.set_result(None)
