"""Labels by programs: written from the problem alone, executed, and only those that reach the reference answer count.

The first wrong step is that of the rule in `genprm.evidence.rule`: the first one whose last computed value no such
program holds, or with a false equality. Independent of how a solution came to be, so fit to check another method.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from ..backends.base import Backend
from ..config import Config
from ..evidence.programs import Program, Solver
from ..evidence.reading import read_value
from ..evidence.rule import first_wrong
from ..evidence.support import support
from ..evidence.values import alike
from ..prompting import load_protocol
from ..sandbox import open_sandbox
from ..types import Solution


class ProgramLabels:
    """Writes a problem's programs once and labels its solutions by them."""

    def __init__(self, backend: Backend, config: Config, count: int, seed: int):
        """Prepare; owns a sandbox until `close`.

        Args:
            backend: whose model writes the programs.
            config: its settings: those of `evidence` and `sandbox` are used.
            count: programs for a problem.
            seed: of their sampling.
        """
        limits = config.sandbox
        self._sandbox = open_sandbox(
            limits.kind, limits, url=limits.url, workers=limits.workers, level=limits.level, trust=limits.trust
        )
        self._backend, self._count = backend, count
        seats = asyncio.Semaphore(config.backend.max_in_flight)
        protocol = load_protocol(config.evidence.protocol)
        self._solver = Solver(backend, self._sandbox, protocol, config.evidence, seats=seats, seed=seed)

    async def first_error(self, solution: Solution) -> tuple[int | None, str]:
        """The first wrong step (-1 = none), or None and why."""
        if solution.answer is None:
            return None, "no reference answer"
        async with self._backend.work():
            programs, _ = await self._solver.programs(solution.problem, self._count)
        if programs and all(program.status == "unavailable" for program in programs):
            return None, "the programs could not be run"
        return judge(solution, programs)

    def close(self) -> None:
        """End the sandbox."""
        self._sandbox.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def judge(solution: Solution, programs: Sequence[Program]) -> tuple[int | None, str]:
    """The first wrong step by the programs that reach the solution's reference answer, or None and why.

    Args:
        solution: with its reference answer.
        programs: of its problem.
    """
    reference = None if solution.answer is None else read_value(solution.answer)
    good = [program for program in programs if alike(reference, program.answer)]
    if not good:
        return None, "no program reaches the reference answer"
    found = support(solution, good)
    if found.agree is None:
        return None, "the solution states no answer"
    return first_wrong(found), ""
