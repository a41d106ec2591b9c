"""An expression as a tree: operations, numerals and symbols.

Knows the shape only; expressions.py reads one from text, and arithmetic.py has its value.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

CONSTANTS = frozenset({"pi", "oo"})
"""Names that are no free symbols."""


@dataclass(frozen=True, slots=True)
class Node:
    """One operation, numeral or symbol."""

    op: str
    """`num`, `sym`, `add`, `mul`, `div`, `pow`, `neg`, `percent`, `deg`, `mixed`, or a function's name."""
    args: tuple[Node, ...] = ()
    name: str = ""
    value: Fraction | None = None
    decimals: int = 0

    def walk(self) -> list[Node]:
        """This node and all below it."""
        found, todo = [], [self]
        while todo:
            node = todo.pop()
            found.append(node)
            todo.extend(node.args)
        return found

    @property
    def symbols(self) -> frozenset[str]:
        """The free symbols' names."""
        return frozenset(node.name for node in self.walk() if node.op == "sym" and node.name not in CONSTANTS)

    @property
    def literal(self) -> bool:
        """Whether this is a single numeral, with a sign or a percent sign at most."""
        node = self
        while node.op in ("neg", "percent", "deg"):
            node = node.args[0]
        return node.op in ("num", "mixed")


_SIGNS = {"add": " + ", "mul": "*", "div": "/", "pow": "**"}
_STRENGTH = {"add": 1, "neg": 1, "mul": 2, "div": 2, "pow": 3}


def render(node: Node) -> str:
    """An expression as plain text that the parser, Python and sympy read alike, as `sqrt(2)/2`."""
    if node.op == "sym":
        return node.name
    if node.op in ("num", "mixed"):
        assert node.value is not None
        return str(node.value) if node.value.denominator == 1 else f"({node.value})"
    if node.op == "neg":
        return "-" + _inside(node.args[0], 2)
    if node.op == "percent":
        return _inside(node.args[0], 3) + "/100"
    if node.op == "deg":
        return render(node.args[0])
    if node.op in _SIGNS:
        own = _STRENGTH[node.op]
        # What stands right of `/` or left of `**` needs brackets at equal strength.
        parts = [
            _inside(item, own + 1 if (at and node.op in ("div", "mul")) or (not at and node.op == "pow") else own)
            for at, item in enumerate(node.args)
        ]
        return _SIGNS[node.op].join(parts).replace("+ -", "- ")
    return f"{node.op}({', '.join(render(item) for item in node.args)})"


def _inside(node: Node, strength: int) -> str:
    text = render(node)
    return f"({text})" if _STRENGTH.get(node.op, 9) < strength else text
