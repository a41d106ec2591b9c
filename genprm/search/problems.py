"""Reading what is to be solved: a text, rows of a JSON or JSONL file, or standard input.

Knows a problem row's fields, `problem`, `answer` and `id` with the aliases of solution files; what else a row holds is
not read, so solution files and benchmark rows are valid as they are.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from ..errors import InputError
from ..formats import draft, kind_of, shown
from ..jsonrows import JsonRow, json_rows
from ..records import MAX_TEXT_CHARS, Rejected
from .searcher import Problem

SUFFIXES = (".json", ".jsonl", ".ndjson")


def read_problems(
    given: Sequence[str],
    *,
    limit: int | None = None,
    sample: int | None = None,
    seed: int = 0,
    stdin: BinaryIO | None = None,
) -> Iterator[Problem | Rejected]:
    """Problems in the order in which they are given.

    A text's id is its position; a row without an `id` gets its position over all that is given.

    Args:
        given: files, `-` for standard input, or problems as text.
        limit: the first so many, rejected rows counted.
        sample: so many of those, drawn at random without change of order; all must then be read first.
        seed: of the draw.
        stdin: what `-` reads.

    Yields:
        Problems, and rejected rows in their place.

    Raises:
        InputError: a file is missing, empty, or no JSON at all; a text is blank.
    """
    found = islice(_read(given, stdin), limit)
    if sample is None:
        yield from found
        return
    import random

    everything = list(found)
    good = [place for place, item in enumerate(everything) if isinstance(item, Problem)]
    drawn = set(random.Random(seed).sample(good, min(sample, len(good))))
    yield from (item for place, item in enumerate(everything) if place in drawn or isinstance(item, Rejected))


def _read(given: Sequence[str], stdin: BinaryIO | None) -> Iterator[Problem | Rejected]:
    seen: set[str] = set()
    position = 0
    for word in given:
        if word != "-" and not _is_file(word):
            yield _remember(Problem(str(position), _text(word, "problem")), seen)
            position += 1
            continue
        name = "<stdin>" if word == "-" else word
        try:
            with nullcontext(stdin or sys.stdin.buffer) if word == "-" else Path(word).open("rb") as stream:
                for row in json_rows(stream, name):
                    try:
                        yield _remember(_problem(row, str(position)), seen)
                    except InputError as error:
                        field = ".".join(part for part in (row.place, error.field) if part) or None
                        yield Rejected(name, row.line, field, error.message, row.raw)
                    position += 1
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror or error}", file=name) from None


def _is_file(word: str) -> bool:
    if word.lower().endswith(SUFFIXES) and "\n" not in word:
        return True
    try:
        return Path(word).is_file()
    except (OSError, ValueError):
        return False  # a problem may be longer than a file name, or hold what none can


def _remember(problem: Problem, seen: set[str]) -> Problem:
    if problem.id in seen:
        raise InputError(f"{shown(problem.id)} is used before", field="id")
    seen.add(problem.id)
    return problem


def _problem(row: JsonRow, position: str) -> Problem:
    if row.fault is not None:
        raise InputError(row.fault)
    if not isinstance(row.value, dict):
        raise InputError(f"a record must be an object, found {kind_of(row.value)}")
    made = draft(row.value, "genprm")
    answer = made.answer
    if isinstance(answer, int | float) and not isinstance(answer, bool):
        answer = str(answer)  # many data sets hold plain numbers
    blank = answer is None or (isinstance(answer, str) and not answer.strip())
    given = str(made.id) if isinstance(made.id, int) and not isinstance(made.id, bool) else made.id
    return Problem(
        id=position if given is None else _text(given, "id"),
        problem=_text(made.problem, made.names.get("problem", "problem")),
        answer=None if blank else _text(answer, made.names.get("answer", "answer")),
    )


def _text(value: object, field: str) -> str:
    if value is None:
        raise InputError("is missing, text is needed", field=field)
    if not isinstance(value, str):
        raise InputError(f"must be text, found {kind_of(value)}", field=field)
    if not value.strip():
        raise InputError("is empty", field=field)
    if len(value) > MAX_TEXT_CHARS:
        raise InputError(f"has {len(value):,} characters, more than the {MAX_TEXT_CHARS:,} that are read", field=field)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InputError("holds half of a surrogate pair, which is not Unicode text", field=field) from None
    return value
