"""Whether two expressions that are said to be equal are so.

Knows rounding and the looseness with which people write. What may be due to them is None, not false.
"""

from __future__ import annotations

from fractions import Fraction

from .arithmetic import NoValue, Number, evaluate, identical, near, real
from .trees import Node

_FACTORS = frozenset({2, 3, 4, 5, 7, 8, 10, 12, 14, 16, 20, 24, 25, 30, 36, 48, 50, 52, 60, 100, 144, 365, 1000, 1440})
_MORE_FACTORS = frozenset({1760, 2000, 3600, 5280, 10_000, 86_400, 1_000_000})


def equal(left: Node, right: Node, about: bool, units: tuple[str, ...]) -> bool | None:
    """Whether an equality between two expressions holds; None where it is a condition, or too doubtful to deny.

    Args:
        left: One side.
        right: The other.
        about: Whether it says "about equal".
        units: Words that stood with the numbers.
    """
    if left.symbols or right.symbols:
        return _identity(left, right)
    try:
        a, b = evaluate(left), evaluate(right)
    except NoValue:
        return None
    if near(a, b) or near(_slip(a), _slip(b)):
        return True
    x, y = real(a), real(b)
    if x is None or y is None:
        return None
    if _rounds_to(left, a, b) or _rounds_to(right, b, a):
        return True
    if (right.op == "percent" and near(a, b * 100)) or (left.op == "percent" and near(a * 100, b)):
        return True  # "20/50 * 100 = 40%"
    gap = abs(x - y)
    if about:
        return True if gap <= 0.02 * max(abs(x), abs(y)) or gap <= 0.51 else None
    return None if _doubtful(left, right, x, y, units) else False


def _slip(value: Number) -> Number:
    """Without the error of decimal arithmetic in doubles, as in 0.1 + 0.2 = 0.30000000000000004."""
    number = real(value)
    return value if number is None else Fraction(f"{number:.12g}")


def _bare(node: Node) -> tuple[Node, Fraction]:
    """The numeral of a literal, and what it is multiplied by."""
    scale = Fraction(1)
    while node.op in ("neg", "percent", "deg"):
        scale *= {"neg": Fraction(-1), "percent": Fraction(1, 100), "deg": Fraction(1)}[node.op]
        node = node.args[0]
    return node, scale


def _rounds_to(literal: Node, written: Number, value: Number) -> bool:
    """Whether a numeral with decimals is the value rounded, or cut off."""
    if not literal.literal:
        return False
    node, scale = _bare(literal)
    if not node.decimals and literal.op != "percent":
        return False
    x, y = real(written), real(value)
    if x is None or y is None:
        return False
    last = float(abs(scale)) * 10.0**-node.decimals
    rounded = abs(x - y) <= last * 0.5000001
    cut = node.decimals >= 2 and 0 <= (abs(y) - abs(x)) < last and x * y > 0
    return rounded or cut


def _doubtful(left: Node, right: Node, x: float, y: float, units: tuple[str, ...]) -> bool:
    """Whether an inequality may be a matter of rounding, units or habits of writing."""
    if left.literal and right.literal:
        return True  # "6 dozen = 72", "half of 20 = 10": words are missing
    nodes = [*left.walk(), *right.walk()]
    gap, size = abs(x - y), max(abs(x), abs(y))
    inexact = any(node.decimals or node.op in ("div", "percent", "sqrt", "pow", "mixed") for node in nodes)
    if inexact and gap <= 0.01 * size:
        return True
    for literal, value in ((left, y), (right, x)):
        whole = literal.literal and _bare(literal)[0].decimals == 0
        if whole and value != round(value) and gap < 1:
            return True  # rounded up or down to a whole number
    if any(node.op == "percent" for node in nodes) and _is_power_of_ten(x, y):
        return True
    if any(node.op == "deg" for node in nodes) and any(node.op == "sym" for node in nodes):
        return True
    if gap <= _slack(left) + _slack(right):
        return True
    ratio = max(abs(x), abs(y)) / max(min(abs(x), abs(y)), 1e-300)
    whole_ratio = round(ratio) if ratio < 1e9 and abs(ratio - round(ratio)) < 1e-9 else 0
    return _is_power_of_ten(x, y) or whole_ratio in _MORE_FACTORS or (bool(units) and whole_ratio in _FACTORS)


def _is_power_of_ten(x: float, y: float) -> bool:
    return x * y > 0 and any(abs(x / y - 10.0**power) < 1e-9 * 10.0**power for power in (-6, -3, -2, 2, 3, 6))


def _slack(node: Node) -> float:
    """How far the value may be off because numerals with two decimals or more were rounded when written."""
    total = 0.0
    numerals = [item for item in node.walk() if item.decimals >= 2 and item.value is not None]
    if node.literal or not numerals or len(numerals) > 12:
        return 0.0
    try:
        base = complex(evaluate(node))
        for item in numerals:
            assert item.value is not None
            if (item.value * 100) % 5 == 0 and item.decimals == 2:
                continue  # 0.25 and 1.50 are seldom rounded
            moved = evaluate(node, shift={id(item): Fraction(1, 2 * 10**item.decimals)})
            total += abs(complex(moved) - base)
    except (NoValue, OverflowError):
        return 0.0
    return total * 1.01


def _identity(left: Node, right: Node) -> bool | None:
    same = identical(left, right)
    if same:
        return True
    symbols = left.symbols | right.symbols
    if symbols == {"i"} and _holds_with(left, right, 1j):
        return True
    if symbols == {"e"} and _holds_with(left, right, 2.718281828459045):
        return True
    if same is None:
        return None
    # "x + 2x = 4x" is no condition: both sides are the same power of x, times different numbers.
    multiples = left.symbols == right.symbols and len(symbols) == 1 and _same_degree(left, right, next(iter(symbols)))
    return False if multiples or _rewrites(left, right) else None


def _rewrites(left: Node, right: Node) -> bool:
    """Whether one side is a product and the other the same multiplied out, as it seems.

    They have the same symbols, the same degree of two or more and the same leading terms: a condition would hardly.
    """
    shapes = (_is_product(left) and _is_sum(right)) or (_is_sum(left) and _is_product(right))
    if left.symbols != right.symbols or not shapes:
        return False
    for turn in (0, 1):
        near_point, far_point = (
            {name: Fraction(scale * (3 + 2 * ((at + turn) % 3))) for at, name in enumerate(sorted(left.symbols))}
            for scale in (10**6, 10**7)
        )
        try:
            a, b = complex(evaluate(left, near_point)), complex(evaluate(right, near_point))
            further = complex(evaluate(left, far_point))
        except (NoValue, OverflowError):
            return False
        if not a or abs(b / a - 1) > 0.001 or abs(further / a) < 50:
            return False
    return True


def _is_sum(node: Node) -> bool:
    """Whether a polynomial is multiplied out."""
    return node.op == "add" and all(
        item.op in ("add", "neg", "mul", "pow", "num", "sym", "div")
        and not (item.op in ("mul", "pow", "neg", "div") and any(below.op == "add" for below in item.args))
        for item in node.walk()
    )


def _is_product(node: Node) -> bool:
    """Whether a polynomial is a product with sums in it."""
    items = node.walk()
    if node.op == "neg":
        node = node.args[0]
    # No power alone: "x^2 + 9 = (x - 5)^2" is a condition.
    sums = sum(below.op == "add" for item in items if item.op == "mul" for below in item.args)
    return node.op == "mul" and sums >= 1 and all(item.op in _POLYNOMIAL for item in items)


_POLYNOMIAL = frozenset({"add", "neg", "mul", "pow", "num", "sym"})


def _holds_with(left: Node, right: Node, value: complex) -> bool:
    name = next(iter(left.symbols | right.symbols))
    try:
        return near(evaluate(left, {name: value}), evaluate(right, {name: value}), 1e-9)
    except NoValue:
        return False


def _same_degree(left: Node, right: Node, name: str) -> bool:
    if right.op not in ("mul", "sym", "div") or left.op != "add":
        return False
    try:
        ratios = [
            complex(evaluate(node, {name: Fraction(6)})) / complex(evaluate(node, {name: Fraction(3)}))
            for node in (left, right)
        ]
    except (NoValue, ArithmeticError):
        return False
    return abs(ratios[0] - ratios[1]) < 1e-9 and abs(ratios[0]) > 1
