"""The problems that go in: JSON, JSON Lines and Parquet files, data sets of the hub, and files of the package.

A row may hold a problem alone, a worked solution in GSM8K form (`answer` with lines and a last `#### 24`), or steps, in
any format that `genprm verify` reads. What is made of them, the stages know.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..formats import FORMATS, Format, draft, recognise
from ..jsonrows import json_rows
from ..models import offline
from ..records import Rejected, parse_record
from ..types import Solution
from .store import sha256_file

SHIPPED = "shipped:"
_HUB = re.compile(r"[\w.-]+/[\w.-]+(:[\w.-]+)?")
_FILE = re.compile(r"\.(json|jsonl|ndjson|parquet)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Input:
    """One problem, with what its row knows of a solution."""

    id: str
    """The row's own, else `STEM:POSITION`; unique over all inputs."""
    problem: str
    answer: str | None = None
    """Reference final answer."""
    worked: str | None = None
    """A worked solution as it stands, with calculator annotations where it has them."""
    solution: Solution | None = None
    """Where the row holds steps."""
    meta: dict[str, Any] = field(default_factory=dict)


def read_inputs(
    names: Sequence[str],
    *,
    format: str = "auto",
    split: str = "train",
    limit: int | None = None,
    unique: bool = True,
) -> Iterator[Input | Rejected]:
    """Read all inputs one after another, a row at a time.

    Args:
        names: paths, `shipped:NAME`, or hub ids `OWNER/NAME` or `OWNER/NAME:CONFIG`.
        format: of rows with steps; see `genprm.formats`.
        split: of hub data sets.
        limit: stop after so many usable rows.
        unique: refuse a row whose id was used before.

    Yields:
        An `Input`, or a `Rejected` in its place.

    Raises:
        InputError: an input is missing or cannot be read at all, or the format is unknown.
    """
    if format not in FORMATS:
        raise InputError(f"unknown format {format!r}: choose one of {', '.join(FORMATS)}")
    seen: dict[str, str] = {}
    left = limit
    for name in names:
        if left == 0:
            return
        for line, place, value, fault in _rows(name, split):
            try:
                if fault is not None:
                    raise InputError(fault)
                item = parse_input(value, default_id=f"{_stem(name)}:{place}", format=format)
                if unique and item.id in seen:
                    raise InputError(f"{item.id!r} is used before, in {seen[item.id]}", field="id")
            except InputError as error:
                raw = json.dumps(value, ensure_ascii=True, default=str)
                yield Rejected(name, line, error.field, error.message, raw)
                continue
            seen[item.id] = name
            yield item
            left = None if left is None else left - 1
            if left == 0:
                return


def parse_input(row: object, *, default_id: str, format: Format = "auto") -> Input:
    """Check one decoded row.

    Raises:
        InputError: it has no problem, or what it has is wrongly typed.
    """
    if not isinstance(row, dict):
        raise InputError("a row must be an object")
    if format not in ("auto", "genprm") or _has_steps(row):
        solution = parse_record(row, default_id=default_id, format=format)
        return Input(solution.id, solution.problem, solution.answer, None, solution, solution.meta)
    # A row without steps passes the same checks with a step that is thrown away.
    checked = parse_record({**row, "steps": ["-"], "label": None}, default_id=default_id, format="genprm")
    worked, answer = None, checked.answer
    if answer is not None and "####" in answer:
        worked, answer = answer, answer.rpartition("####")[2].strip() or None
    return Input(checked.id, checked.problem, answer, worked, None, checked.meta)


def input_digest(name: str, split: str = "train") -> str:
    """sha256 of a file's bytes, or of a hub data set's rows.

    Raises:
        InputError, UsageError: it cannot be read.
    """
    if name.startswith(SHIPPED) or Path(name).exists() or not _is_hub(name):
        return sha256_file(input_path(name))
    digest = hashlib.sha256()
    for row in _hub_rows(name, split):
        digest.update(json.dumps(row, sort_keys=True, default=str).encode("utf-8", "backslashreplace") + b"\n")
    return digest.hexdigest()


def input_path(name: str) -> Path:
    """The file that a path or `shipped:NAME` means.

    Raises:
        InputError: there is none.
    """
    if not name.startswith(SHIPPED):
        path = Path(name).expanduser()
    else:
        folder = Path(str(resources.files("genprm.distill") / "data"))
        path = folder / f"{name.removeprefix(SHIPPED)}.json"
        if not path.exists():
            known = ", ".join(sorted(SHIPPED + file.stem for file in folder.glob("*.json")))
            raise InputError(f"there is no such file in the package: it has {known}", file=name)
    if not path.exists():
        raise InputError("there is no such file", file=name)
    if path.is_dir():
        raise InputError("is a folder: give the files in it", file=name)
    return path


def _has_steps(row: dict[str, Any]) -> bool:
    if recognise(row) != "genprm":
        return True
    made = draft(row, "genprm")
    return made.steps is not None or made.solution is not None


def _rows(name: str, split: str) -> Iterator[tuple[int | None, int, Any, str | None]]:
    """Line, position, value and fault of each row."""
    if _is_hub(name) and not Path(name).exists():
        for place, value in enumerate(_hub_rows(name, split)):
            yield None, place, value, None
        return
    path = input_path(name)
    if path.suffix.lower() == ".parquet":
        for place, value in enumerate(_parquet_rows(path, name)):
            yield None, place, value, None
        return
    try:
        with path.open("rb") as stream:
            for place, row in enumerate(json_rows(stream, name)):
                yield row.line, place, row.value if row.fault is None else row.raw, row.fault
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", file=name) from None


def _parquet_rows(path: Path, name: str) -> Iterator[dict[str, Any]]:
    import pyarrow.lib
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches():
                yield from batch.to_pylist()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", file=name) from None
    except pyarrow.lib.ArrowException as error:
        message = f"is no Parquet file that can be read: {' '.join(str(error).split())}"
        raise InputError(message, file=name) from None


def _is_hub(name: str) -> bool:
    return not name.startswith(SHIPPED) and not _FILE.search(name) and _HUB.fullmatch(name) is not None


def _hub_rows(name: str, split: str) -> Iterator[dict[str, Any]]:
    if offline():
        raise InputError("is no file here, and GENPRM_OFFLINE forbids to fetch a data set", file=name)
    from datasets import load_dataset

    owner, _, part = name.partition(":")
    try:
        rows = load_dataset(owner, part or None, split=split)
    except Exception as error:  # the library raises many kinds, of several other libraries
        message = f"is no file, and no data set of the hub that can be had: {' '.join(str(error).split())[:300]}"
        raise InputError(message, file=name) from None
    for row in rows:
        yield dict(row)


def _stem(name: str) -> str:
    return name.removeprefix(SHIPPED) if name.startswith(SHIPPED) else Path(name.replace(":", "-")).stem
