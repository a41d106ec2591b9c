"""Critic mode: the critique of the first wrong step goes back, and what is right is kept."""

from __future__ import annotations

import asyncio

import genprm

from .tables import backend_of, searcher, short

WRITES = {"": ["A"], "A": ["B"], "A/B": ["=1"], "rewrite": ["A"], "rewrite A": ["C"], "rewrite A/C": ["=2"]}


def test_a_solution_without_a_wrong_step_is_kept():
    found = searcher(WRITES, {"A": 0.9, "B": 0.8, "=1": 0.9})
    result = found.solve("q", "critic")
    assert (short(result.pick.steps), result.counts.rounds) == ("A/B/=1", 0)
    assert result.ended == "no step is found wrong"
    assert result.pick.reward == 0.8


def test_the_first_wrong_step_is_sent_back_with_its_critique_and_the_rewrite_is_picked():
    found = searcher(WRITES, {"A": 0.9, "B": 0.2, "=1": 0.1, "C": 0.7, "=2": 0.8}, mode="full")
    result, scene = asyncio.run(found.asolve("q", "critic"))
    assert (short(result.pick.steps), result.pick.reward, result.counts.rounds) == ("A/C/=2", 0.7, 1)
    asked = next(
        prompt.messages[-1].content for prompt in backend_of(found).prompts if "is wrong" in prompt.messages[-1].content
    )
    assert "Step 2 of your solution is wrong:\nB" in asked
    assert "Looked at." in asked
    # Judging ends at the first wrong step: the last one of the first draft costs nothing.
    assert "A/B/=1" not in backend_of(found).judged
    first = result.candidates[0]
    assert (first.reward, first.step_rewards) == (None, (0.9, 0.2, None))
    assert {node.step: node.round for node in scene.tree.nodes[1:]}["C"] == 1


def test_rewriting_ends_after_the_last_round():
    rewards = {"A": 0.9, "B": 0.2, "C": 0.3, "=1": 0.5, "=2": 0.5}
    for rounds in (0, 2):
        found = searcher(WRITES, rewards, rounds=rounds)
        result = found.solve("q", "critic")
        assert result.ended == f"the step at index 1 is still wrong after {rounds} rewrites"
        assert result.counts.rounds == rounds
        assert short(result.pick.steps) == ("A/B/=1" if rounds == 0 else "A/C/=2")


def test_nothing_is_rewritten_on_a_step_that_could_not_be_judged():
    result = searcher(WRITES, {"A": 0.9, "=1": 0.9}).solve("q", "critic")
    assert (short(result.pick.steps), result.counts.rounds) == ("A/B/=1", 0)
    assert result.ended == "the step at index 1 is unscored: the table has no reward for it"


def test_an_unfinished_rewrite_does_not_take_the_place_of_an_answer():
    writes = {key: steps for key, steps in WRITES.items() if key != "rewrite A/C"}
    result = searcher(writes, {"A": 0.9, "B": 0.2, "C": 0.9}).solve("q", "critic")
    assert (result.pick.answer, result.counts.unfinished) == ("1", 1)


def test_the_scripted_policy_mends_what_the_scripted_judge_found():
    with genprm.load_search("scripted", overrides=["verify.seed=0"]) as found:
        results = [found.solve(f"What is {n} + 4 * 2 - 1 + 10?", "critic") for n in range(3, 9)]
    assert {result.pick.answer for result in results} == {str(n + 17) for n in range(3, 9)}
    assert {result.counts.rounds for result in results} == {0, 1}
