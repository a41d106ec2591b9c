"""Arithmetic from votes to rewards."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genprm.aggregate import aggregate, first_error, joint, judge_step
from genprm.types import FailedVote, Vote


def vote(p):
    return Vote(p_yes=p, mass=1.0, critique="")


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9))
def test_a_step_reward_is_the_mean_of_its_votes(values):
    step = judge_step(0, "s", [vote(p) for p in values])
    assert step.reward == pytest.approx(math.fsum(values) / len(values))
    assert step.verdict == ("correct" if step.reward >= 0.5 else "incorrect")


def test_a_reward_of_exactly_half_is_correct():
    assert judge_step(0, "s", [vote(0.25), vote(0.75)]).verdict == "correct"


def test_failed_votes_take_no_part_and_are_kept():
    step = judge_step(0, "s", [vote(0.2), FailedVote(reason="the sandbox failed")])
    assert step.reward == 0.2
    assert [failed.reason for failed in step.failed_votes] == ["the sandbox failed"]


def test_no_usable_vote_is_unscored_with_every_distinct_reason_and_no_number():
    step = judge_step(0, "s", [FailedVote(reason="a"), FailedVote(reason="b"), FailedVote(reason="a")])
    assert (step.reward, step.verdict, step.unscored_reason) == (None, "unscored", "a; b")


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [([0.9, 0.8], -1), ([0.9, 0.4, 0.1], 1), ([None, 0.1], None), ([0.2, None], 0), ([0.9, None], None), ([0.5], -1)],
)
def test_the_first_error_is_undecided_behind_an_unscored_step(rewards, expected):
    steps = [judge_step(i, "s", [] if r is None else [vote(r)]) for i, r in enumerate(rewards)]
    assert first_error(steps) == expected


@pytest.mark.parametrize(("how", "expected"), [("min", 0.2), ("product", 0.05), ("mean", 0.4), ("last", 0.5)])
def test_aggregations(how, expected):
    assert aggregate([0.5, 0.2, 0.5], how) == pytest.approx(expected)


@pytest.mark.parametrize("how", ["min", "product", "mean", "last"])
def test_a_solution_with_an_unscored_step_has_no_reward(how):
    assert aggregate([0.5, None], how) is None
    assert aggregate([], how) is None


def test_an_unknown_aggregation_is_refused():
    with pytest.raises(ValueError, match="median"):
        aggregate([0.5], "median")


@pytest.mark.parametrize(
    ("process", "outcome", "weight", "reward"),
    [
        (0.25, None, 0.0, 0.25),
        (0.25, 1.0, 0.5, 0.5),
        (0.25, 0.5, 1.0, 0.5),
        (0.25, None, 0.5, None),
        (None, 1.0, 0.5, None),
        (0.5, 0.0, 0.5, 0.0),
    ],
)
def test_process_and_outcome_are_put_together_by_a_geometric_mean(process, outcome, weight, reward):
    assert joint(process, outcome, weight) == (None if reward is None else pytest.approx(reward))
