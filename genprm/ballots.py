"""From one critique to what it says of a step: a vote, or a failed vote with its reason.

Holds the bound on critiques under way and asks the verdict cache before writing one. Knows nothing of how many
critiques a step gets or in which order; judging.py does.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from .backends.base import Backend, LabelReading
from .config import Config
from .critique import CritiqueWriter, Sampling, Turn, derive_seed
from .errors import ContextOverflow, Unscored
from .evidence.block import evidence_block
from .evidence.programs import Program
from .evidence.support import SolutionSupport
from .prompting import Prompt, Protocol
from .recall import Recall
from .sandbox.base import Sandbox
from .types import Ballot, FailedVote, Solution, Vote

Blocks = Callable[[Solution, int], Mapping[str, str]]


@dataclass(slots=True)
class Cost:
    """What judging one solution has used so far."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    code_runs: int = 0
    cache_hits: int = 0
    started: float | None = None
    prefix_scores: list[float] = field(default_factory=list)
    """P(Yes) to a `whole` protocol's closing question, one a vote."""
    evidence: SolutionSupport | None = None
    """What programs and equations say of the solution."""
    overflow: tuple[int, str] | None = None
    """The first step whose prompt did not fit, and the reason."""

    def add(self, turn: Turn) -> None:
        """Count one critique."""
        self.prompt_tokens += turn.prompt_tokens
        self.completion_tokens += turn.completion_tokens
        self.code_runs += sum(check.status != "unavailable" for check in turn.checks)

    def add_program(self, program: Program) -> None:
        """Count one program written for the evidence."""
        self.prompt_tokens += program.prompt_tokens
        self.completion_tokens += program.completion_tokens
        self.code_runs += program.status != "unavailable" and bool(program.source)

    @property
    def seconds(self) -> float:
        """Wall-clock seconds since the first critique began."""
        return 0.0 if self.started is None else time.perf_counter() - self.started


@dataclass(frozen=True, slots=True)
class Task:
    """One critique to be written."""

    solution: Solution
    index: int
    """The step that is judged; for protocols that judge all at once, the last one."""
    vote: int
    digest: str
    """Of problem and steps up to `index`: what seeds and cache keys hang on."""
    mode: str


class BallotBox:
    """Writes critiques and reads their labels."""

    def __init__(
        self,
        backend: Backend,
        protocol: Protocol,
        sandbox: Sandbox,
        config: Config,
        blocks: Blocks | None,
        recall: Recall,
    ):
        self.backend, self.protocol, self.sandbox, self.config = backend, protocol, sandbox, config
        self._blocks, self._recall = blocks, recall
        self.seats = asyncio.Semaphore(config.backend.max_in_flight)
        automatic = 0.0 if config.verify.votes == 1 else 0.6
        chosen = config.sampling.temperature
        self.temperature = automatic if chosen is None else chosen
        self._key_base = self._settings_digest()

    def blocks(self, solution: Solution, index: int, cost: Cost) -> Mapping[str, str]:
        """The host-inserted blocks for a step: evidence, and the caller's own."""
        given = self._blocks(solution, index) if self._blocks is not None else {}
        if cost.evidence is None or not self.config.evidence.show:
            return given
        return {"evidence": evidence_block(cost.evidence, index), **given}

    async def one(self, task: Task, prompt: Callable[[], Prompt], cost: Cost, *, grows: bool = False) -> Ballot:
        """One critique of one step.

        Args:
            task: what is judged.
            prompt: called only if the critique has to be written.
            cost: where it is counted.
            grows: True where this prompt holds all of an earlier step's, so that it is too long if that one was.
        """

        async def make() -> Sequence[Ballot]:
            async with self.seats:
                if grows and cost.overflow is not None and cost.overflow[0] < task.index:
                    return [FailedVote(reason=cost.overflow[1])]
                return [await self._write_one(task, prompt(), cost)]

        ballots, remembered = await self._recall.once(self._key(task, cost), make)
        cost.cache_hits += remembered
        return ballots[0]

    async def whole(self, task: Task, prompt: Callable[[], Prompt], cost: Cost) -> Sequence[Ballot]:
        """One critique of all steps: a ballot for each."""

        async def make() -> Sequence[Ballot]:
            async with self.seats:
                return await self._write_whole(task, prompt(), cost)

        ballots, remembered = await self._recall.once(self._key(task, cost), make)
        cost.cache_hits += remembered
        scores = [ballot.prefix_score for ballot in ballots[:1] if isinstance(ballot, Vote)]
        cost.prefix_scores += [score for score in scores if score is not None]
        return ballots

    # ------------------------------------------------------------------ writing

    async def _write_one(self, task: Task, prompt: Prompt, cost: Cost) -> Ballot:
        labels = self.protocol.manifest.judgement.labels
        turn, sampling, outcome = await self._write(task, prompt, cost, labels, steps=1)
        if not isinstance(outcome, LabelReading):
            return self._failed(outcome, turn, sampling)
        direct = task.mode != self.config.verify.mode
        vote = self._vote(outcome.probs[next(iter(labels))], outcome, turn, sampling)
        return vote.model_copy(update={"direct": True}) if direct else vote

    async def _write_whole(self, task: Task, prompt: Prompt, cost: Cost) -> Sequence[Ballot]:
        count = len(task.solution.steps)
        judgement = self.protocol.manifest.judgement
        labels = self.protocol.first_error_labels(count) if judgement.kind == "first_error" else judgement.labels
        turn, sampling, outcome = await self._write(task, prompt, cost, labels, steps=count)
        if not isinstance(outcome, LabelReading):
            return _shared([self._failed(outcome, turn, sampling)] * count)
        if judgement.kind == "first_error":
            right = _still_right(outcome, count)
            return _shared([self._vote(p_yes, outcome, turn, sampling) for p_yes in right])
        score = outcome.probs[next(iter(labels))]
        return self._from_step_labels(turn, sampling, count, score)

    async def _write(
        self, task: Task, prompt: Prompt, cost: Cost, labels: Mapping[str, tuple[str, ...]], *, steps: int
    ) -> tuple[Turn, Sampling, LabelReading | str]:
        """The critique and the label behind it, or the reason why there is none."""
        sampling = self._sampling(task)
        async with self.backend.slot() as slot:
            cost.started = cost.started or time.perf_counter()
            writer = CritiqueWriter(
                slot,
                self.protocol,
                prompt,
                sampling,
                self.sandbox.open,
                number=task.index + 1,
                steps=steps,
                blocks=self.blocks(task.solution, task.index, cost),
            )
            turn = writer.turn
            outcome: LabelReading | str
            try:
                await writer.write(task.mode)
                outcome = await writer.judge(labels)
            except Unscored as error:
                outcome = error.reason
                if isinstance(error, ContextOverflow) and not turn.written:
                    earlier = cost.overflow is not None and cost.overflow[0] <= task.index
                    cost.overflow = cost.overflow if earlier else (task.index, error.reason)
        cost.add(turn)
        return turn, sampling, self._lost_sandbox(turn) or outcome

    def _from_step_labels(self, turn: Turn, sampling: Sampling, count: int, score: float) -> Sequence[Ballot]:
        """Votes from the labels read along one chain; each carries the stretch of text that led to it."""
        yes = next(iter(self.protocol.manifest.step_labels or {}))
        ballots: list[Ballot] = []
        start = 0
        for reading, end in zip(turn.step_labels, turn.step_ends, strict=True):
            vote = self._vote(reading.probs[yes], reading, turn, sampling)
            piece = {"critique": turn.text[start:end], "written": None, "prefix_score": score}
            ballots.append(vote.model_copy(update=piece))
            start = end
        ended = f"the critique ended after judging {len(ballots)} of {count} steps"
        missing = self._failed(ended, turn, sampling)
        if ballots:
            missing = missing.model_copy(update={"critique": "", "checks": ()})
        return _shared([*ballots, *[missing] * (count - len(ballots))])

    # ------------------------------------------------------------------ small pieces

    def _vote(self, p_yes: float, reading: LabelReading, turn: Turn, sampling: Sampling) -> Vote:
        return Vote(
            p_yes=min(max(p_yes, 0.0), 1.0),
            mass=reading.mass,
            low_mass=reading.mass is not None and reading.mass < self.config.verify.min_mass,
            critique=turn.text,
            written=tuple(turn.written),
            checks=tuple(turn.checks),
            notes=tuple(turn.notes),
            completion_tokens=turn.completion_tokens,
            seed=sampling.seed,
        )

    def _failed(self, reason: str, turn: Turn, sampling: Sampling) -> FailedVote:
        return FailedVote(
            reason=reason,
            critique=turn.text,
            checks=tuple(turn.checks),
            notes=tuple(turn.notes),
            completion_tokens=turn.completion_tokens,
            seed=sampling.seed,
        )

    def _lost_sandbox(self, turn: Turn) -> str | None:
        """Why this critique says nothing of the step: its code did not run although it should have."""
        if self.sandbox.level == "off":
            return None
        lost = next((check for check in turn.checks if check.status == "unavailable"), None)
        return None if lost is None else f"the sandbox failed: {lost.output}"

    def _sampling(self, task: Task) -> Sampling:
        greedy = self.temperature == 0
        return Sampling(
            temperature=self.temperature,
            top_p=1.0 if greedy else self.config.sampling.top_p,
            top_k=0 if greedy else self.config.sampling.top_k,
            seed=None if greedy else derive_seed(self.config.verify.seed, task.digest, task.vote),
            max_tokens=self.config.verify.max_tokens,
        )

    def _key(self, task: Task, cost: Cost) -> str:
        """Everything that this critique depends on, as one digest."""
        blocks = sorted(self.blocks(task.solution, task.index, cost).items())
        parts = [self._key_base, task.mode, task.digest, task.vote, blocks]
        return hashlib.sha256(json.dumps(parts).encode("utf-8", "surrogatepass")).hexdigest()

    def _settings_digest(self) -> str:
        """The settings behind a critique; how votes are counted afterwards is left out."""
        counting = {"votes", "vote_bound", "cascade", "early_stop", "aggregation", "threshold", "min_mass", "mode"}
        counting |= {"calibration", "reward", "outcome_weight"}
        settings = self.config.result_settings(verify=counting, evidence=True, policy=True)
        made_by = [self.backend.model, self.protocol.ref.sha256, self.sandbox.level == "off", self.temperature]
        return hashlib.sha256(json.dumps([settings, made_by], sort_keys=True).encode()).hexdigest()


def prefix_digests(solution: Solution) -> list[str]:
    """A digest of problem and steps up to each step, so that equal prefixes get equal seeds and keys."""
    digest = hashlib.sha256(repr(solution.problem).encode("utf-8", "surrogatepass"))
    digests = []
    for step in solution.steps:
        digest.update(repr(step).encode("utf-8", "surrogatepass"))
        digests.append(digest.hexdigest())
    return digests


def _still_right(reading: LabelReading, count: int) -> list[float]:
    """P(first error comes after step t) for t = 0 … count-1, from the distribution over the first error."""
    wrong_so_far = accumulate(reading.probs[str(index)] for index in range(count))
    return [1.0 - wrong for wrong in wrong_so_far]


def _shared(ballots: Sequence[Ballot]) -> list[Ballot]:
    """Ballots of one critique: all but the first are marked, and its tokens are counted once."""
    marked = [ballot.model_copy(update={"shared": True, "completion_tokens": 0}) for ballot in ballots[1:]]
    return [*ballots[:1], *marked]
