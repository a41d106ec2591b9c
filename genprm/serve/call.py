"""One request on its way: its body, its deadline, and the work that ends when its caller has gone.

Knows HTTP requests and the desk; knows nothing of what a route's body means.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from ..errors import GenPRMError, InputError
from ..jsonrows import decode_json
from ..types import OnStep, Solution, VerificationResult
from .desk import Desk
from .faults import Fault, fault_of

T = TypeVar("T")

DEADLINE_HEADER = "X-Request-Deadline"
MAX_BODY_SECONDS = 60.0
"""How long a body may take to arrive."""
MAX_SPILL_SECONDS = 5.0
# Bodies of this size are decoded in a thread, so that others are not kept waiting.
LARGE_BYTES = 256 * 2**10


class Call:
    """A request that judges something."""

    def __init__(self, request: Request, desk: Desk):
        """Note when the request came.

        Raises:
            Fault: `bad_header` for a deadline that is no number of seconds.
        """
        self.request, self.desk = request, desk
        self.seconds = self._deadline()
        self._ends = time.monotonic() + self.seconds

    async def read(self, parse: Callable[[Any], T], *, judges: bool = True) -> T:
        """The body, decoded and read.

        Args:
            parse: makes of a JSON value what the route needs; raises `InputError`.
            judges: False = the request needs no place in the queue.

        Raises:
            Fault: the body is too long, too slow, no JSON, or not what the route needs.
        """
        if judges:
            self.desk.check_room(1)  # under load a request is refused before its body is worked on
        data = await self._body()

        def work() -> T:
            try:
                value = decode_json(data)
            except InputError as error:
                raise Fault("bad_json", f"the body {error.message}") from None
            return parse(value)

        try:
            return await asyncio.to_thread(work) if len(data) > LARGE_BYTES else work()
        except InputError as error:
            raise fault_of(error) from None

    async def judge(self, solutions: Sequence[Solution], on_step: OnStep | None = None) -> list[VerificationResult]:
        """Results in the order of the solutions.

        Raises:
            Fault: no room, no engine, no time, or no one left to answer.
        """
        self.note(solutions)
        try:
            return await self.attend(self.desk.judge(solutions, on_step))
        except GenPRMError as error:
            raise fault_of(error) from None

    def note(self, solutions: Sequence[Solution]) -> None:
        """What the log says of this request."""
        notes = self.request.scope.setdefault("genprm", {})
        notes |= {"solutions": len(solutions), "steps": sum(len(solution.steps) for solution in solutions)}
        if self.desk.settings.log_texts:
            notes["texts"] = [{"id": s.id, "problem": s.problem, "steps": s.steps} for s in solutions]

    async def attend(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for work that is given up at the deadline, when the caller leaves, and when the service ends."""
        task = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(self._gone())
        stopped = self.desk.stopped
        try:
            left = max(self._ends - time.monotonic(), 0)
            ends: set[asyncio.Future[Any]] = {task, gone, stopped}
            await asyncio.wait(ends, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            if gone.done():
                raise Fault("client_gone", "the client has gone")
            if stopped.done():
                raise self.desk.ending()
            raise Fault("deadline", f"not judged within {self.seconds:g} seconds")
        finally:
            task.cancel()
            gone.cancel()
            await asyncio.gather(task, gone, return_exceptions=True)

    # ------------------------------------------------------------------ small pieces

    def _deadline(self) -> float:
        most = self.desk.settings.deadline_seconds
        given = self.request.headers.get(DEADLINE_HEADER)
        if given is None:
            return most
        try:
            seconds = float(given)
        except ValueError:
            seconds = math.nan
        if not seconds > 0:
            raise Fault("bad_header", f"{DEADLINE_HEADER} is {given[:40]!r}: give seconds", field=DEADLINE_HEADER)
        return min(seconds, most)

    async def _body(self) -> bytes:
        most = int(self.desk.settings.max_request_mb * 2**20)
        declared = self.request.headers.get("Content-Length", "")
        # A caller that waits for leave to send its body is told at once; of others' bodies nothing is kept.
        if declared.isdecimal() and int(declared) > most and "Expect" in self.request.headers:
            raise _too_large(most)
        pieces: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(min(self.seconds, MAX_BODY_SECONDS)):
                stream = self.request.stream()
                async for piece in stream:
                    size += len(piece)
                    if size > most:
                        pieces.clear()
                        break
                    pieces.append(piece)
        except TimeoutError:
            raise Fault("slow_body", "the body did not arrive in time") from None
        except ClientDisconnect:
            raise Fault("client_gone", "the client has gone") from None
        if size > most:
            await _spill(stream)
            raise _too_large(most)
        return b"".join(pieces)

    async def _gone(self) -> None:
        while (await self.request.receive())["type"] != "http.disconnect":
            pass


async def _spill(stream: Any) -> None:
    """Let the rest of a body run out, since some clients read no answer before they have sent it; not for long."""
    try:
        async with asyncio.timeout(MAX_SPILL_SECONDS):
            async for _ in stream:
                pass
    except (TimeoutError, ClientDisconnect):
        pass


def _too_large(most: int) -> Fault:
    return Fault("too_large", f"the body has more than {most:,} bytes (serve.max_request_mb)")
