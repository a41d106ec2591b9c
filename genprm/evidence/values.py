"""Values: what steps claim and what programs compute, in one form, and whether two are the same.

Knows equality, rounding and units; reading.py knows how values are written. No text is ever run: an exact form is
read by the parser in expressions.py, and a value with symbols is compared by trying points.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Literal

from ..types import Record
from .arithmetic import NoValue, evaluate, identical
from .expressions import parse_text
from .trees import Node

Kind = Literal["number", "expression", "text", "boolean", "set", "interval", "tuple"]

_OTHER_FORMS = {
    "percent": ((Fraction(100), "percent as number"),),
    "dollar": ((Fraction(100), "cent"),),
    "cent": ((Fraction(1, 100), "dollar"),),
    "hour": ((Fraction(60), "minute"),),
    "minute": ((Fraction(1, 60), "hour"), (Fraction(60), "second")),
    "second": ((Fraction(1, 60), "minute"),),
}
_NUMERAL = re.compile(r"\d[\d,]*(?:\.(\d+))?|\.(\d+)")


class Value(Record):
    """One value."""

    kind: Kind
    text: str
    """As it stood, shortened."""
    number: float | None = None
    """A real number's value, if it is finite as a double. A percentage is a fraction of one: 25 % is 0.25."""
    exact: str | None = None
    """Plain text of the exact value, as `3/4` or `sqrt(2)/2`; None where there is none, or a very long one."""
    unit: str | None = None
    """`percent`, `dollar`, `cent`, `hour`, `minute` or `second`, where the text says so."""
    items: tuple[Value, ...] = ()
    """Of a set or tuple: its elements; of an interval: its ends."""


def same(a: Value, b: Value) -> bool | None:
    """Whether two values are equal; None where it cannot be decided.

    Numbers are equal within a millionth, integers exactly; a number written with decimals equals what rounds to it.
    Percent signs count (25 % is 0.25), other units only where they contradict each other: see `forms`.
    """
    if "text" in (a.kind, b.kind):
        return _same_text(a, b)
    if "boolean" in (a.kind, b.kind):
        return a.kind == b.kind and a.exact == b.exact
    if a.items or b.items or {a.kind, b.kind} & {"set", "tuple", "interval"}:
        return _same_items(a, b)
    if a.kind == b.kind == "number":
        equal = _same_number(a, b)
        return None if equal and a.unit and b.unit and a.unit != b.unit and "percent" not in (a.unit, b.unit) else equal
    if a.exact is None or b.exact is None:
        nothing = any(value.kind == "number" and value.number is None and value.exact is None for value in (a, b))
        return False if nothing else None
    left, right = parse_text(a.exact), parse_text(b.exact)
    if left is None or right is None:
        return None
    if {"i"} >= left.symbols | right.symbols or {"I"} >= left.symbols | right.symbols:
        return _same_complex(left, right)
    return identical(left, right)


def alike(a: Value | None, b: Value | None) -> bool:
    """Whether two values are the same in any reading of either; a missing one is like none."""
    if a is None or b is None:
        return False
    return any(same(x, y) is True for x in forms(a) for y in forms(b))


def forms(value: Value) -> list[Value]:
    """The value, then the other readings that its unit allows.

    25 % as 0.25 and as 25; dollars in cents, cents in dollars; hours in minutes, minutes in hours and in seconds,
    seconds in minutes.
    """
    found = [value]
    if value.number is None or value.exact is None:
        return found
    node = parse_text(value.exact)
    for factor, unit in _OTHER_FORMS.get(value.unit or "", ()):
        exact = None
        if node is not None and node.op in ("num", "div", "neg", "mixed"):
            try:
                number = evaluate(node)
            except NoValue:
                number = None
            exact = str(number * factor) if isinstance(number, Fraction) else None
        found.append(
            value.model_copy(
                update={
                    "number": value.number * float(factor),
                    "exact": exact,
                    "unit": None if unit == "percent as number" else unit,
                }
            )
        )
    return found


def _same_text(a: Value, b: Value) -> bool | None:
    left, right = (re.sub(r"\W+", " ", value.text).strip().casefold() for value in (a, b))
    if a.kind == b.kind:
        if left == right:
            return True if a.text.casefold() == b.text.casefold() or left else None
        return False if left.isalpha() and right.isalpha() else None
    return None


def _same_items(a: Value, b: Value) -> bool | None:
    if not {a.kind, b.kind} <= {"set", "tuple", "interval"}:
        single, many = (a, b) if b.items else (b, a)
        return same(single, many.items[0]) if many.kind == "set" and len(many.items) == 1 else False
    if len(a.items) != len(b.items):
        return False
    if "set" in (a.kind, b.kind):
        return _same_unordered(list(a.items), list(b.items))
    verdicts = [same(x, y) for x, y in zip(a.items, b.items, strict=True)]
    if False in verdicts:
        return False
    if None in verdicts:
        return None
    if a.kind == b.kind == "interval" and a.exact is not None and b.exact is not None:
        return (a.exact[0], a.exact[-1]) == (b.exact[0], b.exact[-1])
    # "(1, 2)" is a point or an interval, "[1, 2]" an interval or a list.
    return True if a.kind == b.kind else None


def _same_unordered(left: list[Value], right: list[Value]) -> bool | None:
    unsure = False
    for item in left:
        verdicts = [same(item, other) for other in right]
        if True in verdicts:
            right.pop(verdicts.index(True))
        elif None in verdicts:
            unsure = True
        else:
            return False
    return None if unsure else True


def _same_number(a: Value, b: Value) -> bool:
    if a.number is None or b.number is None:
        return a.exact is not None and a.exact == b.exact
    x, y = a.number, b.number
    whole = all(value.exact is not None and value.exact.lstrip("-").isdigit() for value in (a, b))
    if whole:
        return a.exact == b.exact
    if abs(x - y) <= 1e-6 * max(abs(x), abs(y)):
        return True
    return _rounded(a, y) or _rounded(b, x)


def _rounded(written: Value, value: float) -> bool:
    """Whether a number with decimals is evidently the other, rounded: 3.33 for 10/3, but not 0.5 for 0.52."""
    numerals = list(_NUMERAL.finditer(written.text))
    if len(numerals) != 1 or written.number is None:
        return False
    decimals = len(numerals[0][1] or numerals[0][2] or "")
    if not 1 <= decimals <= 8:
        return False
    scale = 100.0 if written.unit == "percent" and "%" in written.text + "%" * ("percent" in written.text) else 1.0
    x, y = written.number * scale, value * scale
    if round(abs(x), decimals) != round(abs(float(numerals[0][0].replace(",", ""))), decimals):
        return False  # the text is of another reading
    if abs(x - y) > 0.5000001 * 10.0**-decimals:
        return False
    significant = len(f"{abs(x):.{decimals}f}".replace(".", "").lstrip("0"))
    finer = y * 10 ** (decimals + 2)
    endless = abs(finer - round(finer)) > 1e-6 * max(1.0, abs(finer))
    return significant >= 3 or endless


def _same_complex(left: Node, right: Node) -> bool | None:
    point = {"i": 1j, "I": 1j}
    try:
        a, b = complex(evaluate(left, point)), complex(evaluate(right, point))
    except (NoValue, OverflowError):
        return None
    return abs(a - b) <= 1e-6 * max(abs(a), abs(b))
