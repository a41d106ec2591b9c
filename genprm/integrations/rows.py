"""Training rows as they stand in their files, each beside the solution that it holds.

Knows JSON, JSON Lines and Parquet, told apart by a file's ending; what a record is, records.py knows. Fields that
genprm does not read stay in the row, so that what is written differs from what was read by added fields only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ..errors import InputError, UsageError
from ..formats import FORMATS, Format
from ..jsonrows import json_rows
from ..records import Rejected, parse_record, read_files
from ..types import Solution

if TYPE_CHECKING:
    from datasets import Dataset, Features

PARQUET = ".parquet"
ADDED_TYPES = {"genprm_reward": "float64", "genprm_first_error": "int64", "genprm_rank": "int64", "weight": "float64"}


@dataclass(frozen=True, slots=True)
class TrainingRow:
    """One usable row."""

    raw: dict[str, Any]
    """As it stands in the file."""
    solution: Solution


def read_training_rows(
    paths: Sequence[str], format: Format = "auto", limit: int | None = None
) -> Iterator[TrainingRow | Rejected]:
    """Read files one after another, a row at a time; rows without an `id` are named as `read_solutions` names them.

    Args:
        paths: JSON, JSON Lines or Parquet files.
        format: of the rows.
        limit: stop after so many rows, rejected ones counted, over all files together.

    Raises:
        UsageError: standard input is among them.
        InputError: a file cannot be used at all.
    """
    if "-" in paths:
        raise UsageError("training rows are read from files, not from standard input")
    if format not in FORMATS:
        raise InputError(f"unknown format {format!r}: choose one of {', '.join(FORMATS)}")
    repeated = next((path for place, path in enumerate(paths) if path in paths[:place]), None)
    if repeated is not None:
        raise InputError("is given twice", file=repeated)
    # One reader for all of them, so that ids are unique over the files.
    items = read_files([path for path in paths if not is_parquet(path)], format)
    seen: dict[str, str] = {}
    left = limit
    for path in paths:
        rows = _parquet_rows(path, format, len(paths) > 1) if is_parquet(path) else _json_rows(path, items)
        for item in rows if left != 0 else ():
            if isinstance(item, TrainingRow) and seen.setdefault(item.solution.id, path) != path:
                name = item.solution.id
                yield Rejected(path, None, "id", f"{name!r} is used before, in {seen[name]}", _text(item.raw))
            else:
                yield item
            left = None if left is None else left - 1
            if left == 0:
                return


def write_training_rows(path: Path, rows: Iterable[dict[str, Any]], sources: Sequence[str] = ()) -> int:
    """Write rows so that a reader sees the old file or the new one; returns how many.

    Args:
        path: ends in `.parquet`, or in `.json` for one list; everything else is JSON Lines.
        rows: what to write.
        sources: the files that the rows come from; where all are Parquet of one schema, so is the output.

    Raises:
        UsageError: the file cannot be written, or cannot hold what is in a row.
    """
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if is_parquet(path):
            count = _write_parquet(part, list(rows), sources, path)
        else:
            count = _write_json(part, rows, path, as_list=path.suffix.lower() == ".json")
        part.replace(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from None
    finally:
        part.unlink(missing_ok=True)
    return count


def is_parquet(path: str | Path) -> bool:
    """True for a file that its name calls Parquet."""
    return str(path).lower().endswith(PARQUET)


def _json_rows(path: str, items: Iterator[tuple[str, Solution | Rejected]]) -> Iterator[TrainingRow | Rejected]:
    """The raw rows beside what the reader of all files makes of them."""
    with Path(path).open("rb") as stream:
        # The raw row is asked for first: behind the last one the reader must not go on to the next file.
        for raw, (_, item) in zip(json_rows(stream, path), items, strict=False):
            yield item if isinstance(item, Rejected) else TrainingRow(raw.value, item)


def _parquet_rows(path: str, format: Format, several: bool) -> Iterator[TrainingRow | Rejected]:
    prefix = f"{path}:" if several else ""
    ids: set[str] = set()
    for position, value in enumerate(_dataset(path)):
        raw = cast("dict[str, Any]", value)
        try:
            solution = parse_record(raw, default_id=f"{prefix}{position}", format=format)
            if solution.id in ids:
                raise InputError(f"{solution.id!r} is used before", field="id")
        except InputError as error:
            field = f"[{position}].{error.field}" if error.field else f"[{position}]"
            yield Rejected(path, None, field, error.message, _text(raw))
        else:
            ids.add(solution.id)
            yield TrainingRow(raw, solution)


def _dataset(path: str) -> Dataset:
    import pyarrow.lib
    import pyarrow.parquet
    from datasets import Dataset

    try:
        # Read here and not by `Dataset.from_parquet`, which leaves a copy in a cache folder.
        return Dataset(pyarrow.parquet.read_table(path))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", file=path) from None
    except pyarrow.lib.ArrowException as error:
        raise InputError(f"is no Parquet file that can be read: {_line(error)}", file=path) from None


def _write_parquet(part: Path, rows: list[dict[str, Any]], sources: Sequence[str], path: Path) -> int:
    import pyarrow.lib
    from datasets import Dataset

    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: [row.get(name) for row in rows] for name in names}
    try:
        Dataset.from_dict(columns, features=_features(sources, names)).to_parquet(str(part))
    except (pyarrow.lib.ArrowException, TypeError, ValueError) as error:
        raise UsageError(f"{path}: Parquet cannot hold these rows: {_line(error)}") from None
    return len(rows)


def _features(sources: Sequence[str], names: Sequence[str]) -> Features | None:
    """The sources' column types with those of added columns; None = to be inferred from the values."""
    from datasets import Features, List, Value

    if not sources or not all(is_parquet(source) for source in sources):
        return None
    first, *others = [_dataset(source).features for source in sources]
    added = {name: Value(ADDED_TYPES[name]) for name in names if name in ADDED_TYPES}
    known: dict[str, Any] = {**first, **added, "genprm_step_rewards": List(Value("float64"))}
    if any(other != first for other in others) or not set(names) <= set(known):
        return None
    return Features({name: known[name] for name in names})


def _write_json(part: Path, rows: Iterable[dict[str, Any]], path: Path, *, as_list: bool) -> int:
    count = 0
    with part.open("w", encoding="utf-8", errors="backslashreplace") as file:
        for row in rows:
            try:
                line = json.dumps(row, ensure_ascii=False)
            except TypeError as error:
                raise UsageError(f"{path}: JSON cannot hold these rows: {_line(error)}") from None
            file.write((("[\n" if count == 0 else ",\n") + line) if as_list else line + "\n")
            count += 1
        if as_list:
            file.write("\n]\n" if count else "[]\n")
    return count


def _text(raw: dict[str, Any]) -> str:
    return json.dumps(raw, ensure_ascii=False, default=str)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
