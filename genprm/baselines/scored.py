"""A verifier whose steps are scored by something that writes no critique, with the results of the generative one.

Knows how scores become judgments, and how a stream is cut into batches; scorers know models. Results depend on the
solutions that are judged together only as far as padding rounds.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from ..aggregate import aggregate, first_error, judge_step
from ..blocking import Blocking
from ..config import Config
from ..errors import BackendUnavailable, ConfigError, Unscored
from ..types import Ballot, FailedVote, OnStep, Outcome, ProtocolRef, Solution, Usage, VerificationResult, Vote

StepScore = float | Unscored
"""A step's reward in [0, 1], or why it has none."""

# Batches that are read ahead, so that solutions of like length can share one.
READ_AHEAD = 4


@dataclass(frozen=True, slots=True)
class Scored:
    """What a scorer says of one solution."""

    steps: tuple[StepScore, ...]
    """One entry a step, in order."""
    prompt_tokens: int = 0
    """Tokens that a model read."""
    outcome: Outcome | None = None
    """Where the scorer has compared the answer anyway."""
    last_only: bool = False
    """True where only the last step can have a score, which then is the solution's reward."""


class Scorer(Protocol):
    """Gives every step of a solution a number; used from one thread at a time."""

    model: str
    """Name stored in every result."""
    name: str
    """The kind of judge; results call their protocol `baseline:NAME`."""

    def settings_digest(self) -> str:
        """sha256 over what fixes how solutions are put to the model."""
        ...

    def score(self, batch: Sequence[Solution]) -> list[Scored]:
        """Score solutions together.

        Args:
            batch: at most `backend.max_batch` solutions.

        Returns:
            One entry a solution, in order.
        """
        ...

    def close(self) -> None:
        """Free the model; safe to call twice."""
        ...


class ScoredVerifier(Blocking):
    """Judges with a `Scorer`; each scored step holds one vote without a critique."""

    def __init__(self, scorer: Scorer, config: Config | None = None):
        """Put a verifier together.

        Args:
            scorer: gives the scores; closed with this object.
            config: threshold, aggregation, early stop and batch size; nothing else of it matters here.

        Raises:
            ConfigError: several votes or a cascade are asked for, of which a scorer has none.
        """
        super().__init__(config or Config())
        settings = self.config.verify
        for key, asked, only in (("votes", settings.votes, 1), ("cascade", settings.cascade, None)):
            if asked != only:
                raise ConfigError(f"the judge {scorer.name!r} gives a step one score: verify.{key} cannot be {asked!r}")
        self.scorer = scorer
        self._ref = ProtocolRef(name=f"baseline:{scorer.name}", sha256=scorer.settings_digest())
        self._digest = self.config.digest()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="genprm-scorer")

    @property
    def model(self) -> str:
        """Name stored in every result."""
        return self.scorer.model

    @property
    def protocol_ref(self) -> ProtocolRef:
        """`baseline:NAME` and the digest of the scorer's settings."""
        return self._ref

    async def averify(self, solution: Solution, on_step: OnStep | None = None) -> VerificationResult:
        """Judge one solution; its steps are known all at once, so `on_step` is told of them together."""
        (result,) = await self._batch([solution])
        if on_step is not None:
            for step in result.steps:
                on_step(step)
        return result

    async def astream(self, solutions: Iterable[Solution]) -> AsyncGenerator[VerificationResult, None]:
        """Judge a stream of solutions; results come batch by batch, solutions of like length together.

        No more than a few batches are read ahead, so a long stream needs no more memory than a short one.
        """
        source = iter(solutions)
        size = self.config.backend.max_batch
        while window := list(islice(source, READ_AHEAD * size)):
            window.sort(key=_length)
            for start in range(0, len(window), size):
                for result in await self._batch(window[start : start + size]):
                    yield result

    def close(self) -> None:
        """Free the scorer and the threads; safe to call twice."""
        self._end_loop()
        self._executor.shutdown(wait=True, cancel_futures=True)
        self.scorer.close()

    async def _batch(self, batch: list[Solution]) -> list[VerificationResult]:
        start = time.perf_counter()
        loop = asyncio.get_running_loop()
        rows = await loop.run_in_executor(self._executor, self.scorer.score, batch)
        seconds = time.perf_counter() - start
        if len(rows) != len(batch):
            raise BackendUnavailable(
                f"the judge {self.scorer.name!r} answered for {len(rows)} of {len(batch)} solutions"
            )
        pairs = zip(batch, rows, strict=True)
        return list(await asyncio.gather(*(self._result(solution, row, seconds) for solution, row in pairs)))

    async def _result(self, solution: Solution, row: Scored, seconds: float) -> VerificationResult:
        settings = self.config.verify
        if len(row.steps) != len(solution.steps):
            raise BackendUnavailable(
                f"the judge {self.scorer.name!r} gave {len(row.steps)} scores for the {len(solution.steps)} steps "
                f"of solution {solution.id!r}"
            )
        steps = []
        for index, (text, score) in enumerate(zip(solution.steps, row.steps, strict=True)):
            steps.append(judge_step(index, text, [self._ballot(score)], settings.threshold))
            if settings.early_stop and steps[-1].verdict == "incorrect":
                break
        how = "last" if row.last_only else settings.aggregation
        rewards = [step.reward for step in steps]
        return VerificationResult(
            id=solution.id,
            problem=solution.problem,
            steps=tuple(steps),
            first_error=first_error(steps),
            stopped_early=len(steps) < len(solution.steps),
            reward=aggregate(rewards[-1:] if row.last_only else rewards, how),
            aggregation=how,
            outcome=row.outcome or await _outcome(solution),
            label=solution.label,
            model=self.model,
            protocol=self._ref,
            config_sha256=self._digest,
            sandbox="off",
            usage=Usage(prompt_tokens=row.prompt_tokens, seconds=round(seconds, 3)),
        )

    def _ballot(self, score: StepScore) -> Ballot:
        if isinstance(score, Unscored):
            return FailedVote(reason=score.reason)
        if math.isnan(score):
            return FailedVote(reason="the model's score is not a number")
        if not 0 <= score <= 1:
            raise BackendUnavailable(f"the judge {self.scorer.name!r} gave a score of {score}, which is not in [0, 1]")
        return Vote(p_yes=score, mass=None, critique="", direct=True)


def _length(solution: Solution) -> int:
    return len(solution.problem) + sum(map(len, solution.steps))


async def _outcome(solution: Solution) -> Outcome | None:
    if solution.answer is None:
        return None
    from ..outcome import judge_outcome_async

    return await judge_outcome_async(solution.steps, solution.answer)
