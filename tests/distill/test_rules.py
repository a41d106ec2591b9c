"""Label rules against values worked out by hand, and the bisection against a full scan."""

from __future__ import annotations

import math

import pytest
from genprm.distill.rules import (
    Bisection,
    Question,
    first_error,
    hard_labels,
    labels_of,
    monte_carlo,
    outcome_labels,
    relative_progress,
    rollout_count,
    rpe_labels,
    soft_labels,
)

TABLE = ((0.1, 128), (0.9, 64), (1.01, 32))


@pytest.mark.parametrize(
    ("rate", "count"), [(0.0, 128), (None, 128), (0.099, 128), (0.1, 64), (0.5, 64), (0.9, 32), (1.0, 32)]
)
def test_hard_problems_get_more_rollouts(rate, count):
    assert rollout_count(rate, TABLE) == count


def test_a_rate_above_the_whole_table_gets_its_last_count():
    assert rollout_count(0.7, ((0.5, 9), (0.6, 4))) == 4


def test_monte_carlo_is_a_share_of_known_rollouts_and_unknown_without_any():
    assert monte_carlo(3, 4) == 0.75
    assert monte_carlo(0, 0) is None


def test_soft_and_hard_labels_keep_what_is_not_known():
    values = [0.5, 0.25, None, 0.0]
    assert soft_labels(values, 0.5) == [True, False, None, False]
    assert hard_labels(values) == [True, True, None, False]


@pytest.mark.parametrize(
    ("values", "rate", "progress"),
    [
        ([0.5, 0.25, 0.5], 0.5, [1.0, 0.5, 2.0]),
        ([0.0, 0.0], 0.5, [0.0, 0.0]),
        ([0.0, 0.5], 0.0, [0.0, math.inf]),
        ([0.5, None, 0.5], 1.0, [0.5, None, None]),
        ([0.5], None, [None]),
    ],
)
def test_relative_progress_divides_by_the_step_before(values, rate, progress):
    assert relative_progress(values, rate) == progress


@pytest.mark.parametrize(
    ("values", "rate", "final", "labels"),
    [
        # P = 1, 0.5, 2, then 1 / 0.5 by the right final answer.
        ([0.5, 0.25, 0.5, None], 0.5, True, [True, False, True, True]),
        # The value of the last step counts for nothing beside its final answer.
        ([0.5, 0.5, 0.9], 0.5, False, [True, True, False]),
        # From the first step with MC = 0 on all are wrong, whatever comes.
        ([0.5, 0.0, 0.5, 1.0], 0.5, True, [True, False, False, False]),
        # Exactly at the threshold: 0.32 / 0.4, which is less than 0.8 in binary.
        ([0.32, 1.0], 0.4, True, [True, True]),
        ([0.31, 1.0], 0.4, True, [False, True]),
        # Never solved: 0/0 counts as 0.
        ([0.0, 0.0], 0.0, False, [False, False]),
        # Unknown stays unknown, but not behind a lost step.
        ([None, 0.0, None, None], 0.5, None, [None, False, False, False]),
        ([0.5, None, 0.5], 0.5, None, [True, None, None]),
        ([1.0], 0.25, True, [True]),
    ],
)
def test_relative_progress_estimation_follows_genprm(values, rate, final, labels):
    assert rpe_labels(values, rate, final) == labels


def test_the_threshold_of_relative_progress_can_be_set():
    assert rpe_labels([0.3, 1.0], 0.5, True, threshold=0.6) == [True, True]


def test_the_outcome_says_something_of_the_last_step_only():
    assert outcome_labels(3, False) == [None, None, False]
    assert outcome_labels(1, None) == [None]


@pytest.mark.parametrize(
    ("labels", "first"),
    [([True, True], -1), ([True, False, True], 1), ([None, False], None), ([True, None], None), ([False, None], 0)],
)
def test_the_first_error_is_known_only_where_all_before_it_are(labels, first):
    assert first_error(labels) == first


@pytest.mark.parametrize("count", range(1, 6))
def test_labels_of_a_first_error_lead_back_to_it(count):
    for first in (*range(-1, count), None):
        labels = labels_of(first, count)
        assert len(labels) == count
        assert first_error(labels) == first
    assert labels_of(0, 3) == [False, None, None]


@pytest.mark.parametrize("count", range(1, 13))
def test_bisection_finds_what_a_full_scan_finds_in_logarithmically_many_rounds(count):
    for error in range(count):
        values = [0.5 if step < error else 0.0 for step in range(count)]
        scanned = first_error(hard_labels(values))
        search, rounds = Bisection(count), 0
        while (length := search.ask()) is not None:
            assert 0 < length < count
            search.tell(length, values[length - 1])
            rounds += 1
        assert search.first == scanned == error
        assert rounds <= math.ceil(math.log2(count))
        assert rounds <= math.log2(count) + 1


def test_bisection_says_nothing_where_a_prefix_could_not_be_decided():
    search = Bisection(8)
    assert search.first is None
    search.tell(4, 0.5)
    search.tell(6, None)
    assert search.ask() is None
    assert search.first is None


@pytest.mark.parametrize(
    ("question", "right", "known", "bound", "settled"),
    [
        # One right rollout settles that MC is above 0; none leaves it open.
        (Question(above_zero=True), 1, 1, None, True),
        (Question(above_zero=True), 0, 32, 0.02, False),
        (Question(above_zero=True), 0, 64, None, True),
        # 32 of 64 are reached, or can no longer be.
        (Question(threshold=0.5), 32, 32, None, True),
        (Question(threshold=0.5), 31, 31, None, False),
        (Question(threshold=0.5), 0, 33, None, True),
        (Question(threshold=0.5), 0, 32, None, False),
        # With a bound the likely is enough, the even is not.
        (Question(threshold=0.5), 8, 8, 0.02, True),
        (Question(threshold=0.5), 4, 8, 0.02, False),
        (Question(threshold=0.5), 0, 8, 0.02, True),
        # Both questions must be settled.
        (Question(threshold=0.5, above_zero=True), 0, 8, 0.02, False),
        (Question(threshold=0.5), 0, 0, 0.5, False),
    ],
)
def test_rollouts_stop_once_what_is_asked_is_sure_enough(question, right, known, bound, settled):
    assert question.settled(right, known, 64, bound) is settled
