"""Labels from the likeliest tokens: what is not shown is bounded, and an open verdict is no verdict."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genprm.backends.bounds import bounded_labels
from genprm.errors import Unscored

YES_NO = {"Yes": ("Yes",), "No": ("No",)}


def logs(**probs):
    return {token: math.log(p) for token, p in probs.items()}


def test_a_label_that_is_not_shown_has_at_most_what_is_left():
    read = bounded_labels(logs(Yes=0.9, a=0.05, b=0.03), YES_NO)
    # `N` and `No`, each with or without a space, might share the last 0.02.
    assert read.probs["Yes"] == pytest.approx(0.9 / 0.92)
    assert read.slack == pytest.approx(1 - 0.9 / 0.92)
    assert read.mass == pytest.approx(0.9)


def test_what_is_hidden_is_bounded_by_the_smallest_shown_times_the_beginnings():
    shown = logs(Yes=0.5, a=0.2, b=0.001)
    read = bounded_labels(shown, YES_NO)
    assert read.probs["Yes"] == pytest.approx(0.5 / (0.5 + 4 * 0.001))


def test_the_bound_nearest_to_the_threshold_is_taken_on_either_side():
    shown = logs(No=0.9, a=0.05, b=0.03)
    read = bounded_labels(shown, YES_NO)
    assert read.probs["Yes"] == pytest.approx(0.02 / 0.92)
    assert sum(read.probs.values()) == pytest.approx(1)


def test_bounds_that_leave_the_verdict_open_are_no_verdict():
    with pytest.raises(Unscored, match="leave the verdict open"):
        bounded_labels(logs(Yes=0.05, a=0.5, b=0.2), YES_NO)
    with pytest.raises(Unscored, match="leave the verdict open"):
        bounded_labels(logs(maybe=0.999), YES_NO)


def test_the_threshold_of_the_verdict_decides_what_is_open():
    shown = logs(Yes=0.6, No=0.3, a=0.06, b=0.04)
    assert bounded_labels(shown, YES_NO, 0.5).probs["Yes"] == pytest.approx(0.6 / 0.9)
    assert bounded_labels(shown, YES_NO, 0.9).probs["Yes"] == pytest.approx(0.6 / 0.9)
    open_one = logs(Yes=0.6, No=0.3, a=0.05)
    with pytest.raises(Unscored):
        bounded_labels(open_one, YES_NO, 0.68)


def test_beginnings_of_a_label_and_spaces_before_it_count_for_it():
    read = bounded_labels({"Y": math.log(0.3), " Yes": math.log(0.3), "\u0120No": math.log(0.4)}, YES_NO)
    assert read.probs["Yes"] == pytest.approx(0.6)
    assert read.mass == pytest.approx(1.0)


def test_labels_spelled_with_a_space_are_found_with_and_without_it():
    shown = {" Yes": math.log(0.6), "No": math.log(0.3), "a": math.log(1e-6)}
    for labels in ({"Yes": (" Yes",), "No": (" No",)}, YES_NO):
        assert bounded_labels(shown, labels).probs["Yes"] == pytest.approx(2 / 3, abs=1e-4)


def test_a_token_that_begins_several_labels_settles_none():
    labels = {str(index): (f"{index}}}",) for index in range(-1, 13)}
    with pytest.raises(Unscored):
        bounded_labels(logs(**{"1": 0.9, "2": 0.06, "-": 0.03}), labels)
    read = bounded_labels(logs(**{"2": 0.95, "-": 0.04, "1": 0.005}), labels)
    assert max(read.probs, key=read.probs.__getitem__) == "2"
    assert 0 < read.slack < 0.1


@given(st.lists(st.floats(1e-6, 1), min_size=8, max_size=8), st.integers(1, 7))
def test_the_true_probability_lies_within_what_is_said(weights, count):
    """Whatever the true distribution over all tokens is, seeing the likeliest of them never says more than it is."""
    tokens = ["Yes", "Y", "Ye", "No", "N", "a", "b", "c"]
    total = sum(weights)
    full = {token: weight / total for token, weight in zip(tokens, weights, strict=True)}
    yes = sum(full[token] for token in tokens[:3])
    true = yes / (yes + full["No"] + full["N"])
    shown = dict(sorted(full.items(), key=lambda item: -item[1])[:count])
    try:
        read = bounded_labels({token: math.log(p) for token, p in shown.items()}, YES_NO)
    except Unscored:
        return
    said, tiny = read.probs["Yes"], 1e-9
    if said >= 0.5:
        assert said - tiny <= true <= said + read.slack + tiny
    else:
        assert said - read.slack - tiny <= true <= said + tiny
