"""From the bytes of a JSON or JSON Lines file to decoded rows, each with its place in the file.

Knows JSON and encodings; knows nothing about what a row should hold. JSON Lines are streamed; a JSON document (an
object, or a list of them) is read whole. The content tells the two apart:

- A first line that is a whole JSON value, followed by others, begins JSON Lines; alone, it is a document.
- A first line that could go on begins a document, unless the second line is a whole object: then it is a bad row.
- Otherwise the first line is a bad row if the second line, or a name ending in `.jsonl` or `.ndjson`, says JSON Lines.

Stricter than Python's own reader: `NaN` and infinite numbers are refused, because JSON has none.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, BinaryIO, NoReturn

from .errors import InputError

MAX_ROW_BYTES = 64 * 2**20
"""The longest line of a JSON Lines file."""

_BOM = b"\xef\xbb\xbf"
_SPACE = re.compile(r"[ \t\r\n]*")


@dataclass(frozen=True)
class JsonRow:
    """One row: a decoded value, or the reason why there is none."""

    line: int
    """Where the row begins, 1-based."""
    place: str
    """`[3]` for an element of a list, else empty."""
    raw: str
    """The row as it stands in the file; bytes that are no UTF-8 appear as backslash escapes."""
    value: Any = None
    fault: str | None = None


def json_rows(stream: BinaryIO, file: str) -> Iterator[JsonRow]:
    """Decode the rows of an open file one after another.

    Args:
        stream: Need not be seekable.
        file: The name, for errors; its ending decides only where the content does not.

    Raises:
        InputError: The file is empty, holds an empty list, or is a document that is no JSON.
        OSError: The stream cannot be read.
    """
    lines = _lines(stream)
    head: list[tuple[int, bytes]] = []
    filled: list[tuple[int, bytes]] = []
    for line in lines:
        head.append(line)
        if line[1].strip():
            filled.append(line)
        # A list written on one line may be longer than any row: it must not be skipped as one.
        if len(filled) == 2 or (len(line[1]) > MAX_ROW_BYTES and line[1].lstrip()[:1] == b"["):
            break
    if not filled:
        raise InputError("is empty", file=file)
    if _is_document([data for _, data in filled], file):
        yield from _document(b"".join(data for _, data in head) + stream.read(), file)
        return
    for number, data in chain(filled, lines):
        if data.strip():
            yield _row(number, data)


def decode_json(data: bytes) -> Any:
    """The value of one JSON text.

    Raises:
        InputError: it is no JSON, or no UTF-8.
    """
    try:
        return _DECODER.decode(data.removeprefix(_BOM).decode())
    except (ValueError, RecursionError) as error:
        raise InputError(_fault(error)) from None


def _lines(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Numbered lines; of one that is too long only the beginning, one byte longer than allowed."""
    number = 0
    while data := stream.readline(MAX_ROW_BYTES + 1):
        number += 1
        yield number, data.removeprefix(_BOM) if number == 1 else data
        while len(data) > MAX_ROW_BYTES and not data.endswith(b"\n"):
            data = stream.readline(MAX_ROW_BYTES + 1)


def _is_document(filled: list[bytes], file: str) -> bool:
    first = filled[0].strip()
    if first.startswith(b"[") and len(first) > MAX_ROW_BYTES:
        return True
    if len(filled) == 1:
        return len(first) <= MAX_ROW_BYTES
    value, goes_on = _look(first)
    if value is not _NOTHING:
        return False
    if first.startswith(b"["):
        return True
    if isinstance(_look(filled[1])[0], dict):
        return False
    return (goes_on and first.startswith(b"{")) or not file.lower().endswith((".jsonl", ".ndjson"))


def _look(data: bytes) -> tuple[Any, bool]:
    """The value of one line, or `_NOTHING` and whether more text could have completed it."""
    text = data.decode("utf-8", "replace").strip()
    try:
        return _DECODER.decode(text), False
    except json.JSONDecodeError as error:
        return _NOTHING, error.pos >= len(text)
    except (ValueError, RecursionError):
        return _NOTHING, False


def _row(number: int, data: bytes) -> JsonRow:
    if len(data) > MAX_ROW_BYTES and not data.endswith(b"\n"):
        raw = data[:1000].decode("utf-8", "backslashreplace")
        return JsonRow(number, "", raw, fault=f"is longer than the {MAX_ROW_BYTES:,} bytes that a row may have")
    try:
        text = data.decode().strip()
    except UnicodeDecodeError as error:
        return JsonRow(number, "", data.decode("utf-8", "backslashreplace").strip(), fault=_fault(error))
    try:
        return JsonRow(number, "", text, _DECODER.decode(text))
    except (ValueError, RecursionError) as error:
        return JsonRow(number, "", text, fault=_fault(error))


def _document(data: bytes, file: str) -> Iterator[JsonRow]:
    line: int | None = None
    try:
        text = data.decode()
        spans, is_list = _spans(text)
    except (ValueError, RecursionError) as error:
        if isinstance(error, UnicodeDecodeError):
            line = data.count(b"\n", 0, error.start) + 1
        elif isinstance(error, json.JSONDecodeError):
            line = error.lineno
        raise InputError(_fault(error), file=file, line=line) from None
    if not spans:
        raise InputError("holds an empty list", file=file)
    if not is_list and not isinstance(spans[0][2], dict):
        raise InputError("must hold an object or a list of objects", file=file)
    line, counted = 1, 0
    for index, (start, end, value) in enumerate(spans):
        line += text.count("\n", counted, start)
        counted = start
        yield JsonRow(line, f"[{index}]" if is_list else "", text[start:end], value)


def _spans(text: str) -> tuple[list[tuple[int, int, Any]], bool]:
    """The whole document is decoded before its first row is used: a broken one must not be judged half way."""
    position = _skip(text, 0)
    is_list = text.startswith("[", position)
    spans: list[tuple[int, int, Any]] = []
    if is_list:
        position = _skip(text, position + 1)
        while spans or not text.startswith("]", position):
            value, end = _DECODER.raw_decode(text, position)
            spans.append((position, end, value))
            position = _skip(text, end)
            if text.startswith("]", position):
                break
            if not text.startswith(",", position):
                raise json.JSONDecodeError("Expecting ',' or ']'", text, position)
            position = _skip(text, position + 1)
        position += 1
    else:
        value, end = _DECODER.raw_decode(text, position)
        spans.append((position, end, value))
        position = end
    if _skip(text, position) < len(text):
        raise json.JSONDecodeError("Extra data", text, _skip(text, position))
    return spans, is_list


def _skip(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


class _RefusedError(ValueError):
    """What Python's reader would let through."""


def _constant(name: str) -> NoReturn:
    raise _RefusedError(f"{name} is not a JSON value: write null")


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _RefusedError(f"the number {text[:20]} is too large")
    return value


def _fault(error: ValueError | RecursionError) -> str:
    if isinstance(error, RecursionError):
        return "is nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return f"invalid UTF-8: byte 0x{error.object[error.start]:02x} at offset {error.start}"
    if isinstance(error, json.JSONDecodeError):
        return f"is not JSON: {error.msg} at column {error.colno}"
    if isinstance(error, _RefusedError):
        return f"is not JSON: {error}"
    return "holds a whole number of too many digits"


_NOTHING = object()
_DECODER = json.JSONDecoder(parse_constant=_constant, parse_float=_number)
