"""What a request is answered when it is not judged: a status, a type to act on, and one line.

Knows which of genprm's errors is whose fault. Every answer has the form `{"error": {"type", "message", ...}}`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from ..errors import GenPRMError, InputError, UnavailableError, Unscored, UsageError

STATUS = {
    "bad_json": 400,
    "bad_header": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "slow_body": 408,
    "too_large": 413,
    "invalid": 422,
    "unscored": 422,
    "queue_full": 429,
    "client_gone": 499,
    "internal": 500,
    "misconfigured": 500,
    "draining": 503,
    "unavailable": 503,
    "deadline": 504,
}
"""The status of each type of error; 499 is for the log only, since no one is left to read it."""


class Fault(Exception):
    """An answer in place of a result."""

    def __init__(self, type: str, message: str, *, retry_after: int | None = None, **details: Any):
        """Prepare an answer.

        Args:
            type: one of `STATUS`.
            message: one line that names the caller's own value.
            retry_after: seconds after which the same request may fare better.
            details: further entries of the error, such as `field` or `step`; None = left out.
        """
        self.type, self.message, self.retry_after = type, " ".join(message.split()), retry_after
        self.details = {key: value for key, value in details.items() if value is not None}
        super().__init__(self.message)

    @property
    def status(self) -> int:
        """HTTP status."""
        return STATUS[self.type]

    def response(self) -> Response:
        """The answer itself."""
        headers = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        if self.type == "unauthorized":
            headers["WWW-Authenticate"] = "Bearer"
        return error_response(self.status, self.type, self.message, headers, **self.details)


def error_response(
    status: int, type: str, message: str, headers: Mapping[str, str] | None = None, **details: Any
) -> Response:
    """An error in the form that all errors have."""
    return Response(error_json(type, message, **details), status, headers, "application/json")


def error_json(type: str, message: str, **details: Any) -> bytes:
    """The body of an error."""
    body = {"error": {"type": type, "message": message, **details}}
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "backslashreplace")


def fault_of(error: GenPRMError) -> Fault:
    """The answer to one of genprm's own errors."""
    if isinstance(error, InputError):
        return Fault("invalid", str(InputError(error.message, field=error.field)), field=error.field)
    if isinstance(error, Unscored):
        return Fault("unscored", error.reason)
    if isinstance(error, UnavailableError):
        return Fault("unavailable", str(error), retry_after=5)
    return Fault("misconfigured" if isinstance(error, UsageError) else "internal", str(error))
