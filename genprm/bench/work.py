"""Figures of the scheduler alone, with fake engines: adaptive votes, early stop, the verdict cache, memory.

No model runs here, so what is measured is how many critiques are asked for and what our own code costs.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..backends.base import Generation, LabelReading, Labels, SamplingParams
from ..backends.scripted import ScriptedBackend, ScriptedSlot
from ..cache import VerdictCache
from ..config import load_config
from ..prompting import Prompt, load_protocol
from ..sandbox.base import OffSandbox
from ..types import Solution, VerificationResult
from ..verifier import GenPRM
from .figure import figure


class NoisyBackend(ScriptedBackend):
    """Votes that differ: each step has a rate of Yes, and each critique's seed draws from it.

    A tenth of the steps is near a coin's rate, the rest is fairly sure, as step rewards of trained verifiers are.
    """

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[ScriptedSlot]:
        """A seat of its own kind."""
        yield _NoisySlot(self)


class _NoisySlot(ScriptedSlot):
    def __init__(self, backend: ScriptedBackend):
        super().__init__(backend)
        self._seeds: list[int | None] = []

    async def generate(self, prompt: Prompt, params: SamplingParams) -> Generation:
        self._seeds.append(params.seed)
        return await super().generate(prompt, params)

    async def read_label(self, prompt: Prompt, labels: Labels, boundary: str) -> LabelReading:
        reading = await super().read_label(prompt, labels, boundary)
        step = random.Random(prompt.messages[-1].content)
        rate = 0.5 if step.random() < 0.1 else step.choice([0.03, 0.97])
        yes = random.Random(repr(self._seeds)).random() < rate
        first, *others = labels
        p_yes = 0.92 if yes else 0.08
        return replace(reading, probs={first: p_yes, **dict.fromkeys(others, (1 - p_yes) / len(others))})


def solutions(count: int, steps: int = 5) -> Iterator[Solution]:
    """Solutions that are all different."""
    for number in range(count):
        yield Solution(
            id=str(number), problem=f"problem {number}", steps=tuple(f"{number} step {k}" for k in range(steps))
        )


def _verifier(*overrides: str, noisy: bool = True, cache: VerdictCache | None = None) -> GenPRM:
    config = load_config("scripted", ["backend.max_in_flight=64", *overrides])
    backend = NoisyBackend(config.scripted) if noisy else ScriptedBackend(config.scripted)
    return GenPRM(backend, load_protocol(config.verify.protocol), OffSandbox(), config, cache=cache)


def _run(count: int, *overrides: str) -> tuple[list[VerificationResult], float]:
    start = time.perf_counter()
    with _verifier(*overrides) as verifier:
        results = sorted(verifier.verify_many(solutions(count)), key=lambda result: int(result.id))
    return results, time.perf_counter() - start


def bench_votes(count: int = 200, bound: float = 0.05) -> list[dict[str, Any]]:
    """Adaptive votes beside always eight: tokens, and how many verdicts and first errors differ."""
    full, full_seconds = _run(count, "verify.votes=8")
    fewer, seconds = _run(count, "verify.votes=8", f"verify.vote_bound={bound}")
    pairs = [(a, b) for x, y in zip(full, fewer, strict=True) for a, b in zip(x.steps, y.steps, strict=True)]
    changed = sum(a.verdict != b.verdict for a, b in pairs) / len(pairs)
    same_error = sum(x.first_error == y.first_error for x, y in zip(full, fewer, strict=True)) / count
    ratio = _tokens(fewer) / _tokens(full)
    result = figure(
        "votes",
        ratio,
        0.5,
        "at most",
        ours_seconds=seconds,
        other_seconds=full_seconds,
        runs=count,
        bound=bound,
        verdicts_changed=round(changed, 4),
        same_first_error=round(same_error, 4),
    )
    result["ok"] = result["ok"] and changed <= bound
    return [result]


def bench_early_stop(count: int = 200) -> list[dict[str, Any]]:
    """Judging until the first error beside judging every step: the same first errors, for fewer tokens."""
    full, full_seconds = _run(count, "verify.protocol=genprm")
    early, seconds = _run(count, "verify.protocol=genprm", "verify.early_stop=true")
    same = all(x.first_error == y.first_error for x, y in zip(full, early, strict=True))
    ratio = _tokens(early) / _tokens(full)
    result = figure(
        "early_stop",
        ratio,
        1.0,
        "at most",
        ours_seconds=seconds,
        other_seconds=full_seconds,
        runs=count,
        same_first_error=same,
    )
    result["ok"] = result["ok"] and same
    return [result]


def bench_cache(beams: int = 8, depth: int = 8, width: int = 4) -> list[dict[str, Any]]:
    """A beam search that scores every prefix in each round: steps judged beside distinct prefixes, an exact count."""
    rounds = list(_beam_rounds(beams, depth, width))
    distinct = len(
        {candidate.steps[: k + 1] for candidate in (c for r in rounds for c in r) for k in range(len(candidate.steps))}
    )
    times, judged = [], []
    with tempfile.TemporaryDirectory() as folder:
        for cache in (VerdictCache(Path(folder) / "verdicts.sqlite"), None):
            start = time.perf_counter()
            steps = 0
            with _verifier(noisy=False, cache=cache) as verifier:
                for candidates in rounds:
                    for result in verifier.verify_many(candidates):
                        steps += len(result.steps) - result.usage.cache_hits
            times.append(time.perf_counter() - start)
            judged.append(steps)
    return [
        figure(
            "cache",
            judged[0] / distinct,
            1.0,
            "at most",
            ours_seconds=times[0],
            other_seconds=times[1],
            runs=len(rounds),
            judged_steps=judged[0],
            distinct_prefixes=distinct,
            judged_without_cache=judged[1],
        )
    ]


def _beam_rounds(beams: int, depth: int, width: int) -> Iterator[list[Solution]]:
    """Candidates of each round: every kept beam with `width` different next steps."""
    kept: list[tuple[str, ...]] = [()]
    for level in range(depth):
        grown = [(*beam, f"level {level} choice {k} after {len(beam)}") for beam in kept for k in range(width)]
        yield [Solution(id=f"{level}-{i}", problem="search", steps=steps) for i, steps in enumerate(grown)]
        kept = grown[:beams]


def bench_evidence(candidates: int = 8) -> list[dict[str, Any]]:
    """Tokens of independent programs a candidate, for several candidates of a problem beside one: they are shared."""
    config = load_config("scripted", ["verify.protocol=programs", "evidence.programs=6"])
    solver = load_protocol("solver")
    tokens, times = [], []
    for count in (candidates, 1):
        start = time.perf_counter()
        with GenPRM(ScriptedBackend(config.scripted), solver, OffSandbox(), config, solver=solver) as verifier:
            pool = [Solution(id=str(k), problem="p", steps=(f"It is {k}.",)) for k in range(count)]
            tokens.append(_tokens(list(verifier.verify_many(pool))) / count)
        times.append(time.perf_counter() - start)
    return [
        figure(
            "evidence",
            tokens[0] / tokens[1],
            1 / 6,
            "at most",
            ours_seconds=times[0],
            other_seconds=times[1],
            runs=candidates,
            tokens_a_candidate=tokens[0],
            tokens_alone=tokens[1],
        )
    ]


def bench_memory(count: int = 100_000, small: int = 1_000) -> list[dict[str, Any]]:
    """Peak memory of `genprm verify` over many records beside few, each in a process of its own."""
    peaks, seconds = [], []
    with tempfile.TemporaryDirectory() as folder:
        for size in (small, count):
            source, out = Path(folder) / f"{size}.jsonl", Path(folder) / f"{size}.out.jsonl"
            with source.open("w", encoding="utf-8") as file:
                for solution in solutions(size, steps=2):
                    file.write(solution.model_dump_json(include={"problem", "steps"}) + "\n")
            start = time.perf_counter()
            done = subprocess.run(
                [sys.executable, "-c", _MEMORY, str(source), str(out)], capture_output=True, text=True, check=True
            )
            seconds.append(time.perf_counter() - start)
            peaks.append(float(done.stderr.rsplit("peak", 1)[-1]))
            with out.open(encoding="utf-8") as file:
                written = sum(1 for _ in file)
            if written != size:
                raise RuntimeError(f"{written} of {size} records were written")
    growth = peaks[1] - peaks[0]
    return [
        figure(
            "memory",
            growth,
            50.0,
            "at most",
            ours_seconds=seconds[1],
            other_seconds=seconds[0],
            runs=count,
            unit="MiB more",
            peak_mb=round(peaks[1], 1),
            records_per_second=round(count / seconds[1], 1),
        )
    ]


_MEMORY = """
import sys
sys.argv = ["genprm", "verify", sys.argv[1], "--config", "scripted", "--set", "sandbox.kind=off", "-o", sys.argv[2]]
sys.stdout = open("/dev/null", "w")
from genprm.bench.figure import peak_mb
from genprm.cli.main import run
try:
    run()
finally:
    print("peak", peak_mb(), file=sys.stderr)
"""


def _tokens(results: list[VerificationResult]) -> int:
    return sum(result.usage.completion_tokens for result in results)
