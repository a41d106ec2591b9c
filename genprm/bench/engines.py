"""Figures with a real engine: throughput beside a plain loop, overhead beside the engine alone, the label read.

The plain loop is how research code judges: one prompt a call, votes one after another, steps one after another. It
runs on the same engine in the same process; since it is slow it gets a part of the work, and the two are compared by
critiques a second.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from ..backends.base import Backend, Generation, LabelReading, Labels, SamplingParams, Slot
from ..ballots import BallotBox, Cost
from ..build import load_generative
from ..config import Config
from ..judging import Judge
from ..prompting import Prompt
from ..recall import Recall
from ..types import Solution
from ..verifier import GenPRM
from .figure import figure

PROBLEM = "A shop sells {a} boxes of {b} pens and {c} single pens. Each pen costs {d} dollars. What does it take in?"


def workload(count: int) -> list[Solution]:
    """Small word problems with five steps, all different; every third has a wrong sum."""
    made = []
    for n in range(count):
        a, b, c, d = 3 + n % 7, 10 + n % 5, 4 + n % 9, 2 + n % 3
        pens, off = a * b + c, int(n % 3 == 0)
        steps = (
            f"There are {a} boxes with {b} pens each.",
            f"The boxes hold {a} * {b} = {a * b} pens.",
            f"With the single pens there are {a * b} + {c} = {pens + off} pens.",
            f"They bring in {pens + off} * {d} = {(pens + off) * d} dollars.",
            f"The answer is \\boxed{{{(pens + off) * d}}}.",
        )
        made.append(Solution(id=str(n), problem=PROBLEM.format(a=a, b=b, c=c, d=d) + f" ({n})", steps=steps))
    return made


@dataclass(slots=True)
class _Call:
    prompt: Prompt
    params: SamplingParams | None
    tokens: int


class _Recorder:
    """A backend in front of another that notes every call."""

    def __init__(self, inner: Backend):
        self.inner, self.model = inner, inner.model
        self.calls: list[_Call] = []

    @asynccontextmanager
    async def work(self) -> AsyncIterator[None]:
        async with self.inner.work():
            yield

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[Slot]:
        async with self.inner.slot() as slot:
            yield _RecordingSlot(self, slot)

    def close(self) -> None:
        """The inner backend is closed by its owner."""


class _RecordingSlot:
    def __init__(self, recorder: _Recorder, slot: Slot):
        self._recorder, self._slot = recorder, slot

    async def generate(self, prompt: Prompt, params: SamplingParams) -> Generation:
        answer = await self._slot.generate(prompt, params)
        self._recorder.calls.append(_Call(prompt, params, answer.completion_tokens))
        return answer

    async def read_label(self, prompt: Prompt, labels: Labels, boundary: str) -> LabelReading:
        answer = await self._slot.read_label(prompt, labels, boundary)
        self._recorder.calls.append(_Call(prompt, None, 1))
        return answer


def bench_throughput(config: Config, *, count: int = 32, plain: int = 1) -> list[dict[str, Any]]:
    """Critiques a second of `genprm` and of the plain loop, and genprm's time beside the engine's alone.

    Args:
        config: an engine's config; protocol and votes are as it says.
        count: solutions judged by genprm.
        plain: of these, how many the plain loop judges.
    """
    solutions = workload(count)
    with load_generative(config) as verifier:
        list(verifier.verify_many(workload(2)))  # compiles and warms what is made at first use
        start = time.perf_counter()
        results = list(verifier.verify_many(solutions))
        seconds = time.perf_counter() - start
        critiques = sum(len(step.votes) + len(step.failed_votes) for result in results for step in result.steps)
        tokens = sum(result.usage.completion_tokens for result in results)
        start = time.perf_counter()
        plain_critiques, plain_tokens = asyncio.run(_plain_loop(verifier, solutions[:plain]))
        plain_seconds = time.perf_counter() - start
        overhead = asyncio.run(_overhead(verifier, solutions))
    ratio = (critiques / seconds) / (plain_critiques / plain_seconds)
    return [
        figure(
            "throughput",
            ratio,
            10.0,
            "at least",
            ours_seconds=seconds,
            other_seconds=plain_seconds,
            runs=critiques,
            plain_runs=plain_critiques,
            tokens_per_second=round(tokens / seconds, 1),
            plain_tokens_per_second=round(plain_tokens / plain_seconds, 1),
            engine=config.backend.kind,
        ),
        overhead,
    ]


async def _plain_loop(verifier: GenPRM, solutions: list[Solution]) -> tuple[int, int]:
    """One critique at a time, each awaited before the next begins."""
    config = verifier.config.model_copy(
        update={"backend": verifier.config.backend.model_copy(update={"max_in_flight": 1, "max_batch": 1})}
    )
    box = BallotBox(verifier.backend, verifier.protocol, verifier.sandbox, config, None, Recall(None))
    cost = Cost()
    critiques = 0
    for solution in solutions:
        # Work ends after each solution, so that nothing is remembered from one to the next.
        async with verifier.backend.work():
            steps = await Judge(box).judge(solution, cost)
        critiques += sum(len(step.votes) + len(step.failed_votes) for step in steps)
    return critiques, cost.completion_tokens


async def _overhead(verifier: GenPRM, solutions: list[Solution]) -> dict[str, Any]:
    """A whole run beside its own calls given to the engine all at once, with as many tokens each."""
    recorder = _Recorder(verifier.backend)
    box = BallotBox(recorder, verifier.protocol, verifier.sandbox, verifier.config, None, Recall(None))
    start = time.perf_counter()
    async with recorder.work():
        await asyncio.gather(*(Judge(box).judge(solution, Cost()) for solution in solutions))
    ours = time.perf_counter() - start
    calls = [call for call in recorder.calls if call.params is not None]

    async def raw(slot: Slot, call: _Call) -> None:
        assert call.params is not None
        await slot.generate(call.prompt, replace(call.params, max_tokens=max(call.tokens, 1), stop=()))

    async with verifier.backend.work(), AsyncExitStack() as stack:
        slots = [await stack.enter_async_context(verifier.backend.slot()) for _ in calls]
        start = time.perf_counter()
        await asyncio.gather(*(raw(slot, call) for slot, call in zip(slots, calls, strict=True)))
        alone = time.perf_counter() - start
    return figure(
        "overhead", ours / alone, 1.10, "at most", ours_seconds=ours, other_seconds=alone, runs=len(calls),
        engine=verifier.config.backend.kind,
    )  # fmt: skip


def bench_overhead(config: Config, *, count: int = 32) -> list[dict[str, Any]]:
    """genprm's time beside the engine's alone; see `bench_throughput`."""
    with load_generative(config) as verifier:
        list(verifier.verify_many(workload(2)))
        return [asyncio.run(_overhead(verifier, workload(count)))]


def bench_label(config: Config, *, rounds: int = 15) -> list[dict[str, Any]]:
    """One label read beside one generated token after the same prompt, each from nothing."""
    solution = workload(1)[0]
    with load_generative(config) as verifier:
        judgement = verifier.protocol.manifest.judgement
        prompt = verifier.protocol.conversation(solution, 0).extended(judgement.prefix)

        async def both() -> tuple[float, float]:
            times = []
            for read in (True, False):
                async with verifier.backend.work(), verifier.backend.slot() as slot:
                    start = time.perf_counter()
                    if read:
                        await slot.read_label(prompt, judgement.labels, judgement.prefix)
                    else:
                        await slot.generate(prompt, SamplingParams(1))
                    times.append(time.perf_counter() - start)
            return times[0], times[1]

        async def all_rounds() -> list[tuple[float, float]]:
            await both()
            return [await both() for _ in range(rounds)]

        pairs = asyncio.run(all_rounds())
    ours, other = (statistics.median(times) for times in zip(*pairs, strict=True))
    return [figure("label", ours / other, 1.05, "at most", ours_seconds=ours, other_seconds=other, runs=rounds)]
