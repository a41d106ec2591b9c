"""Reading values: from what people and LaTeX write, from Python objects and from sympy's own spelling.

Knows how values are written; values.py compares them. No text is ever run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

from ..text import shorten
from .arithmetic import NoValue, evaluate, real
from .expressions import parse_start
from .tokens import Token, tokenise
from .trees import Node, render
from .values import Kind, Value

MAX_CHARS = 500
"""Longer texts are not read as mathematics."""
MAX_TEXT = 80
MAX_ITEMS = 50
MAX_DIGITS = 150
"""Longer exact forms are dropped."""

_UP_TO_TWENTY = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty"
)
NUMBER_WORDS = {word: number for number, word in enumerate(_UP_TO_TWENTY.split())}
_UNITS = {
    "hour": "hour", "hours": "hour", "hr": "hour", "hrs": "hour", "minute": "minute", "minutes": "minute",
    "min": "minute", "mins": "minute", "second": "second", "seconds": "second", "sec": "second", "secs": "second",
    "dollar": "dollar", "dollars": "dollar", "usd": "dollar", "cent": "cent", "cents": "cent", "percent": "percent",
}  # fmt: skip
_NAMED = re.compile(r"(?:(?:[A-Za-z]\w{0,20}|\\[a-z]+)(?:_\{?\w+\}?)?(?:\([^()=]{0,20}\))?\s*(?:=|\\in\b|∈)\s*)+")
_MADE = re.compile(r"(Interval(?:\.\w+)?|FiniteSet|Point2D|Point|Tuple)\((.*)\)", re.DOTALL)
_WRAPPED = re.compile(r"\$\$(.*)\$\$|\$(.*)\$|\\\((.*)\\\)|\\\[(.*)\\\]|\*\*(.*)\*\*|\\boxed\s*\{(.*)\}", re.DOTALL)
_NOT_FINITE = re.compile(r"[+-]?(?:inf|infinity|nan)", re.IGNORECASE)
_SCIENTIFIC = re.compile(r"([+-]?\d{1,40}(?:\.\d{0,40})?)[eE]([+-]?\d{1,3})")
_BRACKETS = frozenset({"()", "[]", "{}", "[)", "(]"})


def value_of(item: object) -> Value:
    """The value that a Python object is: a number, text, a collection, or whatever its `str` says.

    Infinities and NaN are of the kind `number` and have no number; they are the same as nothing.
    """
    if isinstance(item, Value):
        return item
    if isinstance(item, bool):
        return Value(kind="boolean", text=str(item), exact=str(item))
    if isinstance(item, int):
        return _rational(Fraction(item), _digits(Fraction(item)))
    if isinstance(item, Fraction):
        return _rational(item, _digits(item))
    if isinstance(item, float | Decimal):
        if not math.isfinite(item):
            return Value(kind="number", text=str(item))
        if isinstance(item, Decimal) and abs(item.adjusted()) > 1000:
            return Value(kind="number", text=shorten(str(item), MAX_TEXT))
        return _rational(Fraction(str(item)), shorten(str(item), MAX_TEXT))
    if isinstance(item, complex):
        if item.imag == 0:
            return value_of(item.real)
        finite = math.isfinite(item.real) and math.isfinite(item.imag)
        text = f"{item.real:g} + {item.imag:g}*i" if finite else None
        return Value(kind="expression", text=str(item), exact=text)
    if isinstance(item, list | tuple | set | frozenset):
        kind: Kind = "tuple" if isinstance(item, list | tuple) else "set"
        if len(item) > MAX_ITEMS:
            return Value(kind="text", text=f"{type(item).__name__} of {len(item)} elements")
        return _collection(kind, [value_of(each) for each in item], None)
    return read_value(item if isinstance(item, str) else _described(item))


def read_value(text: str) -> Value:
    """The value that a text says; of the kind `text` where it is no mathematics. Never raises."""
    shown = shorten(text, MAX_TEXT)
    if len(text) > MAX_CHARS:
        return Value(kind="text", text=shown)
    bare = _unwrap(text)
    word = bare.lower()
    if word in ("true", "false"):
        return Value(kind="boolean", text=shown, exact=word.capitalize())
    if _NOT_FINITE.fullmatch(bare):
        return Value(kind="number", text=shown)
    if scientific := _SCIENTIFIC.fullmatch(bare):
        return _rational(Fraction(scientific[1]) * Fraction(10) ** int(scientific[2]), shown)
    if word in NUMBER_WORDS:
        return _rational(Fraction(NUMBER_WORDS[word]), shown)
    if made := _MADE.fullmatch(bare):
        return _made(made[1], made[2], shown)
    if named := _NAMED.match(bare):
        bare = bare[named.end() :].strip()
    tokens = tokenise(bare)
    if tokens and (found := _bracketed(bare, tokens, shown) or _expression(bare, tokens, shown)):
        return found
    return Value(kind="text", text=shown)


def _described(item: object) -> str:
    try:
        return str(item)
    except Exception:  # an object of a program's own may do anything
        return f"an object of type {type(item).__name__}"


def _digits(value: Fraction) -> str:
    return "a long number" if _too_long(value) else shorten(str(value), MAX_TEXT)


def _too_long(value: Fraction) -> bool:
    # The digits of a huge integer are not to be worked out only to be dropped.
    return max(value.numerator.bit_length(), value.denominator.bit_length()) > 3.3 * MAX_DIGITS


def _rational(value: Fraction, text: str, unit: str | None = None) -> Value:
    try:
        number: float | None = float(value)
    except OverflowError:
        number = None
    return Value(kind="number", text=text, number=number, exact=None if _too_long(value) else str(value), unit=unit)


def _collection(kind: Kind, items: Sequence[Value], text: str | None, brackets: str = "") -> Value:
    brackets = brackets or {"tuple": "()", "set": "{}"}.get(kind, "[]")
    opening, closing = brackets[0], brackets[1]
    exact = None
    if all(item.exact is not None for item in items):
        exact = opening + ", ".join(str(item.exact) for item in items) + closing
        exact = exact if len(exact) <= MAX_CHARS else None
    shown = shorten(text or opening + ", ".join(item.text for item in items) + closing, MAX_TEXT)
    return Value(kind=kind, text=shown, exact=exact, items=tuple(items))


def _unwrap(text: str) -> str:
    before = None
    while text != before:
        before = text
        text = text.strip().rstrip(".;,").strip()
        if wrapped := _WRAPPED.fullmatch(text):
            inner = next(filter(None, wrapped.groups()), "")
            balanced = inner.count("{") == inner.count("}") and inner.find("}") >= inner.find("{")
            if "$" not in inner.replace("\\$", "") and balanced:
                text = inner
    return text


def _made(name: str, inside: str, shown: str) -> Value:
    """Sympy's own spelling of sets, intervals and points."""
    items = [read_value(part) for part in _split(inside)]
    if name.startswith("Interval") and len(items) in (2, 4):
        flags = {"Interval": "[]", "Interval.open": "()", "Interval.Lopen": "(]", "Interval.Ropen": "[)"}
        brackets = flags.get(name, "[]")
        if len(items) == 4:
            brackets = "[("[items[2].exact == "True"] + "])"[items[3].exact == "True"]
        return _collection("interval", items[:2], shown, brackets)
    return _collection("set" if name == "FiniteSet" else "tuple", items, shown)


def _split(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]


def _bracketed(text: str, tokens: list[Token], shown: str) -> Value | None:
    """A tuple, a set, an interval, or elements without brackets."""
    depth = 0
    cuts: list[int] = []
    closes_at = -1
    for at, token in enumerate(tokens):
        if token.kind == "open":
            depth += 1
        elif token.kind == "close":
            depth -= 1
            if depth == 0 and closes_at < 0:
                closes_at = at
        elif token.kind == "comma" and depth <= 1:
            cuts.append(at)
    enclosed = tokens[0].kind == "open" and closes_at == len(tokens) - 1
    brackets = (tokens[0].text[:1] + tokens[-1].text[:1]) if enclosed else ""
    singleton = enclosed and brackets == "{}" and not cuts
    if (not cuts and not singleton) or len(cuts) >= MAX_ITEMS or (enclosed and brackets not in _BRACKETS):
        return None
    if not enclosed and any(_depth(tokens[:cut]) for cut in cuts):
        cuts = [cut for cut in cuts if not _depth(tokens[:cut])]
        if not cuts:
            return None
    low = tokens[0].end if enclosed else 0
    bounds = [low, *(tokens[cut].start for cut in cuts), tokens[-1].start if enclosed else len(text)]
    pieces = [text[a + (at > 0) : b] for at, (a, b) in enumerate(pairwise(bounds))]
    pieces = [re.sub(r"^\s*(?:\\text\{\s*)?(?:and|or)\b\s*\}?", "", piece) for piece in pieces]
    items = [read_value(piece) for piece in pieces if piece.strip()]
    if any(item.kind == "text" for item in items):
        return None
    if brackets in ("[)", "(]") or (len(items) == 2 and brackets in ("[]", "()") and any(_endless(it) for it in items)):
        return _collection("interval", items, shown, brackets) if len(items) == 2 else None
    if brackets == "[]" and len(items) == 2:
        return _collection("interval", items, shown, brackets)
    return _collection("set" if brackets in ("", "{}") else "tuple", items, shown)


def _depth(tokens: Sequence[Token]) -> int:
    return sum((token.kind == "open") - (token.kind == "close") for token in tokens)


def _endless(value: Value) -> bool:
    return value.exact in ("oo", "-oo")


def _expression(text: str, tokens: list[Token], shown: str) -> Value | None:
    node, used = parse_start(tokens)
    if node is None:
        return None
    rest = [token for token in tokens[used:] if token.kind not in ("soft", "stop")]
    if any(token.kind != "word" for token in rest) or len(rest) > 4 or (rest and node.symbols):
        return None
    money = text.startswith(("\\$", "$")) or any(token.text == "$" for token in tokens[:2])
    unit = next((_UNITS[token.text.lower()] for token in rest[:2] if token.text.lower() in _UNITS), None)
    if node.op == "percent" or unit == "percent":
        node, unit = (node if node.op == "percent" else Node("percent", (node,))), "percent"
    unit = unit or ("dollar" if money else None)
    try:
        value = evaluate(node)
    except NoValue:
        exact = render(node) if len(tokens) <= 100 else None
        endless = exact in ("oo", "-oo")
        if not node.symbols and not endless:
            exact = None
        return Value(kind="number" if not node.symbols else "expression", text=shown, exact=exact)
    if isinstance(value, Fraction):
        return _rational(value, shown, unit)
    number = real(value)
    exact = render(node)
    kind: Kind = "number" if number is not None else "expression"
    return Value(kind=kind, text=shown, number=number, exact=exact if len(exact) <= MAX_CHARS else None, unit=unit)
