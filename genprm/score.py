"""Rewards of a judged solution without its critiques.

Knows how a result becomes a score; what `/v1/score` answers and what the client returns.
"""

from __future__ import annotations

from pydantic import Field

from .types import Record, Usage, VerificationResult


class Score(Record):
    """What the steps of one solution are worth."""

    id: str
    rewards: tuple[float | None, ...]
    """One a judged step, in order; None = unscored."""
    unscored_reasons: dict[int, str] = Field(default_factory=dict)
    """Why a step has no reward, by its 0-based index."""
    first_error: int | None
    """0-based; -1 = no step is wrong; None = undecided because an earlier step is unscored."""
    stopped_early: bool = False
    """True where steps after the first error were not judged; they have no entry in `rewards`."""
    reward: float | None
    aggregation: str
    model: str
    usage: Usage = Usage()

    @classmethod
    def of(cls, result: VerificationResult) -> Score:
        """The score that a result holds."""
        return cls(
            id=result.id,
            rewards=tuple(step.reward for step in result.steps),
            unscored_reasons={
                step.index: step.unscored_reason or "no reason is known" for step in result.steps if step.reward is None
            },
            first_error=result.first_error,
            stopped_early=result.stopped_early,
            reward=result.reward,
            aggregation=result.aggregation,
            model=result.model,
            usage=result.usage,
        )
