"""Collecting evidence for a solution: as many programs as its verdict needs, and what they say of each step.

Knows the solver and the comparison. Programs are asked for in growing numbers while the verdict is open.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..config import EvidenceConfig
from ..types import Solution
from .programs import Program, Solver
from .support import SolutionSupport, support


class Evidence:
    """Collects what the config asks for."""

    def __init__(self, solver: Solver | None, settings: EvidenceConfig):
        """Prepare; without a solver there are equations only."""
        self._solver, self._settings = solver, settings

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
                return found, made
            count = min(2 * count, self._settings.programs)

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
