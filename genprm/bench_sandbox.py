"""`genprm bench sandbox`: what a confined run costs beside a fresh interpreter.

Both sides solve the same equation, in turns, in one process, so that a busy machine slows both.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .sandbox.embedded import EmbeddedSandbox

CODE = "import sympy\nx = sympy.symbols('x')\nprint(sympy.solve(x**2 - 4))"
EXPECTED = "[-2, 2]"
GOAL_RATIO = 20.0
GOAL_SECONDS = 0.010
PAUSE_SECONDS = 0.05
"""Before each run: a model writes its block for longer than this. `sandbox_rate` has no pauses."""
GOAL_RATE_RATIO = 10.0
"""With all cores busy, a run costs also what it costs to make the next child ready, which one run alone hides."""


def _ours(sandbox: EmbeddedSandbox) -> float:
    start = time.perf_counter()
    session = sandbox.open()
    check = session.run_sync(CODE)
    session.close()
    if check.output != EXPECTED:
        raise RuntimeError(f"a benchmark run went wrong: {check.status}: {check.output}")
    return time.perf_counter() - start


def _cold() -> float:
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    if done.stdout.strip() != EXPECTED:
        raise RuntimeError(f"a benchmark run went wrong: {done.stdout}")
    return time.perf_counter() - start


def bench_sandbox(
    *, rounds: int = 12, runs_a_round: int = 10, throughput_runs: int = 400, level: str | None = None
) -> list[dict[str, Any]]:
    """The sandbox's speed figures.

    Args:
        rounds: times that one cold interpreter is measured.
        runs_a_round: confined runs between two of them.
        throughput_runs: confined runs for the rate on all cores.
        level: of the sandbox; default the best.

    Returns:
        `sandbox`: a whole run (new session, code, end) beside `python -c`; medians in seconds. `sandbox_rate`: runs
        a second on all cores, by as many threads as there are cores.
    """
    with EmbeddedSandbox(level=level, cache_size=0) as sandbox:
        for _ in range(5):
            _ours(sandbox)
        _cold()
        ours: list[float] = []
        cold: list[float] = []
        for _ in range(rounds):
            cold.append(_cold())
            for _ in range(runs_a_round):
                time.sleep(PAUSE_SECONDS)
                ours.append(_ours(sandbox))
        start = time.perf_counter()
        with ThreadPoolExecutor(sandbox.workers * 2) as pool:
            list(pool.map(lambda _: _ours(sandbox), range(throughput_runs)))
        rate = throughput_runs / (time.perf_counter() - start)
        our_median, cold_median = statistics.median(ours), statistics.median(cold)
        ratio = cold_median / our_median
        common = {"level": sandbox.level, "cores": len(os.sched_getaffinity(0))}
        rate_ratio = rate * cold_median / sandbox.workers
        return [
            {
                "name": "sandbox",
                "ratio": round(ratio, 1),
                "goal": GOAL_RATIO,
                "ok": ratio >= GOAL_RATIO and our_median <= GOAL_SECONDS,
                "ours_seconds": our_median,
                "other_seconds": cold_median,
                "goal_seconds": GOAL_SECONDS,
                "p90_seconds": sorted(ours)[int(len(ours) * 0.9)],
                "runs": len(ours),
                **common,
            },
            {
                "name": "sandbox_rate",
                "ratio": round(rate_ratio, 1),
                "goal": GOAL_RATE_RATIO,
                "ok": rate_ratio >= GOAL_RATE_RATIO,
                "ours_seconds": 1 / rate,
                "other_seconds": cold_median / sandbox.workers,
                "runs_per_second": round(rate, 1),
                "runs": throughput_runs,
                **common,
            },
        ]
