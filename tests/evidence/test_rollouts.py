"""Bisection over prefixes, with hand-made continuations and with the scripted policy."""

from __future__ import annotations

import asyncio
import math

import pytest

import genprm
from genprm.cache import VerdictCache
from genprm.config import load_config
from genprm.errors import ConfigError
from genprm.evidence.features import step_features
from genprm.evidence.programs import Program
from genprm.evidence.reading import read_value
from genprm.evidence.rollouts import Rollout, locate
from genprm.evidence.rule import first_wrong, rule_rewards
from genprm.evidence.support import support
from genprm.types import Solution


def steps(count):
    return Solution(id="s", problem="p", steps=tuple(f"step {i}" for i in range(count)))


def continuations(wrong, *, right="5", bad="6", asked=None):
    """A policy that reaches the answer exactly from prefixes that hold no step at or after `wrong`."""

    async def roll(problem, prefix, *, n):
        if asked is not None:
            asked.append(len(prefix))
        return [Rollout(right if len(prefix) <= wrong else bad, 10, 20)] * n

    return roll


def find(solution, roll, **options):
    return asyncio.run(locate(solution, read_value("5"), roll, count=4, **options))


@pytest.mark.parametrize("count", range(1, 13))
def test_bisection_finds_every_first_error_in_logarithmically_many_batches(count):
    for wrong in range(count):
        asked = []
        found = find(steps(count), continuations(wrong, asked=asked))
        assert found.first_error == wrong
        assert len(asked) <= math.ceil(math.log2(count)) + 1
        assert found.completion_tokens == 40 * len(asked)
        assert len(set(asked)) == len(asked)


def test_a_problem_that_the_policy_never_solves_leaves_the_step_open():
    found = find(steps(4), continuations(-1))
    assert found.first_error is None
    assert [point.steps for point in found.points] == [2, 1, 0]


def test_rollouts_without_an_answer_leave_the_step_open():
    async def roll(problem, prefix, *, n):
        return [Rollout(None, 5)] * n

    found = find(steps(4), roll)
    assert found.first_error is None
    assert found.points[0].known == 0
    assert found.completion_tokens == 20


def test_a_share_says_how_many_rollouts_a_right_prefix_must_bring_home():
    async def roll(problem, prefix, *, n):
        return [Rollout("5")] * (4 - len(prefix)) + [Rollout("7")] * len(prefix)

    assert find(steps(4), roll).first_error == 3  # one of four from three steps is enough
    assert find(steps(4), roll, share=0.5).first_error == 1  # two of four from two steps are not more than half


def program(answer, **values):
    held = {name: read_value(text) for name, text in values.items()}
    return Program(source="x", status="ok", output="", answer=read_value(answer), values=held)


def test_the_rule_takes_the_step_behind_which_rollouts_fail():
    solution = Solution(
        id="s", problem="p", steps=("A plan with no number.", "2 + 3 = 5", "5 + 4 = 9. The answer is \\boxed{9}.")
    )
    found = support(solution, [program("8", a="5", b="8"), program("8", a="5")])
    assert found.disputed
    assert first_wrong(found) == 2
    located = found.model_copy(update={"rollouts": find(solution, continuations(0))})
    assert first_wrong(located) == 0
    rewards = rule_rewards(located)
    assert [reward < 0.5 for reward in rewards] == [True, True, True]
    assert [step_features(located, index)["dropped"] for index in range(3)] == [1.0, 0.0, 0.0]
    assert [step_features(located, index)["rule"] for index in range(3)] == [1.0, 0.0, 0.0]


def test_rollouts_need_programs_and_sampling():
    with pytest.raises(ConfigError, match=r"set evidence\.programs too"):
        genprm.load("scripted", overrides=["evidence.rollouts=4"])
    with pytest.raises(ConfigError, match=r"policy\.temperature above 0"):
        genprm.load("scripted", overrides=["evidence.rollouts=4", "evidence.programs=2", "policy.temperature=0"])


WRONG = ("First add 2 + 3 = 5.", "Then 5 + 4 = 10.", "So the answer is \\boxed{10}.")


def judged(tmp_path, *overrides):
    settings = ["verify.protocol=programs", "evidence.programs=2", "evidence.rollouts=3", "cache.enabled=true"]
    settings.append(f"cache.path={tmp_path / 'cache.sqlite'}")
    with genprm.load("scripted", overrides=[*settings, *overrides]) as judge:
        return judge.verify(Solution(id="0", problem="What is 2 + 3 + 4?", steps=WRONG))


def test_a_disputed_solution_is_rolled_out_and_counted_once(tmp_path):
    first = judged(tmp_path)
    assert first.evidence["agree"] == 0
    points = first.evidence["rollouts"]["points"]
    assert points
    assert all(len(point["answers"]) == 3 for point in points)
    again = judged(tmp_path)
    assert again.usage.completion_tokens == 0
    assert again.evidence["rollouts"]["points"] == points
    assert again.first_error == first.first_error
    with_more = judged(tmp_path, "evidence.programs=4")
    assert with_more.usage.completion_tokens > 0
    assert VerdictCache(tmp_path / "cache.sqlite").stats().entries > 0


def test_a_solution_that_programs_agree_with_is_not_rolled_out(tmp_path):
    settings = ["verify.protocol=programs", "evidence.programs=2", "evidence.rollouts=3"]
    with genprm.load("scripted", overrides=settings) as judge:
        right = judge.verify(
            Solution(id="0", problem="What is 2 + 3 + 4?", steps=("2 + 3 + 4 = 9.", "The answer is \\boxed{9}."))
        )
    assert right.evidence["rollouts"] is None
    assert right.first_error == -1


def test_a_solution_without_a_stated_answer_is_compared_by_what_its_last_step_comes_to():
    ends_in_words = ("2 + 3 = 5 apples.", "With 4 more on 2 tables that makes 5 + 4 = 9 apples for the 3 of them.")
    found = support(Solution(id="s", problem="p", steps=ends_in_words), [program("9"), program("8")])
    assert found.agree == 0.5
    wordless = support(Solution(id="s", problem="p", steps=("Let us think.",)), [program("9")])
    assert wordless.agree is None


def test_settings_of_the_policy_count_where_rollouts_are_written():
    with_rollouts = ["evidence.programs=2", "evidence.rollouts=3"]

    def digest(*overrides):
        return load_config("scripted", overrides).digest()

    assert digest(*with_rollouts) != digest(*with_rollouts, "policy.temperature=0.5")
    assert digest(*with_rollouts) == digest(*with_rollouts, "policy.max_in_flight=2")
    assert digest("evidence.programs=2") == digest("evidence.programs=2", "policy.temperature=0.5")
