"""Final answers of candidate solutions: which are the same, and what a vote over them says.

Answers are the same where genprm/outcome.py takes them for equal; what it cannot decide is not the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from pydantic import Field

from ..outcome import compare
from ..types import Record


class VotedAnswer(Record):
    """The answer with the most weight."""

    answer: str
    weight: float
    """Its votes, or the sum of the rewards behind it."""
    share: float = Field(ge=0, le=1)
    """Of the weight of all answers."""


async def grouped(answers: Sequence[str | None]) -> list[str | None]:
    """Each answer in the spelling of the first one that equals it; None stays None.

    Raises:
        UnavailableError: the comparing process does not start.
    """
    return await asyncio.to_thread(_grouped, list(answers))


def _grouped(answers: list[str | None]) -> list[str | None]:
    spellings: list[str] = []
    found: list[str | None] = []
    for answer in answers:
        if answer is None:
            found.append(None)
            continue
        same = next((one for one in spellings if one == answer or compare(answer, one)), None)
        if same is None:
            spellings.append(answer)
        found.append(same or answer)
    return found


def vote(answers: Sequence[str | None], weights: Sequence[float | None]) -> VotedAnswer | None:
    """The answer with the most weight, of equals the one that came first; None where no answer has any weight.

    Args:
        answers: equal answers in one spelling; None has no vote.
        weights: one an answer; None = not known, which has no vote either.
    """
    totals: dict[str, float] = {}
    for answer, weight in zip(answers, weights, strict=True):
        if answer is not None and weight is not None:
            totals[answer] = totals.get(answer, 0.0) + weight
    everything = sum(totals.values())
    if everything <= 0:
        return None
    top = max(totals, key=lambda answer: totals[answer])
    return VotedAnswer(answer=top, weight=totals[top], share=min(totals[top] / everything, 1.0))


async def is_correct(answer: str | None, reference: str) -> bool | None:
    """Whether an answer equals the reference: False where there is none, None where it cannot be decided."""
    return False if answer is None else await asyncio.to_thread(compare, answer, reference)
