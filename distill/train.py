"""Stage `train`: supervised fine-tuning of the student on the rows of `format`, with TRL and PEFT.

`OUT/train/final` holds the adapter, or the whole weights for `method: full`, with the tokenizer: the weights of the
best look at the held-out rows, else the last ones. A killed run goes on from its last whole checkpoint. Knows files and
settings; the loop, the loss and the looks are `trainer`'s.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import UnavailableError, UsageError
from ..models import resolve
from .config import TrainConfig
from .job import Job
from .masks import IGNORED
from .store import Row, replace_file, row_seed

FINAL, BEST, CHECKPOINTS, LOSSES, CURVE = "final", "best", "checkpoints", "loss.jsonl", "loss.png"


def run_train(job: Job) -> None:
    """Train the student."""
    require_training()
    settings = job.config.train
    rows = list(job.rows("format"))
    check_rows(rows, job.config.format.max_length)
    learn, held = split_rows(rows, settings, job.config.seed)
    if not learn:
        raise UsageError(f"{job.out / 'format'} holds no row to learn from")
    from .trainer import train_rows

    student = job.config.student.load()
    facts = train_rows(
        learn,
        held,
        settings,
        name=student.model,
        source=resolve(student.model, job.say),
        labels=_labels(student.verify.protocol),
        backend=student.backend.model_copy(update={"device": settings.device}),
        seed=job.config.seed,
        folder=job.folder,
        say=job.say,
        expect=job.expect,
        advance=job.advance,
    )
    if not facts.pop("main_process"):
        return
    draw_losses(job.folder)
    job.store.note(**facts, rows_learnt=len(learn), rows_held_out=len(held), base_model=student.model)


def require_training() -> None:
    """Say in one line that the extra is missing.

    Raises:
        UnavailableError: TRL or PEFT is not installed.
    """
    from importlib.util import find_spec

    if missing := [name for name in ("trl", "peft") if find_spec(name) is None]:
        raise UnavailableError(f"training needs {' and '.join(missing)}: pip install 'genprm[train]'")


def check_rows(rows: Sequence[Row], max_length: int) -> None:
    """Refuse rows that a trainer would spoil without a word.

    Raises:
        UsageError: a row's labels do not fit its ids, nothing in it is learnt, or it is longer than `max_length`.
    """
    for row in rows:
        ids, labels = row["input_ids"], row["labels"]
        if len(ids) != len(labels) or any(
            label not in (IGNORED, token) for token, label in zip(ids, labels, strict=False)
        ):
            raise UsageError(f"the row {row['id']!r} has labels that are not its ids")
        if all(label == IGNORED for label in labels):
            raise UsageError(f"nothing is learnt in the row {row['id']!r}")
        if len(ids) > max_length:
            raise UsageError(f"the row {row['id']!r} has {len(ids)} tokens, format.max_length is {max_length}")


def split_rows(rows: Sequence[Row], settings: TrainConfig, seed: int) -> tuple[list[Row], list[Row]]:
    """Rows to learn from and rows to look at; no problem is in both.

    Which problems are held out hangs on their names and the seed, not on which other problems there are.
    """
    held_problems = {
        problem
        for problem in {problem_of(row) for row in rows}
        if row_seed(seed, "holdout", problem) / 2**31 < settings.holdout
    }
    learn = [row for row in rows if problem_of(row) not in held_problems]
    held = [row for row in rows if problem_of(row) in held_problems and row.get("verdicts")]
    held.sort(key=lambda row: row_seed(seed, "look", row["id"]))
    return learn, held[: settings.holdout_rows]


def problem_of(row: Row) -> str:
    """The problem that a row belongs to."""
    return str(row.get("problem_id") or row["id"].split("/")[0])


def last_checkpoint(folder: Path) -> Path | None:
    """The last checkpoint that was written to its end; later ones, of a killed run, are removed."""
    found = sorted(folder.glob("checkpoint-*"), key=lambda path: int(path.name.rpartition("-")[2]), reverse=True)
    for path in found:
        try:
            state = json.loads((path / "trainer_state.json").read_text(encoding="utf-8"))
            if int(state["global_step"]) == int(path.name.rpartition("-")[2]):
                return path
        except (OSError, ValueError, KeyError, TypeError):
            pass
        shutil.rmtree(path, ignore_errors=True)
    return None


def read_losses(folder: Path, up_to: int | None = None) -> list[dict[str, Any]]:
    """The lines of `loss.jsonl`, at most those up to a step; a half line at the end is passed over."""
    path = folder / LOSSES
    if not path.is_file():
        return []
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            item = json.loads(line)
        except ValueError:
            break
        if up_to is None or item["step"] <= up_to:
            found.append(item)
    return found


def rewind_losses(folder: Path, step: int) -> list[dict[str, Any]]:
    """Forget what was written after a step, before going on from there."""
    kept = read_losses(folder, step)
    replace_file(folder / LOSSES, [json.dumps(item).encode() + b"\n" for item in kept])
    return kept


def draw_losses(folder: Path) -> None:
    """Draw `loss.png`: the loss of each step, and the held-out rows' F1 over it."""
    from matplotlib.figure import Figure

    lines = read_losses(folder)
    steps = [item for item in lines if "loss" in item]
    looks = [item for item in lines if item.get("verdict_f1") is not None]
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.plot([item["step"] for item in steps], [item["loss"] for item in steps], color="#888888", label="loss")
    axes.set_xlabel("optimiser step")
    axes.set_ylabel("loss a learnt token (nats)")
    axes.set_ylim(bottom=0)
    if looks:
        right = axes.twinx()
        right.plot(
            [item["step"] for item in looks], [item["verdict_f1"] for item in looks], "o-", color="#0b62a4", label="F1"
        )
        right.set_ylim(0, 1)
        right.set_ylabel("held-out verdict F1")
    figure.savefig(folder / CURVE, dpi=120)


def _labels(protocol: str) -> dict[str, tuple[str, ...]]:
    """The labels whose probabilities are looked at; none for protocols that name the first error."""
    from ..prompting import load_protocol

    judgement = load_protocol(protocol).manifest.judgement
    return dict(judgement.labels) if judgement.kind == "yes_no" else {}
