"""Solutions of different requests judged together, for verifiers that judge a batch at a time.

Knows that such a verifier's stream makes batches of what it is given; the generative one needs none of this, since its
critiques meet in the engine.
"""

from __future__ import annotations

import asyncio
from itertools import count, islice

from ..types import OnStep, Solution, VerificationResult
from ..verifier import Verifier


class Batches:
    """Collects what arrives while a batch is being judged; that is the next batch."""

    def __init__(self, verifier: Verifier):
        self._verifier = verifier
        self._size = verifier.config.backend.max_batch
        self._numbers = count()
        self._waiting: dict[str, tuple[Solution, asyncio.Future[VerificationResult]]] = {}
        self._worker: asyncio.Task[None] | None = None

    async def averify(self, solution: Solution, on_step: OnStep | None = None) -> VerificationResult:
        """Judge one solution; see `Verifier.averify`."""
        # Requests may use the same id; within a batch each needs one of its own.
        key = str(next(self._numbers))
        future: asyncio.Future[VerificationResult] = asyncio.get_running_loop().create_future()
        self._waiting[key] = (solution.model_copy(update={"id": key}), future)
        if self._worker is None:
            self._worker = asyncio.ensure_future(self._work())
        try:
            result = (await future).model_copy(update={"id": solution.id})
        finally:
            self._waiting.pop(key, None)
        if on_step is not None:
            for step in result.steps:
                on_step(step)
        return result

    async def _work(self) -> None:
        try:
            while self._waiting:
                await asyncio.sleep(0)  # what arrives in the same turn is judged together
                taken = {key: self._waiting.pop(key) for key in list(islice(self._waiting, self._size))}
                try:
                    async for result in self._verifier.astream(solution for solution, _ in taken.values()):
                        future = taken[result.id][1]
                        if not future.done():
                            future.set_result(result)
                except Exception as error:
                    for _, future in taken.values():
                        if not future.done():
                            future.set_exception(error)
        finally:
            self._worker = None
