"""its_hub's process reward model, as its beam search and particle filtering call it.

Knows the shapes of its_hub and reward_hub; imports neither. There an entry of a list is a whole, perhaps unfinished,
response, whose steps' rewards are put together by `aggregation_method`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Literal, Self

from ..errors import ConfigError, InputError
from ..formats import kind_of
from .core import SharedVerifier, Source, sharing
from .rewards import Asked, Rewards, UnscoredPolicy, all_decided, check_policy, decided
from .texts import Splitter, cut, problem_text

METHODS: dict[str, str | None] = {
    "prod": "product",
    "product": "product",
    "min": "min",
    "last": "last",
    "mean": "mean",
    "model": None,
}
"""Names of aggregations there and here; `model` = the verifier's own."""

Response = str | Sequence[str]
"""One response: a text that is cut into steps, or its steps."""


class ProcessRewardModel:
    """In the place of its_hub's `LocalVllmProcessRewardModel`."""

    def __init__(
        self,
        model_name: Source | SharedVerifier = "default",
        device: object = None,
        aggregation_method: Any = "prod",
        *,
        unscored: Literal["raise"] | float = "raise",
        separator: Splitter = "\n\n",
    ):
        """Open the verifier.

        Args:
            model_name: a verifier, a client, a config, its name or path, or a service's address.
            device: not used; the config says it.
            aggregation_method: `prod`, `min`, `last`, `mean` or `model`, also as reward_hub's enum.
            unscored: an error, or the number that stands for a step without a reward.
            separator: what stands between the steps of a response; None = genprm's segmenter.

        Raises:
            ConfigError: a setting is wrong.
            UnavailableError: model, engine or sandbox cannot be had.
        """
        method = str(getattr(aggregation_method, "value", aggregation_method))
        if method not in METHODS:
            raise ConfigError(f"there is no aggregation_method {method!r}; there are {', '.join(METHODS)}")
        check_policy(unscored, none=False)
        self.aggregation_method = aggregation_method
        self._how = METHODS[method]
        self._unscored: UnscoredPolicy = unscored
        self._separator = separator
        self._judge = sharing(model_name)
        self._judge.open()

    def score(self, prompt: Any, steps: str | Sequence[Response]) -> float | list[float]:
        """One number a response.

        Args:
            prompt: a text, a conversation of mappings or objects, or a list of conversations, one a response.
            steps: one response as text, or a list of responses, each a text or a list of steps.

        Returns:
            A number for a text, a list of numbers for a list.

        Raises:
            InputError: prompt or responses cannot be read.
            Unscored: a step is, and no number is to stand for it.
        """
        responses: list[Response] = [steps] if isinstance(steps, str) else list(steps)
        prompts = _prompts(prompt, len(responses))
        asked = [Asked(problem, self._steps(text)) for problem, text in zip(prompts, responses, strict=True)]
        scores = [self._total(rewards, place) for place, rewards in enumerate(self._judge.judge(asked))]
        return scores[0] if isinstance(steps, str) else scores

    async def ascore(self, prompt: Any, steps: str | Sequence[Response]) -> float | list[float]:
        """`score` without holding up the event loop."""
        return await asyncio.to_thread(self.score, prompt, steps)

    def score_steps(self, prompt: Any, steps: Sequence[str]) -> list[float]:
        """One number a step of one response; raises as `score` does."""
        asked = Asked(problem_text(prompt), self._steps(steps))
        (rewards,) = self._judge.judge([asked])
        return [float(value) for value in all_decided(rewards, self._unscored, "the response") if value is not None]

    def close(self) -> None:
        """Close the verifier, if it was opened here; safe to call twice."""
        self._judge.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _steps(self, response: Response) -> tuple[str, ...]:
        if isinstance(response, str):
            return cut(response, self._separator).steps
        if not all(isinstance(step, str) for step in response):
            raise InputError(f"must be texts, found {kind_of(next(iter(response), None))}", field="steps")
        blank = next((place for place, step in enumerate(response) if not step.strip()), None)
        if blank is not None:
            raise InputError(f"step {blank} is empty", field="steps")
        return tuple(response)

    def _total(self, rewards: Rewards, place: int) -> float:
        value = decided(rewards.total(self._how), self._unscored, f"response {place}", rewards.reason)
        assert value is not None
        return float(value)


LocalVllmProcessRewardModel = ProcessRewardModel
"""The name under which its_hub's examples import it."""


def _prompts(prompt: Any, count: int) -> list[str]:
    """One problem a response: the same for all, or one of a list of conversations each."""
    batch = isinstance(prompt, list) and bool(prompt) and isinstance(prompt[0], list)
    if not batch:
        return [problem_text(prompt)] * count
    if len(prompt) != count:
        raise InputError(f"{len(prompt)} conversations have {count} responses", field="prompt")
    return [problem_text(conversation) for conversation in prompt]
