"""Arithmetic and algebra as trees: the grammar of what steps write, plain and LaTeX alike.

Knows how tokens make an expression, and that some of them can be read in more than one way (`2 1/2`, `1/2x`, `5!`).
Knows nothing of values; arithmetic.py has those. Nothing is evaluated here and no text is ever run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from .tokens import Token, tokenise
from .trees import Node

MAX_TOKENS = 200
"""Longer expressions are not read."""
MAX_DEPTH = 30
"""Deeper nesting is not read."""

_CLOSING = {"(": ")", "[": "]", "{": "}", "{s": "}s", "floor": "floor", "ceil": "ceil"}
_ALIASES = {"ceiling": "ceil", "asin": "arcsin", "acos": "arccos", "atan": "arctan", "ln": "log", "binomial": "binom"}


@dataclass(frozen=True, slots=True)
class Reading:
    """Which of the possible readings to take."""

    mixed: bool = True
    """`2 1/2` is two and a half, not a product."""
    tight: bool = False
    """`1/2x` is 1/(2x), not x/2."""
    bang: bool = True
    """`5!` is a factorial, not an exclamation."""
    spaced: bool = True
    """`5 (2)` is a product, not a number with a remark."""
    under: bool = False
    """`6/3*2` is 6/(3*2)."""
    stacked: bool = False
    """`6 / 1/2` is 6 / (1/2)."""
    common: bool = False
    """`log` has the base 10, not e."""


READINGS = (
    Reading(),
    Reading(mixed=False),
    Reading(tight=True),
    Reading(bang=False),
    Reading(spaced=False),
    Reading(under=True),
    Reading(stacked=True),
    Reading(common=True),
)
"""The usual reading, then each of the others."""


class Unreadable(Exception):
    """No expression of this grammar."""


def parse(tokens: Sequence[Token], reading: Reading = READINGS[0]) -> Node | None:
    """The expression that all the tokens make, or None."""
    node, used = parse_start(tokens, reading)
    return node if used == len(tokens) else None


def parse_start(tokens: Sequence[Token], reading: Reading = READINGS[0]) -> tuple[Node | None, int]:
    """The longest expression at the start, and how many tokens it takes."""
    if len(tokens) > MAX_TOKENS:
        return None, 0
    parser = _Parser(tokens, reading)
    try:
        node = parser.sum()
    except Unreadable:
        return None, 0
    while parser.peek("soft"):
        parser.at += 1
    return node, parser.at


def parse_text(text: str, reading: Reading = READINGS[0]) -> Node | None:
    """The expression that a whole text is, or None."""
    return parse(tokenise(text), reading)


class _Parser:
    def __init__(self, tokens: Sequence[Token], reading: Reading) -> None:
        self.tokens = tokens
        self.reading = reading
        self.at = 0
        self.depth = 0

    def peek(self, kind: str, text: str | None = None, ahead: int = 0) -> bool:
        at = self.at + ahead
        if at >= len(self.tokens):
            return False
        token = self.tokens[at]
        return token.kind == kind and (text is None or token.text == text)

    def take(self, kind: str, text: str | None = None) -> Token | None:
        if self.peek(kind, text):
            self.at += 1
            return self.tokens[self.at - 1]
        return None

    def need(self, kind: str, text: str | None = None) -> None:
        self.soft()
        if not self.take(kind, text):
            raise Unreadable

    def soft(self) -> bool:
        start = self.at
        while self.peek("soft"):
            self.at += 1
        return self.at > start

    def sum(self) -> Node:
        items = [self.product()]
        while True:
            back = self.at
            self.soft()
            minus = self.peek("op", "-")
            if not minus and not self.peek("op", "+"):
                self.at = back
                break
            self.at += 1
            try:
                item = self.product()
            except Unreadable:
                self.at = back
                break
            items.append(Node("neg", (item,)) if minus else item)
        return items[0] if len(items) == 1 else Node("add", tuple(items))

    def product(self) -> Node:
        node = self.signed()
        while True:
            back = self.at
            boundary = self.soft()
            try:
                if self.take("op", "*"):
                    node = Node("mul", (node, self.signed()))
                elif self.take("op", "/"):
                    below = self.signed()
                    while self.reading.tight and self.adjacent(False, below):
                        below = Node("mul", (below, self.power()))
                    while self.reading.under and self.take("op", "*"):
                        below = Node("mul", (below, self.signed()))
                    if self.reading.stacked and self.take("op", "/"):
                        below = Node("div", (below, self.signed()))
                    node = Node("div", (node, below))
                elif self.take("word", "of"):
                    node = Node("mul", (node, self.signed()))
                elif self.adjacent(boundary, node):
                    node = Node("mul", (node, self.power()))
                else:
                    self.at = back
                    return node
            except Unreadable:
                self.at = back
                return node

    def adjacent(self, boundary: bool, before: Node) -> bool:
        """Whether what follows is multiplied by standing there."""
        if boundary or self.at >= len(self.tokens) or self.at == 0:
            return False
        token, last = self.tokens[self.at], self.tokens[self.at - 1]
        if token.kind == "open" and token.text in ("(", "{", "[") and last.end != token.start:
            return self.reading.spaced or before.op == "sym"
        return token.kind in ("sym", "fn", "cmd") or (token.kind == "open" and token.text in ("(", "floor", "ceil"))

    def signed(self) -> Node:
        self.soft()
        signs = 0
        while self.peek("op", "-") or self.peek("op", "+"):
            signs += self.tokens[self.at].text == "-"
            self.at += 1
            self.soft()
        node = self.power()
        return Node("neg", (node,)) if signs % 2 else node

    def power(self) -> Node:
        node = self.postfix()
        if self.peek("op", "^"):
            back = self.at
            self.at += 1
            if self.take("post", "deg") or self.degree():
                node = Node("deg", (node,))
            else:
                try:
                    node = Node("pow", (node, self.exponent()))
                except Unreadable:
                    self.at = back
                    raise
        return node

    def degrees(self) -> bool:
        """Takes a degree sign after a bracket, as in `\\sin(30 + 15)^\\circ`."""
        if self.take("post", "deg"):
            return True
        if self.peek("op", "^") and (self.peek("post", "deg", 1) or self.peek("open", "{", 1)):
            back = self.at
            self.at += 1
            if self.take("post", "deg") or self.degree():
                return True
            self.at = back
        return False

    def degree(self) -> bool:
        if self.peek("open", "{") and self.peek("post", "deg", 1) and self.peek("close", "}", 2):
            self.at += 3
            return True
        return False

    def exponent(self) -> Node:
        if self.take("op", "-"):
            return Node("neg", (self.power(),))
        return self.power()

    def postfix(self) -> Node:
        node = self.primary()
        while True:
            if self.take("post", "%"):
                node = Node("percent", (node,))
            elif self.take("post", "deg"):
                node = Node("deg", (node,))
            elif self.peek("post", "!"):
                if not self.reading.bang:
                    return node
                self.at += 1
                node = Node("factorial", (node,))
            else:
                return node

    def group(self, closing: str) -> Node:
        node = self.sum()
        self.need("close", closing)
        return node

    def primary(self) -> Node:
        if self.depth >= MAX_DEPTH:
            raise Unreadable
        self.depth += 1
        try:
            return self.operand()
        finally:
            self.depth -= 1

    def operand(self) -> Node:
        if self.at >= len(self.tokens):
            raise Unreadable
        token = self.tokens[self.at]
        if token.kind == "num":
            return self.numeral()
        if token.kind == "sym":
            self.at += 1
            return Node("sym", name=token.text + self.subscript())
        if token.kind == "fn":
            return self.function()
        if token.kind == "cmd":
            return self.command()
        if token.kind == "open" and token.text in _CLOSING:
            self.at += 1
            node = self.group(_CLOSING[token.text])
            return Node(token.text, (node,)) if token.text in ("floor", "ceil") else node
        if token.kind == "bar":
            self.at += 1
            node = self.sum()
            if not self.take("bar"):
                raise Unreadable
            return Node("abs", (node,))
        raise Unreadable

    def subscript(self) -> str:
        """What follows an underscore, as part of a name."""
        if not self.take("sub"):
            return ""
        if self.take("open", "{"):
            name = ""
            while self.at < len(self.tokens) and self.tokens[self.at].kind in ("num", "sym", "op", "word"):
                name += self.tokens[self.at].text
                self.at += 1
            self.need("close", "}")
            return "_" + name
        if self.peek("num") or self.peek("sym"):
            self.at += 1
            return "_" + self.tokens[self.at - 1].text
        raise Unreadable

    def numeral(self) -> Node:
        token = self.tokens[self.at]
        self.at += 1
        assert token.value is not None
        if self.peek("sub"):
            base = self.subscript()[1:]
            if not base.isdigit() or not 2 <= int(base[:3]) <= 10:
                raise Unreadable
            try:
                return Node("num", value=Fraction(int(token.text, int(base))))
            except ValueError:
                raise Unreadable from None
        node = Node("num", value=token.value, decimals=token.decimals)
        if token.decimals or token.value.denominator != 1:
            return node
        part = self.part(token)
        if part is not None:
            top, bottom = part
            if self.reading.mixed:
                return Node("mixed", value=token.value + Fraction(top, bottom))
            return Node("mul", (node, Node("num", value=Fraction(top, bottom))))
        return node

    def part(self, whole: Token) -> tuple[int, int] | None:
        """The fraction of a mixed number, as `1/2` after `3 ` or `\\frac{1}{2}` after `3`."""
        ahead = self.tokens[self.at : self.at + 7]
        kinds = [token.kind for token in ahead]
        found: tuple[Token, Token, int] | None = None
        if kinds[:3] == ["num", "op", "num"] and ahead[1].text == "/" and ahead[0].start > whole.end:
            found = ahead[0], ahead[2], 3
        elif kinds[:7] == ["cmd", "open", "num", "close", "open", "num", "close"] and ahead[0].text == "frac":
            found = ahead[2], ahead[5], 7
        elif kinds[:1] == ["num"] and ahead[0].value is not None and 0 < ahead[0].value < 1 and not ahead[0].decimals:
            self.at += 1
            return ahead[0].value.numerator, ahead[0].value.denominator
        if found is None or found[0].value is None or found[1].value is None:
            return None
        top, bottom = found[0].value, found[1].value
        if top.denominator != 1 or bottom.denominator != 1 or not 0 < top < bottom:
            return None
        self.at += found[2]
        return int(top), int(bottom)

    def argument(self) -> Node:
        """What stands in braces, or the next sign as in `\\frac12`."""
        if self.take("open", "{"):
            return self.group("}")
        return self.primary()

    def command(self) -> Node:
        name = self.tokens[self.at].text
        self.at += 1
        if name in ("frac", "binom"):
            token = self.tokens[self.at] if self.at < len(self.tokens) else None
            if token is not None and token.kind == "num" and token.text.isdigit() and len(token.text) == 2:
                self.at += 1
                top, bottom = (Node("num", value=Fraction(int(digit))) for digit in token.text)
            else:
                top, bottom = self.argument(), self.argument()
            return Node("div" if name == "frac" else "binom", (top, bottom))
        if name == "sqrt" and self.take("open", "["):
            order = self.group("]")
            return Node("root", (self.argument(), order))
        return Node("sqrt", (self.argument(),))

    def function(self) -> Node:
        token = self.tokens[self.at]
        name = _ALIASES.get(token.text, token.text)
        self.at += 1
        base = None
        if self.take("sub"):
            if name != "log":
                raise Unreadable
            base = self.argument()
        power = None
        if self.take("op", "^"):
            power = self.argument() if not self.peek("op", "-") else None
            if power is None:  # an inverse function
                raise Unreadable
        items = self.arguments()
        if name == "log" and base is None and self.reading.common and token.text != "ln":
            base = Node("num", value=Fraction(10))
        if name == "log" and base is not None:
            items = (*items, base)
        node = Node(name, items)
        return Node("pow", (node, power)) if power is not None else node

    def arguments(self) -> tuple[Node, ...]:
        for opening in ("(", "{"):
            if self.take("open", opening):
                items = [self.sum()]
                while self.take("comma"):
                    items.append(self.sum())
                self.need("close", _CLOSING[opening])
                return (Node("deg", (items[0],)),) if len(items) == 1 and self.degrees() else tuple(items)
        node = self.power()
        while self.at < len(self.tokens) and self.tokens[self.at].kind == "sym" and not self.peek("soft"):
            node = Node("mul", (node, self.power()))
        return (node,)
