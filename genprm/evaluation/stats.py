"""Statistics that several benchmarks share: bootstrap intervals, ranking and calibration of step rewards.

Knows numbers only. Metrics that scikit-learn has are scikit-learn's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np

RESAMPLES = 1000
BINS = 10


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure with its 95 % bootstrap interval; `low` and `high` are None where too few resamples define it."""

    value: float | None
    low: float | None = None
    high: float | None = None

    def as_list(self) -> list[float | None]:
        """[low, high]."""
        return [self.low, self.high]


class Bin(NamedTuple):
    """Steps whose rewards lie in one tenth of [0, 1]."""

    mean_reward: float
    share_right: float
    steps: int


def harmonic_mean(a: float | None, b: float | None) -> float | None:
    """2ab / (a + b); 0 where both are 0; None where one is not known."""
    if a is None or b is None:
        return None
    return 2 * a * b / (a + b) if a + b > 0 else 0.0


def bootstrap(
    count: int,
    statistic: Callable[[np.ndarray], float | None],
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Interval:
    """A statistic of rows and its 95 % percentile interval (Efron and Tibshirani 1993, section 13.3).

    Args:
        count: how many rows there are.
        statistic: takes row numbers, shape [count], with repeats; None = not defined for these.
        seed: of the resampling.
        resamples: how many.
    """
    import numpy as np

    if count == 0:
        return Interval(None)
    value = statistic(np.arange(count))
    random = np.random.default_rng(seed)
    drawn = [statistic(random.integers(0, count, count)) for _ in range(resamples)]
    known = [item for item in drawn if item is not None]
    if value is None or len(known) < 0.9 * resamples:
        return Interval(value)
    low, high = np.quantile(known, [0.025, 0.975])
    return Interval(value, float(low), float(high))


class Paired(NamedTuple):
    """How much better one way is than another on the same rows."""

    difference: float
    """Mean of a - b."""
    ci: list[float | None]
    """95 %, from resampling rows."""
    p: float
    """Two-sided: how often chance alone makes a difference as large."""


def paired(a: Sequence[float], b: Sequence[float], *, seed: int = 0, resamples: int = RESAMPLES) -> Paired | None:
    """Compare two ways on the same rows; None without rows.

    The interval is a bootstrap over rows, the p-value that of a sign-flip permutation test (Good 2005, section 3.2):
    under the null hypothesis each row's difference may as well have the other sign.
    """
    import numpy as np

    if not len(a):
        return None
    gaps = np.asarray(a, dtype=float) - np.asarray(b, dtype=float)
    interval = bootstrap(len(gaps), lambda at: float(gaps[at].mean()), seed=seed, resamples=resamples)
    signs = np.random.default_rng(seed).choice((-1.0, 1.0), size=(10 * resamples, len(gaps)))
    observed = abs(gaps.sum())
    as_large = int((np.abs(signs @ gaps) >= observed - 1e-9).sum())
    return Paired(float(gaps.mean()), interval.as_list(), (as_large + 1) / (10 * resamples + 1))


def auroc(truths: Sequence[int] | np.ndarray, scores: Sequence[float] | np.ndarray) -> float | None:
    """Chance that a right step gets a higher reward than a wrong one; None where one kind is missing."""
    import numpy as np
    from sklearn.metrics import roc_auc_score

    if len(np.unique(truths)) < 2:
        return None
    return float(roc_auc_score(truths, scores))


def brier(truths: Sequence[int] | np.ndarray, scores: Sequence[float] | np.ndarray) -> float | None:
    """Mean squared distance between reward and truth; None without steps."""
    from sklearn.metrics import brier_score_loss

    return float(brier_score_loss(truths, scores, pos_label=1)) if len(truths) else None


def reliability_bins(truths: Sequence[int], scores: Sequence[float], bins: int = BINS) -> list[Bin]:
    """Steps by equal-width bins of the reward; empty bins are left out."""
    grouped: dict[int, list[tuple[int, float]]] = {}
    for truth, score in zip(truths, scores, strict=True):
        grouped.setdefault(min(int(score * bins), bins - 1), []).append((truth, score))
    return [
        Bin(_mean([score for _, score in inside]), _mean([truth for truth, _ in inside]), len(inside))
        for _, inside in sorted(grouped.items())
    ]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def ece(truths: Sequence[int], scores: Sequence[float], bins: int = BINS) -> float | None:
    """Expected calibration error over equal-width bins (Guo et al. 2017, equation 3); None without steps."""
    if not len(truths):
        return None
    inside = reliability_bins(truths, scores, bins)
    return sum(item.steps * abs(item.share_right - item.mean_reward) for item in inside) / len(truths)
