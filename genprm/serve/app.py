"""The service put together: routes, errors, pages, and the gate around them.

Knows which parts there are.
"""

from __future__ import annotations

import time
from typing import Any

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp

from ..verifier import Verifier
from .desk import Desk
from .faults import Fault, error_response
from .gate import Gate, unexpected
from .health import health_routes
from .meters import Meters
from .native import native_routes
from .openr import openr_routes
from .pages import judge_page, routes_page
from .pooling import pooling_routes

DESCRIPTION = "Judges each step of reasoning solutions; also in the shapes of scalar process reward models."


class Service:
    """An ASGI application, and the desk by which it is ended."""

    def __init__(self, verifier: Verifier, *, key: str | None = None):
        """Put a service together.

        Args:
            verifier: judges; its config's `serve` section is the service's. Not closed here.
            key: the bearer token that callers must send; None = none is asked for.
        """
        from .. import __version__

        self.desk = Desk(verifier, Meters())
        app = FastAPI(
            title="genprm",
            version=__version__,
            description=DESCRIPTION,
            docs_url=None,
            redoc_url=None,
            exception_handlers={Fault: _fault, HTTPException: _http, Exception: _unexpected},
        )
        started = int(time.time())
        app.include_router(native_routes(self.desk, started))
        app.include_router(pooling_routes(self.desk))
        app.include_router(openr_routes(self.desk))
        app.include_router(health_routes(self.desk, started))
        page = judge_page(model=verifier.model, protocol=verifier.protocol_ref.name, token=key is not None)
        routes = routes_page(app.openapi())

        @app.get("/", include_in_schema=False)
        async def index() -> Response:
            return page.response()

        @app.get("/docs", include_in_schema=False)
        async def docs() -> Response:
            return routes.response()

        paths = {*app.openapi()["paths"], "/", "/docs", "/openapi.json"}
        self.app: ASGIApp = Gate(app, self.desk, paths, key)


async def _fault(_: Request, error: Exception) -> Response:
    assert isinstance(error, Fault)
    return error.response()


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kinds: dict[int, Any] = {
        404: ("not_found", "there is no such path"),
        405: ("method_not_allowed", "not by this method"),
    }
    kind, message = kinds.get(error.status_code, ("invalid", str(error.detail)))
    return error_response(
        error.status_code, kind, f"{message}: {request.method} {request.url.path[:200]!r}", error.headers
    )


async def _unexpected(request: Request, error: Exception) -> Response:
    return unexpected(error, request.state.request_id).response()
