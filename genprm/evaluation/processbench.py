"""The official ProcessBench metric, per subset and on average, with what else there is to say of step rewards.

Error accuracy: share of rows with an error whose first error is found at its exact index. Correct accuracy: share of
rows without one in which none is found. F1: their harmonic mean (Zheng et al. 2024, arXiv 2412.06559, section 3). An
undecided row counts as missed. The threshold stays 0.5; a sweep over thresholds is an oracle and is named so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .rows import Judged, labelled_steps
from .stats import RESAMPLES, Interval, auroc, bootstrap, brier, ece, harmonic_mean

if TYPE_CHECKING:
    import numpy as np


def metrics(
    rows: Sequence[Judged], *, threshold: float = 0.5, oracle: bool = False, seed: int = 0, resamples: int = RESAMPLES
) -> dict[str, Any]:
    """All figures of a run.

    Args:
        rows: with `label` known.
        threshold: what the verdicts were made with; it is only stated.
        oracle: adds the F1 at the best threshold for each subset, chosen on the labels themselves.
        seed: of the bootstrap.
        resamples: of the bootstrap.

    Returns:
        `subsets` by name, `average_f1` (mean over subsets) with its interval, and `threshold`. Shares lie in [0, 1].
    """
    by_subset: dict[str, list[Judged]] = {}
    for row in rows:
        by_subset.setdefault(row.subset, []).append(row)
    subsets = {
        name: _subset(inside, oracle=oracle, seed=seed, resamples=resamples) for name, inside in by_subset.items()
    }
    scores = [subset["f1"] for subset in subsets.values()]
    known = [score for score in scores if score is not None]
    average = sum(known) / len(known) if known and len(known) == len(scores) else None
    return {
        "subsets": subsets,
        "average_f1": average,
        "average_f1_ci": _average(list(by_subset.values()), seed, resamples).as_list() if average is not None else None,
        "threshold": threshold,
    }


def f1(rows: Sequence[Judged]) -> tuple[float | None, float | None, float | None]:
    """Error accuracy, correct accuracy, and F1 of some rows; None where a kind of row is missing."""
    error = [row.prediction == row.label for row in rows if row.label is not None and row.label >= 0]
    right = [row.prediction == -1 for row in rows if row.label == -1]
    error_accuracy = sum(error) / len(error) if error else None
    correct_accuracy = sum(right) / len(right) if right else None
    return error_accuracy, correct_accuracy, harmonic_mean(error_accuracy, correct_accuracy)


def _subset(rows: Sequence[Judged], *, oracle: bool, seed: int, resamples: int) -> dict[str, Any]:
    import numpy as np

    error_accuracy, correct_accuracy, score = f1(rows)
    wrong, hit = _arrays(rows)
    count = len(rows)
    owners, scores, truths = labelled_steps(rows)
    steps = _StepResampler(owners, scores, truths, count)
    n_error = int(np.sum(wrong))
    found: dict[str, Any] = {
        "n": count,
        "n_error": n_error,
        "n_correct": count - n_error,
        "error_accuracy": error_accuracy,
        "error_accuracy_ci": bootstrap(count, lambda at: _mean(hit[at][wrong[at]]), seed=seed, resamples=resamples),
        "correct_accuracy": correct_accuracy,
        "correct_accuracy_ci": bootstrap(count, lambda at: _mean(hit[at][~wrong[at]]), seed=seed, resamples=resamples),
        "f1": score,
        "f1_ci": bootstrap(count, lambda at: _f1_at(wrong, hit, at), seed=seed, resamples=resamples),
        "undecided": sum(row.prediction is None for row in rows),
        "steps": sum(len(row.rewards) for row in rows),
        "unscored_steps": sum(reward is None for row in rows for reward in row.rewards),
        "labelled_steps": len(truths),
        "auroc": auroc(truths, scores),
        "auroc_ci": bootstrap(count, steps.auroc, seed=seed, resamples=resamples),
        "brier": brier(truths, scores),
        "brier_ci": bootstrap(count, steps.brier, seed=seed, resamples=resamples),
        "ece": ece(truths, scores),
        "completion_tokens_per_solution": _mean(np.array([row.completion_tokens for row in rows])),
        "code_runs_per_solution": _mean(np.array([row.code_runs for row in rows])),
        "seconds_per_solution": _mean(np.array([row.seconds for row in rows])),
    }
    if oracle:
        found["oracle"] = _oracle(rows)
    return {key: value.as_list() if isinstance(value, Interval) else value for key, value in found.items()}


def _average(subsets: Sequence[Sequence[Judged]], seed: int, resamples: int) -> Interval:
    """The mean F1 over subsets; each subset is resampled by itself."""
    import numpy as np

    arrays = [_arrays(rows) for rows in subsets]
    random = np.random.default_rng(seed)
    drawn = []
    for _ in range(resamples):
        scores = [_f1_at(wrong, hit, random.integers(0, len(wrong), len(wrong))) for wrong, hit in arrays]
        known = [score for score in scores if score is not None]
        if len(known) == len(scores):
            drawn.append(sum(known) / len(known))
    value = sum(_f1_at(wrong, hit, np.arange(len(wrong))) or 0.0 for wrong, hit in arrays) / len(arrays)
    if len(drawn) < 0.9 * resamples:
        return Interval(value)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Interval(value, float(low), float(high))


def _arrays(rows: Sequence[Judged]) -> tuple[np.ndarray, np.ndarray]:
    """Which rows hold an error, and which predictions are exactly right; both bool of shape [rows]."""
    import numpy as np

    return np.array([row.label != -1 for row in rows]), np.array([row.prediction == row.label for row in rows])


def _f1_at(wrong: np.ndarray, hit: np.ndarray, at: np.ndarray) -> float | None:
    return harmonic_mean(_mean(hit[at][wrong[at]]), _mean(hit[at][~wrong[at]]))


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if len(values) else None


def _oracle(rows: Sequence[Judged]) -> dict[str, float | None]:
    """The best F1 that any threshold gives: an upper bound that knows the labels, never a result."""
    candidates = sorted({reward for row in rows for reward in row.rewards if reward is not None})
    best: tuple[float, float | None] = (-1.0, None)
    # At most 400 thresholds: between them the F1 hardly moves.
    for threshold in [*candidates[:: max(len(candidates) // 400, 1)], 1.0 + 1e-9]:
        error = [row.at(threshold) == row.label for row in rows if row.label != -1]
        right = [row.at(threshold) == -1 for row in rows if row.label == -1]
        if error and right:
            score = harmonic_mean(sum(error) / len(error), sum(right) / len(right))
            if score is not None and score > best[0]:
                best = (score, threshold)
    return {"f1": best[0] if best[1] is not None else None, "threshold": best[1]}


class _StepResampler:
    """Step metrics of resampled rows: a row is drawn with all its steps."""

    def __init__(self, owners: Sequence[int], scores: Sequence[float], truths: Sequence[int], count: int):
        import numpy as np

        self._scores, self._truths = np.array(scores), np.array(truths)
        self._steps = [np.flatnonzero(np.array(owners) == row) for row in range(count)]

    def _drawn(self, at: np.ndarray) -> np.ndarray:
        import numpy as np

        return np.concatenate([self._steps[row] for row in at]).astype(int)

    def auroc(self, at: np.ndarray) -> float | None:
        steps = self._drawn(at)
        return _auroc(self._truths[steps], self._scores[steps])

    def brier(self, at: np.ndarray) -> float | None:
        steps = self._drawn(at)
        return _mean((self._scores[steps] - self._truths[steps]) ** 2)


def _auroc(truths: np.ndarray, scores: np.ndarray) -> float | None:
    """The same as `stats.auroc` from ranks (Mann and Whitney), quick enough for a thousand resamples."""
    import numpy as np

    right = int(truths.sum())
    wrong = len(truths) - right
    if not right or not wrong:
        return None
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return float((ranks[truths == 1].sum() - right * (right + 1) / 2) / (right * wrong))
