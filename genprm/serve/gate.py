"""What every request passes on its way in and out: identity, leave, and the books.

An ASGI middleware around the whole application, so that nothing is answered unlogged and no failure leaves as anything
but JSON. Knows which paths are open to all; knows nothing of solutions.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import time
import uuid
from collections.abc import Collection
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .desk import Desk
from .faults import STATUS, Fault
from .logs import say, where

OPEN = {"/", "/docs", "/openapi.json", "/health", "/health/live", "/health/ready"}
"""Paths that need no token: they hold no solutions and start no work."""
ID_HEADER = "X-Request-Id"
_GOOD_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_NO_SITE = {"same-origin", "none"}


class Gate:
    """Wraps the application."""

    def __init__(self, app: ASGIApp, desk: Desk, paths: Collection[str], key: str | None):
        """Prepare.

        Args:
            app: what answers.
            desk: knows whether the service is ending, and counts requests.
            paths: all that exist; others share one label in the figures.
            key: the bearer token to ask for; None = none.
        """
        self._app, self._desk, self._paths = app, desk, frozenset(paths)
        self._key = None if key is None else _digest(key.encode("utf-8", "surrogateescape"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        headers = Headers(scope=scope)
        given = headers.get(ID_HEADER, "")
        identity = given if _GOOD_ID.fullmatch(given) else uuid.uuid4().hex
        status = 0
        notes = scope.setdefault("genprm", {})
        known = self._known(headers.get("Authorization", ""))
        scope.setdefault("state", {}).update(request_id=identity, known=known)

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                out = MutableHeaders(scope=message)
                out[ID_HEADER] = identity
                if self._desk.draining:
                    out["Connection"] = "close"
            await send(message)

        judges = scope["method"] == "POST"
        self._desk.requests += judges
        self._desk.meters.requests_in_flight.inc()
        try:
            refusal = self._refusal(scope["path"], headers, judges, known)
            if refusal is not None:
                await refusal.response()(scope, receive, answer)
            else:
                await self._app(scope, receive, answer)
        except Exception as error:
            say(
                "unexpected error",
                level=logging.ERROR,
                request=identity,
                error=type(error).__name__,
                text=str(error) if self._desk.settings.log_texts else None,
                where=where(error),
            )
            if status == 0:
                await unexpected(error, identity).response()(scope, receive, answer)
        finally:
            self._desk.requests -= judges
            self._desk.meters.requests_in_flight.dec()
            self._book(scope, identity, status, time.perf_counter() - start, notes)

    def _refusal(self, path: str, headers: Headers, judges: bool, known: bool) -> Fault | None:
        """Why a request goes no further; None = it does."""
        # Browsers say so when a page of another site asks: such a page must not use the judge unseen.
        if judges and headers.get("Sec-Fetch-Site", "none") not in _NO_SITE:
            return Fault("forbidden", "pages of other sites may not ask from a browser")
        if path not in OPEN and not known:
            return Fault("unauthorized", "a valid bearer token is needed: Authorization: Bearer ...")
        if judges and self._desk.draining:
            return self._desk.ending()
        return None

    def _known(self, authorization: str) -> bool:
        if self._key is None:
            return True
        scheme, _, token = authorization.partition(" ")
        # Digests are compared, so that neither the time nor the length says how near a guess is. Headers are read as
        # Latin-1, which gives back the bytes that were sent.
        return hmac.compare_digest(_digest(token.strip().encode("latin-1")), self._key) and scheme.lower() == "bearer"

    def _book(self, scope: Scope, identity: str, status: int, seconds: float, notes: dict[str, Any]) -> None:
        route = scope["path"] if scope["path"] in self._paths else "(none)"
        fault = notes.get("fault")
        shown = STATUS.get(fault, status) if fault else status
        method = scope["method"] if scope["method"] in ("GET", "POST", "HEAD") else "(other)"
        meters = self._desk.meters
        meters.requests.labels(method, route, str(shown)).inc()
        meters.request_seconds.labels(route).observe(seconds)
        if route.startswith("/health") or route == "/metrics":
            return  # asked every few seconds by machines
        client = scope.get("client")
        say(
            "request",
            request=identity,
            client=client[0] if client else None,
            method=method,
            route=route,
            status=shown,
            seconds=round(seconds, 4),
            **notes,
        )


def unexpected(error: Exception, identity: str) -> Fault:
    """The answer to a request that met an error no one thought of."""
    return Fault("internal", f"an unexpected {type(error).__name__}; the log names request {identity}")


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()
