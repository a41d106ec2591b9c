"""Fitting a calibration or a fusion on labelled rows, with cross-validated scores of what it gains.

Knows rewards and labels. Folds are made of whole problems, so that two solutions of one problem never stand on both
sides. Only rows that may be trained on belong here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..calibration import Calibration, FitScores, Fitted, Method, logit
from ..errors import InputError
from ..types import ProtocolRef
from .stats import auroc, brier, ece

if TYPE_CHECKING:
    import numpy as np

FOLDS = 10
MIN_STEPS = 20
PENALTY = 1.0
"""Inverse strength of the ridge on a fusion's weights; all features lie in [0, 1]."""
METHODS: tuple[Method, ...] = ("temperature", "platt", "isotonic")
Features = Mapping[str, float]


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
    features: Sequence[Features] | None = None,
) -> Calibration:
    """Fit a map from mean P(Yes), and evidence where there is some, to the share of right steps.

    Args:
        scores: mean P(Yes) of each step.
        truths: 1 = right, 0 = wrong.
        groups: each step's problem.
        model: name of the judge in results.
        protocol: its protocol.
        mode: the protocol's mode.
        sha256: of the labelled file.
        method: None = the one with the least cross-validated log loss.
        features: each step's evidence, with the same names for all; needed for a fusion.

    Raises:
        InputError: too few steps, or only right or only wrong ones, or a fusion without evidence.
    """
    if len(scores) < MIN_STEPS or len(set(truths)) < 2:
        kinds = f"{sum(truths)} right and {len(truths) - sum(truths)} wrong"
        raise InputError(f"a fit needs {MIN_STEPS} labelled steps of both kinds; there are {kinds}")
    if method == "fusion" and features is None:
        raise InputError("a fusion needs evidence: set evidence.programs or evidence.equations")
    problems = sorted(set(groups))
    folds = min(FOLDS, len(problems))
    if folds < 2:
        raise InputError("a fit needs labelled steps of two problems at least")
    data = _Steps(scores, truths, features or [{}] * len(scores))
    tried: tuple[Method, ...] = (*METHODS, "fusion") if features is not None else METHODS
    held_out = {one: _cross_validate(data, groups, one, folds) for one in (tried if method is None else (method,))}
    losses: dict[Method, float] = {one: quality(truths, values).log_loss for one, values in held_out.items()}
    chosen: Method = min(losses, key=losses.__getitem__)
    fitted = Fitted(
        rows=len(problems),
        steps=len(scores),
        sha256=sha256,
        before=quality(truths, scores),
        after=quality(truths, held_out[chosen]),
        folds=folds,
    )
    return Calibration(model=model, protocol=protocol, mode=mode, fitted=fitted, **_fit(data, chosen))


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


@dataclass(frozen=True, slots=True)
class _Steps:
    scores: Sequence[float]
    truths: Sequence[int]
    features: Sequence[Features]

    def some(self, at: Sequence[int]) -> _Steps:
        return _Steps([self.scores[i] for i in at], [self.truths[i] for i in at], [self.features[i] for i in at])


def _cross_validate(data: _Steps, groups: Sequence[str], method: Method, folds: int) -> list[float]:
    from sklearn.model_selection import GroupKFold

    held_out = [0.0] * len(data.scores)
    for train, test in GroupKFold(folds, shuffle=True, random_state=0).split(data.scores, data.truths, groups):
        seen = data.some(train)
        if len(set(seen.truths)) < 2:
            raise InputError("nearly all labelled steps of one kind belong to one problem: more rows are needed")
        part = Calibration(model="", protocol=ProtocolRef(name="", sha256=""), mode="", **_fit(seen, method))
        for i in test:
            held_out[i] = part.apply(data.scores[i], data.features[i])
    return held_out


def _fit(data: _Steps, method: Method) -> dict[str, Any]:
    """The fields of a calibration."""
    import numpy as np

    scores, truths = data.scores, data.truths
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
    if method in ("platt", "fusion"):
        names = sorted(data.features[0]) if method == "fusion" else []
        table = np.column_stack([x, *([one[name] for one in data.features] for name in names)])
        return _line(table, truths, names, method)
    from scipy.optimize import minimize_scalar

    right = np.array(truths)

    def loss(log_scale: float) -> float:
        z = np.exp(log_scale) * x
        return float(np.mean(np.logaddexp(0.0, np.where(right == 1, -z, z))))

    return {"method": method, "scale": float(np.exp(minimize_scalar(loss, bounds=(-7, 5), method="bounded").x))}


def _line(table: np.ndarray, truths: Sequence[int], names: Sequence[str], method: Method) -> dict[str, Any]:
    """A logistic model whose reward never falls with P(Yes), the table's first column."""
    from sklearn.linear_model import LogisticRegression

    def model(columns: np.ndarray) -> tuple[list[float], float]:
        fit = LogisticRegression(C=PENALTY if names else 100.0, max_iter=1000).fit(columns, truths)
        return [float(weight) for weight in fit.coef_[0]], float(fit.intercept_[0])

    weights, shift = model(table)
    if weights[0] <= 0:
        # The judge's order is worse than chance here: it is left out.
        if not names:
            return {"method": method, "scale": 0.0, "shift": logit(sum(truths) / len(truths))}
        rest, shift = model(table[:, 1:])
        weights = [0.0, *rest]
    return {
        "method": method,
        "scale": weights[0],
        "shift": shift,
        "weights": dict(zip(names, weights[1:], strict=True)),
    }
