"""Rewards of one solution's steps as adapters need them, and what stands for a reward that is not there.

Pure values: knows results, no verifier. "Not judged" stays apart from every number until a caller's policy, which is
always named, puts one in its place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from ..aggregate import aggregate
from ..errors import BackendUnavailable, ConfigError, Unscored
from ..types import VerificationResult

UnscoredPolicy = Literal["raise"] | float | None
"""What stands for a step or solution without a reward: an error, the caller's own number, or None."""
STOPPED = "judging stopped at the first error (verify.early_stop)"
NO_STEPS = "the text has no steps"


class Asked(NamedTuple):
    """One solution to judge."""

    problem: str
    steps: tuple[str, ...]
    answer: str | None = None
    """Reference answer, where the outcome is wanted."""


@dataclass(frozen=True, slots=True)
class Rewards:
    """What is known of one solution's steps."""

    steps: tuple[float | None, ...]
    """One a step that was asked for, in [0, 1]; None = unscored."""
    reasons: dict[int, str] = field(default_factory=dict)
    """Why a step has no reward, by its index."""
    reward: float | None = None
    """The solution's reward as the verifier's own settings make it."""
    first_error: int | None = None
    """0-based; -1 = none; None = undecided."""
    outcome: bool | None = None
    """The answer compared with the reference; None = no reference, or undecided."""
    judged: int = 0
    """Steps that were judged; fewer than asked for where judging stopped at the first error."""

    @property
    def reason(self) -> str:
        """Why there is no reward, in one line."""
        return "; ".join(f"step {index}: {reason}" for index, reason in self.reasons.items()) or NO_STEPS

    def total(self, how: str | None) -> float | None:
        """The solution's reward.

        Args:
            how: `min`, `product`, `mean` or `last` over the judged steps; None = as the verifier's settings say.
        """
        return self.reward if how is None else aggregate(self.steps[: self.judged], how)


def rewards_of(result: VerificationResult, count: int) -> Rewards:
    """What a result says of each step that was asked for.

    Args:
        result: of one solution.
        count: how many steps the solution has.

    Raises:
        BackendUnavailable: the result has other steps.
    """
    judged = len(result.steps)
    if judged > count or (judged < count and not result.stopped_early):
        raise BackendUnavailable(f"the verifier gave {judged} rewards for {count} steps")
    reasons = {step.index: step.unscored_reason or "no reason is known" for step in result.steps if step.reward is None}
    return Rewards(
        steps=(*(step.reward for step in result.steps), *[None] * (count - judged)),
        reasons=reasons | dict.fromkeys(range(judged, count), STOPPED),
        reward=result.reward,
        first_error=result.first_error,
        outcome=None if result.outcome is None else result.outcome.correct,
        judged=judged,
    )


def decided(value: float | None, policy: UnscoredPolicy, where: str, reason: str) -> float | None:
    """The value, or what the policy puts in its place.

    Raises:
        Unscored: there is no value and the policy is `raise`; the message names the place and the reason.
    """
    if value is not None:
        return value
    if policy == "raise":
        raise Unscored(f"{where} is unscored: {reason}")
    return policy


def all_decided(rewards: Rewards, policy: UnscoredPolicy, where: str) -> list[float | None]:
    """Every step's reward, or what the policy puts in its place; raises as `decided` does."""
    return [
        decided(value, policy, f"{where}, step {index}", rewards.reasons.get(index, NO_STEPS))
        for index, value in enumerate(rewards.steps)
    ]


def check_policy(policy: object, *, none: bool = True) -> None:
    """Refuse what is no policy.

    Args:
        policy: the caller's.
        none: whether None is one here.

    Raises:
        ConfigError: it is none.
    """
    if policy == "raise" or (policy is None and none):
        return
    if isinstance(policy, bool) or not isinstance(policy, int | float):
        known = "'raise', a number" + (" or None" if none else "")
        raise ConfigError(f"unscored={policy!r} is not known: give {known}")


def check_aggregation(how: str | None) -> None:
    """Refuse an unknown aggregation before anything is judged.

    Raises:
        ConfigError: there is no such aggregation.
    """
    if how is not None:
        try:
            aggregate([], how)
        except ValueError as error:
            raise ConfigError(str(error)) from None


def blended(rewards: Rewards, how: str | None, outcome_weight: float) -> float | None:
    """(1 - w) * process + w * outcome, with the outcome as 1 or 0; None where a part that counts is not known."""
    process = rewards.total(how)
    if outcome_weight == 0:
        return process
    outcome = None if rewards.outcome is None else float(rewards.outcome)
    if outcome_weight == 1:
        return outcome
    return None if process is None or outcome is None else (1 - outcome_weight) * process + outcome_weight * outcome


def check_weight(weight: float) -> None:
    """Refuse a weight of the outcome outside [0, 1].

    Raises:
        ConfigError: it is outside.
    """
    if not 0 <= weight <= 1:
        raise ConfigError(f"outcome_weight={weight!r} is not between 0 and 1")
