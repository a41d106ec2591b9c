"""One judged solution as the metrics see it: numbers only, so that a whole benchmark fits in memory.

Knows results, no benchmark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..types import VerificationResult


@dataclass(frozen=True, slots=True)
class Judged:
    """What a metric needs of a result."""

    id: str
    subset: str
    label: int | None
    """Gold first error, 0-based; -1 = none; None = not known."""
    rewards: tuple[float | None, ...]
    """One a judged step; None = unscored. Shorter than `steps` where judging stopped at the first error."""
    steps: int
    """Steps that the solution has."""
    prediction: int | None
    """First error found; -1 = none; None = undecided."""
    reward: float | None
    completion_tokens: int
    code_runs: int
    seconds: float

    @classmethod
    def of(cls, result: VerificationResult, *, subset: str, label: int | None, steps: int) -> Judged:
        """The numbers of a result."""
        return cls(
            id=result.id,
            subset=subset,
            label=label,
            rewards=tuple(step.reward for step in result.steps),
            steps=steps,
            prediction=result.first_error,
            reward=result.reward,
            completion_tokens=result.usage.completion_tokens,
            code_runs=result.usage.code_runs,
            seconds=result.usage.seconds,
        )

    def at(self, threshold: float) -> int | None:
        """The first error that another threshold would have found."""
        for index, reward in enumerate(self.rewards):
            if reward is None:
                return None
            if reward < threshold:
                return index
        return -1 if len(self.rewards) == self.steps else None


def step_evidence(
    rows: Sequence[Judged], features: Sequence[Sequence[Mapping[str, float] | None]]
) -> list[dict[str, float]] | None:
    """Evidence of the steps that `labelled_steps` gives, in its order; None where none was collected.

    Args:
        rows: judged rows.
        features: of each row's judged steps, as results hold them.
    """
    found: list[dict[str, float]] = []
    for row, inside in zip(rows, features, strict=True):
        if row.label is None:
            continue
        known = row.rewards if row.label < 0 else row.rewards[: row.label + 1]
        for reward, one in zip(known, inside, strict=False):
            if reward is not None:
                found.append({name: value for name, value in (one or {}).items() if name != "p_yes"})
    return found if any(found) else None


def labelled_steps(rows: Sequence[Judged]) -> tuple[list[int], list[float], list[int]]:
    """Every scored step whose gold verdict is known.

    Steps before the first error are right and the first error is wrong; what comes after it has no gold verdict.

    Returns:
        For each step: the row's position in `rows`, the reward, and 1 for right or 0 for wrong.
    """
    owners: list[int] = []
    scores: list[float] = []
    truths: list[int] = []
    for position, row in enumerate(rows):
        if row.label is None:
            continue
        known = row.rewards if row.label < 0 else row.rewards[: row.label + 1]
        for index, reward in enumerate(known):
            if reward is not None:
                owners.append(position)
                scores.append(reward)
                truths.append(int(index != row.label))
    return owners, scores, truths
