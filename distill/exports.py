"""Labelled solutions in the forms that other trainers read: TRL's stepwise supervision, and Step-DPO pairs.

Made of the rows of stage `label` alone; JSON Lines that `datasets` reads. Knows files, no model and no prompt.

- `trl-stepwise` (for TRL's PRM trainer): {"prompt", "completions", "labels"}; steps behind the last known label are
  left out, since what follows an error is neither right nor wrong.
- `step-dpo` (Lai et al. 2024, arXiv 2406.18629): {"prompt", "chosen", "rejected"}: two solutions of a problem that
  share all steps up to one, which is right in the one and wrong in the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from .store import Row, read_rows, replace_file

KINDS = ("trl-stepwise", "step-dpo")


def write_export(kind: str, out: Path, folder: Path | None = None) -> int:
    """Write one export of a run and return its number of rows.

    Args:
        kind: one of `KINDS`.
        out: the run's folder, whose stage `label` is done.
        folder: where the file `KIND.jsonl` goes; None = the folder of stage `format`.

    Raises:
        ConfigError: there is no such export.
        UsageError: the run has no labelled rows, or the file cannot be written.
    """
    made = {"trl-stepwise": stepwise_rows, "step-dpo": step_dpo_pairs}.get(kind)
    if made is None:
        raise ConfigError(f"there is no export {kind!r}; there are: {', '.join(KINDS)}")
    target = (folder or out / "format") / f"{kind}.jsonl"
    target.parent.mkdir(parents=True, exist_ok=True)
    count = 0

    def lines() -> Iterator[bytes]:
        nonlocal count
        for row in made(read_rows(out / "label")):
            count += 1
            yield json.dumps(row, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"

    replace_file(target, lines())
    return count


def stepwise_rows(rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
    """Stepwise supervision as TRL's `PRMTrainer` reads it: one bool a step."""
    for row in rows:
        labels = known_labels(row)
        if labels:
            yield {"prompt": row["problem"], "completions": row["steps"][: len(labels)], "labels": labels}


def step_dpo_pairs(rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
    """A right and a wrong step behind the same steps of the same problem; each pair once."""
    prefixes: dict[tuple[str, tuple[str, ...]], dict[bool, dict[str, None]]] = {}
    for row in rows:
        steps = row["steps"]
        for index, label in enumerate(known_labels(row)):
            sides = prefixes.setdefault((row["problem"], tuple(steps[:index])), {True: {}, False: {}})
            sides[label][steps[index]] = None
    for (problem, before), sides in prefixes.items():
        # A step that was labelled both ways teaches nothing.
        right = [step for step in sides[True] if step not in sides[False]]
        wrong = [step for step in sides[False] if step not in sides[True]]
        for chosen, rejected in zip(right * len(wrong), [step for step in wrong for _ in right], strict=True):
            prompt = "".join(f"{text}\n\n" for text in (problem, *before))
            yield {"prompt": prompt, "chosen": chosen, "rejected": rejected}


def known_labels(row: Row) -> list[bool]:
    """Step labels up to the last before the first unknown one."""
    labels = row.get("step_labels")
    if labels is None:
        first = row.get("label")
        if first is None:
            return []
        labels = [True] * len(row["steps"]) if first == -1 else [True] * first + [False]
    known: list[bool] = []
    for label in labels:
        if label is None:
            break
        known.append(bool(label))
        if not label:
            break
    return known
