"""What a page holds of one judged solution: all of it, to be opened, and a small entry for the list.

Knows the result's fields and what a browser's JSON can carry; knows nothing about pages and files.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from ..text import shorten
from ..types import FailedVote, VerificationResult, Vote

SEARCHED = 400
"""Characters of a problem that stand in the list and are searched."""
EXACT_INT = 2**53
"""The largest whole number that a browser reads without loss."""


def full_row(result: VerificationResult, extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The whole result; a critique is split into `[text, inserted by the host]` pairs.

    Args:
        result: the judged solution.
        extra: what the caller knows besides, shown as pairs of name and value.
    """
    row = result.model_dump()
    for dumped, step in zip(row["steps"], result.steps, strict=True):
        for kind in ("votes", "failed_votes"):
            for ballot, source in zip(dumped[kind], getattr(step, kind), strict=True):
                ballot["critique"] = _pieces(source)
    row["extra"] = dict(extra or {})
    return row


def list_entry(result: VerificationResult, extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What the list shows, filters, searches and sorts by."""
    return {
        "id": result.id,
        "problem": shorten(result.problem, SEARCHED),
        "first": result.first_error,
        "label": result.label,
        "match": None if result.label is None else result.first_error == result.label,
        "reward": _rounded(result.reward),
        "steps": [_rounded(step.reward) for step in result.steps],
        "verdicts": "".join(step.verdict[0] for step in result.steps),
        "group": str((extra or {}).get("group", "")),
    }


def to_json(value: object) -> str:
    """JSON that is safe inside a script element and that every browser reads: ASCII, without `<`, `>` and `&`.

    Lone surrogates stay what they are, as escapes. Numbers that JSON or a browser cannot hold become text.
    """
    text = json.dumps(_plain(value), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _pieces(ballot: Vote | FailedVote) -> list[tuple[str, bool]]:
    written = ballot.written if isinstance(ballot, Vote) else None
    return list(_split(ballot.critique, ((0, len(ballot.critique)),) if written is None else written))


def _split(text: str, written: Iterable[tuple[int, int]]) -> Iterable[tuple[str, bool]]:
    done = 0
    for start, end in written:
        if start > done:
            yield text[done:start], True
        if end > start:
            yield text[start:end], False
        done = end
    if done < len(text):
        yield text[done:], True


def _rounded(reward: float | None) -> float | None:
    return None if reward is None or not math.isfinite(reward) else round(reward, 3)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return value if abs(value) <= EXACT_INT else str(value)
    return str(value)
