"""verl's custom reward function, and step rewards for a reward manager of one's own.

Knows the shapes in which verl calls; does not import it. All threads of a process share one verifier, opened at the
first call; no signals are used, so any thread may call. `GENPRM_CONFIG` names the config, or a service's address.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

# Absolute: verl loads a reward function by its file, where relative imports have no package.
from genprm.errors import InputError
from genprm.integrations.core import shared
from genprm.integrations.rewards import (
    Asked,
    Rewards,
    UnscoredPolicy,
    blended,
    check_aggregation,
    check_policy,
    check_weight,
    decided,
)
from genprm.integrations.texts import Splitter, cut, problem_text
from genprm.integrations.tokens import decoder, place, place_steps

PROBLEM_KEYS = ("question", "problem", "prompt", "raw_prompt")


def compute_score(
    data_source: object,
    solution_str: str,
    ground_truth: object,
    extra_info: Mapping[str, Any] | None = None,
    *,
    config: str | None = None,
    aggregation: str | None = None,
    separator: Splitter = None,
    unscored: UnscoredPolicy = "raise",
    outcome_weight: float = 0.0,
    **_ignored: Any,
) -> dict[str, Any]:
    """The reward of one response, as `custom_reward_function` wants it.

    Args:
        data_source: not used.
        solution_str: the policy's response.
        ground_truth: the reference answer, read only where `outcome_weight` is not 0.
        extra_info: holds the problem under `question`, `problem` or `prompt`, as text or messages.
        config: a config's name or path, or a service's address; None = `GENPRM_CONFIG`, else `default`.
        aggregation: how step rewards become the response's; None = the verifier's own.
        separator: how the response is cut into steps; None = genprm's segmenter.
        unscored: an error, or the number that stands for a response without a reward.
        outcome_weight: weight w of the final answer: (1 - w) * process + w * (1 if right else 0).
        _ignored: what else verl may pass.

    Returns:
        `score`; `genprm_scored`, 1.0 or 0.0; and as JSON texts, since verl makes arrays of these values,
        `genprm_step_rewards` and `genprm_first_error`. The keys are always the same.

    Raises:
        InputError: there is no problem to be found.
        Unscored: the response is, and the policy is `raise`.
        UnavailableError: model, engine or sandbox cannot be had.
    """
    return compute_scores(
        [data_source],
        [solution_str],
        [ground_truth],
        [extra_info],
        config=config,
        aggregation=aggregation,
        separator=separator,
        unscored=unscored,
        outcome_weight=outcome_weight,
    )[0]


def compute_scores(
    data_sources: Sequence[object],  # noqa: ARG001
    solution_strs: Sequence[str],
    ground_truths: Sequence[object],
    extra_infos: Sequence[Mapping[str, Any] | None],
    *,
    config: str | None = None,
    aggregation: str | None = None,
    separator: Splitter = None,
    unscored: UnscoredPolicy = "raise",
    outcome_weight: float = 0.0,
    **_ignored: Any,
) -> list[dict[str, Any]]:
    """`compute_score` for a whole batch at once, as verl's batch reward manager calls it; all are judged together."""
    check_policy(unscored, none=False)
    check_aggregation(aggregation)
    check_weight(outcome_weight)
    asked = []
    for index, (text, truth, info) in enumerate(zip(solution_strs, ground_truths, extra_infos, strict=True)):
        answer = None
        if outcome_weight:
            if truth is None or isinstance(truth, list | tuple | Mapping):
                raise InputError("outcome_weight needs one reference answer", field=f"ground_truth of response {index}")
            answer = str(truth)
        asked.append(Asked(problem_of(info), cut(text, separator).steps, answer))
    found = shared(config).judge(asked)
    return [
        _row(rewards, blended(rewards, aggregation, outcome_weight), unscored, index)
        for index, rewards in enumerate(found)
    ]


async def acompute_score(
    data_source: object,
    solution_str: str,
    ground_truth: object,
    extra_info: Mapping[str, Any] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """`compute_score` for verl's asynchronous reward loop."""
    return await asyncio.to_thread(compute_score, data_source, solution_str, ground_truth, extra_info, **options)


def step_rewards(
    response_ids: Sequence[Sequence[int]],
    problems: Sequence[str],
    tokenizer: Any,
    *,
    width: int,
    config: str | None = None,
    separator: Splitter = None,
    unscored: UnscoredPolicy = "raise",
) -> list[list[float]]:
    """The rows of a token-level reward tensor: each step's reward on its last token, zero elsewhere.

    Args:
        response_ids: B responses without padding.
        problems: one a response.
        tokenizer: the policy's.
        width: length of the padded responses.
        config: as `compute_score` takes it.
        separator: likewise.
        unscored: an error, or the number that stands for a step without a reward.

    Returns:
        B rows of `width` numbers; `torch.tensor` of them is the reward tensor.

    Raises:
        InputError: a response is longer than `width`.
        Unscored: a step is, and the policy is `raise`.
    """
    check_policy(unscored, none=False)
    longest = max(map(len, response_ids), default=0)
    if longest > width:
        raise InputError(f"a response has {longest} tokens, more than the {width} of the tensor")
    placed = place_steps(
        shared(config), problems, response_ids, decoder(tokenizer), splitter=separator, unscored=unscored
    )
    # None stands for a response without tokens only: the policy has seen to all others.
    return [[0.0] * width if item is None else place(item.rewards, item.positions, width) for item in placed]


def problem_of(extra_info: Mapping[str, Any] | None) -> str:
    """The problem that `extra_info` holds.

    Raises:
        InputError: it holds none.
    """
    for key in PROBLEM_KEYS:
        value = (extra_info or {}).get(key)
        if value is not None:
            return problem_text(value, f"extra_info[{key!r}]")
    raise InputError(f"holds no problem: put it under {', '.join(PROBLEM_KEYS)}", field="extra_info")


def _row(rewards: Rewards, value: float | None, unscored: UnscoredPolicy, index: int) -> dict[str, Any]:
    score = decided(value, unscored, f"response {index}", rewards.reason)
    return {
        "score": float(score) if score is not None else None,
        "genprm_scored": float(value is not None),
        "genprm_step_rewards": json.dumps(list(rewards.steps)),
        "genprm_first_error": json.dumps(rewards.first_error),
    }
