"""The value of an expression: exact where it is rational, else to a double's precision, and always soon.

Knows numbers only, within limits: `9^9^9^9`, `1/0` and `10^{400}` have no value here rather than a wrong or a late one.
Whether two expressions with symbols are equal is found by trying points (Schwartz, "Fast probabilistic algorithms for
verification of polynomial identities", 1980): no algebra, so nothing that could take for ever.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Mapping
from fractions import Fraction

from .trees import Node

MAX_BITS = 2_048
"""Numerators and denominators with more bits are not worked with."""
MAX_FACTORIAL = 200

Number = Fraction | complex
"""Exact, or a double (a complex one whose imaginary part may be 0)."""

_POINTS = (Fraction(7, 5), Fraction(13, 3), Fraction(-17, 7), Fraction(29, 11), Fraction(-5, 9), Fraction(41, 17))


class NoValue(Exception):
    """Undefined, too large, or not a matter of numbers."""


def evaluate(
    node: Node, symbols: Mapping[str, Number] | None = None, shift: Mapping[int, Fraction] | None = None
) -> Number:
    """The value of an expression.

    Args:
        node: The expression.
        symbols: Values of the free symbols.
        shift: Added to numerals, by `id` of their node: how the value moves with a numeral's rounding.

    Raises:
        NoValue: It has none, or none within the limits.
    """
    try:
        return _bounded(_value(node, symbols or {}, shift or {}))
    except (ArithmeticError, ValueError, TypeError) as error:
        raise NoValue from error


def near(left: Number, right: Number, relative: float = 1e-9) -> bool:
    """Whether two values are equal: exactly where both are exact."""
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        return left == right
    try:
        a, b = complex(left), complex(right)
    except OverflowError:
        return False
    return abs(a - b) <= relative * max(abs(a), abs(b), 1e-3)


def real(value: Number) -> float | None:
    """A value as a finite double, if it is real and has one."""
    try:
        number = complex(value)
    except OverflowError:
        return None
    if abs(number.imag) > 1e-12 * max(1.0, abs(number.real)) or not math.isfinite(number.real):
        return None
    return number.real


def identical(left: Node, right: Node) -> bool | None:
    """Whether two expressions are equal for all values of their symbols; None where they have no values to try."""
    names = sorted(left.symbols | right.symbols)
    if len(names) > 8:
        return None
    tried = 0
    for turn in range(len(_POINTS) if names else 1):
        point: dict[str, Number] = {
            name: _POINTS[(turn + 2 * place) % len(_POINTS)] + Fraction(place, 19) for place, name in enumerate(names)
        }
        try:
            a, b = evaluate(left, point), evaluate(right, point)
        except NoValue:
            continue
        if not near(a, b, 1e-8):
            return False
        tried += 1
    return True if tried >= min(len(names) + 1, 3) else None


def plain(value: Number) -> str:
    """A value as people write it: whole, with up to six decimals, as a fraction, or to six digits."""
    if not isinstance(value, Fraction):
        number = real(value)
        return f"{value:.6g}" if number is None else f"{number:.6g}"
    number = real(value)
    if number is None or abs(number) >= 1e100:
        return "a number of more than 100 digits"
    if value.denominator == 1:
        return str(value.numerator)
    if (value * 10**6).denominator == 1 and abs(number) < 1e9:
        return f"{number:.6f}".rstrip("0")
    return str(value) if value.denominator < 10_000 else f"{number:.6g}"


def _bounded(value: Number) -> Number:
    if isinstance(value, Fraction):
        if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
            raise NoValue
        return value
    number = complex(value)
    if not (math.isfinite(number.real) and math.isfinite(number.imag)):
        raise NoValue
    return number


def _double(value: Number) -> complex:
    return complex(value)


def _integer(value: Number) -> int:
    if isinstance(value, Fraction) and value.denominator == 1:
        return int(value)
    raise NoValue


def _value(node: Node, symbols: Mapping[str, Number], shift: Mapping[int, Fraction]) -> Number:
    op = node.op
    if op in ("num", "mixed"):
        assert node.value is not None
        return node.value + shift.get(id(node), 0)
    if op == "sym":
        if node.name == "pi":
            return complex(math.pi)
        if node.name in symbols:
            return symbols[node.name]
        raise NoValue
    items = [_bounded(_value(item, symbols, shift)) for item in node.args]
    if op == "add":
        if all(isinstance(item, Fraction) for item in items):
            total = Fraction(0)
            for item in items:
                assert isinstance(item, Fraction)
                total = total + item
                _bounded(total)
            return total
        return sum(map(_double, items))
    if op == "neg":
        return -items[0]
    if op == "percent":
        return items[0] / 100
    if op == "deg":
        return items[0]
    if op == "mul":
        a, b = items
        return a * b if isinstance(a, Fraction) and isinstance(b, Fraction) else _double(a) * _double(b)
    if op == "div":
        a, b = items
        return a / b if isinstance(a, Fraction) and isinstance(b, Fraction) else _double(a) / _double(b)
    if op == "pow":
        return _power(items[0], items[1])
    return _function(op, node, items)


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(base, Fraction) and isinstance(exponent, Fraction):
        if exponent.denominator == 1:
            times = int(exponent)
            bits = max(base.numerator.bit_length(), base.denominator.bit_length())
            if abs(times) * bits <= MAX_BITS or abs(base) in (0, 1):
                return base if abs(base) == 1 and times % 2 else (Fraction(1) if abs(base) == 1 else base**times)
        elif exponent.denominator <= 6:
            root = _root(base, exponent.denominator)
            if isinstance(root, Fraction):
                return _power(root, Fraction(exponent.numerator))
    return _double(base) ** _double(exponent)


def _root(value: Number, order: int) -> Number:
    """The real root of odd order of a negative number, else the principal one."""
    if isinstance(value, Fraction) and (value >= 0 or order % 2):
        top, bottom = _exact_root(abs(value.numerator), order), _exact_root(value.denominator, order)
        if top is not None and bottom is not None:
            return Fraction(top if value >= 0 else -top, bottom)
        return complex(math.copysign(abs(float(value)) ** (1 / order), float(value)))
    return _double(value) ** (1 / order)


def _exact_root(value: int, order: int) -> int | None:
    guess = math.isqrt(value) if order == 2 else round(value ** (1 / order)) if value.bit_length() < 900 else -1
    return guess if guess >= 0 and guess**order == value else None


def _function(op: str, node: Node, items: list[Number]) -> Number:
    first = items[0]
    if op == "sqrt":
        return _root(first, 2)
    if op in ("root", "cbrt"):
        order = 3 if op == "cbrt" or len(items) == 1 else _integer(items[1])
        if not 2 <= order <= 64:
            raise NoValue
        return _root(first, order)
    if op == "factorial":
        count = _integer(first)
        if not 0 <= count <= MAX_FACTORIAL:
            raise NoValue
        return Fraction(math.factorial(count))
    if op == "binom":
        n, k = _integer(items[0]), _integer(items[1])
        if not 0 <= k <= n <= 5_000 or min(k, n - k) > 200:
            raise NoValue
        return Fraction(math.comb(n, k))
    if op == "abs":
        return abs(first) if isinstance(first, Fraction) else complex(abs(first))
    if op in ("floor", "ceil"):
        number = first if isinstance(first, Fraction) else _real(first)
        return Fraction(math.floor(number) if op == "floor" else math.ceil(number))
    if op in ("gcd", "lcm"):
        integers = [_integer(item) for item in items]
        return Fraction(math.gcd(*integers) if op == "gcd" else math.lcm(*integers))
    if op in ("max", "min"):
        return max(items, key=_real) if op == "max" else min(items, key=_real)
    if op == "log":
        base = _double(items[1]) if len(items) == 2 else None
        return cmath.log(_double(first)) if base is None else cmath.log(_double(first)) / cmath.log(base)
    if op == "exp":
        return cmath.exp(_double(first))
    return _trigonometric(op, first, any(item.op == "deg" for item in node.args[0].walk()))


def _real(value: Number) -> float:
    number = real(value)
    if number is None:
        raise NoValue
    return number


def _trigonometric(op: str, argument: Number, degrees: bool) -> Number:
    angle = _double(argument)
    if op.startswith("arc"):
        return {"arcsin": cmath.asin, "arccos": cmath.acos, "arctan": cmath.atan}[op](angle)
    if degrees:
        angle *= math.pi / 180
    table = {
        "sin": cmath.sin,
        "cos": cmath.cos,
        "tan": cmath.tan,
        "sinh": cmath.sinh,
        "cosh": cmath.cosh,
        "tanh": cmath.tanh,
    }
    if op in table:
        return table[op](angle)
    inverse = {"sec": cmath.cos, "csc": cmath.sin, "cot": cmath.tan}
    if op in inverse:
        return 1 / inverse[op](angle)
    raise NoValue
