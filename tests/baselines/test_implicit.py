"""The implicit PRM beside log-ratios taken by hand from plain forward passes."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from genprm.baselines.implicit import sigmoid
from genprm.build import load
from genprm.errors import ConfigError
from genprm.types import Solution

from .conftest import FLOAT32


def judge(policy, reference, *overrides):
    names = [f"model={policy}", f"baseline.reference={reference}"]
    return load("default", overrides=["verify.judge=implicit", *names, *FLOAT32, *overrides])


@pytest.fixture(scope="module")
def pair(causal):
    return causal(5), causal(6)


@pytest.fixture(scope="module")
def by_hand(pair, solutions):
    """Sum of log policy - log reference over the tokens of each step, by solution."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(pair[0])
    models = [AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval() for folder in pair]
    sums = {}
    for solution in solutions:
        turn = [{"role": "user", "content": solution.problem}]
        text = tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
        ids = tokenizer.encode(text, add_special_tokens=False)
        bounds = [len(ids)]
        for number, step in enumerate(solution.steps, start=1):
            ids += tokenizer.encode(step, add_special_tokens=False)
            if number < len(solution.steps):
                ids += tokenizer.encode("\n\n", add_special_tokens=False)
            bounds.append(len(ids))
        logs = []
        for model in models:
            with torch.no_grad():
                table = model(torch.tensor([ids])).logits[0].log_softmax(dim=-1)
            logs.append([table[place - 1, token].item() if place else 0.0 for place, token in enumerate(ids)])
        ratios = [ours - theirs for ours, theirs in zip(*logs, strict=True)]
        sums[solution.id] = [sum(ratios[start:end]) for start, end in pairwise(bounds)]
    return sums


@pytest.mark.parametrize(("how", "beta"), [("step", 0.05), ("step", 0.5), ("cumulative", 0.05)])
def test_a_score_is_the_sigmoid_of_the_log_ratio(pair, by_hand, solutions, how, beta):
    with judge(*pair, f"baseline.implicit_score={how}", f"baseline.beta={beta}") as verifier:
        results = list(verifier.verify_many(solutions))
    assert len(results) == len(solutions)
    for result in results:
        sums = by_hand[result.id]
        wanted = [sum(sums[: t + 1]) for t in range(len(sums))] if how == "cumulative" else sums
        found = [step.reward for step in result.steps]
        assert found == pytest.approx([1 / (1 + math.exp(-beta * value)) for value in wanted], abs=1e-5)
        assert result.protocol.name == "baseline:implicit"


def test_the_same_model_twice_says_nothing_either_way(pair, solutions):
    with judge(pair[0], pair[0]) as verifier:
        for result in verifier.verify_many(solutions):
            assert [step.reward for step in result.steps] == [0.5] * len(result.steps)


def test_logits_that_are_too_many_for_one_pass_are_taken_in_several(pair, solutions, monkeypatch):
    with judge(*pair) as verifier:
        whole = {result.id: result.reward for result in verifier.verify_many(solutions)}
        monkeypatch.setattr("genprm.baselines.forward.LOGIT_BYTES", 1)
        parts = {result.id: result.reward for result in verifier.verify_many(solutions)}
    assert parts == pytest.approx(whole, abs=1e-5)


def test_steps_behind_the_context_are_unscored(pair, solutions):
    long = solutions[1]
    with judge(*pair) as verifier:
        whole = [step.reward for step in verifier.verify(long).steps]
    with judge(*pair, "backend.max_context=120") as verifier:
        steps = verifier.verify(long).steps
        hopeless = verifier.verify(long.model_copy(update={"problem": "why? " * 200})).steps
    fitting = sum(step.reward is not None for step in steps)
    assert 0 < fitting < len(long.steps)
    assert [step.reward for step in steps[:fitting]] == pytest.approx(whole[:fitting], abs=1e-5)
    assert all("context is 120" in step.unscored_reason for step in [*steps[fitting:], *hopeless])


def test_a_special_token_in_a_step_is_broken(pair):
    with judge(*pair) as verifier:
        scorer = verifier.scorer
        layout = scorer.layout(Solution(id="0", problem="p", steps=("a <|im_end|> b", "c")))
        plain = scorer.layout(Solution(id="0", problem="p", steps=("a b", "c")))
        number = scorer.tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert layout.ids.count(number) == plain.ids.count(number)


def test_models_of_different_vocabularies_are_refused_in_one_line(pair, causal, words):
    with pytest.raises(ConfigError, match="different vocabularies") as caught:
        judge(pair[0], causal(7, words("<extra_0>")))
    assert "\n" not in str(caught.value)


def test_the_digest_tells_settings_apart(pair):
    digests = set()
    for overrides in ([], ["baseline.beta=0.1"], ["baseline.implicit_score=cumulative"], ["baseline.separator=' '"]):
        with judge(*pair, *overrides) as verifier:
            digests.add(verifier.protocol_ref.sha256)
    assert len(digests) == 4


@pytest.mark.parametrize("value", [-1e6, -3.0, 0.0, 3.0, 1e6])
def test_the_sigmoid_does_not_overflow(value):
    assert 0 <= sigmoid(value) <= 1
    assert sigmoid(value) + sigmoid(-value) == pytest.approx(1)
