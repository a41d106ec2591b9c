"""Stage `evaluate`: teacher, base student, distilled student and the direct baseline on the same rows, in one table.

Each judge goes along the code path of `genprm eval processbench` into a folder of its own, which a killed run goes on
filling; `table.json` and `table.md` put them side by side. Knows settings and files; the metric is `evaluation`'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..adapters import SETTINGS
from ..build import load
from ..config import Config
from ..errors import ConfigError, UsageError
from ..evaluation.run import RESULTS, Selection, judge_into, read_rows, write_json
from ..evaluation.tasks import evaluate_processbench, processbench_lacks
from .card import write_card
from .config import DistillConfig, ModelRef
from .inputs import input_path
from .job import Job
from .store import replace_file
from .train import FINAL

TABLE, TABLE_MD = "table.json", "table.md"
ABOUT = {
    "teacher": "the teacher",
    "base": "the student before training",
    "direct": "the student before training, without a critique",
    "student": "the distilled student",
    "student_direct": "the distilled student, without a critique",
}


def run_evaluate(job: Job) -> None:
    """Judge the evaluation files with each judge and write the table."""
    settings = job.config.evaluate
    if not settings.files:
        raise ConfigError("evaluate.files names no file of labelled solutions")
    paths = [str(input_path(name)) for name in settings.files]
    selection = Selection(settings.limit, settings.sample, job.config.seed)
    rows, rejected = read_rows(paths, "auto", selection, processbench_lacks)
    job.expect(len(rows) * len(settings.judges))
    found: dict[str, Any] = {}
    for name in settings.judges:
        folder = job.folder / name
        config = judge_config(name, job.config, job.out / "train" / FINAL)
        if job.store.wants(name):
            folder.mkdir(parents=True, exist_ok=True)
            with load(config, say=job.say) as verifier:
                judge_into(folder / RESULTS, rows, verifier, config, job.advance)
            metrics = evaluate_processbench(
                rows, folder / RESULTS, folder, threshold=config.verify.threshold, oracle=False, seed=job.config.seed
            )
            asked = {"protocol_mode": config.verify.mode, "votes": config.verify.votes}
            job.store.add({"id": name, "what": ABOUT[name], **asked, "metrics": metrics})
        else:
            for _ in rows:
                job.advance()
    for row in job.store.rows():
        found[row["id"]] = row
    table = {
        "benchmark": "processbench",
        "files": list(settings.files),
        "rows": len(rows),
        "rejected": len(rejected),
        "seed": job.config.seed,
        "judges": {name: found[name] for name in settings.judges},
    }
    write_json(job.folder / TABLE, table)
    replace_file(job.folder / TABLE_MD, table_markdown(table).encode("utf-8"))
    if (job.out / "train" / FINAL).is_dir():
        write_card(job.out)


def judge_config(name: str, config: DistillConfig, final: Path) -> Config:
    """The settings under which one of the table's judges judges.

    Args:
        name: one of `evaluate.judges`.
        config: of the run.
        final: what stage `train` left.

    Raises:
        ConfigError: a model's settings are wrong.
        UsageError: there are no trained weights.
    """
    if name == "teacher":
        return config.verify_config.load()
    direct = ["verify.mode=direct"] if name.endswith("direct") else []
    if name in ("base", "direct"):
        student = config.student
        return ModelRef(config=student.config, overrides={**student.overrides, **config.evaluate.base}).load(*direct)
    loaded = config.student.load(*direct)
    if (final / SETTINGS).is_file():
        return loaded.model_copy(update={"backend": loaded.backend.model_copy(update={"lora": str(final)})})
    if (final / "config.json").is_file():
        return loaded.model_copy(update={"model": str(final)})
    raise UsageError(f"{final} holds no trained weights: run `genprm distill train` first")


def table_markdown(table: Mapping[str, Any]) -> str:
    """The table for people: one line for each judge and subset, with n and 95 % intervals."""
    head = ("judge", "model", "protocol", "subset", "n (wrong/right)", "error accuracy", "correct accuracy", "F1")
    head = (*head, "AUROC", "undecided", "tokens a solution")
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for name, judge in table["judges"].items():
        metrics = judge["metrics"]
        for subset, row in metrics["subsets"].items():
            cells = [
                name,
                metrics["model"],
                f"{metrics['protocol']['name']}, {judge['protocol_mode']}, votes {judge['votes']}",
                subset,
                f"{row['n']} ({row['n_error']}/{row['n_correct']})",
                *(_share(row, key) for key in ("error_accuracy", "correct_accuracy", "f1", "auroc")),
                str(row["undecided"]),
                f"{row['completion_tokens_per_solution']:.0f}",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    note = "95 % bootstrap intervals over solutions in brackets; `–` = not defined for these rows."
    return "\n".join([*lines, "", note, ""])


def _share(row: Mapping[str, Any], key: str) -> str:
    value = row[key]
    if value is None:
        return "–"
    ends: Sequence[float | None] = row.get(f"{key}_ci") or (None, None)
    if ends[0] is None or ends[1] is None:
        return f"{value:.3f}"
    return f"{value:.3f} [{ends[0]:.3f}, {ends[1]:.3f}]"
