"""vLLM's pooling route as a process reward model answers it, so that a generative judge can take its place.

Knows that shape. It cannot hold "not judged", so a step without a reward is an error that names the step.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from ..errors import InputError
from ..formats import kind_of, shown
from ..types import Solution, VerificationResult
from .call import Call
from .desk import Desk
from .faults import Fault
from .pieces import solution_of_messages, solution_of_text
from .schema import ERRORS, PoolingIn, PoolingOut, body


def pooling_routes(desk: Desk) -> APIRouter:
    """`POST /pooling`."""
    router = APIRouter(tags=["drop-in: vLLM pooling PRM"])
    settings = desk.settings

    def parse(value: Any) -> list[Solution]:
        request = fields(value)
        if request.get("encoding_format", "float") != "float":
            raise InputError(
                f"{shown(request['encoding_format'])} is not offered, only 'float'", field="encoding_format"
            )
        if request.get("messages") is not None:
            return [solution_of_messages(request["messages"], settings.separator)]
        given = request.get("input")
        if given is None:
            raise InputError("is missing: give `input`, a text or a list of texts, or `messages`", field="input")
        return texts(given, "input", lambda text, field: solution_of_text(text, [settings.separator], settings, field))

    @router.post(
        "/pooling",
        summary="Rewards as a vLLM pooling PRM gives them",
        openapi_extra=body(PoolingIn),
        responses={200: {"model": PoolingOut}, **ERRORS},
    )
    async def pooling(request: Request) -> Response:
        """`[1 - reward, reward]` for each step. An unscored step is the error `unscored` with `step` and `reason`."""
        call = Call(request, desk)
        results = await call.judge(await call.read(parse))
        rewards = [all_rewards(solution, place) for place, solution in enumerate(results)]
        read = sum(result.usage.prompt_tokens for result in results)
        written = sum(result.usage.completion_tokens for result in results)
        answer = {
            "id": f"pool-{uuid.uuid4().hex}",
            "object": "list",
            "created": int(time.time()),
            "model": desk.verifier.model,
            "data": [
                {"index": place, "object": "pooling", "data": [[1 - reward, reward] for reward in row]}
                for place, row in enumerate(rewards)
            ],
            "usage": {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written},
        }
        return JSONResponse(answer)

    return router


def fields(value: Any) -> dict[str, Any]:
    """The body as an object.

    Raises:
        InputError: it is something else.
    """
    if not isinstance(value, dict):
        raise InputError(f"the body must be an object, found {kind_of(value)}")
    return value


def texts(given: Any, field: str, read: Any) -> list[Solution]:
    """The solutions of one text, or of a list of texts.

    Args:
        given: what the caller sent.
        field: under which name.
        read: makes a solution of a text and its name.

    Raises:
        InputError: the list is empty, or a text cannot be used.
    """
    if not isinstance(given, list):
        return [read(given, field)]
    if not given:
        raise InputError("is an empty list", field=field)
    return [read(text, f"{field}[{place}]") for place, text in enumerate(given)]


def all_rewards(result: VerificationResult, place: int) -> Sequence[float]:
    """One reward a step.

    Args:
        result: of one solution.
        place: its place in the request.

    Raises:
        Fault: a step has none; `unscored` names the step and the reason.
    """
    rewards: list[float] = []
    for step in result.steps:
        if step.reward is None:
            reason = step.unscored_reason or "no reason is known"
            message = f"step {step.index} of input {place} is unscored: {reason}"
            raise Fault("unscored", message, input=place, step=step.index, reason=reason)
        rewards.append(step.reward)
    if result.stopped_early:
        reason = "verify.early_stop judges nothing after the first error"
        message = f"step {len(rewards)} of input {place} was not judged: {reason}"
        raise Fault("unscored", message, input=place, step=len(rewards), reason=reason)
    return rewards
