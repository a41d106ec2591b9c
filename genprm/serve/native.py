"""genprm's own routes: results, scores, and steps as they are judged.

Knows what their bodies hold, which is what a row of a solution file holds.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from ..errors import InputError
from ..formats import kind_of
from ..records import parse_record
from ..score import Score
from ..types import Solution, StepJudgment, VerificationResult
from .call import Call
from .desk import Desk
from .events import EventStream
from .schema import ERRORS, SolutionIn, body


def native_routes(desk: Desk, started: int) -> APIRouter:
    """The routes under `/v1`.

    Args:
        desk: judges.
        started: Unix time at which the service started.
    """
    router = APIRouter(tags=["genprm"])

    @router.post(
        "/v1/verify",
        summary="Judge every step of one solution",
        openapi_extra=body(SolutionIn),
        responses={200: {"model": VerificationResult}, **ERRORS},
    )
    async def verify(request: Request) -> Response:
        """The result object that `genprm verify --json` prints. A step that could not be judged has the reward null
        and an `unscored_reason`."""
        call = Call(request, desk)
        solution = await call.read(parse_record)
        (result,) = await call.judge([solution])
        return _json(result.model_dump_json())

    @router.post(
        "/v1/score",
        summary="Rewards only, for one solution or a list",
        openapi_extra=body(SolutionIn, many=True),
        responses={200: {"model": Score | list[Score]}, **ERRORS},
    )
    async def score(request: Request) -> Response:
        """One object for a solution, a list in the same order for a list. `rewards` has an entry for each judged
        step; null = unscored, with the reason in `unscored_reasons` by the step's index."""
        call = Call(request, desk)
        solutions, many = await call.read(_one_or_many)
        scores = [Score.of(result).model_dump_json() for result in await call.judge(solutions)]
        return _json(f"[{','.join(scores)}]" if many else scores[0])

    @router.post(
        "/v1/stream",
        summary="Judge one solution, telling each step as it is judged",
        openapi_extra=body(SolutionIn),
        responses={200: {"content": {"text/event-stream": {}}}, **ERRORS},
    )
    async def stream(request: Request) -> Response:
        """Server-sent events: `solution` with the steps as they were split, `step` with each step's judgment in
        order, then `result` with the whole result, or `error`."""
        call = Call(request, desk)
        solution = await call.read(parse_record)
        desk.check_room(1)
        call.note([solution])
        return EventStream(call, lambda send: _tell(desk, solution, send))

    @router.get("/v1/models", summary="What judges", responses={401: ERRORS[401]})
    async def models() -> dict[str, Any]:
        """The one model that is served, with the protocol by which it judges."""
        return {"object": "list", "data": [model_card(desk, started)]}

    return router


def model_card(desk: Desk, started: int) -> dict[str, Any]:
    """The served model as OpenAI-style servers list it, and what fixes its verdicts."""
    verifier = desk.verifier
    return {
        "id": verifier.model,
        "object": "model",
        "created": started,
        "owned_by": "genprm",
        "protocol": verifier.protocol_ref.model_dump(),
        "config_sha256": verifier.config.digest(),
        "sandbox": getattr(getattr(verifier, "sandbox", None), "level", "off"),
    }


async def _tell(desk: Desk, solution: Solution, send: asyncio.Queue[tuple[str, str] | None]) -> None:
    """Put the events of one solution into a queue."""
    shown = {"id": solution.id, "problem": solution.problem, "steps": solution.steps}
    send.put_nowait(("solution", json.dumps(shown, ensure_ascii=False)))

    def told(step: StepJudgment) -> None:
        send.put_nowait(("step", step.model_dump_json()))

    (result,) = await desk.judge([solution], told)
    send.put_nowait(("result", result.model_dump_json()))


def _one_or_many(value: Any) -> tuple[list[Solution], bool]:
    if isinstance(value, dict):
        return [parse_record(value)], False
    if not isinstance(value, list):
        raise InputError(f"the body must be a solution or a list of them, found {kind_of(value)}")
    if not value:
        raise InputError("the body is an empty list")
    solutions = []
    for place, row in enumerate(value):
        try:
            solutions.append(parse_record(row, default_id=str(place)))
        except InputError as error:
            field = ".".join(part for part in (f"[{place}]", error.field) if part)
            raise InputError(error.message, field=field) from None
    return solutions, True


def _json(text: str) -> Response:
    return Response(text.encode("utf-8", "backslashreplace"), media_type="application/json")
