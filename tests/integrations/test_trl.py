"""Reward functions as TRL calls them, and a real GRPO run."""

from __future__ import annotations

import asyncio
import pickle

import pytest

from genprm.errors import BackendUnavailable, ConfigError, InputError, Unscored
from genprm.integrations.trl import make_reward, make_step_rewards

from .conftest import RIGHT, WRONG, Counting

PROMPT = [{"role": "user", "content": "12 + 30?"}]


def said(text):
    return [{"role": "assistant", "content": text}]


def test_one_reward_a_completion_and_unknown_columns_are_ignored(scripted):
    reward = make_reward(scripted)
    given = {"completion_ids": [[1], [2]], "trainer_state": None, "environments": [1, 2], "answer": ["42", "42"]}
    right, wrong = reward(prompts=["12 + 30?"] * 2, completions=[RIGHT, f"{RIGHT}\n\n{WRONG}"], **given)
    assert right > 0.5 > wrong


def test_messages_give_the_same_as_texts(scripted):
    reward = make_reward(scripted)
    assert reward([PROMPT], [said(WRONG)]) == reward(["12 + 30?"], [WRONG])


def test_a_coroutine_function_gives_the_same(scripted):
    from trl.trainer.utils import get_callable_name, is_async_callable

    sync, asynchronous = make_reward(scripted), make_reward(scripted, asynchronous=True, name="judge")
    assert [is_async_callable(function) for function in (sync, asynchronous)] == [False, True]
    assert [get_callable_name(function) for function in (sync, asynchronous)] == ["genprm", "judge"]
    assert asyncio.run(asynchronous([PROMPT], [said(WRONG)])) == sync([PROMPT], [said(WRONG)])


@pytest.mark.parametrize(("how", "expected"), [(None, 0.1), ("min", 0.1), ("mean", 0.2), ("last", 0.2)])
def test_steps_are_put_together_as_asked(how, expected):
    reward = make_reward(Counting(lambda text: float(text) / 10), how)
    assert reward(["p"], ["1\n\n3\n\n2"]) == [pytest.approx(expected)]


@pytest.mark.parametrize("completion", ["a\n\nb?", "", " \n"])
def test_unscored_is_none_unless_the_caller_says_otherwise(completion):
    assert make_reward(Counting())(["p", "p"], ["a", completion]) == [0.9, None]
    assert make_reward(Counting(), unscored=0.0)(["p"], [completion]) == [0.0]
    with pytest.raises(Unscored, match="completion 0 is unscored"):
        make_reward(Counting(), unscored="raise")(["p"], [completion])


def test_a_lost_engine_ends_training():
    class Lost(Counting):
        def verify_many(self, solutions):
            if any(solutions):
                raise BackendUnavailable("the server is gone")
            return iter(())

    with pytest.raises(BackendUnavailable, match="gone"):
        make_reward(Lost())(["p"], ["a"])


def test_the_answer_column_is_judged_where_the_outcome_counts(scripted):
    reward = make_reward(scripted, outcome_weight=0.5)
    completions = [f"{RIGHT}\n\nThe answer is \\boxed{{42}}."] * 2
    right, wrong = reward([PROMPT] * 2, [said(text) for text in completions], answer=["42", "43"])
    assert right - wrong == pytest.approx(0.5)
    assert reward([PROMPT], [completions[0]], answer=[None]) == [None]
    with pytest.raises(InputError, match="answer: the dataset has no such column"):
        reward([PROMPT], [completions[0]])


def test_a_column_may_hold_the_problem():
    counting = Counting()
    make_reward(counting, problem_column="question")(["system words 12 + 30?"], ["a"], question=["12 + 30?"])
    assert [solution.problem for solution in counting.asked] == ["12 + 30?"]


def test_the_trainers_metrics_are_fed():
    metrics, extra = {}, {}
    make_reward(Counting(), name="g")(
        ["p", "p"], ["a\n\nb", "c?"], log_metric=metrics.__setitem__, log_extra=extra.__setitem__
    )
    assert metrics == {"g/unscored": 0.5, "g/steps": 1.5, "g/with_error": 0.0}
    assert extra == {"g_steps": [[0.9, 0.9], [None]]}


def test_a_function_made_from_a_name_can_be_pickled(scripted):
    reward = make_reward("scripted", "mean", name="g")
    copy = pickle.loads(pickle.dumps(reward))
    assert copy.__name__ == "g"
    assert copy(["p"], [WRONG]) == make_reward(scripted, "mean")(["p"], [WRONG])
    copy.close()


@pytest.mark.parametrize("wrong", [{"aggregation": "max"}, {"outcome_weight": 2}, {"unscored": "zero"}])
def test_settings_that_cannot_be_meant_are_refused_at_once(wrong):
    with pytest.raises(ConfigError):
        make_reward("scripted", **wrong)


def test_step_rewards_stand_on_the_policys_own_tokens(scripted, tiny_tokenizer):
    text = f"{RIGHT}\n\n{WRONG}"
    ids = tiny_tokenizer(text, add_special_tokens=False)["input_ids"]
    function = make_step_rewards(scripted, tiny_tokenizer)
    (row,) = function([PROMPT], [said(text)], completion_ids=[[*ids, tiny_tokenizer.eos_token_id]], anything=[1])
    places = [place for place, reward in enumerate(row) if reward]
    assert len(row) == len(ids) + 1
    assert [tiny_tokenizer.decode(ids[: place + 1]) for place in places] == [RIGHT, text]
    assert row[places[0]] > 0.5 > row[places[1]]
    assert function([PROMPT], [text]) == [row[:-1]]  # without ids the tokenizer makes them


def test_a_conversation_with_tools_has_tokens_that_are_not_the_policys(tiny_tokenizer):
    with pytest.raises(InputError, match="several messages"):
        make_step_rewards(Counting(), tiny_tokenizer)([PROMPT], [said("a") + said("b")])


@pytest.mark.model
@pytest.mark.filterwarnings("ignore")  # the trainer's own warnings are not ours
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_real_trainer_takes_three_steps_with_the_judges_rewards(asynchronous, embedded_folder, scripted, tmp_path):
    import torch
    from datasets import Dataset
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
    from trl import GRPOConfig, GRPOTrainer

    tokenizer = AutoTokenizer.from_pretrained(embedded_folder)
    torch.manual_seed(0)
    policy = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    before = policy.model.layers[0].mlp.up_proj.weight.detach().clone()
    given = []

    class Watched(type(make_reward(scripted, asynchronous=asynchronous))):
        def _rewards(self, found, columns):
            given.append(super()._rewards(found, columns))
            return given[-1]

    reward = make_reward(scripted, "mean", asynchronous=asynchronous)
    reward.__class__ = Watched
    config = GRPOConfig(
        output_dir=str(tmp_path), max_steps=3, per_device_train_batch_size=4, num_generations=4,
        max_completion_length=12, learning_rate=1e-2, use_cpu=True, bf16=False, gradient_checkpointing=False,
        report_to="none", logging_steps=1, save_strategy="no", disable_tqdm=True, seed=0,
    )  # fmt: skip
    rows = Dataset.from_list([{"prompt": PROMPT, "answer": "42"}, {"prompt": PROMPT, "answer": "42"}])
    trainer = GRPOTrainer(policy, reward, args=config, train_dataset=rows, processing_class=tokenizer)
    trainer.train()
    logs = [row for row in trainer.state.log_history if "reward" in row]
    assert trainer.state.global_step == 3
    assert len(given) == len(logs) == 3
    for row, rewards in zip(logs, given, strict=True):
        known = [value for value in rewards if value is not None]
        assert len(rewards) == 4
        assert row["rewards/genprm/mean"] == pytest.approx(sum(known) / len(known), rel=1e-4)
        assert row["genprm/unscored"] == rewards.count(None) / 4
    assert not torch.equal(before, policy.model.layers[0].mlp.up_proj.weight)
