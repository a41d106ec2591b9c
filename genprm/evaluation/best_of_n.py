"""Best-of-N: which of N candidate solutions a verifier would pick, and how often that one is right.

Figures for N below the pool's size are means over subsets of N candidates: all of them where there are few, else a
seeded sample. Candidates with the same score share a pick. Intervals come from resampling problems.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from ..aggregate import aggregate
from .stats import RESAMPLES, bootstrap, paired

AGGREGATIONS = ("min", "product", "mean", "last")
MAX_SUBSETS = 200
OURS = "genprm"
PROGRAMS = "programs"
JOINT = "genprm x programs"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One solution of a problem."""

    correct: bool
    answer: str | None
    """The answer in a form in which equal answers are equal texts; None = none was found."""
    step_scores: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    """Scorer's name -> rewards of the steps."""
    factors: Mapping[str, float | None] = field(default_factory=dict)
    """Scorer's name -> what its aggregated reward is multiplied with; None = not known, and no score with it."""


Problem = Sequence[Candidate]
Rule = Callable[[Sequence[int]], float]
"""Takes positions in a problem's pool; gives the chance that the pick is right."""


def sizes(pool: int) -> list[int]:
    """1, 2, 4, … and the whole pool."""
    powers = [2**k for k in range(pool.bit_length()) if 2**k <= pool]
    return powers if powers[-1] == pool else [*powers, pool]


def metrics(problems: Sequence[Problem], *, seed: int = 0, resamples: int = RESAMPLES) -> dict[str, Any]:
    """Accuracy of every way to pick, for N = 1, 2, 4, …

    Args:
        problems: their candidates; all pools are cut to the size of the smallest.
        seed: of subsets and bootstrap.
        resamples: of the bootstrap.

    Returns:
        `methods`: name -> N -> {accuracy, ci}; accuracies in [0, 1]. `paired`: this program's picks from whole pools
        against all others on the same problems: name -> other's name -> {difference, ci, p}.
    """
    pool = min((len(problem) for problem in problems), default=0)
    if not pool:
        return {"n_problems": 0, "candidates": 0, "methods": {}, "paired": {}}
    scorers = dict.fromkeys(name for problem in problems for candidate in problem for name in candidate.step_scores)
    methods: dict[str, dict[str, Any]] = {}
    for name in methods_of(list(scorers)):
        methods[name] = {}
        for size in sizes(pool):
            shares = [_share(name, problem[:pool], size, seed) for problem in problems]
            interval = bootstrap(len(shares), _mean_of(shares), seed=seed, resamples=resamples)
            methods[name][str(size)] = {"accuracy": interval.value, "ci": interval.as_list()}
    return {
        "n_problems": len(problems),
        "candidates": pool,
        "dropped_candidates": sum(len(problem) - pool for problem in problems),
        "methods": methods,
        "paired": _paired([problem[:pool] for problem in problems], list(methods), seed, resamples),
        "unscored_candidates": {
            name: sum(
                _score(candidate, name, "min") is None for problem in problems for candidate in problem[:pool]
            )
            for name in scorers
        },
    }  # fmt: skip


def _paired(problems: Sequence[Problem], names: Sequence[str], seed: int, resamples: int) -> dict[str, Any]:
    shares = {name: [picked(problem, name) for problem in problems] for name in names}
    ours = [name for name in names if name.rpartition(" (")[0] in (OURS, PROGRAMS, JOINT)]
    return {
        mine: {
            other: found._asdict()
            for other in names
            if other not in ours
            and (found := paired(shares[mine], shares[other], seed=seed, resamples=resamples)) is not None
        }
        for mine in ours
    }


def methods_of(scorers: Sequence[str]) -> list[str]:
    """Names of all ways to pick with these scorers."""
    picks = [f"{scorer} ({how})" for scorer in scorers for how in AGGREGATIONS]
    weighted = [f"{scorer} ({how}, weighted vote)" for scorer in scorers for how in AGGREGATIONS]
    return ["random", "majority", "oracle", *picks, *weighted]


def picked(problem: Problem, name: str) -> float:
    """The chance that one way picks a right candidate from a whole pool."""
    return _rule(problem, name)(range(len(problem)))


def _share(name: str, problem: Problem, size: int, seed: int) -> float:
    rule = _rule(problem, name)
    drawn = [rule(subset) for subset in _subsets(len(problem), size, seed)]
    return sum(drawn) / len(drawn)


def _subsets(pool: int, size: int, seed: int) -> Iterator[tuple[int, ...]]:
    if math.comb(pool, size) <= MAX_SUBSETS:
        yield from combinations(range(pool), size)
        return
    chosen = random.Random(seed)
    for _ in range(MAX_SUBSETS):
        yield tuple(chosen.sample(range(pool), size))


def _rule(problem: Problem, name: str) -> Rule:
    right = [float(candidate.correct) for candidate in problem]
    if name == "random":
        return lambda at: sum(right[i] for i in at) / len(at)
    if name == "oracle":
        return lambda at: max(right[i] for i in at)
    if name == "majority":
        return lambda at: _vote(problem, at, dict.fromkeys(at, 1.0))
    scorer, _, rest = name.rpartition(" (")
    how, _, vote = rest.rstrip(")").partition(", ")
    scores = [_score(candidate, scorer, how) for candidate in problem]
    if vote:
        return lambda at: _vote(problem, at, {i: scores[i] or 0.0 for i in at})
    return lambda at: _best(right, at, scores)


def _best(right: Sequence[float], at: Sequence[int], scores: Sequence[float | None]) -> float:
    """The highest score; an unscored candidate is picked only where all are unscored."""
    known = {i: score for i in at if (score := scores[i]) is not None}
    if not known:
        return sum(right[i] for i in at) / len(at)
    top = max(known.values())
    tied = [i for i, score in known.items() if score == top]
    return sum(right[i] for i in tied) / len(tied)


def _vote(problem: Problem, at: Sequence[int], weights: Mapping[int, float]) -> float:
    """The answer with the most weight; candidates without an answer have no vote."""
    totals: dict[str, float] = {}
    members: dict[str, list[float]] = {}
    for i in at:
        answer = problem[i].answer
        if answer is not None:
            totals[answer] = totals.get(answer, 0.0) + weights[i]
            members.setdefault(answer, []).append(float(problem[i].correct))
    if not totals:
        return sum(float(problem[i].correct) for i in at) / len(at)
    top = max(totals.values())
    tied = [answer for answer, total in totals.items() if math.isclose(total, top, rel_tol=1e-12)]
    return sum(sum(members[answer]) / len(members[answer]) for answer in tied) / len(tied)


def _score(candidate: Candidate, scorer: str, how: str) -> float | None:
    score, factor = aggregate(list(candidate.step_scores.get(scorer, ())), how), candidate.factors.get(scorer, 1.0)
    return None if score is None or factor is None else score * factor


def _mean_of(shares: Sequence[float]) -> Callable[[Any], float | None]:
    import numpy as np

    values = np.array(shares)
    return lambda at: float(values[at].mean())
