"""Equalities that a step states, and whether they hold.

Knows how numbers are rounded in writing and how people misuse the equality sign. A false alarm on a right step costs
more than a missed error, so everything doubtful has `true=None`: conditions with symbols, rounded numbers, units that
differ, operators given in words, other bases. Bounded in time; no text is ever run, and nothing here raises.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..types import Record
from .arithmetic import NoValue, evaluate, near, plain
from .chains import Chain, Part, chains, open_end
from .expressions import READINGS, Reading, parse, parse_start
from .tokens import names
from .trees import Node
from .truth import equal

MAX_EVALUATIONS = 400
"""Sides evaluated in one step; further equalities are not judged."""


class Equation(Record):
    """One equality, as written."""

    text: str
    left: str
    right: str
    span: tuple[int, int]
    """Start and end in characters of the step (of the later step for `links`)."""
    true: bool | None
    """None = not decided: free symbols, unreadable, or too doubtful to call false."""
    true_value: str | None = None
    """Of a false equality: the value of the side that is an operation."""


_CHANGES = names(
    "half third thirds quarter quarters fourth fourths fifth fifths sixth eighth tenth twice double triple "
    "thrice of times plus minus by squared cubed percent dozen dozens less more than subtract subtracting add "
    "adding multiply multiplying divide dividing from with at containing per every square root cube sum "
    "product difference quotient average mean median gcd lcm max min log mod modulo choose factorial remainder "
    "pairs pair r hundred thousand million billion trillion negative base over"
)
"""Words that change the value of what stands beside them."""
_OTHERWISE = re.compile(
    r"\b(?:not|cannot|never|false|wrong|incorrect\w*|impossible|contradict\w*|mistake\w*|error|mod|modulo|modular|base|"
    r"carry|borrow\w*|remainders?|clock|congruen\w+|rounds?|rounded|rounding|approximat\w+|about|roughly|around|nearly|"
    r"estimat\w+|digits?|operation|defined?|definition|binary|octal|hexadecimal|oclock|a\.m|p\.m|am|pm|isn|doesn|don|"
    r"wouldn|instead|vectors?|matri\w+)\b|n't|≠|\\neq?\b|\\not\b|\\pmod|\\equiv|≡",
    re.IGNORECASE,
)
_SHARES = frozenset({"num", "mixed", "div", "neg", "percent"})
_TRIED = re.compile(r"\b(?:plug\w*|substitut\w+|check\w*|test\w*|verif\w+|satisf\w+|try|trying|if)\b", re.IGNORECASE)
"""Words of an equality that is put to the test, and may turn out false without the step being wrong."""
_CONTEXT = re.compile(
    r"\b(?:mod|modulo|modular|base|bases|clock|binary|operation|congruen\w+|defined?|vectors?|matri\w+)\b"
    r"|_\{?\d|\\star|\\diamond|\\oplus|\\otimes|\\pmod|\\spadesuit|\\clubsuit|#|@|\\begin\{pmatrix",
    re.IGNORECASE,
)


def step_equations(step: str, context: str = "") -> list[Equation]:
    """The equalities that a step states, in order.

    Args:
        step: The step's text.
        context: The problem. Where it speaks of another base, of modular arithmetic or of an operation of its own,
            no equality is called false.
    """
    budget = _Budget()
    careful = _CONTEXT.search(context[:20_000]) is not None
    return [equation for chain in chains(step) for equation in _judge(step, chain, budget, careful)]


def links(previous: str, step: str, context: str = "") -> list[Equation]:
    """The equality between the end of the previous step and the start of a step that goes on with `= ...`."""
    stripped = step.lstrip(" \t\n$&\\[(")
    if not stripped.startswith(("=", "≈", "\\approx")) or stripped.startswith("=="):
        return []
    end = open_end(previous)
    if end is None:
        return []
    left, before = end
    first = next(iter(chains(step)), None)
    if first is None or first.parts[0].tokens:
        return []
    # The chain of the step alone, with the earlier side put before it.
    chain = Chain((left, first.parts[1]), before, first.after if len(first.parts) == 2 else "")
    doubtful = _CONTEXT.search(context[:20_000]) is not None or _OTHERWISE.search(previous) is not None
    found = list(_judge(step, chain, _Budget(), doubtful, previous[left.start : left.end]))
    return [item.model_copy(update={"span": (first.parts[1].start, first.parts[1].end)}) for item in found]


class _Budget:
    def __init__(self) -> None:
        self.left = MAX_EVALUATIONS

    def spend(self) -> bool:
        self.left -= 1
        return self.left >= 0


def _judge(step: str, chain: Chain, budget: _Budget, careful: bool, first: str | None = None) -> Iterator[Equation]:
    for at in range(1, len(chain.parts)):
        left, right = chain.parts[at - 1], chain.parts[at]
        if not right.tokens or not left.tokens:
            continue
        end = at == len(chain.parts) - 1
        left_text = first if first is not None and at == 1 else step[left.start : left.end]
        start = right.start if first is not None and at == 1 else left.start
        side = _Sides(left, right, start_of_chain=at == 1, end_of_chain=end)
        truth, value = side.truth(budget)
        if truth is False:
            doubts = (
                careful,
                at == 1 and _changes(chain.before),
                end and _changes(chain.after),
                left.worded or right.worded,
                _OTHERWISE.search(_around(step, start, right.end)) is not None,
                _runs_on(side),
                len(chain.parts) == 2 and side.both_operations and _TRIED.search(_around(step, start, right.end)),
                side.converts,
                at == 1 and side.left_literal and (bool(left.units) or chain.before.isalpha()),
            )
            if any(doubts):
                truth, value = None, None
        right_end = right.end if side.right_end is None else side.right_end
        yield Equation(
            text=step[start:right_end] if first is None or at > 1 else f"{left_text} = {step[right.start : right_end]}",
            left=left_text,
            right=step[right.start : right_end],
            span=(start, right_end),
            true=truth,
            true_value=value if truth is False else None,
        )


def _changes(mark: str) -> bool:
    return mark == "?" or mark.lower() in _CHANGES


def _around(step: str, start: int, end: int) -> str:
    """The sentence in which an equality stands."""
    low = max(step.rfind(". ", 0, start), step.rfind("\n\n", 0, start), start - 300)
    stops = [at for at in (step.find(". ", end), step.find("\n\n", end)) if at >= 0]
    return step[max(low, 0) : min([*stops, end + 200])]


class _Sides:
    """Both sides of an equality in all their readings."""

    def __init__(self, left: Part, right: Part, *, start_of_chain: bool, end_of_chain: bool) -> None:
        self.left, self.right = left, right
        self.start_of_chain, self.end_of_chain = start_of_chain, end_of_chain
        self.right_end: int | None = None
        self.usual: tuple[Node, Node] | None = None
        self.cut = False

    @property
    def both_operations(self) -> bool:
        """Whether neither side is a single number."""
        return self.usual is not None and not any(node.literal for node in self.usual)

    @property
    def converts(self) -> bool:
        """Whether it says what one thing is worth in others, as "1 apple = 1/2 banana"."""
        if self.usual is None or any(node.op not in _SHARES for node in self.usual[0].walk()):
            return False
        if self.right.relation == "is":
            return True  # "2/5 is equal to $14"
        return bool(self.left.units and self.right.units) and not set(self.left.units) & set(self.right.units)

    @property
    def left_literal(self) -> bool:
        """Whether the left side is a single number."""
        return self.usual is not None and self.usual[0].literal

    def truth(self, budget: _Budget) -> tuple[bool | None, str | None]:
        """Whether the sides are equal, and the value of the operation."""
        verdicts: list[bool | None] = []
        value = None
        for reading in READINGS:
            for nodes in self.read(reading):
                if self.usual is None:
                    self.usual = nodes
                elif nodes == self.usual:
                    continue
                if not budget.spend():
                    return None, None
                verdict = equal(*nodes, self.right.relation == "~", (*self.left.units, *self.right.units))
                if verdict:
                    return True, None
                if not verdicts:
                    value = _operation_value(*nodes)
                verdicts.append(verdict)
        if verdicts and all(verdict is False for verdict in verdicts) and not self.cut:
            return False, value
        return None, None

    def read(self, reading: Reading) -> Iterator[tuple[Node, Node]]:
        left = self.read_left(reading)
        right = self.read_right(reading)
        if left is None or right is None:
            return
        yield left, right
        if self.start_of_chain and self.left.tokens[0].text == "-" and (bare := parse(self.left.tokens[1:], reading)):
            yield bare, right  # the sign may be a dash

    def read_left(self, reading: Reading) -> Node | None:
        tokens = self.left.tokens
        if node := parse(tokens, reading):
            return node
        if not self.start_of_chain:
            return parse_start(tokens, reading)[0] if len(tokens) < 2 else None
        # Something before it that does not belong to it, as the 2 in "Step 2 3 + 4".
        for at in range(1, min(len(tokens), 40)):
            joint = tokens[at].kind == "num" and tokens[at - 1].kind in ("num", "sym", "close")
            if (joint or tokens[at - 1].kind == "soft") and (node := parse(tokens[at:], reading)):
                self.cut = True
                return node
        return None

    def read_right(self, reading: Reading) -> Node | None:
        tokens = self.right.tokens
        node, used = parse_start(tokens, reading)
        if node is None:
            return None
        if used < len(tokens):
            if not self.end_of_chain:
                return None
            rest = tokens[used]
            remark = rest.kind in ("open", "close") or rest.text in ("-", "!") or rest.kind == "soft"
            self.cut = self.cut or not remark
            if reading == READINGS[0]:
                self.right_end = tokens[used - 1].end
        return node


def _operation_value(left: Node, right: Node) -> str | None:
    node = left if not left.literal else right
    try:
        return plain(evaluate(node))
    except NoValue:
        return None


def _runs_on(side: _Sides) -> bool:
    """Whether the right side goes on from the left side's result, as in "3 + 4 = 7 * 2 = 14"."""
    if side.usual is None or side.usual[1].literal:
        return False
    node = side.usual[1]
    while node.op in ("add", "mul", "div", "pow") and node.args:
        node = node.args[0]
    try:
        return near(evaluate(side.usual[0]), evaluate(node), 1e-6)
    except NoValue:
        return False
