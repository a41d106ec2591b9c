"""OpenR's reward worker and the part of its controller that callers need.

OpenR's callers ask a controller for a worker's address by the model's name, then post texts to that worker. Here the
service is both. Other workers, such as those of the policy model, may register with it and are then handed out by
their models' names; every other name means this judge. Knows those shapes; never calls a registered address.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from ..errors import InputError
from ..formats import kind_of
from ..types import Solution
from .call import Call
from .desk import Desk
from .faults import Fault
from .pieces import solution_of_text
from .pooling import all_rewards, fields, texts
from .schema import ERRORS, AddressIn, HeartBeatIn, RegisterIn, WorkerIn, WorkerOut, body

EXPIRES_SECONDS = 90.0
"""A worker that is silent for so long is forgotten, as by OpenR's own controller."""
MAX_WORKERS = 256
MAX_NAME = 2048


@dataclass
class Worker:
    """A worker that registered here."""

    models: tuple[str, ...]
    seen: float
    beats: bool
    """False = it never says that it is alive, and is never forgotten."""


class Workers:
    """Registered workers by address."""

    def __init__(self) -> None:
        self._known: dict[str, Worker] = {}

    def register(self, address: str, models: tuple[str, ...], beats: bool) -> None:
        """Take a worker in, in place of what was known of its address.

        Raises:
            Fault: there are too many.
        """
        self._forget()
        if address not in self._known and len(self._known) >= MAX_WORKERS:
            raise Fault("queue_full", f"{MAX_WORKERS} workers are registered", retry_after=int(EXPIRES_SECONDS))
        self._known[address] = Worker(models, time.monotonic(), beats)

    def beat(self, address: str) -> bool:
        """Note that a worker is alive; False = it has to register."""
        self._forget()
        if address not in self._known:
            return False
        self._known[address].seen = time.monotonic()
        return True

    def address(self, model: str) -> str | None:
        """Who serves a model; None = no registered worker."""
        self._forget()
        return next((address for address, worker in self._known.items() if model in worker.models), None)

    def _forget(self) -> None:
        now = time.monotonic()
        for address, worker in list(self._known.items()):
            if worker.beats and now - worker.seen > EXPIRES_SECONDS:
                del self._known[address]


def openr_routes(desk: Desk) -> APIRouter:
    """The worker's route and the controller's."""
    router = APIRouter(tags=["drop-in: OpenR reward worker"])
    settings, workers = desk.settings, Workers()

    def parse(value: Any) -> tuple[Any, list[Solution]]:
        given = fields(value).get("input_str")
        if given is None:
            raise InputError("is missing: give a text or a list of texts", field="input_str")
        found = texts(
            given,
            "input_str",
            lambda text, field: solution_of_text(text, settings.openr_separators, settings, field),
        )
        return given, found

    @router.post(
        "/worker_value_inference",
        summary="Rewards as OpenR's reward worker gives them",
        openapi_extra=body(WorkerIn),
        responses={200: {"model": WorkerOut}, **ERRORS},
    )
    async def infer(request: Request) -> Response:
        """A list of rewards for a text, a list of such lists for a list of texts."""
        call = Call(request, desk)
        given, solutions = await call.read(parse)
        results = await call.judge(solutions)
        values = [all_rewards(result, place) for place, result in enumerate(results)]
        return _json({"input": given, "value": values if isinstance(given, list) else values[0]})

    @router.post("/get_worker_address", summary="Who serves a model", openapi_extra=body(AddressIn), responses=ERRORS)
    async def address(request: Request) -> Response:
        """The address of a registered worker that serves the model, else this service's own."""
        model = await Call(request, desk).read(lambda value: _name(fields(value), "model"), judges=False)
        known = None if model == desk.verifier.model else workers.address(model)
        return _json({"address": known or _own_address(request)})

    @router.post("/register_worker", summary="Take a worker in", openapi_extra=body(RegisterIn), responses=ERRORS)
    async def register(request: Request) -> Response:
        """Hand out this worker for the models it names."""
        name, models, beats = await Call(request, desk).read(_registration, judges=False)
        workers.register(name, models, beats)
        return _json(None)

    @router.post("/receive_heart_beat", summary="A worker is alive", openapi_extra=body(HeartBeatIn), responses=ERRORS)
    async def beat(request: Request) -> Response:
        """`exist: false` tells a worker to register."""
        name = await Call(request, desk).read(lambda value: _name(fields(value), "worker_name"), judges=False)
        return _json({"exist": workers.beat(name)})

    @router.post("/worker_get_status", summary="This worker's own state")
    async def status() -> dict[str, Any]:
        """What a controller asks of a worker."""
        return {"model_names": [desk.verifier.model], "speed": 1, "queue_length": desk.admitted}

    return router


def _registration(value: Any) -> tuple[str, tuple[str, ...], bool]:
    request = fields(value)
    status = request.get("worker_status") or {}
    if not isinstance(status, dict):
        raise InputError(f"must be an object, found {kind_of(status)}", field="worker_status")
    models = status.get("model_names") or []
    if not isinstance(models, list) or not all(isinstance(model, str) for model in models):
        raise InputError("must be a list of names", field="worker_status.model_names")
    return _name(request, "worker_name"), tuple(models), request.get("check_heart_beat") is not False


def _name(request: dict[str, Any], field: str) -> str:
    value = request.get(field)
    if not isinstance(value, str) or not value or len(value) > MAX_NAME or not value.isprintable():
        raise InputError(f"must be a name of at most {MAX_NAME} characters", field=field)
    return value


def _own_address(request: Request) -> str:
    """As the caller knows it."""
    try:
        return str(request.base_url).rstrip("/")
    except ValueError:
        raise Fault("bad_header", "Host is no address", field="Host") from None


def _json(value: Any) -> Response:
    # ASCII, since what a caller sent comes back, and may hold half of a surrogate pair.
    return Response(json.dumps(value), media_type="application/json")
