"""Calibration: monotone maps, their files, and what a fit gains on rows that it has not seen."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression

from genprm.aggregate import judge_step
from genprm.calibration import Calibration, load_calibration, logit, sigmoid
from genprm.errors import ConfigError
from genprm.evaluation.fit import METHODS, fit_calibration
from genprm.types import ProtocolRef, Vote

PROTOCOL = ProtocolRef(name="compact", sha256="ab")


def made(method="platt", **fields):
    return Calibration(model="m", protocol=PROTOCOL, mode="full", method=method, **fields)


def steps(count, scale, shift, seed=0):
    """Rewards whose true chance of being right is sigmoid(scale * logit(p) + shift)."""
    chosen = random.Random(seed)
    scores = [chosen.random() for _ in range(count)]
    truths = [int(chosen.random() < sigmoid(scale * logit(p) + shift)) for p in scores]
    return scores, truths, [f"problem {n // 4}" for n in range(count)]


def fit(scores, truths, groups, method=None):
    return fit_calibration(scores, truths, groups, model="m", protocol=PROTOCOL, mode="full", sha256="0", method=method)


ALL = [
    made("temperature", scale=0.3),
    made("platt", scale=2.0, shift=-3.0),
    made("isotonic", x=(0.1, 0.4, 0.8), y=(0.05, 0.05, 0.9)),
]


@pytest.mark.parametrize("calibration", ALL, ids=lambda one: one.method)
@given(p=st.floats(0, 1), q=st.floats(0, 1))
def test_a_map_never_turns_the_order_around_and_stays_in_the_unit_interval(calibration, p, q):
    low, high = sorted((p, q))
    assert 0 <= calibration.apply(low) <= calibration.apply(high) <= 1


@pytest.mark.parametrize("calibration", ALL, ids=lambda one: one.method)
def test_the_threshold_before_calibration_splits_steps_as_the_threshold_after_it(calibration):
    turns = calibration.threshold_before(0.5)
    for n in range(1001):
        p = n / 1000
        if abs(p - turns) > 1e-9:
            assert (p >= turns) == (calibration.apply(p) >= 0.5)


def test_where_nothing_reaches_the_threshold_no_probability_does():
    assert made("isotonic", x=(0.0, 1.0), y=(0.1, 0.4)).threshold_before(0.5) > 1


def test_a_temperature_of_one_changes_nothing():
    assert made("temperature").apply(0.3) == pytest.approx(0.3)


@pytest.mark.parametrize("method", METHODS)
def test_a_fit_lowers_the_log_loss_on_steps_that_it_has_not_seen(method):
    seen, unseen = steps(2000, 0.4, 0.0, seed=1), steps(2000, 0.4, 0.0, seed=2)
    calibration = fit(*seen, method=method)
    from genprm.evaluation.fit import quality

    before = quality(unseen[1], unseen[0])
    after = quality(unseen[1], [calibration.apply(p) for p in unseen[0]])
    assert after.log_loss < before.log_loss
    assert after.brier < before.brier
    assert after.ece < before.ece / 2
    assert calibration.fitted.after.ece < calibration.fitted.before.ece


def test_platt_finds_the_map_that_made_the_truths():
    calibration = fit(*steps(20000, 0.7, -1.0), method="platt")
    assert calibration.scale == pytest.approx(0.7, abs=0.05)
    assert calibration.shift == pytest.approx(-1.0, abs=0.1)


def test_isotonic_is_scikit_learns_but_for_certainty_at_the_ends():
    scores, truths, groups = steps(3000, 1.5, 0.5)
    calibration = fit(scores, truths, groups, method="isotonic")
    theirs = IsotonicRegression(out_of_bounds="clip").fit(scores, truths)
    inner = [n / 100 for n in range(15, 86)]
    assert [calibration.apply(p) for p in inner] == pytest.approx(list(theirs.predict(inner)), abs=0.01)
    assert 0 < calibration.apply(0.0) < calibration.apply(1.0) < 1


def test_a_judge_whose_order_is_worse_than_chance_is_flattened_and_not_turned_around():
    scores, truths, groups = steps(400, 1.0, 0.0)
    calibration = fit([1 - p for p in scores], truths, groups, method="platt")
    assert calibration.apply(0.99) >= calibration.apply(0.01)
    assert calibration.apply(0.99) == pytest.approx(sum(truths) / len(truths), abs=0.01)


def test_the_method_with_the_least_held_out_log_loss_is_chosen():
    chosen = fit(*steps(2000, 1.0, -2.0))
    assert chosen.method in ("platt", "isotonic")  # a temperature alone cannot shift


def test_a_calibrated_step_keeps_the_mean_that_it_was_made_of():
    vote = Vote(p_yes=0.9, mass=1.0, critique="")
    step = judge_step(0, "s", [vote], 0.5, made("platt", scale=1.0, shift=-3.0).apply)
    assert step.features == {"p_yes": 0.9}
    assert step.reward == pytest.approx(sigmoid(logit(0.9) - 3))
    assert step.verdict == "incorrect"
    assert judge_step(0, "s", [vote]).features is None


def test_a_file_comes_back_as_it_was(tmp_path):
    path = tmp_path / "cal.json"
    path.write_text(ALL[2].model_dump_json())
    assert load_calibration(str(path), model="m", protocol=PROTOCOL, mode="full") == ALL[2]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": "other"}, "fitted for the model 'm', not 'other'"),
        ({"mode": "direct"}, "the mode 'full', not 'direct'"),
        ({"protocol": ProtocolRef(name="judge", sha256="ab")}, "the protocol 'compact', not 'judge'"),
        ({"protocol": ProtocolRef(name="compact", sha256="cd")}, "templates 'ab', not 'cd'"),
    ],
)
def test_a_calibration_of_something_else_is_refused(tmp_path, change, words):
    path = tmp_path / "cal.json"
    path.write_text(made().model_dump_json())
    with pytest.raises(ConfigError, match=words):
        load_calibration(str(path), **{"model": "m", "protocol": PROTOCOL, "mode": "full", **change})


@pytest.mark.parametrize("text", ["", "[]", '{"method": "magic"}', '{"schema_version": 1}'])
def test_what_is_no_calibration_is_one_clear_line(tmp_path, text):
    path = tmp_path / "cal.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match="is no calibration"):
        load_calibration(str(path), model="m", protocol=PROTOCOL, mode="full")
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_calibration(str(tmp_path / "none"), model="m", protocol=PROTOCOL, mode="full")


@pytest.mark.parametrize("fields", [{"x": (), "y": ()}, {"x": (0.2, 0.1), "y": (0.1, 0.2)}, {"x": (0.1,), "y": (2.0,)}])
def test_an_isotonic_map_that_is_none_is_refused(fields):
    with pytest.raises(ValueError, match=r"isotonic|decrease|lie in"):
        made("isotonic", **fields)


def test_a_fusion_learns_which_evidence_tells_right_from_wrong():
    chosen = random.Random(0)
    scores, truths, groups, features = [], [], [], []
    for n in range(2000):
        agree, noise = float(chosen.random() < 0.5), chosen.random()
        truths.append(int(chosen.random() < (0.9 if agree else 0.4)))
        scores.append(min(max(0.5 + 0.1 * truths[-1] + chosen.gauss(0, 0.2), 0.01), 0.99))
        groups.append(str(n // 5))
        features.append({"agree": agree, "noise": noise})
    fused = fit_calibration(
        scores, truths, groups, model="m", protocol=PROTOCOL, mode="full", sha256="0", features=features
    )
    assert fused.method == "fusion"
    assert fused.weights["agree"] > 1.5 > abs(fused.weights["noise"]) * 3
    assert fused.scale > 0
    assert fused.fitted.after.auroc > fused.fitted.before.auroc + 0.1
    assert fused.apply(0.5, {"agree": 1.0, "noise": 0.5}) > fused.apply(0.5, {"agree": 0.0, "noise": 0.5})
    turn = fused.threshold_before(0.7, features[0])
    assert fused.apply(turn + 1e-6, features[0]) >= 0.7


def test_a_fusion_without_evidence_is_refused():
    from genprm.errors import InputError

    with pytest.raises(InputError, match="needs evidence"):
        fit(*steps(100, 1.0, 0.0), method="fusion")
    with pytest.raises(ConfigError, match="not collected: agree"):
        made("fusion", weights={"agree": 1.0}).apply(0.5)
