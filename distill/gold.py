"""Worked solutions in GSM8K form: their steps as text, and the arithmetic that the calculator annotations tell.

`48/2 = <<48/2=24>>24 clips` becomes the text `48/2 = 24 clips` and an equation whose numbers are known by their place
in it. Knows the format only. A solution whose text and annotations tell different things is refused with a reason,
since labels by construction hang on knowing where each number comes from.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

NUMBER = re.compile(
    r"(?:(?<![\w.,:])|(?<=\d[xX])|(?<=[^\w]\.))(?P<digits>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|(?<!\d)\.\d+)"
    r"(?!\d|,\d{3}|:\d|(?:st|nd|rd|th)\b)"
)
_ANNOTATION = re.compile(r"<<(?P<left>[^<>=]*)=(?P<right>[^<>=]*)>>")
_PIECE = re.compile(r"\d+(?:\.\d+)?|\.\d+|[-+*/()]")
SIGNS: dict[str, str] = {
    **dict.fromkeys(("*", "x", "X", "×", "times", "multiplied by"), "*"),
    **dict.fromkeys(("/", "÷", "divided by"), "/"),
    **dict.fromkeys(("+", "plus"), "+"),
    **dict.fromkeys(("-", "−", "–", "minus"), "-"),
}
"""How an operation is written -> its sign."""
_SIGN = re.compile(r"[-+*/×÷−–]|(?<![A-Za-z])[xX](?![A-Za-z])|\b(?:times|multiplied by|divided by|plus|minus)\b")


class Refused(Exception):
    """A solution or a change of it cannot be used; `reason` is short and counted."""

    def __init__(self, reason: str):
        self.reason = reason
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class Number:
    """A number in a step's text."""

    start: int
    end: int
    value: Fraction
    text: str
    money: bool = False
    """Behind a dollar sign."""
    percent: bool = False
    """Before a per cent sign."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A number that an equation uses."""

    value: Fraction
    """As it counts in the arithmetic: 0.2 for `20%`."""
    number: int | None = None
    """Its index among the step's numbers; None where the text does not show it."""
    scale: Fraction = Fraction(1)
    """What the number in the text is multiplied by: 1/100 for `20%`."""


@dataclass(frozen=True, slots=True)
class Equation:
    """One annotated calculation."""

    form: tuple[str | int, ...]
    """Signs, parentheses, and the indices of operands."""
    operands: tuple[Operand, ...]
    result: int
    """Index of the result among the step's numbers."""
    value: Fraction
    signs: tuple[tuple[int, int], ...] = ()
    """Where the text shows the operations, in order; empty where it does not show the calculation."""

    @property
    def visible(self) -> bool:
        """Whether the text shows the calculation."""
        return bool(self.signs)

    def evaluate(self, values: Sequence[Fraction], form: Sequence[str | int] | None = None) -> Fraction:
        """The result with other operands or another form.

        Raises:
            Refused: a division by zero.
        """
        try:
            return _evaluate(list(self.form if form is None else form), values)
        except ZeroDivisionError:
            raise Refused("division by zero") from None


@dataclass(frozen=True, slots=True)
class GoldStep:
    """One line of a worked solution."""

    text: str
    """Without annotations."""
    numbers: tuple[Number, ...]
    equations: tuple[Equation, ...]

    def result_of(self, number: int) -> int | None:
        """The equation whose result a number is."""
        return next((at for at, equation in enumerate(self.equations) if equation.result == number), None)


@dataclass(frozen=True, slots=True)
class Gold:
    """A worked solution."""

    problem: str
    steps: tuple[GoldStep, ...]
    answer: str
    """What stands behind `####`."""
    value: Fraction

    @property
    def texts(self) -> tuple[str, ...]:
        """The steps' texts."""
        return tuple(step.text for step in self.steps)


def numbers_in(text: str) -> tuple[Number, ...]:
    """The numerals of a text; ordinals, clock times and the like are none."""
    return tuple(
        Number(
            match.start(),
            match.end(),
            read_number(match["digits"]),
            match[0],
            money=text[: match.start()].rstrip().endswith("$"),
            percent=bool(re.match(r"\s?(?:%|percent\b|per cent\b)", text[match.end() :])),
        )
        for match in NUMBER.finditer(text)
    )


def read_number(text: str) -> Fraction:
    """The value of a numeral: `1,200.50`, `.5`, `$3`.

    Raises:
        ValueError: it is none.
    """
    return Fraction(text.strip().lstrip("$").replace(",", "").rstrip("%").strip())


def read_gold(question: str, answer: str) -> Gold:
    """Read a question and its annotated answer.

    Raises:
        Refused: with the reason: no final answer, no annotation, text and annotation differ, a rounded result, an
            equation without annotation, or a final answer that is not the last result.
    """
    body, mark, final = answer.rpartition("####")
    if not mark:
        raise Refused("no final answer")
    try:
        value = read_number(final)
    except (ValueError, ZeroDivisionError):
        raise Refused("the final answer is no number") from None
    steps = tuple(_step(line.strip()) for line in body.splitlines() if line.strip())
    results = [step.numbers[equation.result].value for step in steps for equation in step.equations]
    if not results:
        raise Refused("no annotation")
    if not steps[-1].equations:
        raise Refused("the last step has no annotation")
    if results[-1] != value:
        raise Refused("the final answer is not the last result")
    return Gold(question.strip(), steps, final.strip(), value)


def clean_text(answer: str) -> tuple[str, ...]:
    """The steps of an annotated answer as plain text, for those that `read_gold` refuses too."""
    body = answer.rpartition("####")[0] or answer
    return tuple(_tidy(_ANNOTATION.sub("", line)) for line in body.splitlines() if line.strip())


def _tidy(text: str) -> str:
    return re.sub(r"[ \t]+", " ", text).strip()


def _step(line: str) -> GoldStep:
    line = _tidy(line)
    text, places = "", []
    at = 0
    for match in _ANNOTATION.finditer(line):
        text += line[at : match.start()]
        places.append((len(text), match["left"], match["right"]))
        at = match.end()
    text += line[at:]
    if "<<" in text or ">>" in text:
        raise Refused("a broken annotation")
    numbers = numbers_in(text)
    equations = tuple(_equation(text, numbers, *place) for place in places)
    if len({equation.result for equation in equations}) < len(equations):
        raise Refused("two annotations of one number")
    _check_equalities(text, numbers, equations)
    return GoldStep(text, numbers, equations)


def _equation(text: str, numbers: tuple[Number, ...], place: int, left: str, right: str) -> Equation:
    result = next((at for at, number in enumerate(numbers) if number.start >= place), None)
    if result is None or text[place : numbers[result].start].strip(" $("):
        raise Refused("an annotation without its result in the text")
    form: list[str | int] = []
    values: list[Fraction] = []
    left = left.replace(",", "").replace("$", "").replace(" ", "")
    if _PIECE.sub("", left):
        raise Refused("an annotation that is no plain arithmetic")
    for piece in _PIECE.findall(left):
        if piece in "+-*/()":
            form.append(piece)
        else:
            form.append(len(values))
            values.append(Fraction(piece))
    if len(values) < 2:
        raise Refused("an annotation without an operation")
    try:
        exact, stated = _evaluate(list(form), values), read_number(right)
    except (ValueError, ZeroDivisionError, IndexError):
        raise Refused("an annotation that is no plain arithmetic") from None
    if stated != numbers[result].value:
        raise Refused("text and annotation differ")
    if exact != stated:
        raise Refused("a rounded result")
    hidden = Equation(tuple(form), tuple(Operand(value) for value in values), result, exact)
    before = text[:place].rstrip(" $(")
    if not before.endswith("="):
        return hidden
    return _shown(text, numbers, hidden, len(before) - 1)


def _shown(text: str, numbers: tuple[Number, ...], hidden: Equation, sign_at: int) -> Equation:
    """The equation with its operands found in the text to the left of the sign `=`."""
    count = len(hidden.operands)
    before = [at for at, number in enumerate(numbers) if number.end <= sign_at][-count:]
    if len(before) < count:
        raise Refused("text and annotation differ")
    operands = []
    for at, operand in zip(before, hidden.operands, strict=True):
        number = numbers[at]
        if number.percent and operand.value * 100 == number.value:
            operands.append(Operand(operand.value, at, Fraction(1, 100)))
        elif number.value == operand.value:
            operands.append(Operand(operand.value, at))
        else:
            raise Refused("text and annotation differ")
    wanted = [piece for piece in hidden.form if isinstance(piece, str) and piece not in "()"]
    signs: list[tuple[int, int]] = []
    for at, following in zip(before, [*before[1:], None], strict=True):
        end = sign_at if following is None else numbers[following].start
        found = list(_SIGN.finditer(text, numbers[at].end, end))
        if following is None:
            if found:
                raise Refused("text and annotation differ")
        elif len(found) != 1 or SIGNS[found[0][0]] != wanted[len(signs)]:
            raise Refused("text and annotation differ")
        else:
            signs.append(found[0].span())
    return Equation(hidden.form, tuple(operands), hidden.result, hidden.value, tuple(signs))


def _check_equalities(text: str, numbers: tuple[Number, ...], equations: tuple[Equation, ...]) -> None:
    """Refuse text with an equality that no annotation tells: it could not be recomputed."""
    for match in re.finditer(r"=", text):
        following = next((at for at, number in enumerate(numbers) if number.start > match.start()), None)
        told = following is not None and any(equation.result == following for equation in equations)
        if not told or text[match.end() : numbers[following or 0].start].strip(" $("):
            raise Refused("an equation without annotation")


def _evaluate(form: list[str | int], values: Sequence[Fraction]) -> Fraction:
    """Plain arithmetic with the usual precedence."""
    rest = list(form)

    def factor() -> Fraction:
        piece = rest.pop(0)
        if piece == "(":
            value = total()
            if rest.pop(0) != ")":
                raise ValueError("an open parenthesis")
            return value
        if piece == "-":
            return -factor()
        if not isinstance(piece, int):
            raise ValueError("an operand is missing")
        return values[piece]

    def product() -> Fraction:
        value = factor()
        while rest and rest[0] in ("*", "/"):
            value = value * factor() if rest.pop(0) == "*" else value / factor()
        return value

    def total() -> Fraction:
        value = product()
        while rest and rest[0] in ("+", "-"):
            value = value + product() if rest.pop(0) == "+" else value - product()
        return value

    value = total()
    if rest:
        raise ValueError("something is left over")
    return value
