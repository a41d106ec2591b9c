"""Shapes of requests and answers, for the OpenAPI page; what is read and written is checked elsewhere.

Knows names and types only.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


class Shape(BaseModel):
    """Base."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class SolutionIn(Shape):
    """A problem with a solution; all that a row of a solution file may hold."""

    problem: str
    """The question; also `question` or `prompt`."""
    steps: list[str] | None = None
    """The solution, already split into steps; or"""
    solution: str | None = None
    """the whole text, which is split; also `response` or `completion`."""
    answer: str | None = None
    """Reference final answer: enables the outcome reward."""
    id: str | None = None
    """Comes back in the result."""


class PoolingIn(Shape):
    """What a caller of a vLLM pooling PRM sends."""

    model: str | None = None
    """Any name: the judge that is served answers."""
    input: str | list[str] | None = None
    """Problem and steps in one text, each step ended by the separator; or"""
    messages: list[dict[str, Any]] | None = None
    """a user message with the problem and an assistant message with the steps."""


class PoolingData(Shape):
    """The steps of one text."""

    index: int
    object: str
    data: list[tuple[float, float]]
    """[1 - reward, reward] for each step."""


class PoolingOut(Shape):
    """What a vLLM pooling PRM answers."""

    id: str
    object: str
    created: int
    model: str
    data: list[PoolingData]
    usage: dict[str, int]


class WorkerIn(Shape):
    """What OpenR's callers send to a reward worker."""

    input_str: str | list[str]
    """Problem and steps in one text, each step ended by a separator."""


class WorkerOut(Shape):
    """What OpenR's reward worker answers."""

    input: str | list[str]
    value: list[float] | list[list[float]]


class AddressIn(Shape):
    """What OpenR's callers ask a controller."""

    model: str


class RegisterIn(Shape):
    """How a worker registers with a controller."""

    worker_name: str
    """Its address."""
    check_heart_beat: bool = True
    worker_status: dict[str, Any] | None = None
    """`model_names`, `speed`, `queue_length`."""


class HeartBeatIn(Shape):
    """How a worker says that it is alive."""

    worker_name: str
    queue_length: int = 0


class ErrorDetail(Shape):
    """Why a request was not answered with a result."""

    type: str
    message: str
    """One line."""
    field: str | None = None
    """What is wrong in the request."""


class ErrorOut(Shape):
    """The form of every error."""

    error: ErrorDetail


def body(shape: type[Shape], *, many: bool = False) -> dict[str, Any]:
    """A route's `openapi_extra` for a body that the route reads itself."""
    one = shape.model_json_schema()
    schema = {"oneOf": [one, {"type": "array", "items": one, "minItems": 1}]} if many else one
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorOut, "description": "The body is no JSON, or a header cannot be read."},
    401: {"model": ErrorOut, "description": "The bearer token is missing or wrong."},
    403: {"model": ErrorOut, "description": "A browser asks for a page of another site."},
    408: {"model": ErrorOut, "description": "The body did not arrive in time."},
    413: {"model": ErrorOut, "description": "The request is too large."},
    422: {"model": ErrorOut, "description": "The request cannot be judged; `field` says what is wrong."},
    429: {"model": ErrorOut, "description": "The queue is full; `Retry-After` says when to ask again."},
    503: {"model": ErrorOut, "description": "The engine is unavailable, or the service is shutting down."},
    504: {"model": ErrorOut, "description": "The deadline has passed."},
}
