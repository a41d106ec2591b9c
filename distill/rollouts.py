"""Rollouts: a policy finishes prefixes of solutions, and the share that reaches the reference answer is MC(t).

Knows the policy by one method and the grader; knows no labels. Rollouts come in waves, so that they can stop once what
is asked of them is settled; each wave's seed hangs on the run's seed, the problem, the prefix and the wave alone.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..policy import Draft
from .config import LabelConfig
from .grading import Grader, stated_answer
from .rules import Question, monte_carlo, rollout_count
from .store import row_seed

KEPT_PROBLEMS = 5_000
"""Problems whose pass rates stay in memory."""


class Writer(Protocol):
    """Whoever finishes a solution; see `genprm.policy.Policy`."""

    async def complete(self, problem: str, steps: Sequence[str] = (), *, n: int, seed: int | None) -> list[Draft]:
        """`n` solutions that begin with `steps`."""
        ...


@dataclass(slots=True)
class Point:
    """The rollouts from one prefix."""

    step: int
    """The prefix's length; 0 = the problem alone."""
    planned: int = 0
    """K."""
    answers: list[str | None] = field(default_factory=list)
    """As written; None = none, or unfinished."""
    right: int = 0
    known: int = 0
    """Rollouts whose answer could be compared."""
    tokens: int = 0

    @property
    def value(self) -> float | None:
        """MC(t)."""
        return monte_carlo(self.right, self.known)

    def as_row(self) -> dict[str, Any]:
        """What a label row holds of it."""
        return {
            "step": self.step,
            "answers": self.answers,
            "right": self.right,
            "known": self.known,
            "n": len(self.answers),
            "planned": self.planned,
            "tokens": self.tokens,
        }


class Roller:
    """Draws rollouts and keeps each problem's pass rate."""

    def __init__(self, policy: Writer, grader: Grader, settings: LabelConfig, seed: int, *, whole_rate: bool):
        """Prepare.

        Args:
            policy: writes.
            grader: compares.
            settings: how many rollouts.
            seed: the run's.
            whole_rate: draw all K for the pass rate too, for rules that divide by it; else only enough to choose K.
        """
        self._policy, self._grader, self._settings, self._seed = policy, grader, settings, seed
        self._whole_rate = whole_rate or settings.exact
        self._problems: OrderedDict[tuple[str, str], asyncio.Task[Point]] = OrderedDict()

    async def pass_rate(self, problem: str, reference: str) -> Point:
        """MC(0), drawn once for all solutions of a problem: `planned` of it is K by a first estimate."""
        key = (problem, reference)
        task = self._problems.get(key)
        if task is None:
            task = self._problems[key] = asyncio.create_task(self._pass_rate(problem, reference))
            while len(self._problems) > KEPT_PROBLEMS:
                self._problems.popitem(last=False)
        return await asyncio.shield(task)

    async def _pass_rate(self, problem: str, reference: str) -> Point:
        settings = self._settings
        point = Point(0)
        await self._wave(point, problem, (), reference, settings.first_rollouts)
        point.planned = rollout_count(point.value, settings.rollouts)
        if self._whole_rate:
            await self._fill(point, problem, (), reference, None)
        return point

    async def prefix(
        self, problem: str, steps: Sequence[str], reference: str, planned: int, question: Question
    ) -> Point:
        """Rollouts from the given first steps, until `question` is settled or `planned` are drawn."""
        point = Point(len(steps), planned)
        await self._fill(point, problem, steps, reference, None if self._settings.exact else question)
        return point

    async def _fill(
        self, point: Point, problem: str, steps: Sequence[str], reference: str, question: Question | None
    ) -> None:
        bound = self._settings.stop_bound
        while (drawn := len(point.answers)) < point.planned:
            if drawn and question is not None and question.settled(point.right, point.known, point.planned, bound):
                return
            count = min(max(drawn, self._settings.wave), point.planned - drawn)
            await self._wave(point, problem, steps, reference, count)

    async def _wave(self, point: Point, problem: str, steps: Sequence[str], reference: str, count: int) -> None:
        # By the text of the prefix, not by the row: the same prefix of two solutions gives the same rollouts.
        seed = row_seed(self._seed, "rollout", problem, *steps, len(point.answers))
        drafts = await self._policy.complete(problem, steps, n=count, seed=seed)
        answers = [stated_answer(draft.steps) if draft.finished else None for draft in drafts]
        for draft, answer in zip(drafts, answers, strict=True):
            verdict = await self._grader.answer(answer, reference)
            point.answers.append(answer)
            point.tokens += draft.completion_tokens
            point.known += verdict is not None
            point.right += verdict is True
