"""How scores become results, and streams become batches, with scorers that need no model."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from genprm.baselines.outcome import NOT_OF_STEPS, OutcomeScorer
from genprm.baselines.scored import READ_AHEAD, Scored, ScoredVerifier
from genprm.build import load, load_generative
from genprm.config import load_config
from genprm.errors import BackendUnavailable, ConfigError, Unscored
from genprm.types import Solution
from genprm.verifier import GenPRM, Verifier


class Lengths:
    """Scores a step by a number that it holds; notes what it is given."""

    name, model = "lengths", "none"

    def __init__(self, wait: float = 0.0):
        self.wait, self.batches, self.threads, self.closed = wait, [], set(), 0

    def settings_digest(self):
        return "0" * 64

    def score(self, batch):
        time.sleep(self.wait)
        self.batches.append([solution.id for solution in batch])
        self.threads.add(threading.get_ident())
        return [Scored(tuple(map(self.one, solution.steps)), prompt_tokens=7) for solution in batch]

    def one(self, step):
        return Unscored("it says nothing") if step == "?" else float(step)

    def close(self):
        self.closed += 1


def make(scorer=None, *overrides):
    return ScoredVerifier(scorer or Lengths(), load_config("default", list(overrides)))


def solution(*steps, **fields):
    return Solution(**{"id": "s", "problem": "p", "steps": steps, **fields})


def test_scores_become_verdicts_a_first_error_and_a_reward():
    with make() as judge:
        result = judge.verify(solution("0.9", "0.5", "0.2", "0.7", label=2))
    assert [step.verdict for step in result.steps] == ["correct", "correct", "incorrect", "correct"]
    assert (result.first_error, result.reward, result.aggregation, result.label) == (2, 0.2, "min", 2)
    assert (result.model, result.protocol.name, result.sandbox) == ("none", "baseline:lengths", "off")
    assert result.protocol == judge.protocol_ref
    assert result.usage.prompt_tokens == 7
    (vote,) = result.steps[0].votes
    assert (vote.p_yes, vote.mass, vote.critique, vote.direct) == (0.9, None, "", True)


@pytest.mark.parametrize(("score", "reason"), [("?", "it says nothing"), ("nan", "not a number")])
def test_a_step_without_a_score_is_unscored_with_the_reason(score, reason):
    with make() as judge:
        result = judge.verify(solution("0.9", score, "0.1"))
    assert (result.steps[1].reward, result.steps[1].verdict) == (None, "unscored")
    assert reason in result.steps[1].unscored_reason
    assert (result.first_error, result.reward) == (None, None)


def test_early_stop_leaves_out_what_comes_after_the_first_error():
    with make(None, "verify.early_stop=true") as judge:
        result = judge.verify(solution("0.9", "0.2", "0.7"))
    assert (len(result.steps), result.stopped_early, result.first_error) == (2, True, 1)


def test_threshold_and_aggregation_are_those_of_the_config():
    with make(None, "verify.threshold=0.95", "verify.aggregation=mean") as judge:
        result = judge.verify(solution("0.9", "1.0"))
    assert (result.first_error, result.reward) == (0, pytest.approx(0.95))


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([Scored((0.5,))], "gave 1 scores for the 2 steps of solution 's'"),
        ([Scored((0.5, 0.5, 0.5))], "gave 3 scores for the 2 steps"),
        ([], "answered for 0 of 1"),
        ([Scored((0.5, 1.5))], r"1\.5"),
    ],
)
def test_a_wrong_number_of_scores_or_one_out_of_range_is_loud(monkeypatch, rows, said):
    scorer = Lengths()
    monkeypatch.setattr(scorer, "score", lambda batch: rows)
    with make(scorer) as judge, pytest.raises(BackendUnavailable, match=said) as caught:
        judge.verify(solution("1", "1"))
    assert "\n" not in str(caught.value)


def test_a_stream_is_judged_in_batches_of_like_length_with_little_read_ahead():
    scorer, read = Lengths(), 0

    def source():
        nonlocal read
        for number in range(50):
            read += 1
            yield solution("1", id=str(number), problem="p" * (number * 7 % 50))

    with make(scorer, "backend.max_batch=2") as judge:
        stream = judge.verify_many(source())
        first = next(stream)
        assert read <= 2 * READ_AHEAD * 2
        results = [first, *stream]
    assert sorted(int(result.id) for result in results) == list(range(50))
    assert {len(batch) for batch in scorer.batches} == {2}
    lengths = [int(number) * 7 % 50 for batch in scorer.batches[:READ_AHEAD] for number in batch]
    assert lengths == sorted(lengths)


def test_scoring_does_not_block_the_event_loop():
    async def run() -> int:
        ticks = 0
        task = asyncio.ensure_future(judge.averify(solution("1")))
        while not task.done():
            await asyncio.sleep(0.01)
            ticks += 1
        await task
        return ticks

    with make(Lengths(wait=0.3)) as judge:
        assert asyncio.run(run()) >= 5


def test_a_failure_of_the_scorer_reaches_the_caller_and_leaving_early_ends_the_work():
    with make() as judge:
        with pytest.raises(ValueError, match="could not convert"):
            list(judge.verify_many([solution("x")]))
        for _ in judge.verify_many(solution("1", id=str(number)) for number in range(10**9)):
            break


def test_close_closes_the_scorer():
    scorer = Lengths()
    make(scorer).close()
    assert scorer.closed == 1


@pytest.mark.parametrize("override", ["verify.votes=4", "verify.cascade=[0.2, 0.8]"])
def test_what_a_scorer_has_not_is_refused(override):
    with pytest.raises(ConfigError, match=override.split("=")[0].replace(".", r"\.")):
        make(None, override)


def test_both_kinds_of_verifier_have_the_same_surface():
    with load("scripted") as generative, load("default", overrides=["verify.judge=outcome"]) as baseline:
        assert isinstance(generative, GenPRM)
        assert isinstance(baseline, ScoredVerifier)
        for judge in (generative, baseline):
            assert isinstance(judge, Verifier)
            result = judge.verify(solution("1 + 1 = 2.", answer="2"))
            assert (result.model, result.protocol) == (judge.model, judge.protocol_ref)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["verify.judge=prm_head", "backend.kind=scripted"], "'scripted'"),
        (["verify.judge=implicit"], "baseline.reference"),
        (["verify.judge=outcome", "verify.votes=2"], "verify.votes"),
    ],
)
def test_settings_that_do_not_fit_the_judge_are_refused_in_one_line(overrides, said):
    with pytest.raises(ConfigError, match=said) as caught:
        load("default", overrides=overrides)
    assert "\n" not in str(caught.value)


def test_what_needs_critiques_refuses_a_baseline():
    with pytest.raises(ConfigError, match="'outcome'"):
        load_generative(load_config("default", ["verify.judge=outcome"]))


def test_baseline_settings_count_in_the_digest_only_where_a_baseline_judges():
    def digest(*overrides):
        return load_config("default", list(overrides)).digest()

    assert digest() == digest("baseline.beta=0.2")
    implicit = "verify.judge=implicit"
    assert len({digest(), digest(implicit), digest(implicit, "baseline.beta=0.2")}) == 3


@pytest.mark.parametrize(
    ("steps", "answer", "reward", "reason"),
    [
        (("1 + 1 = 2.", "The answer is 2."), "2", 1.0, None),
        (("1 + 1 = 3.", "The answer is 3."), "2", 0.0, None),
        (("We cannot know.", "Nobody says."), "2", None, "states no final answer"),
        (("1 + 1 = 2.", "The answer is 2."), None, None, "needs the reference"),
    ],
)
def test_an_outcome_check_scores_the_last_step_alone_and_that_is_the_reward(steps, answer, reward, reason):
    with ScoredVerifier(OutcomeScorer(), load_config("default", ["verify.aggregation=min"])) as judge:
        result = judge.verify(solution(*steps, answer=answer))
    assert (result.steps[0].reward, result.steps[0].unscored_reason) == (None, NOT_OF_STEPS)
    assert (result.steps[1].reward, result.reward, result.aggregation) == (reward, reward, "last")
    assert result.first_error is None
    if reason is not None:
        assert reason in result.steps[1].unscored_reason
    assert (result.outcome is None) == (answer is None)
