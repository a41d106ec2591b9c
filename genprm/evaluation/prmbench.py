"""PRMScore as PRMBench defines it, per class, per group and in total (Song et al. 2025, arXiv 2501.03124, section 4).

A step is good or an error. With good steps as the positive class, F1 and the negative F1 (errors as the class that is
looked for) are taken over all steps of a class together, and PRMScore = w * negative F1 + (1 - w) * F1 with w = 0.5.
The total pools the steps of all classes; a group is the mean of its classes. Where a class has no error at all
(`multi_solutions`), its negative F1 is not defined and its score is the F1 alone.

Departures from the published evaluator: redundancy is read from the same reward as validity, since a verifier gives
one; the unmodified solutions, which it uses for a similarity figure only, are not judged; a step that could not be
judged is left out and counted, where upstream leaves out the whole row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from .stats import RESAMPLES, bootstrap

WEIGHT = 0.5

# Upstream's spelling of each class, its name in the paper's table, and the group that it stands in.
CLASSES = {
    "redundency": ("NR", "simplicity"),
    "circular": ("NCL", "simplicity"),
    "counterfactual": ("ES", "soundness"),
    "step_contradiction": ("SC", "soundness"),
    "domain_inconsistency": ("DC", "soundness"),
    "confidence": ("CI", "soundness"),
    "missing_condition": ("PS", "sensitivity"),
    "deception": ("DR", "sensitivity"),
    "multi_solutions": ("MS", "sensitivity"),
}


@dataclass(frozen=True, slots=True)
class Steps:
    """One row: its class, the verdict on each step and which steps are errors."""

    kind: str
    verdicts: tuple[bool | None, ...]
    """True = judged right; None = not judged."""
    errors: frozenset[int]
    """0-based."""


@dataclass(slots=True)
class Counts:
    """Steps by verdict and truth; `positive` means judged right."""

    true_positive: int = 0
    false_positive: int = 0
    true_negative: int = 0
    false_negative: int = 0

    def add(self, row: Steps) -> None:
        """Count a row's judged steps."""
        for index, right in enumerate(row.verdicts):
            if right is None:
                continue
            if index in row.errors:
                self.false_positive += right
                self.true_negative += not right
            else:
                self.true_positive += right
                self.false_negative += not right


def counts(rows: Iterable[Steps]) -> Counts:
    """All steps of some rows together."""
    total = Counts()
    for row in rows:
        total.add(row)
    return total


def scores(total: Counts, weight: float = WEIGHT) -> dict[str, float | None]:
    """F1, negative F1 and PRMScore in [0, 1]; None where a figure is not defined."""
    good = _f1(total.true_positive, total.false_positive, total.false_negative)
    bad = _f1(total.true_negative, total.false_negative, total.false_positive)
    if total.true_negative + total.false_positive == 0:
        score = good
    else:
        score = None if good is None or bad is None else weight * bad + (1 - weight) * good
    return {"prm_score": score, "f1": good, "negative_f1": bad}


def metrics(
    rows: Sequence[Steps], *, weight: float = WEIGHT, threshold: float = 0.5, seed: int = 0, resamples: int = RESAMPLES
) -> dict[str, Any]:
    """All figures of a run.

    Args:
        rows: judged rows.
        weight: of the negative F1.
        threshold: what the verdicts were made with; it is only stated.
        seed: of the bootstrap.
        resamples: of the bootstrap.
    """
    classes: dict[str, dict[str, Any]] = {}
    for kind in [*CLASSES, *sorted({row.kind for row in rows} - set(CLASSES))]:
        inside = [row for row in rows if row.kind == kind]
        if inside:
            name, group = CLASSES.get(kind, (kind, "other"))
            classes[kind] = {"short": name, "group": group, **_figures(inside, weight, seed, resamples)}
    groups: dict[str, float | None] = {}
    for group in dict.fromkeys(entry["group"] for entry in classes.values()):
        members = [entry["prm_score"] for entry in classes.values() if entry["group"] == group]
        groups[group] = None if None in members else sum(members) / len(members)
    return {
        "prm_score": _figures(rows, weight, seed, resamples),
        "classes": classes,
        "groups": groups,
        "negative_f1_weight": weight,
        "threshold": threshold,
    }


def _figures(rows: Sequence[Steps], weight: float, seed: int, resamples: int) -> dict[str, Any]:
    import numpy as np

    table = np.array([_as_array(counts([row])) for row in rows])

    def resampled(at: np.ndarray) -> float | None:
        return scores(Counts(*(int(value) for value in table[at].sum(axis=0))), weight)["prm_score"]

    interval = bootstrap(len(rows), resampled, seed=seed, resamples=resamples)
    return {
        "n": len(rows),
        **scores(counts(rows), weight),
        "prm_score_ci": interval.as_list(),
        "steps": sum(len(row.verdicts) for row in rows),
        "unscored_steps": sum(verdict is None for row in rows for verdict in row.verdicts),
    }


def _as_array(total: Counts) -> list[int]:
    return [total.true_positive, total.false_positive, total.true_negative, total.false_negative]


def _f1(hits: int, wrongly_taken: int, missed: int) -> float | None:
    """F1 of a class; None where no step belongs to it or was taken for it."""
    total = 2 * hits + wrongly_taken + missed
    return 2 * hits / total if total else None
