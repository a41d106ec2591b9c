"""What a bulk run will take: GPU hours and days for so many solutions, from a few measured numbers.

The model is a sum of tokens over what an engine does in a second, and a bound: a run is as slow as the slowest of
engines, driver and output. Knows arithmetic; the numbers come from a trial run on one's own engine.

Calls are the view where an engine's time is a call's latency (a remote service, or the fake one): steps x votes calls
for critiques, as many for code and labels, divided by what is in flight.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

SECONDS_A_DAY = 86_400


@dataclass(frozen=True, slots=True)
class Work:
    """What one solution asks for, on average."""

    steps: float = 8.0
    """Steps that are judged; with `verify.early_stop` those up to the first error."""
    votes: float = 1.0
    """Critiques a step; with `verify.vote_bound` what is drawn on average."""
    critique_tokens: float = 400.0
    """Generated tokens of one critique; 345 to 503 in arXiv 2504.00891, table 6."""
    prompt_tokens: float = 1_000.0
    """Prompt tokens of one critique that the engine's prefix cache does not hold."""
    cached_share: float = 0.0
    """Share of critiques that the verdict cache holds."""
    result_bytes: float = 20_000.0
    """Of one result, as it is written."""

    @property
    def critiques(self) -> float:
        """Critiques that have to be written for a solution."""
        return self.steps * self.votes * (1 - self.cached_share)


@dataclass(frozen=True, slots=True)
class Engine:
    """What one worker does in a second with its engine full."""

    generated_per_second: float = 2_500.0
    """Tokens that it generates in a second, over all its sequences."""
    prompt_per_second: float = 25_000.0
    """Prompt tokens that it reads in a second; reading and generating share its time."""
    gpus: float = 1.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What one driver does in a second; `--shard K/N` gives a run N drivers."""

    rows_per_second: float = 800.0
    """Rows read, handed over, taken back and written."""
    bytes_per_second: float = 50e6
    """Bytes of results on the way to a disk or to object storage."""
    drivers: int = 1


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a run takes."""

    solutions: int
    gpu_hours: float
    days: float
    """Wall-clock time with so many workers, of the slowest part."""
    bottleneck: str
    """`engines`, `driver` or `output`."""
    generated_tokens: float
    output_bytes: float
    workers: int
    workers_useful: int
    """Workers beyond this many wait for the driver or the output."""
    details: dict[str, float] = field(default_factory=dict)
    """Days that each part would take by itself."""


def seconds_a_solution(work: Work, engine: Engine) -> float:
    """Seconds of one worker for one solution, its engine kept full."""
    generated = work.critiques * work.critique_tokens / engine.generated_per_second
    read = work.critiques * work.prompt_tokens / engine.prompt_per_second
    return generated + read


def estimate(solutions: int, work: Work, engine: Engine, *, workers: int = 1, limits: Limits | None = None) -> Estimate:
    """GPU hours and days for a run.

    Raises:
        ValueError: a number that must be positive is not.
    """
    limits = limits or Limits()
    if min(solutions, workers, engine.generated_per_second, engine.prompt_per_second, limits.drivers) <= 0:
        raise ValueError("solutions, workers, drivers and speeds must be positive")
    each = seconds_a_solution(work, engine)
    rows = limits.rows_per_second * limits.drivers
    room = limits.bytes_per_second * limits.drivers
    parts = {
        "engines": solutions * each / workers,
        "driver": solutions / rows,
        "output": solutions * work.result_bytes / room,
    }
    slowest = max(parts, key=lambda name: parts[name])
    least = min(rows, room / work.result_bytes if work.result_bytes else inf)
    return Estimate(
        solutions=solutions,
        gpu_hours=solutions * each * engine.gpus / 3600,
        days=parts[slowest] / SECONDS_A_DAY,
        bottleneck=slowest,
        generated_tokens=solutions * work.critiques * work.critique_tokens,
        output_bytes=solutions * work.result_bytes,
        workers=workers,
        workers_useful=max(1, int(least * each)),
        details={name: seconds / SECONDS_A_DAY for name, seconds in parts.items()},
    )


def seconds_of_calls(
    solutions: int, *, calls: float, latency: float, in_flight: int, workers: int = 1, call_overhead: float = 0.0
) -> float:
    """Seconds of a run on an engine that answers each call after a fixed time.

    Args:
        solutions: to judge.
        calls: for one solution: for each critique its stretches of text and the label read.
        latency: seconds a call.
        in_flight: calls that one worker has under way.
        workers: side by side.
        call_overhead: seconds of a worker's own processor for each call, which nothing runs beside.
    """
    return solutions * calls * max(latency / in_flight, call_overhead) / workers
