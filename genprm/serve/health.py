"""Is the service alive, is it ready, and its figures.

Knows what the desk says of itself.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import JSONResponse, Response

from .desk import Desk
from .native import model_card
from .schema import ERRORS

UNREADY: dict[int | str, dict[str, Any]] = {
    503: {"description": "The engine is unavailable, or the service is ending."}
}


def health_routes(desk: Desk, started: int) -> APIRouter:
    """`/health…` and `/metrics`.

    Args:
        desk: judges.
        started: Unix time at which the service started.
    """
    router = APIRouter(tags=["operation"])

    def state() -> tuple[str, int]:
        if desk.draining:
            return "draining", 503
        return ("ready", 200) if desk.trouble is None else ("unavailable", 503)

    @router.get("/health/live", summary="Does the process answer?")
    async def live() -> dict[str, str]:
        """200 as long as it does."""
        return {"status": "live"}

    @router.get("/health/ready", summary="Would a request be judged now?", responses=UNREADY)
    async def ready() -> Response:
        """200, or 503 with the reason while the engine is unavailable or the service is shutting down."""
        name, status = state()
        return JSONResponse({"status": name, "reason": desk.trouble}, status)

    @router.get("/health", summary="The same, with what is served and how busy it is", responses=UNREADY)
    async def health(request: Request) -> Response:
        """200 or 503 as `/health/ready`. `servers` are those behind the engine, if it has any; their addresses are
        shown to callers who may use the judge."""
        name, status = state()
        body: dict[str, Any] = {
            "status": name,
            "reason": desk.trouble,
            "model": model_card(desk, started),
            "seconds_up": int(time.time()) - started,
            "solutions": {
                "waiting": desk.admitted - desk.running,
                "in_flight": desk.running,
                "places": desk.settings.queue,
            },
        }
        shown = {"up", "reason", "in_flight", "requests", "failures"}
        shown |= {"url"} if getattr(request.state, "known", False) else set()
        states = [asdict(server) for server in desk.servers()]
        body |= {"servers": [{key: value for key, value in state.items() if key in shown} for state in states]}
        return JSONResponse(body, status)

    @router.get(
        "/metrics", summary="Figures for Prometheus", responses={200: {"content": {"text/plain": {}}}, 401: ERRORS[401]}
    )
    async def metrics() -> Response:
        """Requests, queue, tokens, executed code, cache hits and times."""
        return Response(desk.meters.text(), media_type=CONTENT_TYPE_LATEST)

    return router
