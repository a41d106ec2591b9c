"""The desk: takes solutions in, bounded, and has them judged by the one verifier.

Knows how many solutions are in the house, how the engine fares and whether the service is ending. Knows nothing of
HTTP. All requests share the verifier's bound on critiques under way, so their work is batched together.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack

from ..backends.base import ServerState, Watched
from ..baselines.scored import ScoredVerifier
from ..errors import BackendUnavailable, UnavailableError
from ..types import OnStep, Solution, VerificationResult
from ..verifier import Verifier
from .batches import Batches
from .faults import Fault
from .meters import Meters

FAULT_SECONDS = 30.0
"""For so long after the engine failed the service calls itself not ready; then a request may try again."""
MAX_RETRY_AFTER = 60
# How much the newest solution weighs in the mean of what one takes.
NEWEST = 0.1


class Desk:
    """Admits solutions and judges them, first come, first served."""

    def __init__(self, verifier: Verifier, meters: Meters):
        self.verifier, self.meters = verifier, meters
        self.settings = verifier.config.serve
        self.draining = False
        self.requests = 0
        """Requests under way that judge something."""
        self.admitted = self.running = 0
        self._at_once = verifier.config.backend.max_in_flight
        self._seats = asyncio.Semaphore(self._at_once)
        self._judge = Batches(verifier) if isinstance(verifier, ScoredVerifier) else verifier
        self._mean_seconds = 1.0
        self._failed: tuple[float, UnavailableError] | None = None
        backend = getattr(verifier, "backend", None)
        self._watched = backend if isinstance(backend, Watched) else None
        self._open = AsyncExitStack()
        self._stopped: asyncio.Future[None] | None = None
        meters.watch(lambda: self.admitted - self.running, lambda: self.running)
        meters.watch_servers(self.servers)

    @property
    def trouble(self) -> str | None:
        """Why a request would rather go elsewhere; None = ready."""
        if self.draining:
            return "the service is shutting down"
        return self._out_of_reach() or self._recent_failure()

    def servers(self) -> Sequence[ServerState]:
        """The servers that the engine is made of; none where it runs here."""
        return () if self._watched is None else self._watched.servers()

    async def begin(self) -> None:
        """Keep an eye on the engine's servers, if it has any, until `end`."""
        if self._watched is not None:
            await self._open.enter_async_context(self._watched.watch())

    async def end(self) -> None:
        """Stop doing so."""
        await self._open.aclose()

    async def judge(self, solutions: Sequence[Solution], on_step: OnStep | None = None) -> list[VerificationResult]:
        """Results in the order of the solutions.

        Cancelling it ends the work and frees the places.

        Raises:
            Fault: there is no room.
            UnavailableError: the engine or the sandbox is gone.
        """
        self.check_room(len(solutions))
        self.admitted += len(solutions)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._one(solution, on_step)) for solution in solutions]
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            self.admitted -= len(solutions)
        return [task.result() for task in tasks]

    def check_room(self, count: int) -> None:
        """Refuse what does not fit.

        Raises:
            Fault: `too_large` for more than ever fit, `queue_full` for more than fit now, `unavailable` while no
                server answers, `draining` at the end.
        """
        if self.draining:
            raise self.ending()
        if (reason := self._out_of_reach()) is not None:
            raise Fault("unavailable", reason, retry_after=5)
        if count > self.settings.queue:
            raise Fault("too_large", f"a request may hold {self.settings.queue} solutions, this one has {count}")
        if self.admitted + count > self.settings.queue:
            message = f"{self.admitted} of {self.settings.queue} places are taken, {count} more are asked for"
            raise Fault("queue_full", message, retry_after=self._retry_after())

    def drain(self) -> None:
        """Take nothing in any more."""
        self.draining = True

    async def finished(self, seconds: float) -> bool:
        """Wait until no request judges anything; False = some still do after `seconds`."""
        end = time.monotonic() + seconds
        while self.requests and time.monotonic() < end:
            await asyncio.sleep(0.02)
        return not self.requests

    def stop(self) -> None:
        """Give up what is under way."""
        if not self.stopped.done():
            self.stopped.set_result(None)

    @property
    def stopped(self) -> asyncio.Future[None]:
        """Done when what is under way is given up."""
        if self._stopped is None:
            self._stopped = asyncio.get_running_loop().create_future()
        return self._stopped

    def ending(self) -> Fault:
        """The answer to whoever comes too late."""
        return Fault("draining", "the service is shutting down: ask again, another may be up", retry_after=1)

    async def _one(self, solution: Solution, on_step: OnStep | None) -> VerificationResult:
        came = time.perf_counter()
        try:
            async with self._seats:
                start = time.perf_counter()
                self.meters.wait_seconds.observe(start - came)
                self.running += 1
                try:
                    result = await self._judge.averify(solution, on_step)
                finally:
                    self.running -= 1
                seconds = time.perf_counter() - start
        except UnavailableError as error:
            self._failed = (time.monotonic(), error)
            raise
        except asyncio.CancelledError:
            self.meters.cancelled.inc()
            raise
        self._failed = None
        self._mean_seconds += NEWEST * (seconds - self._mean_seconds)
        self.meters.solution_seconds.observe(seconds)
        self.meters.judged(result)
        return result

    def _out_of_reach(self) -> str | None:
        """Why no server can be asked at all; None where one can be, or the engine runs here."""
        servers = self.servers()
        if not servers or any(server.up for server in servers):
            return None
        return f"none of the engine's servers ({len(servers)}) answers: {servers[0].reason}"

    def _recent_failure(self) -> str | None:
        """What the newest solution failed of, if that is not long ago and no server has answered since."""
        if self._failed is None:
            return None
        when, error = self._failed
        mended = isinstance(error, BackendUnavailable) and any((s.answered or 0) > when for s in self.servers())
        return None if mended or time.monotonic() - when >= FAULT_SECONDS else str(error)

    def _retry_after(self) -> int:
        """Seconds until about a seat's worth of work is done."""
        rounds = max(self.admitted / self._at_once, 1)
        return min(max(math.ceil(rounds * self._mean_seconds / 2), 1), MAX_RETRY_AFTER)
