"""Carrying a change of one step of a worked solution into the steps after it.

Where a number of a step comes from is told by its value: an earlier result, the problem, or a constant such as 60. A
change is carried only where this leaves no choice; everything else is refused, for a label by construction must be
exact. Numbers are replaced in place, in the format of the text. Knows worked solutions; knows no kinds of errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise

from .gold import Gold, GoldStep, Number, Refused, numbers_in

MAX_VALUE = 10**7
CONSTANTS = frozenset(map(Fraction, (1, 2, 3, 4, 5, 6, 7, 10, 12, 16, 24, 30, 31, 36, 50, 52, 60, 100, 360, 365, 1000)))
CONSTANTS |= {Fraction(1, part) for part in (2, 3, 4, 5, 8, 10, 100)} | {Fraction(3, 2), Fraction(3, 4)}
UNITS: dict[Fraction, re.Pattern[str]] = {
    Fraction(value): re.compile(rf"{words}", re.IGNORECASE)
    for value, words in {
        60: r"\b(?:hour|minute|second|hr|min)",
        24: r"\b(?:hour|day)",
        7: r"\b(?:week|day|daily)",
        4: r"\b(?:quarter|month)",
        12: r"\b(?:month|year|annual|dozen|inch|foot|feet)",
        52: r"\b(?:week|year|annual)",
        30: r"\bmonth",
        31: r"\bmonth",
        360: r"\byear",
        365: r"\b(?:year|day)",
        100: r"%|\b(?:percent|per cent|cents?\b|dollar|met(?:er|re)|cm|centimet)|\$",
        1000: r"\b(?:kilo|kg|km|gram|g\b|ml|milli|lit(?:er|re)|met(?:er|re)|ton)",
        16: r"\b(?:ounce|oz|pound|lb)",
        36: r"\b(?:yard|inch)",
        3: r"\b(?:yard|foot|feet)",
    }.items()
}
"""Factors between units -> words that announce them."""
_ALWAYS = frozenset(map(Fraction, (1, 2)))
_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty"
)
_TENS = "thirty forty fifty sixty seventy eighty ninety"
WORDS: dict[str, tuple[Fraction, ...]] = {
    **{word: (Fraction(value),) for value, word in enumerate(_ONES.split())},
    **{word: (Fraction(10 * value),) for value, word in enumerate(_TENS.split(), 3)},
    **dict.fromkeys(("twice", "double", "doubled", "both", "pair", "couple"), (Fraction(2),)),
    **dict.fromkeys(("thrice", "triple", "tripled"), (Fraction(3),)),
    "half": (Fraction(2), Fraction(1, 2)),
    "third": (Fraction(3), Fraction(1, 3)),
    "quarter": (Fraction(4), Fraction(1, 4), Fraction(25), Fraction(15)),
    "dozen": (Fraction(12),),
    "hundred": (Fraction(100),),
    "thousand": (Fraction(1000),),
}
"""Number words -> what they may stand for."""

Result = tuple[int, int]
"""A step and one of its equations."""


@dataclass(frozen=True)
class Edit:
    """A change of one step, before it is carried on."""

    step: int
    numbers: Mapping[int, Fraction] = field(default_factory=dict)
    """Index among the step's numbers -> what is written there instead."""
    result: tuple[int, Fraction] | None = None
    """An equation of the step whose result is wrong, and that result."""
    forms: Mapping[int, tuple[str | int, ...]] = field(default_factory=dict)
    """Equation of the step -> its changed form."""
    texts: tuple[tuple[int, int, str], ...] = ()
    """Spans of the step's text, and what stands there instead."""
    misread: Mapping[Fraction, Fraction] = field(default_factory=dict)
    """Numbers of the problem that are misread from this step on."""
    taken_for: Mapping[Result, Fraction] = field(default_factory=dict)
    """An earlier result that counts as another value from this step on."""


@dataclass(frozen=True, slots=True)
class Look:
    """How numbers and signs are written, the same all through a solution."""

    cents: bool = False
    """`$12.00`, not `$12`."""
    commas: bool = False
    """`1,200`, not `1200`."""
    spaced: bool = False
    """`4 + 5 = 9`, not `4+5=9`."""


@dataclass(frozen=True, slots=True)
class Carried:
    """A solution after a change."""

    steps: tuple[str, ...]
    at: int
    """Where the first changed character is, in characters of the step that was changed."""
    value: Fraction
    """The final answer now."""
    results: Mapping[Result, Fraction]


def carry(gold: Gold, edit: Edit | None, look: Look | None = None) -> Carried:
    """Recompute a solution after a change of one of its steps.

    Args:
        gold: the right solution.
        edit: the change; None writes the right solution in another look.
        look: None = that of the solution.

    Raises:
        Refused: a number's source leaves a choice, or a value does not look like one of this problem.
    """
    return _Carrier(gold, edit, look or look_of(gold)).run()


def look_of(gold: Gold) -> Look:
    """How a solution writes its numbers."""
    numbers = [number for step in gold.steps for number in step.numbers]
    return Look(
        cents=False,
        commas=any("," in number.text for number in numbers),
        spaced=False,
    )


def problem_values(problem: str) -> set[Fraction]:
    """The numbers that a problem states, in digits and words, and percentages in the forms that steps use."""
    values: set[Fraction] = set()
    numerals = numbers_in(problem)
    for number in numerals:
        values.add(number.value)
        if number.percent:
            share = number.value / 100
            values |= {share, 1 - share, 1 + share, 100 - number.value, 100 + number.value}
    for left, right in pairwise(numerals):
        if problem[left.end : right.start] == "/" and right.value:
            values |= {left.value / right.value, right.value - left.value, 1 - left.value / right.value}
    for word in re.findall(r"[a-z]+", problem.lower()):
        for value in WORDS.get(word, ()) + WORDS.get(word.removesuffix("s"), ()):
            values.add(value)
    return values


def sources(gold: Gold, step: int, value: Fraction, before: int | None = None) -> list[Result]:
    """The earlier results with a value.

    Args:
        gold: the solution.
        step: where the value is used.
        value: it.
        before: of the step's own results only those of equations before this one; None = all.
    """
    own = len(gold.steps[step].equations) if before is None else before
    return [
        (at, number)
        for at in range(step + 1)
        for number, equation in enumerate(gold.steps[at].equations[: own if at == step else None])
        if equation.value == value
    ]


class _Carrier:
    def __init__(self, gold: Gold, edit: Edit | None, look: Look):
        self.gold, self.edit, self.look = gold, edit, look
        self.given = problem_values(gold.problem)
        self.results: dict[Result, Fraction] = {}
        self.first: int | None = None

    def run(self) -> Carried:
        texts = []
        for at, step in enumerate(self.gold.steps):
            if self.edit is None or at < self.edit.step:
                self.results |= {(at, number): equation.value for number, equation in enumerate(step.equations)}
                texts.append(self._written(step, {}, ()))
            else:
                if at == self.edit.step:
                    self.results |= self.edit.taken_for
                texts.append(self._step(at, step, self.edit))
        last = len(self.gold.steps) - 1
        value = self.results[last, len(self.gold.steps[last].equations) - 1]
        return Carried(tuple(texts), self.first or 0, value, self.results)

    def _step(self, at: int, step: GoldStep, edit: Edit) -> str:
        here = at == edit.step
        forced = dict(edit.numbers) if here else {}
        if {step.numbers[place].value for place in forced} & {equation.value for equation in step.equations}:
            raise Refused("a number with two possible sources")
        new: dict[int, Fraction] = {}
        for number, equation in enumerate(step.equations):
            values = []
            for operand in equation.operands:
                if operand.number is not None and operand.number in forced:
                    values.append(forced[operand.number] * operand.scale)
                    continue
                if operand.number is not None and (source := step.result_of(operand.number)) is not None:
                    values.append(self.results[at, source] * operand.scale)
                    continue
                value = self._resolved(at, operand.value, number, operand=True)
                values.append(value)
                if operand.number is not None:
                    new[operand.number] = value / operand.scale
            value = equation.evaluate(values, edit.forms.get(number) if here else None)
            if here and edit.result is not None and edit.result[0] == number:
                value = edit.result[1]
            self.results[at, number] = value
            new[equation.result] = value
        new |= forced
        for number, written in enumerate(step.numbers):
            if number not in new:
                new[number] = self._resolved(at, written.value, None, operand=False)
        self._check(step, new)
        changed = {number: value for number, value in new.items() if value != step.numbers[number].value}
        self._check_words(step)
        return self._written(step, changed, edit.texts if here else (), note=here)

    def _resolved(self, at: int, value: Fraction, before: int | None, *, operand: bool) -> Fraction:
        """What a number is now, from where it came."""
        assert self.edit is not None
        found = sources(self.gold, at, value, before)
        options = set()
        for source in found:
            options.add(self.results.get(source, value))
        if value in self.edit.misread and not found:
            options.add(self.edit.misread[value])
        elif value in self.given or (operand and self._may_be_constant(at, value)):
            options.add(value)
        if not options:
            if value in CONSTANTS:
                return value
            raise Refused("a number of unknown source")
        if len(options) > 1:
            raise Refused("a number with two possible sources")
        return options.pop()

    def _may_be_constant(self, at: int, value: Fraction) -> bool:
        """Whether a number may be one that everybody knows, although it is a result too."""
        words = UNITS.get(value)
        texts = (self.gold.problem, self.gold.steps[at].text)
        return value in _ALWAYS or (words is not None and any(words.search(text) for text in texts))

    def _check(self, step: GoldStep, new: Mapping[int, Fraction]) -> None:
        for number, value in new.items():
            old = step.numbers[number]
            if value == old.value:
                continue
            if value < 0 or (value == 0 and old.value != 0):
                raise Refused("a negative value or zero")
            if value < 1 <= old.value:
                raise Refused("a value below 1")
            if value > MAX_VALUE:
                raise Refused("a value that is too large")
            if (value * 100).denominator != 1:
                raise Refused("a value without a short decimal form")
            if old.value.denominator == 1 and value.denominator != 1 and not old.money:
                raise Refused("a fraction of what is counted whole")
            follows = re.match(r"[ -]*[A-Za-z]", step.text[old.end :])
            if 1 in (value, old.value) and follows:
                raise Refused("singular and plural")
            if old.percent and old.value <= 100 < value:
                raise Refused("a percentage above 100")

    def _check_words(self, step: GoldStep) -> None:
        """A result that changed must not stand in the text as a word."""
        for source, value in self.results.items():
            old = self.gold.steps[source[0]].equations[source[1]].value
            if value == old or old in self.given or old in CONSTANTS:
                continue
            if any(old in WORDS.get(word, ()) for word in re.findall(r"[a-z]+", step.text.lower())):
                raise Refused("a changed number is written as a word")

    def _written(
        self,
        step: GoldStep,
        changed: Mapping[int, Fraction],
        texts: Iterable[tuple[int, int, str]],
        *,
        note: bool = False,
    ) -> str:
        parts = list(texts)
        marks = [start for start, _, _ in parts]
        for number, old in enumerate(step.numbers):
            if any(start <= old.start < end for start, end, _ in texts):
                continue
            if number in changed:
                marks.append(old.start)
            parts.append((old.start, old.end, written(changed.get(number, old.value), old, self.look)))
        parts += self._spacing(step, parts)
        text, at = "", 0
        first = min(marks, default=-1)
        for start, end, piece in sorted(parts):
            text += step.text[at:start]
            if note and start == first:
                self.first = len(text)
            text += piece
            at = end
        return text + step.text[at:]

    def _spacing(self, step: GoldStep, parts: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
        """Blanks around the signs of shown calculations, where the look wants them."""
        if not self.look.spaced:
            return []
        found = []
        for equation in step.equations:
            places = list(equation.signs)
            if equation.visible:
                sign = step.text.rfind("=", 0, step.numbers[equation.result].start)
                places.append((sign, sign + 1))
            for start, end in places:
                for spot in (start, end):
                    around = step.text[spot - 1 : spot + 1]
                    taken = any(a < spot < b or (a == spot and a == b) for a, b, _ in parts)
                    if " " not in around and not taken:
                        found.append((spot, spot, " "))
        return found


def written(value: Fraction, like: Number, look: Look) -> str:
    """A value in the format of the number that it stands for."""
    if value == like.value and not look.cents and not (look.commas and value >= 1000):
        return like.text
    decimals = len(like.text.partition(".")[2])
    places = next(places for places in range(9) if (value * 10**places).denominator == 1)
    if like.money and (places or decimals == 2 or look.cents):
        places = max(places, 2) if decimals != 1 or look.cents or places == 2 else places
    text = f"{float(value):,.{places}f}" if look.commas else f"{float(value):.{places}f}"
    if like.text.startswith(".") and text.startswith("0."):
        text = text[1:]
    return text
