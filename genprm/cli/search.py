"""`genprm search`: solve problems with a policy model whose steps genprm judges."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import ExitStack, aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InputError, UsageError
from .rejected import list_rejected
from .verify import effective_config, progress_bar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..config import Config
    from ..search import Problem, Searcher, SearchResult
    from ..search.output import SearchFile
    from ..search.summary import Accuracies
    from ..search.trace import TraceWriter


def search(
    method: Annotated[str, typer.Argument(metavar="METHOD", help="best-of-n, beam, dvts, mcts or critic.")],
    problems: Annotated[
        list[str], typer.Argument(metavar="PROBLEM...", help="Texts, JSON or JSONL files of problem rows, or -.")
    ],
    policy: Annotated[
        str | None, typer.Option(help="The model that writes solutions; by default the judge's own.")
    ] = None,
    config: Annotated[str, typer.Option(help="A shipped config's name or a YAML file.")] = "default",
    model: Annotated[str | None, typer.Option(help="The judge: a named model, a local folder or a hub id.")] = None,
    votes: Annotated[int | None, typer.Option(help="Critiques sampled for each step.")] = None,
    n: Annotated[int | None, typer.Option(min=1, help="Solutions, or steps sampled in each round.")] = None,
    width: Annotated[int | None, typer.Option(min=1, help="Partial solutions kept (beam), subtrees (dvts).")] = None,
    simulations: Annotated[int | None, typer.Option(min=1, help="Nodes evaluated (mcts).")] = None,
    rounds: Annotated[int | None, typer.Option(min=0, help="The most rewrites (critic).")] = None,
    budget_tokens: Annotated[int | None, typer.Option(min=1, help="Generated tokens for each problem.")] = None,
    budget_judgements: Annotated[int | None, typer.Option(min=1, help="Judgements for each problem.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all sampling.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Override a setting: a.b=value.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N problems.")] = None,
    sample: Annotated[int | None, typer.Option(min=1, help="Of these, N drawn at random by the seed.")] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Append results to this JSONL file; resumes.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(help="Write every node of each search into this folder: JSONL and a page.")
    ] = None,
    as_json: Annotated[
        bool | None,
        typer.Option("--json/--table", help="What goes to stdout; by default text on a terminal, else JSON."),
    ] = None,
) -> None:
    """Solve PROBLEM... with a policy model: its steps are judged, and the best solution is picked.

    Problems with a reference answer (`answer`) are checked, and the accuracy of the pick stands beside majority,
    weighted majority, random and oracle in a table at the end, which goes to stderr where stdout is JSON.
    """
    from ..build import load_search
    from ..search.problems import read_problems
    from ..search.searcher import method_of
    from ..search.summary import Accuracies

    options = {
        "policy.model": policy,
        "search.n": n,
        "search.width": width,
        "search.simulations": simulations,
        "search.rounds": rounds,
        "search.budget_tokens": budget_tokens,
        "search.budget_judgements": budget_judgements,
    }
    given = [f"{key}={json.dumps(value)}" for key, value in options.items() if value is not None]
    settings = effective_config(config, model=model, votes=votes, seed=seed, overrides=[*given, *(set_ or [])])
    method_of(method, settings.search)
    if output is not None and output.resolve() in {Path(name).resolve() for name in problems if len(name) < 4096}:
        raise UsageError(f"-o {output} is also read: give another name")
    rows, rejected = _sorted_out(read_problems(problems, limit=limit, sample=sample, seed=settings.verify.seed), output)
    if not rows:
        raise InputError("no problem can be used", file=problems[0])
    accuracies = Accuracies()
    json_lines = not sys.stdout.isatty() if as_json is None else as_json
    with ExitStack() as stack:
        tracer = _tracer(trace)
        progress, say = progress_bar(stack)
        searcher = stack.enter_context(load_search(settings, say=say))
        results = stack.enter_context(_result_file(output, searcher, method)) if output is not None else None
        bar = progress.add_task("searching", total=len(rows))
        job = _Job(searcher, method, results, tracer, _printer(json_lines), accuracies, lambda: progress.advance(bar))
        asyncio.run(job.run(rows))
    _conclude(accuracies, settings, json_lines, output, alone=len(rows) == 1)
    if rejected:
        raise typer.Exit(2)


class _Job:
    """One run of the command."""

    def __init__(
        self,
        searcher: Searcher,
        method: str,
        results: SearchFile | None,
        tracer: TraceWriter | None,
        show: Callable[[SearchResult], None],
        accuracies: Accuracies,
        advance: Callable[[], None],
    ):
        self.searcher, self.method, self.results, self.tracer = searcher, method, results, tracer
        self.show, self.accuracies, self.advance = show, accuracies, advance

    async def run(self, rows: list[Problem]) -> None:
        """Search all problems that the output file does not hold, and show results in the order of the input."""
        waiting = []
        for row in rows:
            held = None if self.results is None else self.results.held(row)
            if held is None:
                waiting.append(row)
            else:
                self.accuracies.add(held)
                self.advance()
        order, ready = [row.id for row in waiting], dict[str, "SearchResult"]()
        async with aclosing(self.searcher.astream(waiting, self.method)) as stream:
            async for result, scene in stream:
                if self.tracer is not None:
                    self.tracer.write(result, scene)
                if self.results is not None:
                    self.results.add(result)
                self.accuracies.add(result)
                self.advance()
                ready[result.id] = result
                while order and order[0] in ready:
                    self.show(ready.pop(order.pop(0)))


def _sorted_out(found: Iterable[object], output: Path | None) -> tuple[list[Problem], int]:
    """Good rows; bad ones are said, listed beside their file, and counted."""
    from ..records import Rejected
    from ..search import Problem

    rows: list[Problem] = []
    rejected: list[Rejected] = []
    for item in found:
        if isinstance(item, Problem):
            rows.append(item)
        elif isinstance(item, Rejected):
            print(f"genprm: {item.error}", file=sys.stderr)
            rejected.append(item)
    list_rejected(rejected, output)
    return rows, len(rejected)


def _tracer(folder: Path | None) -> TraceWriter | None:
    from ..search.trace import TraceWriter

    return None if folder is None else TraceWriter(folder)


def _result_file(path: Path, searcher: Searcher, method: str) -> SearchFile:
    from ..search.output import SearchFile

    return SearchFile(path, config_sha256=searcher.digest(method))


def _printer(json_lines: bool) -> Callable[[SearchResult], None]:
    def line(result: SearchResult) -> None:
        sys.stdout.buffer.write(result.model_dump_json().encode("utf-8", "backslashreplace") + b"\n")
        sys.stdout.buffer.flush()

    return line if json_lines else _show


def _show(result: SearchResult) -> None:
    """One result for a person."""
    from rich.console import Console
    from rich.text import Text

    from ..text import shorten

    console = Console()
    console.print(Text(shorten(result.problem, 2 * console.width), style="bold"))
    pick = result.pick
    for step, reward in zip(pick.steps, pick.step_rewards, strict=True) if pick is not None else ():
        shown = "  –  " if reward is None else f"{reward:.3f}"
        console.print(Text.assemble((shown, "cyan"), "  ", shorten(step, 2 * console.width)))
    counts = result.counts
    if pick is None or not pick.finished:
        console.print(Text(f"no finished solution: {pick.note if pick else result.ended}", style="yellow"))
    else:
        score = "unscored" if pick.reward is None else f"reward {pick.reward:.3f}"
        console.print(Text(f"answer {pick.answer} ({score})", style="bold green"))
    votes = [
        f"{name} {found.answer} ({found.share:.0%})"
        for name, found in (("majority", result.majority), ("weighted majority", result.weighted_majority))
        if found is not None
    ]
    votes.append(f"{counts.finished} of {counts.candidates} candidates finished")
    votes.append(f"{counts.judged} judgements made, {counts.reused} reused")
    console.print(Text("; ".join(votes), style="dim"))
    console.print(Text(f"ended: {result.ended}", style="dim"))


def _conclude(accuracies: Accuracies, settings: Config, json_lines: bool, output: Path | None, *, alone: bool) -> None:
    """The accuracies of the whole run: a table, and a file beside the output."""
    from ..search.summary import summary_table

    found = accuracies.summary(seed=settings.verify.seed)
    if output is not None:
        Path(f"{output}.summary.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    if found["accuracy"] is None or alone:
        return
    table = summary_table(found)
    if not json_lines:
        from ..report.terminal import show_table

        show_table(table)
        return
    for way, accuracy, low, high, count in table.rows:
        spread = f" [{low:.3f}, {high:.3f}]" if isinstance(low, float) and isinstance(high, float) else ""
        shown = "–" if accuracy is None else f"{accuracy:.3f}"
        print(f"genprm: {way}: {shown}{spread} of {count} problems", file=sys.stderr)
