"""From votes to a step's reward, and from step rewards to the solution's. Pure arithmetic.

A step without a usable vote has no reward: it is unscored, with the reason, and never a number in place of one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from .types import FailedVote, StepJudgment, Verdict, Vote

THRESHOLD = 0.5


def judge_step(
    index: int,
    text: str,
    votes: Sequence[Vote | FailedVote],
    threshold: float = THRESHOLD,
    calibrate: Callable[[float], float] | None = None,
    features: Mapping[str, float] | None = None,
) -> StepJudgment:
    """Reward = mean P(Yes) over the usable votes, calibrated where a calibration is given; verdict by `threshold`.

    A reward equal to the threshold is correct. A calibrated step keeps the mean it was made of as feature `p_yes`,
    beside the features of its evidence.
    """
    usable = tuple(vote for vote in votes if isinstance(vote, Vote))
    failed = tuple(vote for vote in votes if isinstance(vote, FailedVote))
    if not usable:
        reason = "; ".join(dict.fromkeys(vote.reason for vote in failed)) or "no vote was taken"
        return StepJudgment(
            index=index, text=text, reward=None, verdict="unscored", unscored_reason=reason, failed_votes=failed
        )
    mean = math.fsum(vote.p_yes for vote in usable) / len(usable)
    reward = mean if calibrate is None else calibrate(mean)
    verdict: Verdict = "correct" if reward >= threshold else "incorrect"
    return StepJudgment(
        index=index,
        text=text,
        reward=reward,
        verdict=verdict,
        features=None if calibrate is None and features is None else {"p_yes": mean, **(features or {})},
        votes=usable,
        failed_votes=failed,
    )


def first_error(steps: Sequence[StepJudgment]) -> int | None:
    """Index of the first incorrect step, -1 if every step is correct, None if an unscored step comes first."""
    for step in steps:
        if step.verdict == "incorrect":
            return step.index
        if step.verdict == "unscored":
            return None
    return -1


def joint(process: float | None, outcome: float | None, weight: float) -> float | None:
    """Process reward and outcome estimate as one: process^(1 - weight) * outcome^weight, the weighted geometric mean.

    Args:
        process: the aggregated step rewards.
        outcome: share of independent programs with the solution's answer.
        weight: 0 = the process alone, whatever is known of the outcome.

    Returns:
        A number in [0, 1]; None where one that counts is not known.
    """
    if weight == 0 or process is None:
        return process
    return None if outcome is None else process ** (1 - weight) * outcome**weight


def aggregate(rewards: Sequence[float | None], how: str) -> float | None:
    """The solution's reward; None where any step's is.

    Args:
        rewards: step rewards in [0, 1].
        how: `min`, `product`, `mean` or `last`.

    Raises:
        ValueError: no such aggregation.
    """
    known = [reward for reward in rewards if reward is not None]
    if how not in ("min", "product", "mean", "last"):
        raise ValueError(f"there is no aggregation {how!r}; there are min, product, mean, last")
    if not known or len(known) < len(rewards):
        return None
    if how == "min":
        return min(known)
    if how == "product":
        return math.prod(known)
    if how == "mean":
        return math.fsum(known) / len(known)
    return known[-1]
