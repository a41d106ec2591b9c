"""GenPRM: judges solutions, one or a stream of them, with every critique in flight at once.

Knows protocols, a backend and a sandbox only by their seams. `Verifier` is what callers may rely on, whatever judges.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing
from statistics import fmean
from types import TracebackType
from typing import Protocol as Seam
from typing import Self, runtime_checkable

from .aggregate import aggregate, first_error, joint
from .backends.base import Backend
from .ballots import BallotBox, Blocks, Cost
from .blocking import Blocking
from .cache import VerdictCache
from .calibration import Calibration
from .config import Config
from .evidence.collect import Evidence
from .evidence.programs import Solver
from .evidence.roller import Roller
from .judging import Judge, RuleJudge
from .policy import Policy
from .prompting import Protocol
from .recall import Recall
from .sandbox.base import Sandbox
from .streaming import in_flight
from .types import OnStep, Outcome, ProtocolRef, Solution, Usage, VerificationResult

OutcomeJudge = Callable[[tuple[str, ...], str], Awaitable[Outcome]]


@runtime_checkable
class Verifier(Seam):
    """Whatever judges the steps of solutions: the generative verifier, or a baseline in its place."""

    config: Config

    @property
    def model(self) -> str:
        """Name stored in every result."""
        ...

    @property
    def protocol_ref(self) -> ProtocolRef:
        """What judged, stored in every result."""
        ...

    async def averify(self, solution: Solution, on_step: OnStep | None = None) -> VerificationResult:
        """Judge one solution; `on_step` is told each step's judgment, in order, as soon as it is final."""
        ...

    def astream(self, solutions: Iterable[Solution]) -> AsyncGenerator[VerificationResult, None]:
        """Judge a stream of solutions; results come as they are done, and little is read ahead."""
        ...

    def verify(self, solution: Solution) -> VerificationResult:
        """Judge one solution and wait for it."""
        ...

    def verify_many(self, solutions: Iterable[Solution]) -> Iterator[VerificationResult]:
        """Judge a stream of solutions and wait for each result."""
        ...

    def close(self) -> None:
        """Free what it holds; safe to call twice."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None: ...


class GenPRM(Blocking):
    """A verifier: a model behind a backend, a protocol, and a sandbox for the model's code."""

    def __init__(
        self,
        backend: Backend,
        protocol: Protocol,
        sandbox: Sandbox,
        config: Config | None = None,
        *,
        blocks: Blocks | None = None,
        outcome: OutcomeJudge | None = None,
        cache: VerdictCache | None = None,
        calibration: Calibration | None = None,
        solver: Protocol | None = None,
        policy: Protocol | None = None,
    ):
        """Put a verifier together.

        Args:
            backend: the engine; closed with this object.
            protocol: how steps are put to the model.
            sandbox: where its code runs; closed with this object.
            config: votes, aggregation and the rest.
            blocks: gives host-inserted blocks (for example evidence) for a step of a solution.
            cache: where finished critiques are kept; closed with this object.
            calibration: makes rewards of mean P(Yes); None = they are the same.
            solver: how problems are put to the model for programs, where the config wants evidence.
            policy: how the model is asked to go on with a solution, where the config wants rollouts.
            outcome: compares the solution's answer with the reference; None = math-verify in a worker process.
        """
        super().__init__(config or Config())
        self.backend, self.protocol, self.sandbox = backend, protocol, sandbox
        self._blocks = blocks
        self._outcome = outcome or _judge_outcome
        self._recall = Recall(cache)
        self._calibration, self._solver, self._policy = calibration, solver, policy
        self._judges: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Judge | RuleJudge] = (
            weakref.WeakKeyDictionary()
        )
        self._digest = self.config.digest()

    @property
    def model(self) -> str:
        """Name stored in every result."""
        return self.backend.model

    @property
    def protocol_ref(self) -> ProtocolRef:
        """Name and digest of the prompts, stored in every result."""
        return self.protocol.ref

    async def averify(self, solution: Solution, on_step: OnStep | None = None) -> VerificationResult:
        """Judge one solution; `on_step` is told each step's judgment, in order, as soon as it is final."""
        async with self.backend.work():
            return await self._verify(self._judge(), solution, on_step)

    async def averify_last(self, solution: Solution) -> VerificationResult:
        """Judge the last step alone, after the steps before it; the result's `steps` hold that one, or none.

        A protocol that needs verdicts on the earlier steps judges them too. For search, where the earlier steps have
        been judged already. There is none where `verify.early_stop` ends the judging before it.
        """
        async with self.backend.work():
            return await self._verify(self._judge(), solution, last=True)

    @property
    def judges_last_alone(self) -> bool:
        """True where `averify_last` costs one step's critiques only."""
        return self.protocol.manifest.judges and self.protocol.manifest.layout == "independent"

    async def astream(self, solutions: Iterable[Solution]) -> AsyncGenerator[VerificationResult, None]:
        """Judge a stream of solutions; results come as they are done.

        No more solutions are read ahead than can be in flight, so a long stream needs no more memory than a short one.
        """
        async with self.backend.work():
            judge = self._judge()
            most = self.config.backend.max_in_flight
            async with aclosing(in_flight(solutions, lambda one: self._verify(judge, one), most)) as results:
                async for result in results:
                    yield result

    def _judge(self) -> Judge | RuleJudge:
        """The running event loop's judge: all work of a loop shares one bound on critiques under way."""
        loop = asyncio.get_running_loop()
        if loop not in self._judges:
            box = BallotBox(self.backend, self.protocol, self.sandbox, self.config, self._blocks, self._recall)
            evidence = self._collector(box.seats)
            rule = evidence is not None and not self.protocol.manifest.judges
            self._judges[loop] = (
                RuleJudge(evidence, self.config.verify)
                if evidence is not None and rule
                else Judge(box, self._calibration, evidence)
            )
        return self._judges[loop]

    def _collector(self, seats: asyncio.Semaphore) -> Evidence | None:
        """What collects evidence in one event loop; None where none is wanted."""
        settings, solver = self.config.evidence, None
        if self._solver is not None and settings.programs:
            solver = Solver(
                self.backend,
                self.sandbox,
                self._solver,
                settings,
                seats=seats,
                seed=self.config.verify.seed,
                cache=self._recall.cache,
            )
        roll = None
        if self._policy is not None and settings.rollouts:
            policy = Policy(self.backend, self._policy, self.config.policy, seats=seats)
            roll = Roller(policy, seed=self.config.verify.seed, cache=self._recall.cache)
        return Evidence(solver, settings, roll) if solver is not None or settings.equations else None

    async def _verify(
        self, judge: Judge | RuleJudge, solution: Solution, on_step: OnStep | None = None, *, last: bool = False
    ) -> VerificationResult:
        cost = Cost()
        steps = await judge.judge(solution, cost, on_step, last=last)
        stopped = len(steps) < len(solution.steps)
        if last:
            stopped, steps = False, [step for step in steps if step.index == len(solution.steps) - 1]
        seconds = cost.seconds
        outcome = None if solution.answer is None else await self._outcome(solution.steps, solution.answer)
        return VerificationResult(
            id=solution.id,
            problem=solution.problem,
            steps=tuple(steps),
            first_error=first_error(steps),
            stopped_early=stopped,
            reward=joint(
                aggregate([step.reward for step in steps], self.config.verify.aggregation),
                None if cost.evidence is None else cost.evidence.agree,
                self.config.verify.outcome_weight,
            ),
            aggregation=self.config.verify.aggregation,
            outcome=outcome,
            prefix_score=fmean(cost.prefix_scores) if cost.prefix_scores else None,
            evidence=None if cost.evidence is None else cost.evidence.as_evidence(),
            label=solution.label,
            model=self.model,
            protocol=self.protocol_ref,
            config_sha256=self._digest,
            sandbox=self.sandbox.level,
            usage=Usage(
                prompt_tokens=cost.prompt_tokens,
                completion_tokens=cost.completion_tokens,
                code_runs=cost.code_runs,
                cache_hits=cost.cache_hits,
                seconds=round(seconds, 3),
            ),
        )

    def close(self) -> None:
        """Free engine, sandbox and thread; safe to call twice."""
        self._end_loop()
        self.backend.close()
        self.sandbox.close()
        if self._recall.cache is not None:
            self._recall.cache.close()


async def _judge_outcome(steps: tuple[str, ...], reference: str) -> Outcome:
    from .outcome import judge_outcome_async

    return await judge_outcome_async(steps, reference)
