"""What a run will take, before it is started: rows, tokens and hours of each stage.

The assumptions are the config's own (`STAGE.cost`), and are said beside the figures. Stages that are done are counted,
not estimated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError
from ..records import Rejected
from .config import DistillConfig, StageName
from .inputs import read_inputs
from .pipeline import READS
from .store import read_manifest


@dataclass(frozen=True)
class Estimate:
    """One stage's line."""

    stage: StageName
    done: bool
    rows_in: int
    rows_out: int
    tokens: int
    """That a model generates or is trained on; 0 for a stage that is done."""
    tokens_per_row: float
    tokens_per_second: float

    @property
    def seconds(self) -> float:
        """At the assumed speed."""
        return self.tokens / self.tokens_per_second


def estimate(config: DistillConfig, out: Path, stages: Sequence[StageName]) -> list[Estimate]:
    """A line for each stage.

    Args:
        config: the run's settings.
        out: its folder; need not be there.
        stages: which ones; those before them are estimated too where they are not done, but not listed.

    Raises:
        InputError: a file of problems cannot be read.
    """
    lines: list[Estimate] = []
    rows: dict[StageName, int] = {}
    for stage, before in READS.items():
        cost = config.stage(stage).cost
        manifest = read_manifest(out / stage)
        counts = (manifest or {}).get("counts", {})
        done = manifest is not None and manifest.get("status") == "done"
        if stage == "evaluate":
            given = _evaluation_rows(config)
        else:
            given = _problems(config) if before is None else rows[before]
        rows[stage] = int(counts["out"]) if done else round(given * cost.rows)
        tokens = 0 if done else round(given * cost.tokens)
        line = Estimate(stage, done, given, rows[stage], tokens, cost.tokens, cost.tokens_per_second)
        if stage in stages:
            lines.append(line)
    return lines


def table(lines: Sequence[Estimate]) -> str:
    """The lines as plain text with a sum, and what was assumed."""
    head = ("stage", "state", "rows in", "rows out", "tokens", "time", "assumed")
    body: list[tuple[str, ...]] = [
        (
            line.stage,
            "done" if line.done else "to do",
            f"{line.rows_in:,}",
            f"{line.rows_out:,}",
            f"{line.tokens:,}",
            clock(line.seconds),
            "" if line.done else f"{line.tokens_per_row:g} tokens a row, {line.tokens_per_second:g} tokens/s",
        )
        for line in lines
    ]
    tokens, seconds = sum(line.tokens for line in lines), sum(line.seconds for line in lines)
    body.append(("all", "", "", "", f"{tokens:,}", clock(seconds), "set STAGE.cost to assume otherwise"))
    widths = [max(len(row[at]) for row in [head, *body]) for at in range(len(head))]

    def text(row: tuple[str, ...]) -> str:
        cells = [cell.rjust(width) if 2 <= at <= 5 else cell.ljust(width) for at, (cell, width) in _cells(row, widths)]
        return "  ".join(cells).rstrip()

    return "\n".join(map(text, [head, *body]))


def _cells(row: tuple[str, ...], widths: list[int]) -> enumerate[tuple[str, int]]:
    return enumerate(zip(row, widths, strict=True))


def clock(seconds: float) -> str:
    """Hours, minutes and seconds.

    >>> clock(3725)
    '1:02:05'
    """
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def _problems(config: DistillConfig) -> int:
    settings = config.sample
    if not settings.inputs:
        raise InputError("names no file: set sample.inputs", field="sample.inputs")
    rows = read_inputs(settings.inputs, format=settings.format, split=settings.split, limit=settings.limit)
    return sum(not isinstance(row, Rejected) for row in rows)


def _evaluation_rows(config: DistillConfig) -> int:
    settings = config.evaluate
    total = 0
    for name in settings.files:
        count = sum(not isinstance(row, Rejected) for row in read_inputs([name]))
        total += count if settings.sample is None else min(settings.sample, count)
    total = total if settings.limit is None else min(settings.limit, total)
    return total * len(settings.judges)
