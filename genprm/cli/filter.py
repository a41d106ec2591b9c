"""`genprm filter`: keep, weigh or rank training rows by the reward of their solutions."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from .rejected import list_rejected
from .verify import effective_config, progress_bar

if TYPE_CHECKING:
    from ..formats import Format
    from ..records import Rejected


def filter_(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="JSON, JSONL or Parquet files of rows.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="File of the rows: .parquet, .json or JSON Lines; resumes.")
    ],
    min_reward: Annotated[float | None, typer.Option(help="Keep rows with at least this reward.")] = None,
    top_fraction: Annotated[float | None, typer.Option(help="Keep the best rows, this share of the scored.")] = None,
    weights: Annotated[bool, typer.Option("--weights", help="Keep all, with `weight` = reward / mean reward.")] = False,
    rank: Annotated[bool, typer.Option("--rank", help="Keep all, the best first, with `genprm_rank`.")] = False,
    config: Annotated[str, typer.Option(help="A shipped config's name or a YAML file.")] = "default",
    model: Annotated[str | None, typer.Option(help="A named model, a local folder or a hub id.")] = None,
    votes: Annotated[int | None, typer.Option(help="Critiques sampled for each step.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all sampling.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Override a setting: a.b=value.")] = None,
    format: Annotated[str, typer.Option(help="Format of the rows; auto recognises each row.")] = "auto",
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N records over all files.")] = None,
) -> None:
    """Judge training rows and write them with their rewards; without a choice all scored rows are kept.

    Each row keeps its fields and gets `genprm_reward`, `genprm_step_rewards` and `genprm_first_error`. Results are
    kept in `OUT.results.jsonl`, so that a killed run goes on and another choice judges nothing again; rows without a
    reward are in `OUT.unscored.jsonl`.
    """
    from ..build import load
    from ..errors import InputError, UsageError
    from ..integrations.filter import Selection, judge_rows, write_filtered
    from ..integrations.rows import TrainingRow, read_training_rows
    from ..records import Rejected

    selection = Selection(min_reward, top_fraction, weights, rank)
    selection.check()
    if output.resolve() in {Path(name).resolve() for name in files}:
        raise UsageError(f"-o {output} is also read: give another name")
    settings = effective_config(config, model=model, votes=votes, seed=seed, overrides=set_ or [])
    rows: list[TrainingRow] = []
    rejected: list[Rejected] = []
    for item in read_training_rows(files, cast("Format", format), limit):
        if isinstance(item, Rejected):
            print(f"genprm: {item.error}", file=sys.stderr)
            rejected.append(item)
        else:
            rows.append(item)
    list_rejected(rejected, output)
    if not rows:
        raise InputError("no row can be used", file=files[0])
    with ExitStack() as stack:
        progress, say = progress_bar(stack)
        verifier = stack.enter_context(load(settings, say=say))
        bar = progress.add_task("judging", total=len(rows))
        judged = judge_rows(rows, verifier, settings, Path(f"{output}.results.jsonl"), lambda: progress.advance(bar))
    unscored = Path(f"{output}.unscored.jsonl")
    found = write_filtered(output, unscored, rows, judged, selection, files)
    if found["unscored"]:
        print(f"genprm: {found['unscored']} rows have no reward; they are in {unscored}", file=sys.stderr)
    print(json.dumps({**found, "rejected": len(rejected), "output": str(output)}, ensure_ascii=False))
    if rejected:
        raise typer.Exit(2)
