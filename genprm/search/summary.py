"""How often each way to choose a solution is right, over all problems of a run that have a reference answer."""

from __future__ import annotations

from typing import Any

from ..evaluation.stats import RESAMPLES, Interval, bootstrap
from ..report.parts import Table
from .result import SearchResult

WAYS = ("pick", "majority", "weighted_majority", "random", "oracle")


class Accuracies:
    """Collects results one at a time; memory grows by a few numbers a problem."""

    def __init__(self) -> None:
        self.problems = 0
        self.unfinished = 0
        self.tokens = 0
        self.judgements = 0
        self._right: dict[str, list[float]] = {way: [] for way in WAYS}
        self._referenced = 0

    def add(self, result: SearchResult) -> None:
        """Count one result."""
        self.problems += 1
        self.unfinished += result.pick is None or not result.pick.finished
        self.tokens += result.usage.policy_completion_tokens + result.usage.judge_completion_tokens
        self.judgements += result.counts.judged
        if result.correct is None:
            return
        self._referenced += 1
        for way in WAYS:
            value = getattr(result.correct, way)
            if value is not None:
                self._right[way].append(float(value))

    def summary(self, *, seed: int = 0, resamples: int = RESAMPLES) -> dict[str, Any]:
        """Counts, and for each way its accuracy with a 95 % interval over problems.

        A problem whose answer could not be compared is left out of that way's figure: `n` says how many count.
        """
        ways: dict[str, Any] = {}
        for way, values in self._right.items():
            interval = _interval(values, seed, resamples)
            ways[way] = {"accuracy": interval.value, "ci": interval.as_list(), "n": len(values)}
        return {
            "problems": self.problems,
            "with_reference": self._referenced,
            "pick_unfinished": self.unfinished,
            "completion_tokens": self.tokens,
            "judgements": self.judgements,
            "accuracy": ways if self._referenced else None,
        }


def _interval(values: list[float], seed: int, resamples: int) -> Interval:
    if not values:
        return Interval(None)
    import numpy as np

    known = np.array(values)
    return bootstrap(len(values), lambda at: float(known[at].mean()), seed=seed, resamples=resamples)


def summary_table(summary: dict[str, Any]) -> Table:
    """The accuracies as a table."""
    rows = [
        (way.replace("_", " "), found["accuracy"], *found["ci"], found["n"])
        for way, found in (summary["accuracy"] or {}).items()
    ]
    note = f"{summary['problems']} problems, {summary['with_reference']} with a reference answer"
    if summary["pick_unfinished"]:
        note += f"; {summary['pick_unfinished']} picks are unfinished"
    return Table("Accuracy", ["chosen by", "accuracy", "95 % from", "to", "problems"], rows, note)
