"""Reward functions for TRL's trainers: one reward a completion, or the rewards of its steps on its tokens.

Knows the shape in which TRL calls reward functions, and does not import it. A completion without a reward is None,
which TRL leaves out of the group's baseline; an unavailable model, engine or sandbox is an error and ends training.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, overload

from ..errors import InputError
from .core import SharedVerifier, Source, sharing
from .rewards import Asked, Rewards, UnscoredPolicy, blended, check_aggregation, check_policy, check_weight, decided
from .texts import Splitter, completion_text, cut, messages_of, problem_text
from .tokens import Decode, Placed, decoder, place_steps

Column = str | None


class _Base:
    """What all reward functions are told when they are made."""

    def __init__(
        self,
        judge: SharedVerifier,
        aggregation: str | None,
        splitter: Splitter,
        unscored: UnscoredPolicy,
        outcome_weight: float,
        problem_column: Column,
        answer_column: str,
        name: str,
    ):
        check_aggregation(aggregation)
        check_policy(unscored)
        check_weight(outcome_weight)
        self.judge = judge
        self._aggregation, self._splitter, self._unscored = aggregation, splitter, unscored
        self._outcome_weight, self._problem_column, self._answer_column = outcome_weight, problem_column, answer_column
        self.__name__ = name  # what TRL's metrics are called after

    def _asked(self, prompts: Sequence[Any], completions: Sequence[Any], columns: dict[str, Any]) -> list[Asked]:
        if len(prompts) != len(completions):
            raise InputError(f"{len(prompts)} prompts have {len(completions)} completions")
        problems = _problems(prompts, self._problem_column, columns)
        answers: Sequence[Any] = [None] * len(prompts)
        if self._outcome_weight:
            answers = _column(columns, self._answer_column, len(prompts), "outcome_weight needs it")
        return [
            Asked(problem, cut(completion_text(completion), self._splitter).steps, _answer(answer))
            for problem, completion, answer in zip(problems, completions, answers, strict=True)
        ]

    def _rewards(self, found: Sequence[Rewards], columns: dict[str, Any]) -> list[float | None]:
        values = [blended(rewards, self._aggregation, self._outcome_weight) for rewards in found]
        self._log(found, values, columns)
        filled = []
        for place, (value, rewards) in enumerate(zip(values, found, strict=True)):
            why = "the answer could not be compared" if rewards.total(self._aggregation) is not None else rewards.reason
            filled.append(decided(value, self._unscored, f"completion {place}", why))
        return filled

    def _log(self, found: Sequence[Rewards], values: Sequence[float | None], columns: dict[str, Any]) -> None:
        """Beside the trainer's own metrics, where it offers a place for them."""
        log_metric, log_extra = columns.get("log_metric"), columns.get("log_extra")
        if found and callable(log_metric):
            log_metric(f"{self.__name__}/unscored", sum(value is None for value in values) / len(values))
            log_metric(f"{self.__name__}/steps", sum(len(rewards.steps) for rewards in found) / len(found))
            known = [rewards.first_error for rewards in found if rewards.first_error is not None]
            if known:
                log_metric(f"{self.__name__}/with_error", sum(error >= 0 for error in known) / len(known))
        if callable(log_extra):
            log_extra(f"{self.__name__}_steps", [list(rewards.steps) for rewards in found])

    def close(self) -> None:
        """Close the verifier, if it was opened here; safe to call twice."""
        self.judge.close()


class Reward(_Base):
    """A reward function; `make_reward` makes it."""

    def __call__(self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float | None]:
        """One reward a completion, in order; None where it is unscored.

        Args:
            prompts: texts or conversations, one a completion.
            completions: texts or lists of messages.
            columns: what else the trainer gives; all but the columns that were named is ignored.

        Raises:
            InputError: a prompt or completion cannot be read, or a column that is needed is missing.
            Unscored: a completion is, and the policy is `raise`.
            UnavailableError: model, engine or sandbox cannot be had.
        """
        return self._rewards(self.judge.judge(self._asked(prompts, completions, columns)), columns)


class AsyncReward(_Base):
    """The same as a coroutine: TRL runs several of them together."""

    async def __call__(self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float | None]:
        """As `Reward` does, without holding up the event loop."""
        return self._rewards(await self.judge.ajudge(self._asked(prompts, completions, columns)), columns)


@overload
def make_reward(
    verifier: Source | SharedVerifier = ...,
    aggregation: str | None = ...,
    *,
    asynchronous: Literal[False] = ...,
    splitter: Splitter = ...,
    unscored: UnscoredPolicy = ...,
    outcome_weight: float = ...,
    problem_column: Column = ...,
    answer_column: str = ...,
    name: str = ...,
) -> Reward: ...
@overload
def make_reward(
    verifier: Source | SharedVerifier = ...,
    aggregation: str | None = ...,
    *,
    asynchronous: Literal[True],
    splitter: Splitter = ...,
    unscored: UnscoredPolicy = ...,
    outcome_weight: float = ...,
    problem_column: Column = ...,
    answer_column: str = ...,
    name: str = ...,
) -> AsyncReward: ...
def make_reward(
    verifier: Source | SharedVerifier = "default",
    aggregation: str | None = None,
    *,
    asynchronous: bool = False,
    splitter: Splitter = None,
    unscored: UnscoredPolicy = None,
    outcome_weight: float = 0.0,
    problem_column: Column = None,
    answer_column: str = "answer",
    name: str = "genprm",
) -> Reward | AsyncReward:
    """A reward function for `GRPOTrainer(reward_funcs=...)` and its kin.

    The verifier is opened at the first call. The function can be pickled where it was made from a name or a config.

    Args:
        verifier: a verifier, a client, a config, its name or path, or a service's address.
        aggregation: how step rewards become the completion's: `min`, `product`, `mean`, `last`; None = the
            verifier's own.
        asynchronous: make a coroutine function.
        splitter: how a completion is cut into steps: a separator, a function, or None for genprm's segmenter.
        unscored: what stands for a completion without a reward; None is left out by TRL.
        outcome_weight: weight w of the final answer: (1 - w) * process + w * (1 if right else 0).
        problem_column: column that holds the problem; None = the prompt, or its last user message.
        answer_column: column of reference answers, read only where `outcome_weight` is not 0.
        name: what the trainer's metrics are called after.

    Raises:
        ConfigError: a setting is wrong.
    """
    kind = AsyncReward if asynchronous else Reward
    return kind(sharing(verifier), aggregation, splitter, unscored, outcome_weight, problem_column, answer_column, name)


class StepRewards:
    """Gives process rewards on the tokens where steps end; `make_step_rewards` makes it."""

    def __init__(
        self,
        judge: SharedVerifier,
        tokenizer: Any,
        decode: Decode,
        splitter: Splitter,
        unscored: UnscoredPolicy,
        problem_column: Column,
    ):
        check_policy(unscored)
        self.judge = judge
        self._tokenizer, self._decode = tokenizer, decode
        self._splitter, self._unscored, self._problem_column = splitter, unscored, problem_column

    def __call__(self, *args: Any, **columns: Any) -> list[list[float] | None]:
        """For each completion a number for each of its tokens, or None; called and raising as `placed`."""
        return [None if item is None else item.row() for item in self.placed(*args, **columns)]

    def placed(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]] | None = None,
        **columns: Any,
    ) -> list[Placed | None]:
        """Step rewards and their tokens, one entry a completion; None where nothing can be said.

        Args:
            prompts: texts or conversations, one a completion.
            completions: texts or single messages; not read where there are ids.
            completion_ids: what the policy sampled, without padding; None = made of the texts by the tokenizer.
            columns: what else the trainer gives; all but the column that was named is ignored.

        Raises:
            InputError: a prompt or completion cannot be read.
            Unscored: a step is, and the policy is `raise`.
            UnavailableError: model, engine or sandbox cannot be had.
        """
        for place, completion in enumerate(completions):
            if not isinstance(completion, str) and len(messages_of(completion, "completion")) != 1:
                field = f"completions[{place}]"
                raise InputError("has several messages: their tokens are not all the policy's", field=field)
        if completion_ids is None:
            texts = [completion_text(completion) for completion in completions]
            completion_ids = [self._tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
        problems = _problems(prompts, self._problem_column, columns)
        return place_steps(
            self.judge, problems, completion_ids, self._decode, splitter=self._splitter, unscored=self._unscored
        )

    def close(self) -> None:
        """Close the verifier, if it was opened here; safe to call twice."""
        self.judge.close()


def make_step_rewards(
    verifier: Source | SharedVerifier,
    tokenizer: Any,
    *,
    splitter: Splitter = None,
    unscored: UnscoredPolicy = None,
    problem_column: Column = None,
) -> StepRewards:
    """A function that gives, for each completion, a number for each of its tokens: process rewards at step ends.

    Call it in a trainer of your own as `function(prompts, completions, completion_ids=ids, **columns)`; with the
    sampled ids the rows are as long as they are. Without ids the tokenizer makes them of the texts.

    Args:
        verifier: as `make_reward` takes it.
        tokenizer: the policy's.
        splitter: how a completion is cut into steps.
        unscored: what stands for an unscored step; with None the completion's whole row is None.
        problem_column: column that holds the problem; None = the prompt, or its last user message.

    Raises:
        ConfigError: a setting is wrong.
    """
    return StepRewards(sharing(verifier), tokenizer, decoder(tokenizer), splitter, unscored, problem_column)


def _problems(prompts: Sequence[Any], column: Column, columns: dict[str, Any]) -> list[str]:
    given = prompts if column is None else _column(columns, column, len(prompts), "problem_column names it")
    return [problem_text(value, column or "prompt") for value in given]


def _column(columns: dict[str, Any], name: str, count: int, why: str) -> Sequence[Any]:
    values = columns.get(name)
    if values is None:
        raise InputError(f"the dataset has no such column, and {why}", field=name)
    if len(values) != count:
        raise InputError(f"has {len(values)} entries for {count} completions", field=name)
    return list(values)


def _answer(value: object) -> str | None:
    return None if value is None or not str(value).strip() else str(value)
