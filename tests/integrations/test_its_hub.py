"""The process reward model of its_hub and reward_hub."""

from __future__ import annotations

import asyncio
import enum

import pytest

from genprm.errors import ConfigError, InputError, Unscored
from genprm.integrations.its_hub import LocalVllmProcessRewardModel, ProcessRewardModel

from .conftest import RIGHT, WRONG, Counting


class Method(enum.Enum):
    PRODUCT = "prod"
    LAST = "last"


def tenths(text):
    return float(text) / 10


@pytest.mark.parametrize(
    ("method", "expected"),
    [("prod", 0.006), (Method.PRODUCT, 0.006), ("min", 0.1), (Method.LAST, 0.2), ("mean", 0.2), ("model", 0.1)],
)
def test_steps_are_put_together_by_the_method(method, expected):
    model = ProcessRewardModel(Counting(tenths), "cuda:0", method)
    text = "1\n\n3\n\n2"
    assert model.score("q", text) == pytest.approx(expected)
    assert model.score("q", [text, "5"]) == pytest.approx([expected, 0.5])
    assert model.score("q", [["1", "3", "2"]]) == pytest.approx([expected])


def test_each_step_of_a_response_can_be_had(scripted):
    first, second = ProcessRewardModel(scripted).score_steps("q", [RIGHT, WRONG])
    assert first > 0.5 > second


@pytest.mark.parametrize(
    "prompt",
    [
        [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}],
        [[{"role": "user", "content": "q"}], [{"role": "user", "content": "q"}]],
    ],
)
def test_messages_are_accepted_for_all_responses_or_one_each(prompt):
    counting = Counting(tenths)
    assert ProcessRewardModel(counting, aggregation_method="min").score(prompt, ["1", "2"]) == [0.1, 0.2]
    assert {solution.problem for solution in counting.asked} == {"q"}


def test_the_asynchronous_form_gives_the_same(scripted):
    model = LocalVllmProcessRewardModel(model_name=scripted, device="cpu", aggregation_method="min")
    assert asyncio.run(model.ascore("q", [RIGHT, WRONG])) == model.score("q", [RIGHT, WRONG])


def test_unscored_is_an_error_or_the_callers_number():
    with pytest.raises(Unscored, match="response 1 is unscored: step 0: the model was lost"):
        ProcessRewardModel(Counting()).score("q", ["a", "b?"])
    assert ProcessRewardModel(Counting(), unscored=0.5).score("q", ["a", "b?"]) == [0.9, 0.5]


@pytest.mark.parametrize(
    ("prompt", "steps"), [("q", [["a", " "]]), ("q", [[3]]), ([[{"role": "user", "content": "q"}]], ["a", "b"])]
)
def test_what_cannot_be_read_is_refused(prompt, steps):
    with pytest.raises(InputError):
        ProcessRewardModel(Counting()).score(prompt, steps)


def test_an_unknown_method_is_refused():
    with pytest.raises(ConfigError, match="'median'"):
        ProcessRewardModel(Counting(), aggregation_method="median")
