"""Where rows lie: a local file or an address that fsspec knows (`s3://…`, `gs://…`), as JSON or as Parquet.

Knows how to open and to tell apart; knows nothing about what a row should hold.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from .errors import InputError
from .jsonrows import JsonRow, json_rows

PARQUET = ".parquet"
_BATCH = 256  # rows decoded at once


def is_remote(name: str) -> bool:
    """True for an address with a scheme, such as `s3://bucket/rows.jsonl`."""
    return "://" in name


def open_input(name: str) -> BinaryIO:
    """A readable stream of a local file or an address.

    Raises:
        InputError: the scheme is unknown, or a library for it is missing.
        OSError: it cannot be read.
    """
    if not is_remote(name):
        return Path(name).open("rb")
    import fsspec

    try:
        return cast("BinaryIO", fsspec.open(name, "rb").open())
    except (ValueError, ImportError) as error:
        raise InputError(f"cannot be read: {' '.join(str(error).split())}", file=name) from None


def rows_of(stream: BinaryIO, file: str) -> Iterator[JsonRow]:
    """Rows of an open file, Parquet where its name ends so, else JSON.

    Raises:
        InputError: it is empty, or no such file.
        OSError: it cannot be read.
    """
    return _parquet_rows(stream, file) if file.lower().endswith(PARQUET) else json_rows(stream, file)


def _parquet_rows(stream: BinaryIO, file: str) -> Iterator[JsonRow]:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.ParquetFile(stream)
        if not table.metadata.num_rows:
            raise InputError("is empty", file=file)
        line = 0
        for batch in table.iter_batches(batch_size=_BATCH):
            for value in batch.to_pylist():
                line += 1
                yield JsonRow(line, "", json.dumps(value, ensure_ascii=False, default=str), _without_nulls(value))
    except pyarrow.ArrowInvalid as error:
        raise InputError(f"is no Parquet file: {' '.join(str(error).split())[:200]}", file=file) from None


def _without_nulls(row: dict[str, Any]) -> dict[str, Any]:
    """Columns that this row leaves empty: a table has one set of columns for rows of several formats."""
    return {key: value for key, value in row.items() if value is not None}
