"""How a solution's steps are put to the model, one way for each protocol layout.

`independent`: every step and vote at once. `multi_turn`: each vote is a conversation of its own that goes from step
to step. `whole`: each vote is one critique of all steps. All of them share one bound on critiques under way.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from .aggregate import judge_step
from .backends.base import Backend, LabelReading
from .config import Config
from .critique import CritiqueWriter, Sampling, Turn, derive_seed
from .errors import ContextOverflow, Unscored
from .prompting import Message, Prompt, Protocol
from .sandbox.base import Sandbox
from .types import FailedVote, Solution, StepJudgment, Vote

Blocks = Callable[[Solution, int], Mapping[str, str]]
Ballot = Vote | FailedVote


@dataclass(slots=True)
class Cost:
    """What judging one solution has used so far."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    code_runs: int = 0
    started: float | None = None
    prefix_scores: list[float] = field(default_factory=list)
    """P(Yes) to a `whole` protocol's closing question, one a vote."""

    def add(self, turn: Turn) -> None:
        """Count one critique."""
        self.prompt_tokens += turn.prompt_tokens
        self.completion_tokens += turn.completion_tokens
        self.code_runs += sum(check.status != "unavailable" for check in turn.checks)

    @property
    def seconds(self) -> float:
        """Wall-clock seconds since the first critique began."""
        return 0.0 if self.started is None else time.perf_counter() - self.started


class Judge:
    """Judges single solutions; holds the bound on critiques that are under way."""

    def __init__(
        self, backend: Backend, protocol: Protocol, sandbox: Sandbox, config: Config, blocks: Blocks | None = None
    ):
        self.backend, self.protocol, self.sandbox, self.config = backend, protocol, sandbox, config
        self.blocks = blocks
        self.seats = asyncio.Semaphore(config.backend.max_in_flight)
        sampling, votes = config.sampling, config.verify.votes
        automatic = 0.0 if votes == 1 else 0.6
        self.temperature = automatic if sampling.temperature is None else sampling.temperature
        protocol.parts(config.verify.mode)  # an unknown mode is said before any work

    async def judge(self, solution: Solution, cost: Cost) -> list[StepJudgment]:
        """Judgments of all steps, or of the steps up to the first error where `verify.early_stop` is set."""
        layout = self.protocol.manifest.layout
        run = {"independent": self._independent, "multi_turn": self._multi_turn, "whole": self._whole}[layout]
        return await run(solution, cost)

    # ------------------------------------------------------------------ layouts

    async def _independent(self, solution: Solution, cost: Cost) -> list[StepJudgment]:
        votes = self.config.verify.votes
        seeds = _prefix_digests(solution)
        rendered = [self.protocol.render_step(text, index) for index, text in enumerate(solution.steps)]
        overflow: list[tuple[int, str]] = []

        async def ballot(index: int, vote: int) -> Ballot:
            async with self.seats:
                if overflow and overflow[0][0] < index:
                    # This prompt holds all of one that was too long already.
                    return FailedVote(reason=overflow[0][1])
                prompt = self.protocol.conversation(
                    solution, index, previous="".join(rendered[:index]), blocks=self._blocks(solution, index)
                )
                answer, _ = await self._ballot(solution, prompt, index, vote, seeds[index], cost, overflow)
                return answer

        tasks = [
            [asyncio.ensure_future(ballot(index, vote)) for vote in range(votes)]
            for index in range(len(solution.steps))
        ]
        judged: list[StepJudgment] = []
        try:
            for index, waiting in enumerate(tasks):
                judged.append(self._step(solution, index, await asyncio.gather(*waiting)))
                if self._stops(judged[-1]):
                    break
        finally:
            rest = [task for waiting in tasks for task in waiting if not task.done()]
            for task in rest:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)
        return judged

    async def _multi_turn(self, solution: Solution, cost: Cost) -> list[StepJudgment]:
        votes = self.config.verify.votes
        seeds = _prefix_digests(solution)
        histories: list[list[Message]] = [[] for _ in range(votes)]
        broken: dict[int, str] = {}

        async def ballot(index: int, vote: int) -> Ballot:
            if vote in broken:
                return FailedVote(reason=broken[vote])
            async with self.seats:
                history = histories[vote]
                prompt = self.protocol.conversation(
                    solution, index, history=tuple(history), blocks=self._blocks(solution, index)
                )
                answer, turn = await self._ballot(solution, prompt, index, vote, seeds[index], cost, [])
            if isinstance(answer, FailedVote):
                # Later steps would be judged with a hole in what came before them.
                broken[vote] = f"step {index} of this conversation was not judged: {answer.reason}"
            history += [prompt.messages[-1], Message("assistant", turn.text)]
            return answer

        judged: list[StepJudgment] = []
        for index in range(len(solution.steps)):
            ballots = await asyncio.gather(*(ballot(index, vote) for vote in range(votes)))
            judged.append(self._step(solution, index, ballots))
            if self._stops(judged[-1]):
                break
        return judged

    async def _whole(self, solution: Solution, cost: Cost) -> list[StepJudgment]:
        count = len(solution.steps)
        seed = _prefix_digests(solution)[-1]
        shown = "".join(self.protocol.render_step(text, index) for index, text in enumerate(solution.steps))
        prompt = self.protocol.conversation(
            solution, count - 1, previous=shown, blocks=self._blocks(solution, count - 1)
        )

        async def ballots(vote: int) -> Sequence[Ballot]:
            async with self.seats:
                return await self._whole_ballots(solution, prompt, vote, seed, cost)

        by_vote = await asyncio.gather(*(ballots(vote) for vote in range(self.config.verify.votes)))
        judged: list[StepJudgment] = []
        for index in range(count):
            judged.append(self._step(solution, index, [row[index] for row in by_vote]))
            if self._stops(judged[-1]):
                break
        return judged

    # ------------------------------------------------------------------ one critique

    async def _ballot(
        self,
        solution: Solution,
        prompt: Prompt,
        index: int,
        vote: int,
        digest: str,
        cost: Cost,
        overflow: list[tuple[int, str]],
    ) -> tuple[Ballot, Turn]:
        """One critique of one step and the label behind it."""
        labels = self.protocol.manifest.judgement.labels
        yes = next(iter(labels))
        async with self.backend.slot() as slot:
            cost.started = cost.started or time.perf_counter()
            sampling = self._sampling(digest, vote)
            writer = CritiqueWriter(
                slot,
                self.protocol,
                prompt,
                sampling,
                self.sandbox.open,
                number=index + 1,
                blocks=self._blocks(solution, index),
            )
            turn = writer.turn
            try:
                await writer.write(self.config.verify.mode)
                reading = await writer.judge(labels)
            except Unscored as error:
                if isinstance(error, ContextOverflow) and not turn.written:
                    overflow.append((index, error.reason))
                    overflow.sort()
                return self._failed(error.reason, turn, sampling, cost), turn
        if reason := self._infrastructure(turn):
            return self._failed(reason, turn, sampling, cost), turn
        cost.add(turn)
        return self._vote(reading.probs[yes], reading, turn, sampling), turn

    async def _whole_ballots(
        self, solution: Solution, prompt: Prompt, vote: int, digest: str, cost: Cost
    ) -> Sequence[Ballot]:
        """One critique of all steps, and what it says of each."""
        count = len(solution.steps)
        judgement = self.protocol.manifest.judgement
        labels = self.protocol.first_error_labels(count) if judgement.kind == "first_error" else judgement.labels
        async with self.backend.slot() as slot:
            cost.started = cost.started or time.perf_counter()
            sampling = self._sampling(digest, vote)
            writer = CritiqueWriter(
                slot,
                self.protocol,
                prompt,
                sampling,
                self.sandbox.open,
                number=count,
                steps=count,
                blocks=self._blocks(solution, count - 1),
            )
            turn = writer.turn
            try:
                await writer.write(self.config.verify.mode)
                reading = await writer.judge(labels)
            except Unscored as error:
                return _shared([self._failed(error.reason, turn, sampling, cost)] * count)
        if reason := self._infrastructure(turn):
            return _shared([self._failed(reason, turn, sampling, cost)] * count)
        cost.add(turn)
        if judgement.kind == "first_error":
            right = _still_right(reading, count)
            return _shared([self._vote(p_yes, reading, turn, sampling) for p_yes in right])
        cost.prefix_scores.append(reading.probs[next(iter(labels))])
        return self._from_step_labels(turn, sampling, count)

    def _from_step_labels(self, turn: Turn, sampling: Sampling, count: int) -> Sequence[Ballot]:
        """Votes from the labels read along one chain; each carries the stretch of text that led to it."""
        yes = next(iter(self.protocol.manifest.step_labels or {}))
        ballots: list[Ballot] = []
        start = 0
        for reading, end in zip(turn.step_labels, turn.step_ends, strict=True):
            piece = self._vote(reading.probs[yes], reading, turn, sampling)
            ballots.append(piece.model_copy(update={"critique": turn.text[start:end], "written": None}))
            start = end
        ended = f"the critique ended after judging {len(ballots)} of {count} steps"
        missing = FailedVote(reason=ended, notes=tuple(turn.notes), seed=sampling.seed)
        if not ballots:
            missing = missing.model_copy(update={"critique": turn.text, "completion_tokens": turn.completion_tokens})
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

    def _failed(self, reason: str, turn: Turn, sampling: Sampling, cost: Cost) -> FailedVote:
        cost.add(turn)
        return FailedVote(
            reason=reason,
            critique=turn.text,
            checks=tuple(turn.checks),
            notes=tuple(turn.notes),
            completion_tokens=turn.completion_tokens,
            seed=sampling.seed,
        )

    def _infrastructure(self, turn: Turn) -> str | None:
        """Why this critique says nothing of the step: its code did not run although it should have."""
        if self.sandbox.level == "off":
            return None
        lost = next((check for check in turn.checks if check.status == "unavailable"), None)
        return None if lost is None else f"the sandbox failed: {lost.output}"

    def _sampling(self, digest: str, vote: int) -> Sampling:
        greedy = self.temperature == 0
        return Sampling(
            temperature=self.temperature,
            top_p=1.0 if greedy else self.config.sampling.top_p,
            top_k=0 if greedy else self.config.sampling.top_k,
            seed=None if greedy else derive_seed(self.config.verify.seed, digest, vote),
            max_tokens=self.config.verify.max_tokens,
        )

    def _blocks(self, solution: Solution, index: int) -> Mapping[str, str]:
        return self.blocks(solution, index) if self.blocks is not None else {}

    def _step(self, solution: Solution, index: int, ballots: Sequence[Ballot]) -> StepJudgment:
        return judge_step(index, solution.steps[index], ballots, self.config.verify.threshold)

    def _stops(self, step: StepJudgment) -> bool:
        return self.config.verify.early_stop and step.verdict == "incorrect"


def _still_right(reading: LabelReading, count: int) -> list[float]:
    """P(first error comes after step t) for t = 0 … count-1, from the distribution over the first error."""
    chances = [reading.probs[str(index)] for index in range(count)]
    wrong_so_far = accumulate(chances)
    return [1.0 - wrong for wrong in wrong_so_far]


def _shared(ballots: Sequence[Ballot]) -> list[Ballot]:
    """Ballots of one critique: all but the first are marked, and its tokens are counted once."""
    marked = [ballot.model_copy(update={"shared": True, "completion_tokens": 0}) for ballot in ballots[1:]]
    return [*ballots[:1], *marked]


def _prefix_digests(solution: Solution) -> list[str]:
    """A digest of problem and steps up to each step: what a vote's seed hangs on, so that equal prefixes get it."""
    digest = hashlib.sha256(repr(solution.problem).encode("utf-8", "surrogatepass"))
    digests = []
    for step in solution.steps:
        digest.update(repr(step).encode("utf-8", "surrogatepass"))
        digests.append(digest.hexdigest())
    return digests
