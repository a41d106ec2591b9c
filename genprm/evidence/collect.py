"""Collecting evidence for a solution: as many programs as its verdict needs, and what they say of each step.

Knows the solver and the comparison. Programs are asked for in growing numbers while the verdict is open; prefixes are
rolled out only where the programs do not reach the solution's answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..config import EvidenceConfig
from ..types import Solution
from .programs import Program, Solver
from .rollouts import Continue, locate
from .support import SolutionSupport, support

LEADERS = 2
"""Programs that must share an answer before prefixes are measured by it."""


class Evidence:
    """Collects what the config asks for."""

    def __init__(self, solver: Solver | None, settings: EvidenceConfig, roll: Continue | None = None):
        """Prepare; without a solver there are equations only, and without `roll` no rollouts."""
        self._solver, self._settings, self._roll = solver, settings, roll

    async def collect(self, solution: Solution) -> tuple[SolutionSupport, Sequence[Program]]:
        """What is known of a solution, and the programs that were written for it now.

        It depends on the solution and the settings alone, not on which other solutions of the problem were judged
        before: their programs are taken over in the same order in which they would have been written.
        """
        if self._solver is None:
            return self._support(solution, ()), []
        made: list[Program] = []
        count = min(self._settings.first, self._settings.programs)
        while True:
            programs, fresh = await self._solver.programs(solution.problem, count)
            made += fresh
            found = self._support(solution, programs)
            if count >= self._settings.programs or settled(found):
                return await self._rolled(solution, found), made
            count = min(2 * count, self._settings.programs)

    async def _rolled(self, solution: Solution, found: SolutionSupport) -> SolutionSupport:
        leading = found.leading
        if self._roll is None or not found.disputed or len(leading) < LEADERS or leading[0].answer is None:
            return found
        settings = self._settings
        rollouts = await locate(
            solution, leading[0].answer, self._roll, count=settings.rollouts, share=settings.rollout_share
        )
        return found.model_copy(update={"rollouts": rollouts})

    def _support(self, solution: Solution, programs: Sequence[Program]) -> SolutionSupport:
        found = support(solution, programs)
        if self._settings.equations:
            return found
        steps = tuple(step.model_copy(update={"equations": ()}) for step in found.steps)
        return found.model_copy(update={"steps": steps})


def settled(found: SolutionSupport) -> bool:
    """Whether further programs can hardly change the verdict: two at least ran, and all reach the solution's answer.

    Where they disagree with the solution more are wanted, since it is their variables that tell the step.
    """
    return found.ran >= 2 and found.agree == 1.0
