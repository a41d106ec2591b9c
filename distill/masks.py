"""Rows of token ids in which only what a model must write is learnt.

A row is a string of asks: a context, whose ids are those that inference computes for that very prompt, and the text
that is learnt behind it. Asks share a row where the next context begins with all ids so far; where a tokenizer joins
the end of one stretch with what the host puts behind it, or a chat template rewrites past turns, a new row begins, so
that no learnt token ever stands behind ids that inference would not see. Knows ids and texts, no protocol and no files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

IGNORED = -100
"""The label of a token that is not learnt."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One place at which the model writes."""

    context: str
    """Everything before it, as inference renders it."""
    learn: str
    step: int | None = None
    """The step that is judged there."""
    label: str | None = None
    """The label that `learn` spells, where it is one."""


@dataclass(slots=True)
class Row:
    """One training row; `labels` are ids where they are learnt and `IGNORED` elsewhere."""

    input_ids: list[int] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    text: str = ""
    steps: list[int] = field(default_factory=list)
    """Steps whose labels are learnt."""
    verdicts: list[tuple[int, int, str]] = field(default_factory=list)
    """Start and end, in tokens, of each learnt label, and the label."""

    @property
    def learnt(self) -> int:
        """Tokens that are learnt."""
        return sum(label != IGNORED for label in self.labels)


@dataclass(frozen=True, slots=True)
class Tokens:
    """A tokenizer, as far as rows need one."""

    encode: Callable[[str], Sequence[int]]
    decode: Callable[[Sequence[int]], str]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A step, or None for what belongs to none, that is in no row."""

    step: int | None
    reason: str


@dataclass(slots=True)
class _Last:
    """The learnt stretch at the end of a row that is being built."""

    start: int
    text: str


def build_rows(asks: Sequence[Ask], tokens: Tokens, max_length: int) -> tuple[list[Row], list[Refusal]]:
    """Put asks into as few rows as exactness allows.

    Args:
        asks: in the order of the conversation.
        tokens: the student's.
        max_length: the most tokens in a row. Where one ask of a step would end beyond, all of that step's are refused:
            a critique is never learnt without its verdict.

    Returns:
        The rows, and what is in none of them, once for each step.
    """
    spelled = [_spell(ask, tokens, max_length) for ask in asks]
    refused = {ask.step: item for ask, item in zip(asks, spelled, strict=True) if isinstance(item, str)}
    rows: list[Row] = []
    row, last = Row(), _Last(0, "")
    for ask, item in zip(asks, spelled, strict=True):
        if ask.step in refused or isinstance(item, str):
            continue
        context, tail = item
        if not _extends(row, last, ask.context, context, tokens):
            if row.learnt:
                rows.append(row)
            row = Row(context, [IGNORED] * len(context), ask.context)
        last = _Last(len(context), ask.learn)
        row.input_ids = [*context, *tail]
        row.labels += tail
        row.text = ask.context + ask.learn
        if ask.label is not None:
            row.verdicts.append((last.start, len(row.input_ids), ask.label))
            if ask.step is not None:
                row.steps.append(ask.step)
    if row.learnt:
        rows.append(row)
    return rows, [Refusal(step, reason) for step, reason in refused.items()]


def _spell(ask: Ask, tokens: Tokens, max_length: int) -> tuple[list[int], list[int]] | str:
    """Ids of context and learnt text, or why they cannot be had."""
    context = list(tokens.encode(ask.context))
    tail = _tail(ask, context, tokens)
    if tail is None:
        return "the tokenizer does not give the text back"
    if not tail:
        return "nothing in it is learnt"
    return (context, tail) if len(context) + len(tail) <= max_length else "longer than max_length"


def _tail(ask: Ask, context: list[int], tokens: Tokens) -> list[int] | None:
    """Ids of the learnt text behind its context; None where no ids behind these spell it."""
    whole = list(tokens.encode(ask.context + ask.learn))
    tail = whole[len(context) :] if whole[: len(context)] == context else list(tokens.encode(ask.learn))
    return tail if _spelled(context, tail, tokens) == ask.learn else None


def _spelled(before: Sequence[int], ids: Sequence[int], tokens: Tokens) -> str | None:
    """The text that ids add behind others; alone, some tokenizers drop the space that they begin with."""
    anchor = list(before[-8:])
    start = tokens.decode(anchor)
    text = tokens.decode([*anchor, *ids])
    return text[len(start) :] if text.startswith(start) else None


def _extends(row: Row, last: _Last, text: str, ids: list[int], tokens: Tokens) -> bool:
    """Go on in a row with the host's text up to the next ask, if all that is learnt keeps its context.

    The last stretch's end may be joined with what follows it: such a token begins with the model's own text, and at
    inference the model that writes it is stopped at the same place.
    """
    if not row.input_ids or not text.startswith(row.text):
        return False
    length = len(row.input_ids)
    same = next((at for at, pair in enumerate(zip(row.input_ids, ids, strict=False)) if pair[0] != pair[1]), length)
    if same < last.start or len(ids) < last.start:
        return False
    end = min(same, length)
    if end < length:
        # Find where the model's text ends in the new ids.
        before = ids[: last.start]
        while end < len(ids) and len(_spelled(before, ids[last.start : end], tokens) or "") < len(last.text):
            end += 1
        if not (_spelled(before, ids[last.start : end], tokens) or "").startswith(last.text):
            return False
        if row.verdicts and row.verdicts[-1][0] >= last.start:
            # A label is one path of tokens; joined with its suffix it would be another.
            return False
    row.labels = [*row.labels[: last.start], *ids[last.start : end], *[IGNORED] * (len(ids) - end)]
    row.input_ids = ids
    return True
