"""Judging a benchmark into a folder: rows are read, chosen and judged once, and a killed run goes on where it ended.

Knows files and the verifier, no metric. `DIR/results.jsonl` holds whole result objects; everything else in the folder
is made from them and can be made again.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..config import Config
from ..errors import InputError, UsageError
from ..formats import Format
from ..output import ResultFile
from ..records import Rejected, read_files
from ..types import Solution, VerificationResult
from ..verifier import Verifier

RESULTS = "results.jsonl"


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a benchmark."""

    subset: str
    """The stem of its file."""
    solution: Solution


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rows of the files are taken."""

    limit: int | None = None
    """The first so many over all files."""
    sample: int | None = None
    """So many of each file, drawn by `seed`; all where a file has fewer."""
    seed: int = 0
    problems: int | None = None
    """The first so many problems of each file, with all their candidates; ids are PROBLEM/CANDIDATE."""


def read_rows(
    paths: Sequence[str], format: Format, selection: Selection, check: Callable[[Solution], str | None]
) -> tuple[list[Row], list[Rejected]]:
    """The rows to judge, in the order of the files, and those that cannot be used.

    Args:
        paths: files.
        format: of their rows.
        selection: which rows.
        check: gives what a good record lacks for this benchmark, or None.

    Raises:
        InputError: a file cannot be read, or no row is left.
    """
    rows: dict[str, list[Row]] = {}
    rejected: list[Rejected] = []
    for file, item in read_files(paths, format, selection.limit):
        if isinstance(item, Rejected):
            rejected.append(item)
        elif (lack := check(item)) is not None:
            rejected.append(Rejected(file, None, None, f"the row {item.id!r} {lack}", json.dumps(item.meta)))
        else:
            rows.setdefault(file, []).append(Row(Path(file).stem, item))
    if not rows:
        why = f": {rejected[0].error}" if rejected else ""
        raise InputError(f"no row can be evaluated{why}", file=paths[0])
    if selection.sample is not None:
        rows = {file: _sample(inside, selection.sample, selection.seed) for file, inside in rows.items()}
    if selection.problems is not None:
        rows = {file: _first_problems(inside, selection.problems) for file, inside in rows.items()}
    return [row for inside in rows.values() for row in inside], rejected


def _sample(rows: list[Row], count: int, seed: int) -> list[Row]:
    if count >= len(rows):
        return rows
    return [rows[i] for i in sorted(random.Random(seed).sample(range(len(rows)), count))]


def _first_problems(rows: list[Row], count: int) -> list[Row]:
    problem_of = [row.solution.id.rpartition("/")[0] for row in rows]
    wanted = set(list(dict.fromkeys(problem_of))[:count])
    return [row for row, problem in zip(rows, problem_of, strict=True) if problem in wanted]


Stream = Callable[[Iterable[Solution]], Iterator[VerificationResult]]
"""Judges a stream of solutions, wherever that is done."""


def judge_into(
    path: Path,
    rows: Sequence[Row],
    judge: Verifier | Stream,
    config: Config,
    advance: Callable[[], None] = lambda: None,
) -> None:
    """Judge what a results file does not hold yet.

    Args:
        path: the file.
        rows: what is wanted.
        judge: a verifier, or what judges a stream elsewhere; then the file learns model and protocol from the results.
        config: whose digest the results must carry.
        advance: called for each row that is done.

    Raises:
        UsageError: the file holds results of other settings.
    """
    model, sha256, stream = None, None, judge if not isinstance(judge, Verifier) else judge.verify_many
    if isinstance(judge, Verifier):
        model, sha256 = judge.model, judge.protocol_ref.sha256
    with ResultFile(path, model=model, protocol_sha256=sha256, config_sha256=config.digest()) as results:
        fresh = []
        for row in rows:
            if results.holds(row.solution):
                advance()
            else:
                fresh.append(row.solution)
        for result in stream(fresh):
            results.add(result)
            advance()


def read_results(rows: Sequence[Row], path: Path) -> Iterator[tuple[Row, VerificationResult]]:
    """The judged rows, in the order of `rows`: figures must not hang on which result was done first.

    Results of rows that are not wanted are passed over, and one result at a time is in memory.

    Raises:
        UsageError: the file cannot be read, or a wanted row is not in it.
    """
    wanted = {row.solution.id for row in rows}
    places: dict[str, tuple[int, int]] = {}  # where a result's line begins, and its number
    try:
        with path.open("rb") as file:
            start = 0
            for number, line in enumerate(file, 1):
                name = _id_of(line)
                if name is None:
                    raise UsageError(f"{path}:{number}: this is not a result of `genprm verify`")
                if name in wanted:
                    places.setdefault(name, (start, number))
                start += len(line)
            for row in rows:
                if row.solution.id not in places:
                    continue
                start, number = places[row.solution.id]
                file.seek(start)
                try:
                    result = VerificationResult.model_validate_json(file.readline())
                except ValueError:
                    raise UsageError(f"{path}:{number}: this is not a result of `genprm verify`") from None
                if result.problem != row.solution.problem:
                    raise UsageError(f"{path}:{number}: {result.id!r} is another problem than in the rows given")
                yield row, result
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    if missing := [row.solution.id for row in rows if row.solution.id not in places]:
        raise UsageError(f"{path} holds no result for {len(missing)} of the rows, the first is {missing[0]!r}")


def _id_of(line: bytes) -> str | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    name = found.get("id") if isinstance(found, dict) else None
    return name if isinstance(name, str) else None


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file so that a reader sees the old one or the new one, never a half."""
    _replace(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_lines(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write a JSONL file the same way."""
    _replace(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def _replace(path: Path, text: str) -> None:
    part = path.with_name(path.name + ".part")
    try:
        part.write_text(text, encoding="utf-8", errors="backslashreplace")
        part.replace(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
