"""One measured figure: a ratio, its goal, and what it was made of."""

from __future__ import annotations

import resource
import sys
from pathlib import Path
from typing import Any, Literal


def figure(
    name: str,
    ratio: float,
    goal: float,
    kind: Literal["at least", "at most"],
    *,
    ours_seconds: float,
    other_seconds: float,
    runs: int,
    **details: Any,
) -> dict[str, Any]:
    """A figure as `genprm bench --json` prints it; `ok` says whether the goal is reached."""
    ok = ratio >= goal if kind == "at least" else ratio <= goal
    return {
        "name": name,
        "ratio": round(ratio, 3),
        "goal": goal,
        "goal_kind": kind,
        "ok": ok,
        "ours_seconds": ours_seconds,
        "other_seconds": other_seconds,
        "runs": runs,
        **details,
    }


def peak_mb() -> float:
    """Peak resident memory of this process so far, in MiB.

    From VmHWM where there is one: `ru_maxrss` also remembers the parent's memory from before `exec`.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 2**10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)
