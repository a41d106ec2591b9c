"""`genprm eval`: benchmarks of a verifier, into a folder that a killed run goes on filling."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from .verify import effective_config, engine_named, progress_bar

if TYPE_CHECKING:
    from ..bulk.stream import Engine
    from ..config import Config
    from ..evaluation.run import Stream
    from ..formats import Format
    from ..report.parts import Table
    from ..types import Solution
    from ..verifier import Verifier

app = typer.Typer(help="Evaluate a verifier on a benchmark.", no_args_is_help=True)

Files = Annotated[list[str], typer.Argument(metavar="FILE...", help="JSON or JSONL files; each is a subset.")]
Output = Annotated[Path, typer.Option("-o", "--output", help="Folder of metrics, predictions and report; resumes.")]
ConfigName = Annotated[str, typer.Option("--config", help="A shipped config's name or a YAML file.")]
Model = Annotated[str | None, typer.Option(help="A named model, a local folder or a hub id.")]
Votes = Annotated[int | None, typer.Option(help="Critiques sampled for each step.")]
Seed = Annotated[int | None, typer.Option(help="Seed of all sampling, of --sample and of the bootstrap.")]
Set = Annotated[list[str] | None, typer.Option("--set", help="Override a setting: a.b=value.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Only the first N records over all files.")]
Sample = Annotated[int | None, typer.Option(min=1, help="N rows of each file, drawn at random by --seed.")]
Results = Annotated[
    Path | None, typer.Option(help="Take this file of results, as `genprm verify -o` writes it; nothing is judged.")
]
EngineName = Annotated[str, typer.Option("--engine", help="local, or ray: workers on a Ray cluster (settings ray.*).")]
AsJson = Annotated[
    bool | None,
    typer.Option("--json/--table", help="What goes to stdout; by default a table on a terminal, else JSON."),
]


@app.callback()
def main() -> None:
    """Evaluate a verifier on a benchmark."""


@app.command("processbench")
def processbench(
    files: Files,
    output: Output,
    config: ConfigName = "default",
    model: Model = None,
    votes: Votes = None,
    seed: Seed = None,
    set_: Set = None,
    limit: Limit = None,
    sample: Sample = None,
    results: Results = None,
    oracle: Annotated[bool, typer.Option("--oracle", help="Add the F1 at the best threshold, named as such.")] = False,
    as_json: AsJson = None,
    engine: EngineName = "local",
) -> None:
    """Find the first error: official metric per subset and on average, with intervals, calibration and cost."""
    from ..evaluation import tasks
    from ..evaluation.charts import processbench_table

    job = _Job(effective_config(config, model=model, votes=votes, seed=seed, overrides=set_ or []), files, output)
    job.engine = engine_named(engine)
    rows, judged = job.judge("auto", limit, sample, tasks.processbench_lacks, results)
    settings = job.config.verify
    found = tasks.evaluate_processbench(
        rows, judged, output, threshold=settings.threshold, oracle=oracle, seed=settings.seed
    )
    job.show(found, [processbench_table(found)], as_json)


@app.command("prmbench")
def prmbench(
    files: Files,
    output: Output,
    config: ConfigName = "default",
    model: Model = None,
    votes: Votes = None,
    seed: Seed = None,
    set_: Set = None,
    limit: Limit = None,
    sample: Sample = None,
    results: Results = None,
    weight: Annotated[float, typer.Option(min=0, max=1, help="Weight of the negative F1 in PRMScore.")] = 0.5,
    as_json: AsJson = None,
    engine: EngineName = "local",
) -> None:
    """Judge every step of PRMBench rows: PRMScore per class, per group and over all steps."""
    from ..evaluation import tasks
    from ..evaluation.charts import prmbench_table

    job = _Job(effective_config(config, model=model, votes=votes, seed=seed, overrides=set_ or []), files, output)
    job.engine = engine_named(engine)
    if job.config.verify.early_stop:
        from ..errors import UsageError

        raise UsageError("PRMBench counts all steps: verify.early_stop must be off")
    rows, judged = job.judge("prmbench", limit, sample, tasks.prmbench_lacks, results)
    settings = job.config.verify
    found = tasks.evaluate_prmbench(
        rows, judged, output, threshold=settings.threshold, weight=weight, seed=settings.seed
    )
    job.show(found, [prmbench_table(found)], as_json)


@app.command("best-of-n")
def best_of_n(
    files: Files,
    output: Output,
    config: ConfigName = "default",
    model: Model = None,
    votes: Votes = None,
    seed: Seed = None,
    set_: Set = None,
    limit: Limit = None,
    problems: Annotated[int | None, typer.Option(min=1, help="Only the first N problems of each file.")] = None,
    results: Results = None,
    as_json: AsJson = None,
    engine: EngineName = "local",
) -> None:
    """Pick one of N candidates: accuracy of the pick beside majority, weighted votes, random and oracle."""
    from ..evaluation import tasks
    from ..evaluation.charts import best_of_n_tables

    job = _Job(effective_config(config, model=model, votes=votes, seed=seed, overrides=set_ or []), files, output)
    job.engine = engine_named(engine)
    rows, judged = job.judge("auto", limit, None, tasks.best_of_n_lacks, results, problems)
    found = tasks.evaluate_best_of_n(rows, judged, output, seed=job.config.verify.seed)
    job.show(found, best_of_n_tables(found), as_json)


class _Job:
    """What all benchmarks share."""

    def __init__(self, config: Config, files: list[str], output: Path):
        self.config, self.files, self.output = config, files, output
        self.engine: Engine = "local"
        self.rejected = 0

    def judge(
        self,
        format: str,
        limit: int | None,
        sample: int | None,
        lacks: Callable[[Solution], str | None],
        results: Path | None,
        problems: int | None = None,
    ) -> tuple[list[Any], Path]:
        """Rows of the files, and the file that holds all their results."""
        from ..build import load
        from ..bulk.stream import judge_stream
        from ..errors import UsageError
        from ..evaluation.run import RESULTS, Selection, judge_into, read_rows

        if "-" in self.files:
            raise UsageError("a benchmark is read from files, not from standard input")
        selection = Selection(limit, sample, self.config.verify.seed, problems)
        rows, rejected = read_rows(self.files, cast("Format", format), selection, lacks)
        for row in rejected:
            print(f"genprm: {row.error}", file=sys.stderr)
        self.rejected = len(rejected)
        if results is not None:
            self.output.mkdir(parents=True, exist_ok=True)
            return rows, results
        with ExitStack() as stack:
            progress, say = progress_bar(stack)
            judge: Verifier | Stream
            if self.engine == "ray":
                judge = partial(judge_stream, settings=self.config, engine="ray", say=say)
            else:
                judge = stack.enter_context(load(self.config, say=say))
            bar = progress.add_task("judging", total=len(rows))
            judge_into(self.output / RESULTS, rows, judge, self.config, lambda: progress.advance(bar))
        return rows, self.output / RESULTS

    def show(self, found: dict[str, Any], tables: Sequence[Table], as_json: bool | None) -> None:
        """Metrics on stdout; exit code 2 where a row could not be used."""
        if not sys.stdout.isatty() if as_json is None else as_json:
            print(json.dumps(found, ensure_ascii=False))
        else:
            from ..report.terminal import show_table

            for table in tables:
                show_table(table)
        print(f"genprm: metrics, predictions and report are in {self.output}", file=sys.stderr)
        if self.rejected:
            raise typer.Exit(2)
