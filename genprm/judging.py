"""How a solution's steps are put to the model, one way for each protocol layout, and how many critiques a step gets.

`independent`: every step and vote at once. `multi_turn`: each vote is a conversation of its own that goes from step
to step. `whole`: each vote is one critique of all steps. With `verify.vote_bound` votes are taken in waves until the
verdict can hardly change; with `verify.cascade` a critique is written only where the direct judgement is unsure.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from .aggregate import judge_step
from .ballots import BallotBox, Cost, Task, prefix_digests
from .calibration import Calibration
from .config import VerifyConfig
from .errors import ConfigError
from .evidence.collect import Evidence
from .evidence.features import step_features
from .evidence.rule import rule_rewards
from .prompting import Message, Prompt
from .types import Ballot, FailedVote, OnStep, Solution, StepJudgment, Vote
from .voting import flip_chance, next_wave

Taken = TypeVar("Taken")


async def collect_into(cost: Cost, evidence: Evidence, solution: Solution) -> None:
    """Collect a solution's evidence and count what it cost."""
    cost.started = cost.started or time.perf_counter()
    cost.evidence, programs = await evidence.collect(solution)
    for program in programs:
        cost.add_program(program)
    if cost.evidence.rollouts is not None:
        cost.completion_tokens += cost.evidence.rollouts.completion_tokens
        cost.prompt_tokens += cost.evidence.rollouts.prompt_tokens


class RuleJudge:
    """Judges by programs and a rule alone; no critique is written."""

    def __init__(self, evidence: Evidence, settings: VerifyConfig):
        self._evidence, self._settings = evidence, settings

    async def judge(
        self, solution: Solution, cost: Cost, on_step: OnStep | None = None, *, last: bool = False
    ) -> list[StepJudgment]:
        """Judgments of all steps, or of the steps up to the first error where `verify.early_stop` is set."""
        await collect_into(cost, self._evidence, solution)
        assert cost.evidence is not None
        rewards = rule_rewards(cost.evidence)
        judged: list[StepJudgment] = []
        for index, text in enumerate(solution.steps):
            common: dict[str, Any] = {"index": index, "text": text, "features": step_features(cost.evidence, index)}
            if isinstance(rewards, str):
                judged.append(StepJudgment(reward=None, verdict="unscored", unscored_reason=rewards, **common))
                continue
            right = rewards[index] >= self._settings.threshold
            judged.append(StepJudgment(reward=rewards[index], verdict="correct" if right else "incorrect", **common))
            if self._settings.early_stop and not right:
                break
        if on_step is not None:
            for step in judged:
                on_step(step)
        return judged


class Judge:
    """Judges single solutions with the critiques of one ballot box."""

    def __init__(self, box: BallotBox, calibration: Calibration | None = None, evidence: Evidence | None = None):
        self.box = box
        self.protocol, self.settings = box.protocol, box.config.verify
        self._calibration, self._evidence = calibration, evidence
        self.protocol.parts(self.settings.mode)  # an unknown mode is said before any work
        if self.settings.cascade is not None:
            if self.protocol.manifest.layout != "independent":
                raise ConfigError(
                    f"verify.cascade needs a protocol that judges each step alone; {self.protocol.name!r} does not"
                )
            self.protocol.parts("direct")

    async def judge(
        self, solution: Solution, cost: Cost, on_step: OnStep | None = None, *, last: bool = False
    ) -> list[StepJudgment]:
        """Judgments of all steps, or of the steps up to the first error where `verify.early_stop` is set.

        With `last` the steps before the last one may be left out, where the layout can judge it without them.
        """
        if self._evidence is not None:
            await collect_into(cost, self._evidence, solution)
        if last and self.protocol.manifest.layout == "independent":
            return await self._independent(solution, cost, on_step or _nobody, first=len(solution.steps) - 1)
        layout = self.protocol.manifest.layout
        run = {"independent": self._independent, "multi_turn": self._multi_turn, "whole": self._whole}[layout]
        return await run(solution, cost, on_step or _nobody)

    # ------------------------------------------------------------------ layouts

    async def _independent(self, solution: Solution, cost: Cost, told: OnStep, first: int = 0) -> list[StepJudgment]:
        digests = prefix_digests(solution)
        rendered = [self.protocol.render_step(text, index) for index, text in enumerate(solution.steps)]

        def ballot(index: int, vote: int, mode: str) -> Awaitable[Ballot]:
            def prompt() -> Prompt:
                blocks = self.box.blocks(solution, index, cost)
                return self.protocol.conversation(solution, index, previous="".join(rendered[:index]), blocks=blocks)

            return self.box.one(Task(solution, index, vote, digests[index], mode), prompt, cost, grows=True)

        async def step(index: int) -> StepJudgment:
            if self.settings.cascade is not None:
                direct = await ballot(index, 0, "direct")
                low, high = self.settings.cascade
                if isinstance(direct, Vote) and not low <= direct.p_yes <= high:
                    return self._step(solution, index, cost, [direct])
            ballots = await self._waves(
                lambda vote: ballot(index, vote, self.settings.mode), _values, lambda: [self._turn(index, cost)]
            )
            return self._step(solution, index, cost, ballots)

        tasks = [asyncio.ensure_future(step(index)) for index in range(first, len(solution.steps))]
        judged: list[StepJudgment] = []
        try:
            for task in tasks:
                judged.append(await task)
                told(judged[-1])
                if self._stops(judged[-1]):
                    break
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return judged

    async def _multi_turn(self, solution: Solution, cost: Cost, told: OnStep) -> list[StepJudgment]:
        digests = prefix_digests(solution)
        chains = [_Chain() for _ in range(self.settings.votes)]

        async def ballot(index: int, vote: int) -> Ballot:
            """Step `index` of one conversation, after the steps before it that it has not written yet."""
            chain = chains[vote]
            answer: Ballot = FailedVote(reason=chain.broken or "")
            for step in range(chain.done, index + 1):
                if chain.broken is not None:
                    return FailedVote(reason=chain.broken)
                prompt = self.protocol.conversation(
                    solution, step, history=tuple(chain.history), blocks=self.box.blocks(solution, step, cost)
                )
                task = Task(solution, step, vote, digests[step], self.settings.mode)
                answer = await self.box.one(task, lambda prompt=prompt: prompt, cost)  # type: ignore[misc]
                chain.add(step, prompt, answer)
            return answer

        judged: list[StepJudgment] = []
        for index in range(len(solution.steps)):
            ballots = await self._waves(
                lambda vote, index=index: ballot(index, vote),  # type: ignore[misc]
                _values,
                lambda index=index: [self._turn(index, cost)],  # type: ignore[misc]
            )
            judged.append(self._step(solution, index, cost, ballots))
            told(judged[-1])
            if self._stops(judged[-1]):
                break
        return judged

    async def _whole(self, solution: Solution, cost: Cost, told: OnStep) -> list[StepJudgment]:
        count = len(solution.steps)
        digest = prefix_digests(solution)[-1]

        def ballots(vote: int) -> Awaitable[Sequence[Ballot]]:
            def prompt() -> Prompt:
                shown = "".join(self.protocol.render_step(text, index) for index, text in enumerate(solution.steps))
                blocks = self.box.blocks(solution, count - 1, cost)
                return self.protocol.conversation(solution, count - 1, previous=shown, blocks=blocks)

            return self.box.whole(Task(solution, count - 1, vote, digest, self.settings.mode), prompt, cost)

        by_vote = await self._waves(
            ballots,
            lambda rows: [value for column in zip(*rows, strict=True) for value in _values(column)],
            lambda: [self._turn(index, cost) for index in range(count)],
        )
        judged: list[StepJudgment] = []
        for index in range(count):
            judged.append(self._step(solution, index, cost, [row[index] for row in by_vote]))
            told(judged[-1])
            if self._stops(judged[-1]):
                break
        return judged

    # ------------------------------------------------------------------ small pieces

    async def _waves(
        self,
        take: Callable[[int], Awaitable[Taken]],
        values: Callable[[Sequence[Taken]], list[list[float]]],
        turns: Callable[[], list[float]],
    ) -> list[Taken]:
        """All votes at once, or in waves until no verdict among them is likely to change.

        Args:
            take: one vote.
            values: P(Yes) of the usable votes, a list for each step that they judge.
            turns: where each of these steps' verdicts turns, before calibration.
        """
        total, bound = self.settings.votes, self.settings.vote_bound
        if bound is None:
            return list(await asyncio.gather(*(take(vote) for vote in range(total))))
        taken: list[Taken] = []
        while len(taken) < total:
            taken += await asyncio.gather(*(take(vote) for vote in next_wave(len(taken), total)))
            columns = zip(values(taken), turns(), strict=True)
            if all(self._settled(column, len(taken), turn) for column, turn in columns):
                break
        return taken

    def _turn(self, index: int, cost: Cost) -> float:
        """Where a step's verdict turns: votes are counted before calibration."""
        if self._calibration is None:
            return self.settings.threshold
        return self._calibration.threshold_before(self.settings.threshold, self._features(index, cost))

    def _settled(self, usable: Sequence[float], taken: int, turn: float) -> bool:
        """True where the full number of votes would hardly give another verdict; failed votes never count."""
        total = self.settings.votes - (taken - len(usable))
        return bool(usable) and flip_chance(usable, total, turn) <= (self.settings.vote_bound or 0)

    def _features(self, index: int, cost: Cost) -> dict[str, float] | None:
        return None if cost.evidence is None else step_features(cost.evidence, index)

    def _step(self, solution: Solution, index: int, cost: Cost, ballots: Sequence[Ballot]) -> StepJudgment:
        calibration, features = self._calibration, self._features(index, cost)
        calibrate = None if calibration is None else lambda p: calibration.apply(p, features)
        return judge_step(index, solution.steps[index], ballots, self.settings.threshold, calibrate, features)

    def _stops(self, step: StepJudgment) -> bool:
        return self.settings.early_stop and step.verdict == "incorrect"


class _Chain:
    """One vote's conversation."""

    def __init__(self) -> None:
        self.history: list[Message] = []
        self.done = 0
        self.broken: str | None = None

    def add(self, step: int, prompt: Prompt, answer: Ballot) -> None:
        """Take a finished turn into the history; behind a failed one nothing more can be judged."""
        self.done = step + 1
        if isinstance(answer, FailedVote):
            # Later steps would be judged with a hole in what came before them.
            self.broken = f"step {step} of this conversation was not judged: {answer.reason}"
        self.history += [prompt.messages[-1], Message("assistant", answer.critique)]


def _values(ballots: Sequence[Ballot]) -> list[list[float]]:
    """P(Yes) of the usable votes of one step, as the one verdict that hangs on them."""
    return [[ballot.p_yes for ballot in ballots if isinstance(ballot, Vote)]]


def _nobody(step: StepJudgment) -> None:
    """Where no one waits for single steps."""
