"""Training rows kept, weighed or ranked by the reward of the solutions in them.

Knows rewards and which rows to take; reading, judging and writing are done elsewhere. A row without a reward is never
among the others: it goes to a file of its own with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..config import Config
from ..errors import UsageError
from ..evaluation.run import Row, judge_into, read_results
from ..types import VerificationResult
from ..verifier import Verifier
from .rewards import Rewards, rewards_of
from .rows import TrainingRow, write_training_rows


@dataclass(frozen=True, slots=True)
class Selection:
    """Which scored rows are written and what is added to them; at most one of these is set."""

    min_reward: float | None = None
    """Rows with at least this reward."""
    top_fraction: float | None = None
    """The best of the scored rows, so many that they are at least this share; of equals the earlier ones."""
    weights: bool = False
    """All rows, with `weight` = reward / mean reward: weights have the mean 1."""
    rank: bool = False
    """All rows, the best first, with `genprm_rank` from 1; equals in the order of the input."""

    def check(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            UsageError: several are asked for, or a number is out of range.
        """
        asked = [self.min_reward is not None, self.top_fraction is not None, self.weights, self.rank]
        if sum(asked) > 1:
            raise UsageError("give one of --min-reward, --top-fraction, --weights and --rank")
        if self.min_reward is not None and not 0 <= self.min_reward <= 1:
            raise UsageError(f"--min-reward {self.min_reward:g}: rewards lie between 0 and 1")
        if self.top_fraction is not None and not 0 < self.top_fraction <= 1:
            raise UsageError(f"--top-fraction {self.top_fraction:g}: give a share above 0 and up to 1")

    def pick(self, rewards: Sequence[float]) -> list[tuple[int, dict[str, Any]]]:
        """Positions of the rows to write, in the order of writing, each with fields to add.

        Raises:
            UsageError: weights are asked for, and every reward is 0.
        """
        every = range(len(rewards))
        best = sorted(every, key=lambda place: -rewards[place])
        if self.min_reward is not None:
            return [(place, {}) for place in every if rewards[place] >= self.min_reward]
        if self.top_fraction is not None:
            # Rounded before it is raised, so that 0.07 of 100 rows are 7.
            count = math.ceil(round(self.top_fraction * len(rewards), 6))
            return [(place, {}) for place in sorted(best[:count])]
        if self.rank:
            return [(place, {"genprm_rank": position + 1}) for position, place in enumerate(best)]
        if self.weights and rewards:
            mean = math.fsum(rewards) / len(rewards)
            if mean == 0:
                raise UsageError("every row has the reward 0: they cannot be weighed")
            return [(place, {"weight": rewards[place] / mean}) for place in every]
        return [(place, {}) for place in every]


def judge_rows(
    rows: Sequence[TrainingRow], verifier: Verifier, config: Config, results: Path, advance: Callable[[], None]
) -> list[Rewards]:
    """Judge rows whose results the file does not hold yet; a killed run goes on where it ended.

    Args:
        rows: what to judge.
        verifier: judges.
        config: whose digest the results carry.
        results: file of result objects.
        advance: called for each row that is done.

    Returns:
        One entry a row, in order.

    Raises:
        UsageError: the file holds results of other settings or of other solutions.
    """
    wanted = [Row("", row.solution) for row in rows]
    judge_into(results, wanted, verifier, config, advance)
    found: dict[str, Rewards] = {}
    for row, result in read_results(wanted, results):
        _check_same(row.solution.steps, result, results)
        found[result.id] = rewards_of(result, len(row.solution.steps))
    return [found[row.solution.id] for row in rows]


def write_filtered(
    output: Path,
    unscored: Path,
    rows: Sequence[TrainingRow],
    judged: Sequence[Rewards],
    selection: Selection,
    sources: Sequence[str] = (),
) -> dict[str, Any]:
    """Write the chosen rows, and beside them the rows without a reward.

    Args:
        output: for the chosen rows; Parquet, JSON or JSON Lines by its ending.
        unscored: JSON Lines for the rows without a reward; removed where there are none.
        rows: all rows.
        judged: what is known of each.
        selection: which to write.
        sources: the files that the rows come from.

    Returns:
        Counts: `rows`, `scored`, `unscored`, `kept`, `dropped`, and `mean_reward` of the scored and of the kept.
    """
    if selection.weights and any("weight" in row.raw for row in rows):
        raise UsageError("the rows have a field 'weight' already: rename it, or filter without --weights")
    scored = [(row, rewards) for row, rewards in zip(rows, judged, strict=True) if rewards.reward is not None]
    lost = [(row, rewards) for row, rewards in zip(rows, judged, strict=True) if rewards.reward is None]
    values = [rewards.reward for _, rewards in scored if rewards.reward is not None]
    picked = selection.pick(values)
    write_training_rows(
        output, ({**scored[place][0].raw, **_fields(scored[place][1]), **more} for place, more in picked), sources
    )
    if lost:
        write_training_rows(
            unscored,
            ({**row.raw, **_fields(rewards), "genprm_unscored_reason": rewards.reason} for row, rewards in lost),
        )
    else:
        unscored.unlink(missing_ok=True)
    return {
        "rows": len(rows),
        "scored": len(scored),
        "unscored": len(lost),
        "kept": len(picked),
        "dropped": len(scored) - len(picked),
        "mean_reward": _mean(values),
        "kept_mean_reward": _mean([values[place] for place, _ in picked]),
    }


def _fields(rewards: Rewards) -> dict[str, Any]:
    return {
        "genprm_reward": rewards.reward,
        "genprm_step_rewards": list(rewards.steps),
        "genprm_first_error": rewards.first_error,
    }


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _check_same(steps: Sequence[str], result: VerificationResult, results: Path) -> None:
    """Results are found by id, so a row that was edited since would get the old one's reward."""
    if len(result.steps) > len(steps) or any(step.text != steps[step.index] for step in result.steps):
        raise UsageError(f"{results} holds other steps for the row {result.id!r}: remove the file, or give another -o")
