"""Server-sent events: what is told while a solution is being judged.

Knows the form of events and how a stream ends early; what the events say is the route's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..errors import GenPRMError
from .call import Call
from .faults import Fault, error_json, fault_of

QUIET_SECONDS = 10.0
"""After so long without an event a comment is sent, so that nothing on the way takes the connection for dead."""

Events = asyncio.Queue[tuple[str, str] | None]


class EventStream(Response):
    """An answer whose events come from work that goes on meanwhile."""

    def __init__(self, call: Call, work: Callable[[Events], Coroutine[Any, Any, None]]):
        """Prepare.

        Args:
            call: the request; its deadline and its caller's leaving end the work.
            work: puts `(event, one line of JSON)` pairs into the queue it is given.
        """
        super().__init__(
            media_type="text/event-stream", headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        )
        self._call, self._work = call, work

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events as they come."""
        headers = [header for header in self.raw_headers if header[0] != b"content-length"]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        events: Events = asyncio.Queue()
        work = asyncio.ensure_future(self._run(events))
        try:
            while True:
                try:
                    event = await asyncio.wait_for(events.get(), QUIET_SECONDS)
                except TimeoutError:
                    await send({"type": "http.response.body", "body": b": still judging\n\n", "more_body": True})
                    continue
                if event is None:
                    break
                name, data = event
                text = f"event: {name}\ndata: {data}\n\n".encode("utf-8", "backslashreplace")
                await send({"type": "http.response.body", "body": text, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def _run(self, events: Events) -> None:
        """The work; what ends it early becomes the last event."""
        fault: Fault | None = None
        try:
            await self._call.attend(self._work(events))
        except GenPRMError as error:
            fault = fault_of(error)
        except Fault as error:
            fault = error
        except Exception as error:
            fault = Fault("internal", f"an unexpected {type(error).__name__}")
        if fault is not None:
            # The status is out already, so the log is told what it should have been.
            self._call.request.scope.setdefault("genprm", {})["fault"] = fault.type
            events.put_nowait(("error", error_json(fault.type, fault.message, **fault.details).decode()))
        events.put_nowait(None)
