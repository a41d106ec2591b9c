"""Where a solution leaves the way to the answer: the model finishes prefixes of it, found by bisection.

The programs of a problem say which answer is right; a rollout that continues a prefix of the solution reaches that
answer as long as the prefix is right, and hardly ever behind the first error. Bisecting over prefixes needs
ceil(log2(steps)) batches of rollouts (OmegaPRM, Luo et al. 2024, there with a reference answer and for training data).
It needs no number in the step that is wrong. Knows a policy by its two methods, and nothing of programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol as Seam

from ..types import Record, Solution
from .reading import read_value
from .values import Value, alike


class RolloutPoint(Record):
    """The rollouts from one prefix."""

    steps: int
    """Length of the prefix."""
    reached: int
    """Rollouts that came to the programs' answer."""
    known: int
    """Rollouts that ended with an answer at all."""
    answers: tuple[str | None, ...] = ()
    """Of all rollouts, as written; None = none, or unfinished."""


class Rollouts(Record):
    """What bisection found for one solution."""

    points: tuple[RolloutPoint, ...] = ()
    """In the order in which they were tried."""
    first_error: int | None = None
    """0-based; None = open: a prefix's rollouts all ended without an answer, or none from the problem alone came to
    the programs' answer, so that rollouts say nothing here."""
    completion_tokens: int = 0
    prompt_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Rollout:
    """One continuation: its final answer and what it cost."""

    answer: str | None
    completion_tokens: int = 0
    prompt_tokens: int = 0


class Continue(Seam):
    """Whatever finishes a prefix of a solution."""

    async def __call__(self, problem: str, steps: Sequence[str], *, n: int) -> Sequence[Rollout]:
        """`n` continuations."""
        ...


async def locate(solution: Solution, target: Value, roll: Continue, *, count: int, share: float = 0.0) -> Rollouts:
    """Bisect for the first step behind which rollouts no longer reach `target`.

    Args:
        solution: one whose own answer is not `target`.
        target: the answer that is taken for right.
        roll: continues prefixes.
        count: rollouts from each prefix that is tried.
        share: a prefix is right where more than this share of its rollouts reaches the target.

    Returns:
        The points tried; `first_error` is the step that ends the shortest prefix found wrong.
    """
    points: list[RolloutPoint] = []
    spent: list[Rollout] = []

    async def right_at(length: int) -> bool | None:
        rolled = await roll(solution.problem, solution.steps[:length], n=count)
        spent.extend(rolled)
        known = [read_value(one.answer) for one in rolled if one.answer is not None]
        reached = sum(alike(value, target) for value in known)
        answers = tuple(one.answer for one in rolled)
        points.append(RolloutPoint(steps=length, reached=reached, known=len(known), answers=answers))
        return reached > share * len(known) if known else None

    right, wrong = 0, len(solution.steps)  # lengths of prefixes
    found: bool | None = True
    while wrong - right > 1 and found is not None:
        middle = (right + wrong) // 2
        found = await right_at(middle)
        right, wrong = (middle, wrong) if found else (right, middle)
    if found is not None and right == 0:
        # The first step may be wrong, or the problem too hard for the policy from the start.
        found = await right_at(0) or None
    return Rollouts(
        points=tuple(points),
        first_error=None if found is None else wrong - 1,
        completion_tokens=sum(one.completion_tokens for one in spent),
        prompt_tokens=sum(one.prompt_tokens for one in spent),
    )
