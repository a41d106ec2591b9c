"""`genprm verify`: judge solution files, to the terminal, to stdout or to a file that can be resumed."""

from __future__ import annotations

import json
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO, cast

import typer

from ..errors import UnavailableError, UsageError

if TYPE_CHECKING:
    from rich.progress import Progress

    from ..bulk.chunks import Failed
    from ..bulk.parquet import ParquetFolder
    from ..bulk.stream import Engine
    from ..config import Config
    from ..formats import Format
    from ..output import ResultFile
    from ..records import Rejected
    from ..report.html import ReportWriter
    from ..types import Solution, VerificationResult
    from ..verifier import Verifier


def verify(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="JSON or JSONL files, or - for stdin.")],
    config: Annotated[str, typer.Option(help="A shipped config's name or a YAML file.")] = "default",
    model: Annotated[str | None, typer.Option(help="A named model, a local folder or a hub id.")] = None,
    votes: Annotated[int | None, typer.Option(help="Critiques sampled for each step.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all sampling.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Override a setting: a.b=value.")] = None,
    format: Annotated[str, typer.Option(help="Format of the rows; auto recognises each row.")] = "auto",
    limit: Annotated[int | None, typer.Option(min=1, help="Judge only the first N records.")] = None,
    as_json: Annotated[
        bool | None,
        typer.Option("--json/--table", help="What goes to stdout; by default a table on a terminal, else JSON."),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "-o", "--output", help="Append results to this JSONL file, or to this folder NAME.parquet; resumes."
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="REPORT.html", help="Write a page that shows every critique.")
    ] = None,
    fail_on_error: Annotated[bool, typer.Option(help="Exit with 1 if any solution has an error.")] = False,
    engine: Annotated[str, typer.Option(help="local, or ray: workers on a Ray cluster (settings ray.*).")] = "local",
    shard: Annotated[
        str | None, typer.Option(metavar="K/N", help="Judge only every Nth record, from record K on; K from 0.")
    ] = None,
) -> None:
    """Judge every step of the solutions in PATH...: reward, verdict, critique and executed code."""
    settings = effective_config(config, model=model, votes=votes, seed=seed, overrides=set_ or [])
    job = _Job(settings, paths, format, limit, not sys.stdout.isatty() if as_json is None else as_json, output, html)
    job.engine, job.shard = engine_named(engine), _shard(shard)
    found = job.run()
    if job.failed:
        listed = "" if output is None else f", listed in {output}.failed.jsonl"
        raise UnavailableError(f"{job.failed} rows could not be judged{listed}; the same command tries them again")
    if job.rejected:
        raise typer.Exit(2)
    if fail_on_error and found:
        raise typer.Exit(1)


def effective_config(
    config: str, *, model: str | None, votes: int | None, seed: int | None, overrides: list[str]
) -> Config:
    """The config that the common options make: the file, then the options, then each `--set`."""
    from ..config import load_config

    options = {"model": model, "verify.votes": votes, "verify.seed": seed}
    given = [f"{key}={json.dumps(value)}" for key, value in options.items() if value is not None]
    return load_config(config, [*given, *overrides])


def engine_named(name: str) -> Engine:
    """What `--engine` says.

    Raises:
        UsageError: neither of the two.
    """
    if name not in ("local", "ray"):
        raise UsageError(f"--engine {name!r}: give local or ray")
    return cast("Engine", name)


def _shard(text: str | None) -> tuple[int, int]:
    """K and N of `--shard K/N`."""
    if text is None:
        return 0, 1
    part, _, whole = text.partition("/")
    if not (part.isdecimal() and whole.isdecimal() and int(part) < int(whole)):
        raise UsageError(f"--shard {text!r}: give K/N with K from 0 to N - 1, e.g. 0/8")
    return int(part), int(whole)


class _Job:
    """One run of the command."""

    def __init__(
        self,
        config: Config,
        paths: list[str],
        format: str,
        limit: int | None,
        as_json: bool,
        output: str | None,
        html: Path | None,
    ):
        self.config, self.paths, self.format, self.limit = config, paths, format, limit
        self.as_json, self.output, self.html = as_json, output, html
        self.rejected: list[Rejected] = []
        self.errors_found = 0
        self.failed = 0
        self.engine: Engine = "local"
        self.shard = 0, 1
        self._sinks: dict[str, TextIO | None] = {}

    def run(self) -> int:
        """Judge everything; returns how many solutions have an error."""
        from ..build import load

        solutions = self._solutions()
        first = next(solutions, None)
        if first is None:
            return 0  # every row was bad; each has been said
        # Files are opened only once there is something to judge, and before anything slow.
        with ExitStack() as stack:
            progress, say = progress_bar(stack)
            report = None if self.html is None else self._report(self.html, stack)
            verifier = stack.enter_context(load(self.config, say=say)) if self.engine == "local" else None
            results: ResultFile | ParquetFolder | None = None
            if self.output is not None:
                results = self._results(self.output, verifier)
                stack.push(results)
                self.errors_found += results.errors
            if report is not None:
                for held in results.results() if results is not None else ():
                    report.add(held)
                # Also where an error ends the run, if there is anything to show.
                stack.callback(lambda: report.finish() if report.count else None)
            emit = _Emitter(self.as_json)
            waiting = self._fresh(chain([first], solutions), results, emit)
            bar = progress.add_task("judging", total=self.limit)
            judged = self._on_ray(waiting, emit, say) if verifier is None else verifier.verify_many(waiting)
            for result in judged:
                if results is not None:
                    results.add(result)
                if report is not None:
                    report.add(result)
                self.errors_found += result.first_error is not None and result.first_error >= 0
                progress.advance(bar)
                emit.add(result, progress)
            stack.callback(self._close_sinks)
        return self.errors_found

    def _results(self, output: str, verifier: Verifier | None) -> ResultFile | ParquetFolder:
        """Where results are kept; workers elsewhere say which model they judge with only by their results."""
        from ..bulk.parquet import ParquetFolder, is_folder_of_parquet
        from ..output import ResultFile
        from ..places import is_remote

        sha256 = self.config.digest()
        if is_folder_of_parquet(output):
            return ParquetFolder(output, rows=self.config.ray.batch_size, config_sha256=sha256)
        if is_remote(output):
            raise UsageError(f"-o {output}: in object storage results are a folder; give a name that ends in .parquet")
        model, protocol = (None, None) if verifier is None else (verifier.model, verifier.protocol_ref.sha256)
        return ResultFile(Path(output), model=model, protocol_sha256=protocol, config_sha256=sha256)

    def _on_ray(
        self, waiting: Iterator[Solution], emit: _Emitter, say: Callable[[str], None]
    ) -> Iterator[VerificationResult]:
        """Results of a cluster's workers; rows that they gave up are said and listed."""
        from ..bulk.stream import judge_stream

        listed = None
        if self.output is not None and "://" not in self.output:
            listed = Path(f"{self.output.rstrip('/')}.failed.jsonl")
            listed.unlink(missing_ok=True)  # of the last run: its rows are tried again

        def given_up(failed: Failed) -> None:
            self.failed += 1
            emit.forget(failed.id)
            print(f"genprm: {failed.id!r} failed {failed.attempts} times: {failed.reason}", file=sys.stderr)
            if listed is not None:
                with listed.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(failed.as_row()) + "\n")

        return judge_stream(waiting, self.config, engine="ray", on_failed=given_up, say=say)

    def _report(self, path: Path, stack: ExitStack) -> ReportWriter:
        """A page of results, whose file can be written."""
        from ..report.html import ReportWriter

        others = [Path(name) for name in [*self.paths, *([] if self.output is None else [self.output])]]
        if path.resolve() in {other.resolve() for other in others}:
            raise UsageError(f"--html {path} is also read or written as another file: give another name")
        names = ", ".join("standard input" if name == "-" else name for name in self.paths)
        return stack.enter_context(ReportWriter(path, title="Judged solutions", subtitle=f"genprm verify: {names}"))

    def _solutions(self) -> Iterator[Solution]:
        """Good rows; bad ones are said, listed, and counted."""
        from ..records import Rejected, read_solutions

        part, whole = self.shard
        for number, row in enumerate(read_solutions(self.paths, cast("Format", self.format), self.limit)):
            if number % whole != part:
                continue
            if isinstance(row, Rejected):
                self.rejected.append(row)
                print(f"genprm: {row.error}", file=sys.stderr)
                self._list(row)
            else:
                yield row

    def _fresh(
        self, solutions: Iterator[Solution], results: ResultFile | ParquetFolder | None, emit: _Emitter
    ) -> Iterator[Solution]:
        """Solutions whose results are not in the output file yet."""
        for solution in solutions:
            if results is None or not results.holds(solution):
                emit.expect(solution.id)
                yield solution

    def _list(self, row: Rejected) -> None:
        """Write a bad row to PATH.rejected.jsonl beside its file, or beside the output where that cannot be written."""
        if row.file not in self._sinks:
            self._sinks[row.file] = self._open_sink(row.file)
        sink = self._sinks[row.file]
        if sink is not None:
            sink.write(json.dumps(row.as_row(), ensure_ascii=True) + "\n")
            sink.flush()

    def _open_sink(self, file: str) -> TextIO | None:
        places = [] if file in ("-", "<stdin>") else [Path(f"{file}.rejected.jsonl")]
        if self.output is not None:
            places.append(Path(f"{self.output}.rejected.jsonl"))
        for place in places:
            try:
                return place.open("w", encoding="utf-8")
            except OSError:
                continue
        if places:
            print(f"genprm: bad rows of {file} are not listed in a file: its folder cannot be written", file=sys.stderr)
        return None

    def _close_sinks(self) -> None:
        for sink in self._sinks.values():
            if sink is not None:
                sink.close()


class _Emitter:
    """Puts results on stdout in the order of the input, as JSON lines or as tables."""

    def __init__(self, as_json: bool):
        self._as_json = as_json
        self._order: deque[str] = deque()
        self._ready: dict[str, VerificationResult] = {}

    def expect(self, identity: str) -> None:
        """The next solution that will be judged."""
        self._order.append(identity)

    def add(self, result: VerificationResult, progress: Progress) -> None:
        """Take a result and print all whose turn it is; `forget` may have made it the turn of some."""
        self._ready[result.id] = result
        while self._order and self._order[0] in self._ready:
            self._print(self._ready.pop(self._order.popleft()), progress)

    def forget(self, identity: str) -> None:
        """A solution that will get no result: those behind it need not wait."""
        with suppress(ValueError):
            self._order.remove(identity)

    def _print(self, result: VerificationResult, progress: Progress) -> None:
        if self._as_json:
            sys.stdout.buffer.write(result.model_dump_json().encode("utf-8", "backslashreplace") + b"\n")
            sys.stdout.buffer.flush()
            return
        from rich.console import Console

        from ..report.terminal import show_result

        with _paused(progress):
            show_result(Console(), result)


def _paused(progress: Progress) -> Any:
    """The progress bar leaves the terminal while a table is printed on it."""
    stack = ExitStack()
    if progress.live.is_started:
        progress.stop()
        stack.callback(progress.start)
    return stack


def progress_bar(stack: ExitStack) -> tuple[Progress, Callable[[str], None]]:
    """A bar on stderr, shown on a terminal only, and a way to say what takes long."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    quiet = not console.is_terminal or os.environ.get("GENPRM_PROGRESS") == "0"
    progress = Progress(*columns, console=console, transient=True, disable=quiet)
    stack.enter_context(progress)
    return progress, lambda text: console.print(f"genprm: {text}", style="dim", highlight=False)
