"""What each method picks on tables whose outcome is worked out by hand."""

from __future__ import annotations

import pytest

from genprm.errors import ConfigError
from genprm.search import METHODS

from .tables import backend_of, searcher, short

# Behind the root A is better than B at first, but B ends better.
WRITES = {
    "": ["A", "B"],
    "A": ["C", "D"],
    "B": ["E", "F"],
    "A/C": ["=1"],
    "A/D": ["=2"],
    "B/E": ["=3"],
    "B/F": ["=3"],
}
REWARDS = {"A": 0.9, "B": 0.8, "C": 0.3, "D": 0.5, "E": 0.7, "F": 0.6, "=1": 0.9, "=2": 0.8, "=3": 0.95}


def test_best_of_n_picks_the_best_score_and_votes_beside_it():
    found = searcher(WRITES, REWARDS, n=4)
    result = found.solve("q", "best-of-n")
    # Samples in order: A/C, B/E, A/D, B/F; their minima are 0.3, 0.7, 0.5, 0.6.
    assert [(short(one.steps), one.reward) for one in result.candidates] == [
        ("A/C/=1", 0.3),
        ("B/E/=3", 0.7),
        ("A/D/=2", 0.5),
        ("B/F/=3", 0.6),
    ]
    assert (result.pick.answer, result.pick.reward, result.pick.finished) == ("3", 0.7, True)
    assert (result.majority.answer, result.majority.weight, result.majority.share) == ("3", 2, 0.5)
    assert result.weighted_majority.weight == pytest.approx(0.7 + 0.6)
    assert result.weighted_majority.share == pytest.approx(1.3 / 2.1)


@pytest.mark.parametrize(
    ("aggregation", "answer"),
    [("min", "3"), ("last", "3"), ("mean", "3"), ("product", "3")],
)
def test_the_score_is_what_the_aggregation_says(aggregation, answer):
    result = searcher(WRITES, REWARDS, n=4, aggregation=aggregation).solve("q")
    expected = {"min": 0.7, "last": 0.95, "mean": (0.8 + 0.7 + 0.95) / 3, "product": 0.8 * 0.7 * 0.95}
    assert (result.pick.answer, result.aggregation) == (answer, aggregation)
    assert result.pick.reward == pytest.approx(expected[aggregation])


def test_a_beam_of_one_follows_the_best_step_so_far():
    result = searcher(WRITES, REWARDS, n=2, width=1).solve("q", "beam")
    # A (0.9) beats B (0.8); behind it D (0.5) beats C (0.3).
    assert short(result.pick.steps) == "A/D/=2"
    assert result.pick.step_rewards == (0.9, 0.5, 0.8)


def test_a_wider_beam_finds_what_a_greedy_one_misses():
    found = searcher(WRITES, REWARDS, n=4, width=2)
    result = found.solve("q", "beam")
    # Round 1 keeps A and B; round 2 grows C, D, E, F and keeps E (0.7) and F (0.6); round 3 finishes both.
    assert short(result.pick.steps) == "B/E/=3"
    assert [short(one.steps) for one in result.candidates] == ["B/E/=3", "B/F/=3"]
    assert result.counts.rounds == 3
    assert result.ended == "the beam holds finished solutions only"


def test_a_finished_solution_keeps_its_place_in_the_beam_only_while_it_is_among_the_best():
    writes = {"": ["=0", "A"], "A": ["B"], "A/B": ["=9"]}
    low = searcher(writes, {"=0": 0.2, "A": 0.6, "B": 0.6, "=9": 0.6}, n=2, width=1).solve("q", "beam")
    high = searcher(writes, {"=0": 0.7, "A": 0.6, "B": 0.6, "=9": 0.6}, n=2, width=1).solve("q", "beam")
    assert (low.pick.answer, low.counts.rounds) == ("9", 3)
    assert (high.pick.answer, high.counts.rounds) == ("0", 1)


def test_dvts_keeps_its_subtrees_apart():
    # Both samples of the first subtree begin with A, so B must be found by the second one.
    writes = {**WRITES, "": ["A", "A", "B", "B"]}
    result = searcher(writes, REWARDS, n=4, width=2).solve("q", "dvts")
    # First subtree: A, then D over C; second: B, then E over F. A beam of two would have dropped A after round 2.
    assert [short(one.steps) for one in result.candidates] == ["A/D/=2", "B/E/=3"]
    assert (short(result.pick.steps), result.ended) == ("B/E/=3", "every subtree has ended")


def test_mcts_returns_to_a_branch_that_turned_out_better():
    found = searcher(WRITES, REWARDS, simulations=6, expansions=2, c_puct=0.1)
    result = found.solve("q", "mcts")
    assert short(result.pick.steps) == "B/E/=3"
    assert result.counts.rounds == 6
    # One judgement a simulation, whatever else was sampled.
    assert sum(backend_of(found).judged.values()) == 6


@pytest.mark.parametrize("method", METHODS)
def test_each_method_is_found_by_name_and_repeats_its_result(method):
    results = [searcher(WRITES, REWARDS, n=4, width=2, simulations=8, expansions=2).solve("q", method) for _ in "ab"]
    dumped = [result.model_dump(exclude={"usage": {"seconds"}}) for result in results]
    assert dumped[0] == dumped[1]
    assert results[0].method == method


def test_an_unknown_method_and_sizes_that_do_not_divide_are_said_before_any_work():
    found = searcher(WRITES, REWARDS, n=5, width=2)
    with pytest.raises(ConfigError, match=r"'bfs'.*best-of-n, beam"):
        found.solve("q", "bfs")
    with pytest.raises(ConfigError, match=r"search.n = 5 .*search.width = 2"):
        found.solve("q", "dvts")
    assert not backend_of(found).prompts


def test_several_greedy_samples_are_refused():
    with pytest.raises(ConfigError, match=r"policy.temperature is 0"):
        searcher(WRITES, REWARDS, n=2, policy={"temperature": 0}).solve("q")


# ---------------------------------------------------------------------- each prefix once, budgets


@pytest.mark.parametrize("method", ["best-of-n", "beam", "dvts", "mcts", "critic"])
def test_each_distinct_prefix_is_judged_once(method):
    found = searcher(WRITES, REWARDS, n=8, width=2, simulations=20, expansions=4)
    result = found.solve("q", method)
    judged = backend_of(found).judged
    assert set(judged.values()) == {1}
    assert result.counts.judged == len(judged)
    assert result.counts.asked == result.counts.judged + result.counts.reused


def test_repeats_among_samples_are_counted_as_reused():
    result = searcher(WRITES, REWARDS, n=4).solve("q")
    # Four solutions of three steps; A and B begin two of them each.
    assert (result.counts.asked, result.counts.judged, result.counts.reused) == (12, 10, 2)


def test_two_searches_share_the_verdicts_of_common_prefixes():
    first = searcher(WRITES, REWARDS, n=4, width=2)
    second = searcher(WRITES, REWARDS, n=4, width=2, judge=first.judge)
    whole = first.solve("q", "best-of-n")
    again = second.solve("q", "beam")
    assert whole.counts.judged == 10
    assert (again.counts.judged, again.pick.reward) == (0, 0.7)
    assert again.usage.judge_completion_tokens == 0
    other = second.solve("another question", "beam")
    assert other.counts.judged > 0


@pytest.mark.parametrize("method", ["best-of-n", "beam", "dvts", "mcts"])
def test_a_bound_on_judgements_is_never_exceeded_and_is_said(method):
    found = searcher(WRITES, REWARDS, n=4, width=2, simulations=20, expansions=2, budget_judgements=3)
    result = found.solve("q", method)
    assert result.counts.judged == sum(backend_of(found).judged.values()) == 3
    assert "search.budget_judgements = 3 is used up" in result.ended
    assert all("budget_judgements" in one.note for one in result.candidates if one.reward is None)


def test_what_the_budget_left_unjudged_is_unscored_and_not_picked():
    result = searcher(WRITES, REWARDS, n=4, budget_judgements=3).solve("q")
    # The first solution is judged whole; it is the worst, and still the only one with a score.
    assert short(result.pick.steps) == "A/C/=1"
    assert [one.reward is None for one in result.candidates] == [False, True, True, True]


def test_a_bound_on_tokens_ends_the_search_with_what_it_has():
    whole = searcher(WRITES, REWARDS, n=8, width=2).solve("q")
    found = searcher(WRITES, REWARDS, n=8, width=2, budget_tokens=20)
    result = found.solve("q")
    # Waves of two solutions of nine tokens: the bound is reached in the second one.
    assert "search.budget_tokens = 20" in result.ended
    assert result.usage.policy_completion_tokens == 36 < whole.usage.policy_completion_tokens == 72
    assert len(result.candidates) == 4


# ---------------------------------------------------------------------- unfinished and unscored


def test_an_unfinished_solution_is_flagged_and_never_picked_over_a_finished_one():
    writes = {"": ["A", "B"], "A": ["=1"]}
    result = searcher(writes, {"A": 0.2, "B": 0.99, "=1": 0.1}, n=2).solve("q")
    assert (result.pick.answer, result.pick.reward) == ("1", 0.1)
    assert result.counts.unfinished == 1
    (loose,) = [one for one in result.candidates if not one.finished]
    assert (loose.answer, loose.note) == (None, "nothing stands in the table behind 'B'")


@pytest.mark.parametrize("method", ["best-of-n", "beam", "dvts", "mcts", "critic"])
def test_where_nothing_is_finished_the_pick_says_so(method):
    found = searcher({"": ["A"], "A": ["B"], "A/B": ["C"]}, dict.fromkeys("ABC", 0.9), n=2, width=2, simulations=3,
                     policy={"max_steps": 3})  # fmt: skip
    result = found.solve("q", method)
    assert result.pick.finished is False
    assert "policy.max_steps = 3" in result.pick.note
    assert (result.pick.answer, result.majority, result.counts.finished) == (None, None, 0)


def test_an_unscored_solution_is_listed_and_never_picked_over_a_scored_one():
    result = searcher({"": ["U", "A"], "U": ["=5"], "A": ["=1"]}, {"A": 0.05, "=1": 0.05, "=5": 1.0}, n=2).solve("q")
    assert (result.pick.answer, result.counts.unscored) == ("1", 1)
    (unscored,) = [one for one in result.candidates if one.reward is None]
    assert unscored.step_rewards == (None, 1.0)
    assert "the table has no reward for it" in unscored.note
    # It has a vote in the plain majority, and none in the weighted one.
    assert (result.majority.answer, result.majority.share, result.weighted_majority.answer) == ("5", 0.5, "1")


def test_a_beam_prefers_scored_steps_and_goes_on_with_unscored_ones_where_there_are_no_others():
    result = searcher({"": ["U", "A"], "A": ["=1"]}, {"A": 0.05, "=1": 0.05}, n=2, width=1).solve("q", "beam")
    assert result.pick.answer == "1"
    lost = searcher({"": ["U"], "U": ["=5"]}, {}, n=2, width=1).solve("q", "beam")
    assert (lost.pick.answer, lost.pick.reward) == ("5", None)
    assert "unscored: the table has no reward for it" in lost.pick.note


def test_mcts_completes_its_best_partial_solution_where_none_is_finished():
    result = searcher(WRITES, REWARDS, simulations=1, expansions=2).solve("q", "mcts")
    assert result.pick.finished
    assert result.ended == "1 simulations are done; none was finished, so the best one was completed"


def test_a_policy_that_writes_nothing_gives_no_pick_and_a_reason():
    result = searcher({}, {}, n=2, width=2).solve("q", "beam")
    assert (result.pick, result.candidates, result.ended) == (None, (), "no partial solution can go on")
