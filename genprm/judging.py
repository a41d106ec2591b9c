"""How a solution's steps are put to the model, one way for each protocol layout, and how many critiques a step gets.

`independent`: every step and vote at once. `multi_turn`: each vote is a conversation of its own that goes from step
to step. `whole`: each vote is one critique of all steps. With `verify.vote_bound` votes are taken in waves until the
verdict can hardly change; with `verify.cascade` a critique is written only where the direct judgement is unsure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from .aggregate import judge_step
from .ballots import BallotBox, Cost, Task, prefix_digests
from .calibration import Calibration
from .errors import ConfigError
from .prompting import Message, Prompt
from .types import Ballot, FailedVote, Solution, StepJudgment, Vote
from .voting import flip_chance, next_wave

Taken = TypeVar("Taken")


class Judge:
    """Judges single solutions with the critiques of one ballot box."""

    def __init__(self, box: BallotBox, calibration: Calibration | None = None):
        self.box = box
        self.protocol, self.settings = box.protocol, box.config.verify
        threshold = self.settings.threshold
        self._calibrate = None if calibration is None else calibration.apply
        # Votes are counted before calibration, where the verdict turns elsewhere.
        self._turns = threshold if calibration is None else calibration.threshold_before(threshold)
        self.protocol.parts(self.settings.mode)  # an unknown mode is said before any work
        if self.settings.cascade is not None:
            if self.protocol.manifest.layout != "independent":
                raise ConfigError(
                    f"verify.cascade needs a protocol that judges each step alone; {self.protocol.name!r} does not"
                )
            self.protocol.parts("direct")

    async def judge(self, solution: Solution, cost: Cost) -> list[StepJudgment]:
        """Judgments of all steps, or of the steps up to the first error where `verify.early_stop` is set."""
        layout = self.protocol.manifest.layout
        run = {"independent": self._independent, "multi_turn": self._multi_turn, "whole": self._whole}[layout]
        return await run(solution, cost)

    # ------------------------------------------------------------------ layouts

    async def _independent(self, solution: Solution, cost: Cost) -> list[StepJudgment]:
        digests = prefix_digests(solution)
        rendered = [self.protocol.render_step(text, index) for index, text in enumerate(solution.steps)]

        def ballot(index: int, vote: int, mode: str) -> Awaitable[Ballot]:
            def prompt() -> Prompt:
                blocks = self.box.blocks(solution, index)
                return self.protocol.conversation(solution, index, previous="".join(rendered[:index]), blocks=blocks)

            return self.box.one(Task(solution, index, vote, digests[index], mode), prompt, cost, grows=True)

        async def step(index: int) -> StepJudgment:
            if self.settings.cascade is not None:
                direct = await ballot(index, 0, "direct")
                low, high = self.settings.cascade
                if isinstance(direct, Vote) and not low <= direct.p_yes <= high:
                    return self._step(solution, index, [direct])
            ballots = await self._waves(lambda vote: ballot(index, vote, self.settings.mode), _values)
            return self._step(solution, index, ballots)

        tasks = [asyncio.ensure_future(step(index)) for index in range(len(solution.steps))]
        judged: list[StepJudgment] = []
        try:
            for task in tasks:
                judged.append(await task)
                if self._stops(judged[-1]):
                    break
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return judged

    async def _multi_turn(self, solution: Solution, cost: Cost) -> list[StepJudgment]:
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
                    solution, step, history=tuple(chain.history), blocks=self.box.blocks(solution, step)
                )
                task = Task(solution, step, vote, digests[step], self.settings.mode)
                answer = await self.box.one(task, lambda prompt=prompt: prompt, cost)  # type: ignore[misc]
                chain.add(step, prompt, answer)
            return answer

        judged: list[StepJudgment] = []
        for index in range(len(solution.steps)):
            ballots = await self._waves(lambda vote, index=index: ballot(index, vote), _values)  # type: ignore[misc]
            judged.append(self._step(solution, index, ballots))
            if self._stops(judged[-1]):
                break
        return judged

    async def _whole(self, solution: Solution, cost: Cost) -> list[StepJudgment]:
        count = len(solution.steps)
        digest = prefix_digests(solution)[-1]

        def ballots(vote: int) -> Awaitable[Sequence[Ballot]]:
            def prompt() -> Prompt:
                shown = "".join(self.protocol.render_step(text, index) for index, text in enumerate(solution.steps))
                blocks = self.box.blocks(solution, count - 1)
                return self.protocol.conversation(solution, count - 1, previous=shown, blocks=blocks)

            return self.box.whole(Task(solution, count - 1, vote, digest, self.settings.mode), prompt, cost)

        by_vote = await self._waves(
            ballots, lambda rows: [value for column in zip(*rows, strict=True) for value in _values(column)]
        )
        judged: list[StepJudgment] = []
        for index in range(count):
            judged.append(self._step(solution, index, [row[index] for row in by_vote]))
            if self._stops(judged[-1]):
                break
        return judged

    # ------------------------------------------------------------------ small pieces

    async def _waves(
        self,
        take: Callable[[int], Awaitable[Taken]],
        values: Callable[[Sequence[Taken]], list[list[float]]],
    ) -> list[Taken]:
        """All votes at once, or in waves until no verdict among them is likely to change."""
        total, bound = self.settings.votes, self.settings.vote_bound
        if bound is None:
            return list(await asyncio.gather(*(take(vote) for vote in range(total))))
        taken: list[Taken] = []
        while len(taken) < total:
            taken += await asyncio.gather(*(take(vote) for vote in next_wave(len(taken), total)))
            if all(self._settled(column, len(taken)) for column in values(taken)):
                break
        return taken

    def _settled(self, usable: Sequence[float], taken: int) -> bool:
        """True where the full number of votes would hardly give another verdict; failed votes never count."""
        total = self.settings.votes - (taken - len(usable))
        return bool(usable) and flip_chance(usable, total, self._turns) <= (self.settings.vote_bound or 0)

    def _step(self, solution: Solution, index: int, ballots: Sequence[Ballot]) -> StepJudgment:
        return judge_step(index, solution.steps[index], ballots, self.settings.threshold, self._calibrate)

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
