"""From rollouts to step labels: the rules of the papers, as plain functions of counts.

Notation: a solution has steps 1..n, MC(t) is the share of rollouts from its first t steps that reach the reference
answer, and MC(0) the policy's pass rate on the problem. Lists hold steps 1..n at 0..n-1. Knows no policy. A value that
is not known is None and stays None: rollouts whose answer could not be compared take no part.

- Math-Shepherd (Wang et al. 2023): soft labels MC(t), hard labels MC(t) > 0.
- GenPRM (Zhao et al. 2025): relative progress P_t = MC(t) / MC(t-1), right where it is at least 0.8.
- OmegaPRM (Luo et al. 2024): the first error by bisection over prefixes, MC(t) > 0 left of it and MC(t) = 0 from it on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..voting import flip_chance


def monte_carlo(right: int, known: int) -> float | None:
    """MC(t): the share of `known` rollouts that are `right`; None where none is known."""
    return right / known if known else None


def rollout_count(pass_rate: float | None, table: Sequence[tuple[float, int]]) -> int:
    """K for a problem.

    Args:
        pass_rate: the policy's, 0 to 1; None = not known, which counts as 0.
        table: [pass rate below, K], in rising order; the last K holds above all of them.
    """
    rate = pass_rate or 0.0
    return next((count for below, count in table if rate < below), table[-1][1])


def soft_labels(values: Sequence[float | None], threshold: float) -> list[bool | None]:
    """Right where MC(t) is at least the threshold."""
    return [None if value is None else value >= threshold for value in values]


def hard_labels(values: Sequence[float | None]) -> list[bool | None]:
    """Math-Shepherd's hard estimation: right where MC(t) > 0."""
    return [None if value is None else value > 0 for value in values]


def relative_progress(values: Sequence[float | None], pass_rate: float | None) -> list[float | None]:
    """GenPRM's P_t = MC(t) / MC(t-1) with MC(0) the pass rate; 0/0 counts as 0.

    Args:
        values: MC(1) to MC(n).
        pass_rate: MC(0).

    Returns:
        P_1 to P_n; infinite where MC(t-1) = 0 < MC(t); None where either is not known.
    """
    progress: list[float | None] = []
    before = pass_rate
    for value in values:
        if value is None or before is None:
            progress.append(None)
        elif before == 0:
            progress.append(math.inf if value > 0 else 0.0)
        else:
            progress.append(value / before)
        before = value
    return progress


def rpe_labels(
    values: Sequence[float | None], pass_rate: float | None, final_correct: bool | None, threshold: float = 0.8
) -> list[bool | None]:
    """GenPRM's relative progress estimation.

    A step is right where P_t is at least the threshold. From the first step with MC = 0 on all are wrong. The last step
    is judged by MC(n), which is 1 or 0 by the final answer.

    Args:
        values: MC(1) to MC(n); the last one is replaced by the final answer's.
        pass_rate: MC(0).
        final_correct: whether the solution's final answer is the reference; None = not known.
        threshold: of P_t.
    """
    shares = [*values[:-1], None if final_correct is None else float(final_correct)]
    labels: list[bool | None] = []
    lost = False
    for share, progress in zip(shares, relative_progress(shares, pass_rate), strict=True):
        lost = lost or share == 0
        labels.append(False if lost else None if progress is None else progress >= threshold - 1e-9)
    return labels


def outcome_labels(count: int, final_correct: bool | None) -> list[bool | None]:
    """The ORM signal: the last of `count` steps by the final answer, the others not known."""
    return [None] * (count - 1) + [final_correct]


def labels_of(first: int | None, count: int) -> list[bool | None]:
    """Step labels of a known first error (-1 = none): right before it, wrong at it, not known behind it."""
    if first is None:
        return [None] * count
    if first < 0:
        return [True] * count
    return [True] * first + [False] + [None] * (count - first - 1)


def first_error(labels: Sequence[bool | None]) -> int | None:
    """The first wrong step, 0-based; -1 where all are right; None where an unknown one comes before it."""
    for index, label in enumerate(labels):
        if label is None:
            return None
        if not label:
            return index
    return -1


@dataclass(slots=True)
class Bisection:
    """OmegaPRM's search for the first error of a solution whose final answer is wrong.

    Prefixes up to the last right one can be completed, all longer ones cannot; that of all n steps cannot, by the final
    answer. Each round asks about one prefix: `ask` names it, `tell` takes what its rollouts said. It takes at most
    ceil(log2(n)) rounds.
    """

    count: int
    """n, the number of steps."""
    right: int = 0
    """The longest prefix known to be right; that of no steps, because the problem can be solved."""
    wrong: int = field(init=False)
    """The shortest prefix known to be wrong."""
    open: bool = field(default=False, init=False)
    """True where a prefix could not be decided, so that the error is not known."""

    def __post_init__(self) -> None:
        self.wrong = self.count

    def ask(self) -> int | None:
        """The length of the prefix to complete next; None where the search is over."""
        return None if self.open or self.wrong - self.right <= 1 else (self.right + self.wrong) // 2

    def tell(self, length: int, value: float | None) -> None:
        """MC of a prefix; None ends the search without a result."""
        if value is None:
            self.open = True
        elif value > 0:
            self.right = length
        else:
            self.wrong = length

    @property
    def first(self) -> int | None:
        """The first wrong step, 0-based; None while it is not known."""
        return None if self.open or self.wrong - self.right > 1 else self.wrong - 1


@dataclass(frozen=True, slots=True)
class Question:
    """What a label asks of MC(t), so that rollouts can stop once the answer is sure enough."""

    threshold: float | None = None
    """Is MC(t) at least this?"""
    above_zero: bool = False
    """Is MC(t) above 0?"""

    def settled(self, right: int, known: int, total: int, bound: float | None) -> bool:
        """Whether `total` rollouts would hardly answer it otherwise than those so far.

        Args:
            right: rollouts so far that reach the reference answer.
            known: rollouts so far whose answer could be compared.
            total: K.
            bound: the chance of another answer that is accepted (beta-binomial with Jeffreys' prior: see
                `genprm.voting`); None = none, so that only what can no longer change is settled.
        """
        thresholds = [] if self.threshold is None else [self.threshold]
        if self.above_zero:
            thresholds.append(1 / total)
        return bool(known) and all(_settled(right, known, total, bound, threshold) for threshold in thresholds)


def _settled(right: int, known: int, total: int, bound: float | None, threshold: float) -> bool:
    if right >= math.ceil(threshold * total - 1e-9):
        return True
    if bound is None:
        return right + total - known < threshold * total - 1e-9
    return flip_chance([1.0] * right + [0.0] * (known - right), total, threshold) <= bound
