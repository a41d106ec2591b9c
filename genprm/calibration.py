"""Calibration: from the mean P(Yes) of a step's votes to a reward that says how often such steps are right.

A fitted map is monotone, so that it never changes which of two steps is better; it moves the 0.5 threshold to where
it belongs. It is stored as JSON with the model and protocol that it was fitted for, and refused with others. Knows
arithmetic and the file; `genprm.evaluation.fit` does the fitting.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError, model_validator

from .errors import ConfigError
from .types import ProtocolRef, Record

EDGE = 1e-6
"""Probabilities are kept this far from 0 and 1 before a logit is taken."""

Method = Literal["temperature", "platt", "isotonic", "fusion"]


class FitScores(Record):
    """How good step rewards are on rows that a fit has not seen."""

    auroc: float | None
    ece: float | None
    brier: float | None
    log_loss: float


class Fitted(Record):
    """What a calibration was made from."""

    rows: int
    steps: int
    sha256: str
    """Of the labelled file."""
    before: FitScores
    after: FitScores
    """Cross-validated: each fold is scored by a fit on the others."""
    folds: int


class Calibration(Record):
    """A map on [0, 1], monotone in P(Yes).

    `temperature`: sigmoid(logit(p) / T) (Guo et al. 2017). `platt`: sigmoid(a logit(p) + b) (Platt 1999).
    `isotonic`: straight lines between fitted points (Zadrozny and Elkan 2002). `fusion`: a logistic model on
    logit(p) and the step's evidence, sigmoid(a logit(p) + sum_i w_i f_i + b).
    """

    schema_version: int = 1
    model: str
    """As results name it."""
    protocol: ProtocolRef
    mode: str
    method: Method
    scale: float = Field(default=1.0, ge=0)
    """1/T, or a."""
    shift: float = 0.0
    """b."""
    x: tuple[float, ...] = ()
    """Isotonic: rewards before, increasing."""
    y: tuple[float, ...] = ()
    """Isotonic: rewards after, not decreasing."""
    weights: dict[str, float] = Field(default_factory=dict)
    """Fusion: w by the feature's name; see `genprm.evidence.features`."""
    fitted: Fitted | None = None

    @model_validator(mode="after")
    def _monotone(self) -> Calibration:
        if self.method == "isotonic":
            if not self.x or len(self.x) != len(self.y):
                raise ValueError("isotonic needs as many x as y")
            if list(self.x) != sorted(self.x) or list(self.y) != sorted(self.y):
                raise ValueError("x and y must not decrease")
            if not all(0 <= value <= 1 for value in (*self.x, *self.y)):
                raise ValueError("x and y lie in [0, 1]")
        return self

    def apply(self, p: float, features: Mapping[str, float] | None = None) -> float:
        """The calibrated reward of a mean P(Yes).

        Args:
            p: the mean over votes.
            features: of the step, for a fusion.

        Raises:
            ConfigError: a fusion without the features that it weighs.
        """
        if self.method == "isotonic":
            return _interpolate(self.x, self.y, p)
        known = features or {}
        if missing := [name for name in self.weights if name not in known]:
            raise ConfigError(f"the calibration weighs evidence that is not collected: {', '.join(missing)}")
        return sigmoid(self.scale * logit(p) + sum(w * known[name] for name, w in self.weights.items()) + self.shift)

    def threshold_before(self, threshold: float, features: Mapping[str, float] | None = None) -> float:
        """The smallest mean P(Yes) whose calibrated reward reaches `threshold`; over 1 where none does."""
        if self.apply(1.0, features) < threshold:
            return math.nextafter(1.0, 2.0)
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            reached = self.apply(middle, features) >= threshold
            low, high = (low, middle) if reached else (middle, high)
        return high


def load_calibration(path: str, *, model: str, protocol: ProtocolRef, mode: str) -> Calibration:
    """Read a calibration and make sure that it was fitted for what is about to judge.

    Raises:
        ConfigError: not readable, not a calibration, or another model's, protocol's or mode's.
    """
    try:
        found = Calibration.model_validate_json(Path(path).expanduser().read_bytes())
    except OSError as error:
        raise ConfigError(f"the calibration {path!r} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{path!r} is no calibration: {where}: {first['msg']}") from None
    for what, theirs, ours in (
        ("model", found.model, model),
        ("protocol", found.protocol.name, protocol.name),
        ("protocol's templates", found.protocol.sha256, protocol.sha256),
        ("mode", found.mode, mode),
    ):
        if theirs != ours:
            raise ConfigError(f"the calibration {path!r} was fitted for the {what} {theirs!r}, not {ours!r}")
    return found


def logit(p: float) -> float:
    """log(p / (1 - p)), with p kept `EDGE` away from 0 and 1."""
    p = min(max(p, EDGE), 1 - EDGE)
    return math.log(p / (1 - p))


def sigmoid(x: float) -> float:
    """1 / (1 + exp(-x)) without overflow."""
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def _interpolate(x: tuple[float, ...], y: tuple[float, ...], p: float) -> float:
    after = bisect_right(x, p)
    if after == 0:
        return y[0]
    if after == len(x):
        return y[-1]
    left, right = x[after - 1], x[after]
    return y[after - 1] + (y[after] - y[after - 1]) * (p - left) / (right - left)
