"""Reading solution files: JSON, JSON Lines, Parquet or standard input, a row at a time.

Knows what a valid record is, and ids; jsonrows.py and places.py know files, formats.py the published formats. JSON
Lines and Parquet are streamed: memory grows by about 40 bytes a row, for its id.

Two kinds of fault are kept apart. A file that cannot be used at all raises `InputError`. A bad row is yielded as
`Rejected` in its place among the solutions, so that a long run goes on without it and can list it.

Refused although it could be decoded: lone surrogates, rows nested deeper than `MAX_DEPTH`, a text longer than
`MAX_TEXT_CHARS`. They would fail later, far from the line that holds them. Nothing is ever cut.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from .digests import DigestMap
from .errors import InputError
from .formats import FORMATS, Format, draft, kind_of, recognise, shown
from .jsonrows import JsonRow
from .places import is_remote, open_input, rows_of
from .segment import segment
from .types import Solution

MAX_TEXT_CHARS = 1_000_000
"""The longest problem, step or answer, in characters."""
MAX_DEPTH = 100
"""The deepest nesting of lists and objects in a row."""


@dataclass(frozen=True)
class Rejected:
    """A row that cannot be used, in the place where its solution would have been."""

    file: str
    line: int | None
    field: str | None
    message: str
    raw: str
    """The row as it stands in the file; bytes that are no UTF-8 appear as backslash escapes."""

    @property
    def error(self) -> InputError:
        """The fault as an exception, whose text is one line with file, line and field."""
        return InputError(self.message, file=self.file, line=self.line, field=self.field)

    def as_row(self) -> dict[str, Any]:
        """What a list of rejected rows holds."""
        return {"file": self.file, "line": self.line, "field": self.field, "error": self.message, "raw": self.raw}


def read_solutions(
    paths: str | Path | Iterable[str | Path],
    format: Format = "auto",
    limit: int | None = None,
    *,
    stdin: BinaryIO | None = None,
) -> Iterator[Solution | Rejected]:
    """Read solution files one after another, a row at a time.

    A row without an `id` gets its 0-based position in the file, rejected rows counted and blank lines not; where
    several files are read, `FILE_STEM:POSITION`, or `PATH:POSITION` where two files share a stem. PRMBench repeats its
    `idx` for several solutions of one problem: the second becomes `IDX#2`.

    Args:
        paths: Files, addresses such as `s3://bucket/rows.jsonl`, or `-` for standard input.
        format: The rows' format; `auto` recognises each row by its fields.
        limit: Stop after this many rows, rejected ones counted, over all files together.
        stdin: What `-` reads; the process's standard input if not given.

    Yields:
        A `Solution`, or a `Rejected` in its place, in the order of the rows.

    Raises:
        InputError: A path is missing, a folder, unreadable or given twice, the format is unknown or the limit negative
            (at once); a file is empty or is no JSON at all (when it is reached).
    """
    return (row for _, row in read_files(paths, format, limit, stdin=stdin))


def read_files(
    paths: str | Path | Iterable[str | Path],
    format: Format = "auto",
    limit: int | None = None,
    *,
    stdin: BinaryIO | None = None,
) -> Iterator[tuple[str, Solution | Rejected]]:
    """`read_solutions`, each row with the path that it came from."""
    if limit is not None and limit < 0:
        raise InputError(f"a limit of {limit} rows: give 0 or more")
    if format not in FORMATS:
        raise InputError(f"unknown format {format!r}: choose one of {', '.join(FORMATS)}")
    names = [str(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]
    for index, name in enumerate(names):
        _check_path(name)
        if name in names[:index]:
            raise InputError("is given twice", file=name)
    return _read(names, format, limit, stdin)


def _check_path(name: str) -> None:
    if name == "-" or is_remote(name):
        return
    if "\0" in name:
        raise InputError("is not a file name", file=repr(name))
    path = Path(name)
    try:
        path.stat()
    except FileNotFoundError:
        raise InputError("there is no such file", file=name) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", file=name) from None
    if path.is_dir():
        raise InputError("is a folder: give the files in it", file=name)
    if not os.access(path, os.R_OK):
        raise InputError("cannot be read: permission denied", file=name)


def _read(
    names: list[str], format: Format, limit: int | None, stdin: BinaryIO | None
) -> Iterator[tuple[str, Solution | Rejected]]:
    stems = ["stdin" if name == "-" else Path(name).stem for name in names]
    seen: dict[str, DigestMap] = {}
    left = limit
    for name, stem in zip(names, stems, strict=True):
        if left == 0:
            return
        file = "<stdin>" if name == "-" else name
        prefix = "" if len(names) == 1 else f"{stem if stems.count(stem) == 1 else file}:"
        seen[file] = DigestMap()
        repeats: Counter[str] = Counter()
        try:
            with _open(name, stdin) as stream:
                for position, row in enumerate(islice(rows_of(stream, file), left)):
                    left = None if left is None else left - 1
                    try:
                        solution = _solution(row, format, f"{prefix}{position}")
                        if solution.id in seen[file] and "prmbench" in (format, recognise(row.value)):
                            repeats[solution.id] += 1
                            again = f"{solution.id}#{repeats[solution.id] + 1}"
                            solution = solution.model_copy(update={"id": again})
                        _remember(solution.id, row, file, seen)
                    except InputError as error:
                        field = ".".join(part for part in (row.place, error.field) if part) or None
                        yield name, Rejected(file, row.line, field, error.message, row.raw)
                    else:
                        yield name, solution
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror or error}", file=file) from error


def _open(name: str, stdin: BinaryIO | None) -> AbstractContextManager[BinaryIO]:
    if name == "-":
        return nullcontext(stdin if stdin is not None else sys.stdin.buffer)
    return open_input(name)


def _solution(row: JsonRow, format: Format, default_id: str) -> Solution:
    if row.fault is not None:
        raise InputError(row.fault)
    return parse_record(row.value, default_id=default_id, format=format)


def _remember(id: str, row: JsonRow, file: str, seen: dict[str, DigestMap]) -> None:
    for other, ids in seen.items():
        if (line := ids.get(id)) is not None:
            raise InputError(f"{shown(id)} is used before, at {other}:{line}", field="id")
    seen[file][id] = row.line


def parse_record(row: object, *, default_id: str = "0", format: Format = "auto") -> Solution:
    """Check one decoded row and turn it into a solution.

    `null` counts as absent, and so does a blank `answer`. `meta` collects the entries of the row's own `meta` and all
    fields that are not read; of two that share a name the row's field is kept.

    Raises:
        InputError: With the row's own field name; `file` and `line` are left to the caller.
    """
    if not isinstance(row, dict):
        raise InputError(f"a record must be an object, found {kind_of(row)}")
    for key, value in row.items():
        _check_value(key, value)
    made = draft(row, format)
    names = made.names
    problem = _text(made.problem, names.get("problem", "problem"))
    if made.steps is not None:
        where = names.get("steps", "steps")
        if not isinstance(made.steps, list | tuple):
            raise InputError(f"must be a list of strings, found {kind_of(made.steps)}", field=where)
        steps = tuple(_text(step, f"{where}[{index}]") for index, step in enumerate(made.steps))
        if not steps:
            raise InputError("has no steps", field=where)
    elif made.solution is not None:
        where = names.get("solution", "solution")
        if not isinstance(made.solution, str):
            raise InputError(f"must be text, found {kind_of(made.solution)}", field=where)
        if not made.solution.strip():
            raise InputError("has no steps: the text is empty", field=where)
        steps = tuple(_text(step, f"{where}, step {index}") for index, step in enumerate(segment(made.solution)))
    else:
        raise InputError("is missing: give `steps`, a list of strings, or `solution`, a text", field="steps")
    blank = made.answer is None or (isinstance(made.answer, str) and not made.answer.strip())
    return Solution(
        id=_id(made.id, names.get("id", "id"), default_id),
        problem=problem,
        steps=steps,
        answer=None if blank else _text(made.answer, names.get("answer", "answer")),
        label=_label(made.label, len(steps)),
        meta=made.meta,
    )


def render_record(solution: Solution) -> str:
    """One line of JSON, without the newline, from which `read_solutions` makes an equal solution."""
    return json.dumps(solution.model_dump(mode="json", exclude_defaults=True), ensure_ascii=False, allow_nan=False)


def _text(value: object, field: str) -> str:
    if value is None:
        raise InputError("is missing, text is needed", field=field)
    if not isinstance(value, str):
        raise InputError(f"must be text, found {kind_of(value)}", field=field)
    if not value.strip():
        raise InputError("is empty", field=field)
    if len(value) > MAX_TEXT_CHARS:
        message = f"has {len(value):,} characters, more than the {MAX_TEXT_CHARS:,} that are read"
        raise InputError(message, field=field)
    return value


def _id(value: object, field: str, default: str) -> str:
    if value is None:
        return default
    if isinstance(value, int) and not isinstance(value, bool):
        try:
            return str(value)
        except ValueError as error:  # more than 4,300 digits
            raise InputError("is a huge number", field=field) from error
    return _text(value, field)


def _label(value: object, count: int) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"must be a whole number, found {kind_of(value)}", field="label")
    if not -1 <= value < count:
        allowed = f"0 to {count - 1} for the first wrong step of {count}, or -1 where none is wrong"
        raise InputError(f"{shown(value)} is not allowed: {allowed}", field="label")
    return value


def _check_value(key: str, value: object) -> None:
    """Refuse what JSON can spell and a result file cannot hold, anywhere in the value."""
    name = key[:80] if key.isprintable() else ascii(key[:80])
    waiting: list[tuple[object, int]] = [(value, 1), (key, 1)]
    while waiting:
        item, depth = waiting.pop()
        if depth > MAX_DEPTH:
            raise InputError(f"is nested deeper than {MAX_DEPTH} levels", field=name)
        if isinstance(item, str):
            try:
                item.encode()
            except UnicodeEncodeError:
                raise InputError("holds half of a surrogate pair, which is not Unicode text", field=name) from None
        elif isinstance(item, float):
            if not math.isfinite(item):
                raise InputError(f"{item} is not a JSON number: write null", field=name)
        elif isinstance(item, dict):
            waiting += [(inner, depth + 1) for pair in item.items() for inner in pair]
        elif isinstance(item, list | tuple):
            waiting += [(inner, depth + 1) for inner in item]
