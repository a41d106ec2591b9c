"""Chains of equalities in a step, `a = b = c`, found among its words.

Knows where an expression begins and ends in prose: units between numbers are dropped, operators in words are read,
other words end it. Knows no values. What stands directly before and after a chain is kept, for it may change the
meaning: in `half of 20 + 4 = 14` the left side is not `20 + 4` alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from .tokens import Token, names, tokenise

MAX_CHAINS = 100
"""Further chains of a step are not read."""
MAX_PARTS = 40

_NO_UNIT = names(
    "and or so then therefore thus hence if when since because where but which that this we i you he she it "
    "they gives give get gets got is are was were be equals equal has have had to by as than more less times plus "
    "minus choose sum product difference squared cubed mod modulo of also not yields makes make means leaves into"
)
_OPERATORS = {
    ("times",): "*",
    ("multiplied", "by"): "*",
    ("plus",): "+",
    ("minus",): "-",
    ("divided", "by"): "/",
    ("over",): "/",
}
_EQUALS = frozenset({("equals",), ("equal",), ("is", "equal", "to"), ("are", "equal", "to"), ("equals", "to")})
_ENDS = frozenset({"num", "sym", "close", "post", "bar"})
_BEGINS = frozenset({"num", "sym", "open", "cmd", "fn", "bar", "soft"})
_BREAKS = frozenset({"stop", "line", "dirt", "word"})


@dataclass(frozen=True, slots=True)
class Part:
    """One side of an equality: its tokens, and its place in the step."""

    tokens: tuple[Token, ...]
    start: int
    end: int
    relation: str
    """What stands before it: `=`, `is` for a word, `~` for "about", or nothing for the first."""
    units: tuple[str, ...] = ()
    """Words dropped between or after its numbers, in lower case."""
    worded: bool = False
    """Whether an operator was a word."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Sides that are said to be equal, and what stands around them."""

    parts: tuple[Part, ...]
    before: str
    """The word or sign before the first part; `?` if it was not understood; empty at the start of a line."""
    after: str
    """The same for what follows the last part."""


def chains(text: str) -> list[Chain]:
    """The chains of a step in order, each of two or more parts; a part without tokens was not understood."""
    items = _Reader(tokenise(text)).items
    found: list[Chain] = []
    last: list[_Item] = []
    segment: list[_Item] = []
    before = ""
    joined = False
    for item in [*items, _Item(Token("line", "", len(text), len(text)))]:
        if item.token.kind not in _BREAKS or item.glue:
            segment.append(item)
            continue
        relations = [at for at, each in enumerate(segment) if each.token.kind == "rel"]
        if relations:
            lead = last if joined and not _has_terms(segment[: relations[0]]) else None
            chain = _chain(segment, relations, lead, before, _mark(item, False))
            if chain is not None:
                found.append(chain)
                if len(found) >= MAX_CHAINS:
                    break
        if _has_terms(segment):
            last = segment[relations[-1] + 1 :] if relations else segment
            joined = True
        # A chain goes on in the next line; nothing but the line's end may stand between.
        joined = joined and item.token.kind == "line"
        before = _mark(item, True)
        segment = []
    return found


def open_end(text: str) -> tuple[Part, str] | None:
    """The expression with which a text ends, to which a next step `= ...` would belong, and what stands before it."""
    items = _Reader(tokenise(text.rstrip().rstrip(".,:;"))).items
    ends = [at for at, item in enumerate(items) if item.token.kind in _BREAKS and not item.glue]
    cut = ends[-1] if ends else -1
    segment = items[cut + 1 :]
    relation = max((at for at, item in enumerate(segment) if item.token.kind == "rel"), default=-1)
    part = _part(segment[relation + 1 :], "")
    before = _mark(items[cut], True) if relation < 0 and ends else ""
    return (part, before) if part.tokens else None


def _has_terms(items: Sequence[_Item]) -> bool:
    return any(item.token.kind not in ("soft", "note") for item in items)


@dataclass(frozen=True, slots=True)
class _Item:
    token: Token
    units: tuple[str, ...] = ()
    worded: bool = False
    glue: bool = False
    """A word that is part of the expression: `of`."""
    first: str = ""
    """Of a run of words that ends an expression: the first; the token has the last."""


def _mark(item: _Item, before: bool) -> str:
    kind = item.token.kind
    if kind == "dirt":
        return "?"
    if kind == "line":
        return ""
    return item.token.text if before or not item.first else item.first


def _chain(
    segment: list[_Item], relations: list[int], lead: list[_Item] | None, before: str, after: str
) -> Chain | None:
    bounds = [-1, *relations, len(segment)]
    pieces = [segment[low + 1 : high] for low, high in pairwise(bounds)]
    if lead is not None:
        pieces[0] = lead
    pieces[0], cut = _after_open_bracket(pieces[0])
    if cut == "sub":
        return None
    signs = ["", *(segment[at].token.text for at in relations)]
    parts = [_part(piece, sign) for piece, sign in zip(pieces[:MAX_PARTS], signs, strict=False)]
    if cut:
        before = cut
    return Chain(tuple(parts), before, after) if len(parts) > 1 else None


def _part(items: Sequence[_Item], relation: str) -> Part:
    tokens = tuple(item.token for item in items if item.token.kind != "note")
    while tokens and tokens[0].kind == "soft":
        tokens = tokens[1:]
    while tokens and tokens[-1].kind == "soft":
        tokens = tokens[:-1]
    units = tuple(unit for item in items for unit in item.units)
    start, end = (tokens[0].start, tokens[-1].end) if tokens else (0, 0)
    return Part(tokens, start, end, relation, units, any(item.worded for item in items))


def _after_open_bracket(items: list[_Item]) -> tuple[list[_Item], str]:
    """What follows the last bracket that is not closed, or closed without being opened; and what that was."""
    depth: list[int] = []
    cut = -1
    for at, item in enumerate(items):
        if item.token.kind == "open":
            depth.append(at)
        elif item.token.kind == "close":
            if depth:
                depth.pop()
            else:
                cut = at
    if depth:
        cut = max(cut, depth[-1])
    if cut < 0:
        return items, ""
    if cut and items[cut].token.kind == "open" and items[cut - 1].token.kind == "sub":
        return [], "sub"
    touching = cut > 0 and items[cut - 1].token.end == items[cut].token.start and items[cut - 1].token.kind != "soft"
    return items[cut + 1 :], "?" if items[cut].token.kind == "close" or touching else "("


class _Reader:
    """Turns words into units, operators or ends."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.items: list[_Item] = []
        self.commas = _inner_commas(tokens)
        at = 0
        while at < len(tokens):
            at = self.step(at)

    def step(self, at: int) -> int:
        token = self.tokens[at]
        if token.kind == "note":
            return at + 1
        if token.kind == "comma" and at not in self.commas:
            # "14, 400" may be one number.
            split = self.kind(at - 1) == self.kind(at + 1) == "num" and len(self.tokens[at + 1].text) == 3
            self.items.append(_Item(replace(token, kind="stop", text="?" if split else ",")))
            return at + 1
        if token.text == "/" and self.kind(at + 1) == "word" and self.kind(at - 1) in _ENDS:
            return self.words(at + 1)
        if token.kind == "word" or self.is_article(at):
            return self.words(at)
        self.items.append(_Item(token))
        return at + 1

    def is_article(self, at: int) -> bool:
        """Whether a letter is the word `a` or `I`."""
        token = self.tokens[at]
        if token.kind != "sym" or token.text not in ("a", "A", "I") or at + 1 >= len(self.tokens):
            return False
        nearby = self.tokens[at + 1]
        return nearby.kind in ("word", "num") and nearby.start > token.end

    def words(self, at: int) -> int:
        run, stop = self.run(at)
        previous = next((item for item in reversed(self.items) if item.token.kind != "soft"), None)
        operand = previous is not None and previous.token.kind in _ENDS
        following = self.tokens[stop] if stop < len(self.tokens) else None
        if operand and run[0] in ("percent", "pct"):
            token = self.tokens[at]
            self.items.append(_Item(Token("post", "%", token.start, token.end)))
            return at + 1
        begins = following is not None and (following.kind in _BEGINS or following.text == "-")
        if operand and run in _EQUALS and begins:
            self.items.append(_Item(Token("rel", "is", self.tokens[at].start, self.tokens[stop - 1].end)))
            return stop
        if operand and begins:
            token = self.tokens[at]
            # A unit may stand before: "3 boxes times 4".
            for phrase, sign in _OPERATORS.items():
                if run[-len(phrase) :] == phrase and self.is_unit(run[: -len(phrase)]):
                    self.items.append(_Item(Token("op", sign, token.start, token.end), run[: -len(phrase)], True))
                    return stop
            if run == ("of",) and self.is_share():
                self.items.append(_Item(token, glue=True))
                return stop
            if run[-1] == "x" and self.is_unit(run[:-1]):
                self.items.append(_Item(Token("op", "*", token.start, token.end), run[:-1]))
                return stop
        if operand and run and self.is_unit(run) and following is not None and self.goes_on(stop):
            self.items[-1] = replace(self.items[-1], units=(*self.items[-1].units, *run))
            return stop
        if operand and run:
            self.items[-1] = replace(self.items[-1], units=(*self.items[-1].units, *run[:3]))
        self.items.append(_Item(replace(self.tokens[stop - 1], kind="stop", text=run[-1]), first=run[0]))
        return stop

    def run(self, at: int) -> tuple[tuple[str, ...], int]:
        """Words that follow each other, with `/` between units and powers of units."""
        words: list[str] = []
        while at < len(self.tokens):
            token = self.tokens[at]
            if token.kind == "word" or self.is_article(at):
                words.append(token.text.lower())
                at += 1
            elif token.text == "x" and token.kind == "sym" and words and self.kind(at + 1) in ("num", "soft"):
                words.append("x")
                at += 1
            elif token.text == "/" and self.kind(at + 1) == "word":
                at += 1
            elif token.text == "^" and self.kind(at + 1) == "num" and self.tokens[at - 1].end == token.start:
                at += 2
            else:
                break
        return tuple(words), at

    def kind(self, at: int) -> str:
        return self.tokens[at].kind if at < len(self.tokens) else ""

    def is_unit(self, run: tuple[str, ...]) -> bool:
        return len(run) <= 8 and not any(word in _NO_UNIT for word in run if word != "of") and run[-1:] != ("of",)

    def is_share(self) -> bool:
        """Whether what precedes `of` is a percentage or a fraction."""
        last = [item.token for item in self.items[-3:]]
        if last[-1].kind == "post":
            return last[-1].text == "%"
        if len(last) == 3 and last[1].text == "/" and last[0].kind == last[2].kind == "num":
            return True
        if last[-1].kind == "num" and last[-1].value is not None and last[-1].value < 1:
            return True
        return last[-1].text == "}"

    def goes_on(self, at: int) -> bool:
        """Whether an operator with its operand, or an equality sign, follows."""
        while self.kind(at) in ("soft", "close", "note"):
            at += 1
        if self.kind(at) == "rel":
            return True
        if self.kind(at) != "op":
            return False
        at += 1
        while self.kind(at) in ("soft", "note"):
            at += 1
        return self.kind(at) in ("num", "open", "cmd", "fn", "sym")


def _inner_commas(tokens: list[Token]) -> set[int]:
    """Commas between brackets that close with no word or line's end between."""
    inner: set[int] = set()
    opened: list[list[int]] = []
    for at, token in enumerate(tokens):
        if token.kind == "open":
            opened.append([])
        elif token.kind == "comma" and opened:
            opened[-1].append(at)
        elif token.kind == "close" and opened:
            inner.update(opened.pop())
        elif token.kind in ("word", "line", "rel"):
            opened.clear()
    return inner
