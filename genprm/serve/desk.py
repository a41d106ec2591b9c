"""The desk: takes solutions in, bounded, and has them judged by the one verifier.

Knows how many solutions are in the house, how the engine fares and whether the service is ending. Knows nothing of
HTTP. All requests share the verifier's bound on critiques under way, so their work is batched together.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence

from ..baselines.scored import ScoredVerifier
from ..errors import UnavailableError
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
        self._failed: tuple[float, str] | None = None
        self._stopped: asyncio.Future[None] | None = None
        meters.watch(lambda: self.admitted - self.running, lambda: self.running)

    @property
    def trouble(self) -> str | None:
        """Why a request would rather go elsewhere; None = ready."""
        if self.draining:
            return "the service is shutting down"
        if self._failed is not None and time.monotonic() - self._failed[0] < FAULT_SECONDS:
            return self._failed[1]
        return None

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
            Fault: `too_large` for more than ever fit, `queue_full` for more than fit now, `draining` at the end.
        """
        if self.draining:
            raise self.ending()
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
            self._failed = (time.monotonic(), str(error))
            raise
        except asyncio.CancelledError:
            self.meters.cancelled.inc()
            raise
        self._failed = None
        self._mean_seconds += NEWEST * (seconds - self._mean_seconds)
        self.meters.solution_seconds.observe(seconds)
        self.meters.judged(result)
        return result

    def _retry_after(self) -> int:
        """Seconds until about a seat's worth of work is done."""
        rounds = max(self.admitted / self._at_once, 1)
        return min(max(math.ceil(rounds * self._mean_seconds / 2), 1), MAX_RETRY_AFTER)
