"""Picks from pools of candidates, by hand."""

from __future__ import annotations

from itertools import combinations

import pytest

from genprm.evaluation.best_of_n import AGGREGATIONS, OURS, Candidate, methods_of, metrics, picked, sizes


def candidate(correct, answer, *rewards, **others):
    return Candidate(correct, answer, {OURS: rewards, **others})


POOL = [
    candidate(False, "1", 0.9, 0.4),
    candidate(True, "2", 0.6, 0.6),
    candidate(False, "1", 0.5, 0.5),
    candidate(True, "2", 0.99, 0.5),
]


@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("random", 0.5),
        ("oracle", 1.0),
        ("majority", 0.5),  # two answers with two votes each
        (f"{OURS} (min)", 1.0),  # .4 .6 .5 .5
        (f"{OURS} (product)", 1.0),  # .36 .36 .25 .495
        (f"{OURS} (mean)", 1.0),  # .65 .6 .5 .745
        (f"{OURS} (last)", 1.0),  # .4 .6 .5 .5
        (f"{OURS} (min, weighted vote)", 1.0),  # .9 for "1", 1.1 for "2"
    ],
)
def test_a_pick_from_the_whole_pool(name, right):
    assert picked(POOL, name) == right


def test_smaller_n_is_the_mean_over_all_subsets():
    pick = f"{OURS} (last)"
    by_hand = [picked([POOL[i] for i in pair], pick) for pair in combinations(range(4), 2)]
    found = metrics([POOL], resamples=20)
    assert found["methods"][pick]["2"]["accuracy"] == pytest.approx(sum(by_hand) / 6)
    assert found["methods"][pick]["1"]["accuracy"] == pytest.approx(0.5)
    assert found["methods"]["oracle"]["2"]["accuracy"] == pytest.approx(5 / 6)


def test_ties_share_the_pick():
    assert picked([candidate(True, "1", 0.7), candidate(False, "2", 0.7)], f"{OURS} (min)") == 0.5


def test_an_unscored_candidate_is_never_picked_while_another_is_scored():
    pool = [candidate(True, "1", None, 0.9), candidate(False, "2", 0.1)]
    assert picked(pool, f"{OURS} (min)") == 0.0
    assert picked([candidate(True, "1", None), candidate(False, "2", None)], f"{OURS} (min)") == 0.5
    assert metrics([pool], resamples=10)["unscored_candidates"] == {OURS: 1}


def test_a_candidate_without_an_answer_has_no_vote():
    pool = [candidate(False, None, 0.9), candidate(False, None, 0.9), candidate(True, "2", 0.1)]
    assert picked(pool, "majority") == 1.0


def test_other_scorers_stand_beside_ours():
    pool = [candidate(True, "1", 0.2, qwen=[0.9]), candidate(False, "2", 0.8, qwen=[0.1])]
    assert picked(pool, "qwen (last)") == 1.0
    assert picked(pool, f"{OURS} (last)") == 0.0
    assert f"{OURS} (min)" in metrics([pool], resamples=10)["methods"]
    assert len(methods_of([OURS, "qwen"])) == 3 + 2 * 8


def test_large_pools_are_sampled_and_the_seed_decides():
    pool = [candidate(n % 3 == 0, str(n % 5), n / 20) for n in range(20)]
    first, again, other = (metrics([pool], seed=seed, resamples=10)["methods"] for seed in (0, 0, 1))
    assert first == again
    assert first["majority"]["8"] != other["majority"]["8"]
    assert first["random"]["20"]["accuracy"] == pytest.approx(7 / 20)


def test_pools_of_different_sizes_are_cut_to_the_smallest_and_it_is_said():
    found = metrics([POOL, POOL[:2]], resamples=10)
    assert (found["candidates"], found["dropped_candidates"]) == (2, 2)


def test_the_sizes_are_powers_of_two_and_the_whole():
    assert sizes(8) == [1, 2, 4, 8]
    assert sizes(6) == [1, 2, 4, 6]
    assert sizes(1) == [1]


def test_no_problem_gives_no_figures():
    assert metrics([])["methods"] == {}


def test_a_factor_multiplies_the_aggregated_score_and_an_unknown_one_leaves_none():
    pool = [
        Candidate(True, "1", {"joint": [0.6, 0.9]}, {"joint": 1.0}),
        Candidate(False, "2", {"joint": [0.8, 0.9]}, {"joint": 0.5}),
        Candidate(False, "3", {"joint": [0.9, 0.9]}, {"joint": None}),
    ]
    assert picked(pool, "joint (min)") == 1.0
    assert picked(pool[1:], "joint (min)") == 0.0


def test_picks_are_compared_on_the_same_problems():
    won = [candidate(True, "1", 0.9, other=[0.1]), candidate(False, "2", 0.1, other=[0.9])]
    even = [candidate(True, "1", 0.9, other=[0.9]), candidate(False, "2", 0.1, other=[0.1])]
    found = metrics([won, won, won, even], resamples=500)["paired"]
    against = found[f"{OURS} (min)"]["other (last)"]
    assert against["difference"] == pytest.approx(0.75)
    # Three problems differ, each by one: all three signs agree in 2 of 8 ways.
    assert against["p"] == pytest.approx(0.25, abs=0.03)
    assert against["ci"][0] < 0.75 < against["ci"][1]
    assert set(found) == {f"{OURS} ({how}{vote})" for how in AGGREGATIONS for vote in ("", ", weighted vote")}
    assert found[f"{OURS} (min)"]["oracle"] == {"difference": 0.0, "ci": [0.0, 0.0], "p": 1.0}
