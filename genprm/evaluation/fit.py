"""Fitting a calibration on labelled rows, with cross-validated scores of what it gains.

Knows rewards and labels. Folds are made of whole problems, so that two solutions of one problem never stand on both
sides. Only rows that may be trained on belong here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..calibration import Calibration, FitScores, Fitted, Method, logit
from ..errors import InputError
from ..types import ProtocolRef
from .stats import auroc, brier, ece

FOLDS = 10
MIN_STEPS = 20
METHODS: tuple[Method, ...] = ("temperature", "platt", "isotonic")


def fit_calibration(
    scores: Sequence[float],
    truths: Sequence[int],
    groups: Sequence[str],
    *,
    model: str,
    protocol: ProtocolRef,
    mode: str,
    sha256: str,
    method: Method | None = None,
) -> Calibration:
    """Fit a monotone map from mean P(Yes) to the share of right steps.

    Args:
        scores: mean P(Yes) of each step.
        truths: 1 = right, 0 = wrong.
        groups: each step's problem.
        model: name of the judge in results.
        protocol: its protocol.
        mode: the protocol's mode.
        sha256: of the labelled file.
        method: None = the one with the least cross-validated log loss.

    Raises:
        InputError: too few steps, or only right or only wrong ones.
    """
    if len(scores) < MIN_STEPS or len(set(truths)) < 2:
        kinds = f"{sum(truths)} right and {len(truths) - sum(truths)} wrong"
        raise InputError(f"a fit needs {MIN_STEPS} labelled steps of both kinds; there are {kinds}")
    problems = sorted(set(groups))
    folds = min(FOLDS, len(problems))
    if folds < 2:
        raise InputError("a fit needs labelled steps of two problems at least")
    held_out = {one: _cross_validate(scores, truths, groups, one, folds) for one in METHODS}
    losses: dict[Method, float] = {one: quality(truths, held_out[one]).log_loss for one in METHODS}
    chosen: Method = min(METHODS, key=losses.__getitem__) if method is None else method
    fitted = Fitted(
        rows=len(problems),
        steps=len(scores),
        sha256=sha256,
        before=quality(truths, scores),
        after=quality(truths, held_out[chosen]),
        folds=folds,
    )
    return Calibration(model=model, protocol=protocol, mode=mode, fitted=fitted, **_fit(scores, truths, chosen))


def quality(truths: Sequence[int], scores: Sequence[float]) -> FitScores:
    """AUROC, ECE, Brier and log loss of step rewards."""
    from sklearn.metrics import log_loss

    clipped = [min(max(score, 1e-6), 1 - 1e-6) for score in scores]
    return FitScores(
        auroc=auroc(truths, scores),
        ece=ece(truths, scores),
        brier=brier(truths, scores),
        log_loss=float(log_loss(truths, clipped, labels=[0, 1])),
    )


def _cross_validate(
    scores: Sequence[float], truths: Sequence[int], groups: Sequence[str], method: Method, folds: int
) -> list[float]:
    from sklearn.model_selection import GroupKFold

    held_out = [0.0] * len(scores)
    for train, test in GroupKFold(folds, shuffle=True, random_state=0).split(scores, truths, groups):
        seen = [truths[i] for i in train]
        if len(set(seen)) < 2:
            raise InputError("nearly all labelled steps of one kind belong to one problem: more rows are needed")
        fields = _fit([scores[i] for i in train], seen, method)
        part = Calibration(model="", protocol=ProtocolRef(name="", sha256=""), mode="", **fields)
        for i in test:
            held_out[i] = part.apply(scores[i])
    return held_out


def _fit(scores: Sequence[float], truths: Sequence[int], method: Method) -> dict[str, Any]:
    """The fields of a calibration."""
    import numpy as np

    x = np.array([logit(score) for score in scores])
    if method == "isotonic":
        from sklearn.isotonic import IsotonicRegression

        # Two made-up steps, one right and one wrong, at each end keep certainty off: 0 and 1 are never learnt.
        ends = np.array([min(scores), min(scores), max(scores), max(scores)])
        fit = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip")
        fit.fit(np.concatenate([scores, ends]), np.concatenate([truths, [0, 1, 0, 1]]))
        return {
            "method": method,
            "x": tuple(map(float, fit.X_thresholds_)),
            "y": tuple(float(min(max(value, 0.0), 1.0)) for value in fit.y_thresholds_),
        }
    if method == "platt":
        from sklearn.linear_model import LogisticRegression

        line = LogisticRegression(C=100.0).fit(x.reshape(-1, 1), truths)
        if line.coef_[0][0] > 0:
            return {"method": method, "scale": float(line.coef_[0][0]), "shift": float(line.intercept_[0])}
        # The judge's order is worse than chance here: all steps get the share of right ones, in the same order.
        return {"method": method, "scale": 1e-6, "shift": logit(sum(truths) / len(truths))}
    from scipy.optimize import minimize_scalar

    right = np.array(truths)

    def loss(log_scale: float) -> float:
        z = np.exp(log_scale) * x
        return float(np.mean(np.logaddexp(0.0, np.where(right == 1, -z, z))))

    return {"method": method, "scale": float(np.exp(minimize_scalar(loss, bounds=(-7, 5), method="bounded").x))}
