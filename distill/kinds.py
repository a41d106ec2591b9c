"""Where in a worked solution each kind of error has room, and what it changes.

Each kind is a function that proposes edits; whether one holds is found out by carrying it on (carry.py). Knows a
solution's arithmetic and a few facts of units; judges nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from random import Random
from typing import Literal, get_args

from .carry import UNITS, WORDS, Edit, sources
from .gold import SIGNS, Equation, Gold, GoldStep, numbers_in

Kind = Literal["arithmetic", "operator", "quantity", "dropped_condition", "skipped_step", "copy", "unit", "premature"]
KINDS: tuple[Kind, ...] = get_args(Kind)
CONVERSIONS: dict[Fraction, tuple[int, ...]] = {
    Fraction(right): wrong
    for right, wrong in {
        60: (100,),
        24: (12,),
        7: (5, 6),
        12: (10,),
        52: (50, 48),
        365: (360, 300),
        100: (10, 1000),
        1000: (100,),
        16: (12, 10),
        36: (12,),
    }.items()
}
"""Factors between units -> what they are mistaken for."""
_WORDED = {"*": "times", "/": "divided by", "+": "plus", "-": "minus"}


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change that would make an error."""

    edit: Edit | None
    """None = the last step is left out, and the result before it given as the answer."""
    drop: int | None = None
    """A step that is left out; the edit's step uses what it led to."""


def propose(gold: Gold, kind: Kind, rng: Random) -> list[Proposal]:
    """All places for a kind of error in a solution; `rng` draws wrong results."""
    return list(_KINDS[kind](gold, rng))


def _calculations(gold: Gold) -> Iterator[tuple[int, GoldStep, int, Equation]]:
    for at, step in enumerate(gold.steps):
        for number, equation in enumerate(step.equations):
            yield at, step, number, equation


def _arithmetic(gold: Gold, rng: Random) -> Iterator[Proposal]:
    """A calculation that the text shows comes to a wrong result."""
    for at, _, number, equation in _calculations(gold):
        if equation.visible:
            for value in slips(equation, rng)[:2]:
                yield Proposal(Edit(at, result=(number, value)))


def slips(equation: Equation, rng: Random) -> list[Fraction]:
    """Results that somebody could come to by a slip, in random order."""
    right = equation.value
    unit = Fraction(1, 10 ** next(places for places in range(9) if (right * 10**places).denominator == 1))
    found = {right + unit, right - unit}
    if abs(right) >= 20 * unit:
        found |= {right + 10 * unit, right - 10 * unit}
    if abs(right) >= 1000 * unit:
        found |= {right + 100 * unit, right - 100 * unit}
    values = [operand.value for operand in equation.operands]
    if len(values) == 2 and "*" in equation.form:
        found |= {values[0] * (values[1] + step) for step in (1, -1)} | {
            (values[0] + step) * values[1] for step in (1, -1)
        }
    digits = str(int(right / unit))
    for at in range(len(digits) - 1):
        found.add(int(digits[:at] + digits[at + 1] + digits[at] + digits[at + 2 :]) * unit)
    likely = [value for value in found if value != right and 2 * right / 3 <= value <= 3 * right / 2]
    likely.sort()
    rng.shuffle(likely)
    return likely


def _operator(gold: Gold, _: Random) -> Iterator[Proposal]:
    """One operation of a calculation is another one."""
    times = _times(gold)
    for at, step, number, equation in _calculations(gold):
        places = [place for place, piece in enumerate(equation.form) if isinstance(piece, str) and piece not in "()"]
        for count, ((start, end), place) in enumerate(zip(equation.signs, places, strict=False)):
            if _in_fraction(equation, count):
                continue
            for new in {"+": "-*", "-": "+", "*": "+/", "/": "*-"}[str(equation.form[place])]:
                form = (*equation.form[:place], new, *equation.form[place + 1 :])
                text = _same_style(step.text[start:end], new, times)
                yield Proposal(Edit(at, forms={number: form}, texts=((start, end, text),)))


def _in_fraction(equation: Equation, sign: int) -> bool:
    """Whether a sign is the stroke of a fraction such as 3/4 among other numbers; nobody takes it for a sum."""
    if sign >= len(equation.signs) or len(equation.operands) < 3:
        return False
    left, right = equation.operands[sign].value, equation.operands[sign + 1].value
    pieces = [piece for piece in equation.form if isinstance(piece, str) and piece not in "()"]
    return pieces[sign] == "/" and left < right and left.denominator == right.denominator == 1


def _times(gold: Gold) -> str:
    """How the solution writes a multiplication."""
    shown = (step.text[start:end] for _, step, _, equation in _calculations(gold) for start, end in equation.signs)
    return next((sign for sign in shown if SIGNS[sign] == "*" and len(sign) == 1), "*")


def _same_style(old: str, new: str, times: str) -> str:
    return _WORDED[new] if len(old) > 1 else times if new == "*" else new


def _quantity(gold: Gold, _: Random) -> Iterator[Proposal]:
    """A number of the problem is read as another one of the problem."""
    numerals = numbers_in(gold.problem)
    counts = Counter(number.value for number in numerals)
    in_words = {value for word in re.findall(r"[a-z]+", gold.problem.lower()) for value in WORDS.get(word, ())}
    for at, step, number, equation in _calculations(gold):
        for operand in equation.operands:
            shown = None if operand.number is None else step.numbers[operand.number]
            if shown is None or counts[shown.value] != 1 or operand.scale != 1:
                continue
            # A 2 may be the problem's 2 or its "twice", a 60 its 60 or the minutes of an hour.
            if shown.value in in_words or shown.value in CONVERSIONS:
                continue
            if sources(gold, at, shown.value, number) or _earlier_use(gold, at, shown.value):
                continue
            old = next(item for item in numerals if item.value == shown.value)
            for other in {item.value: item for item in numerals}.values():
                alike = other.money == old.money and other.percent == old.percent
                if other.value != old.value and alike and _comparable(old.value, other.value):
                    forced = _everywhere(step, shown.value, other.value)
                    yield Proposal(Edit(at, numbers=forced, misread={shown.value: other.value}))


def _everywhere(step: GoldStep, old: Fraction, new: Fraction) -> dict[int, Fraction]:
    """A change of every number of a step that has a value, its results left out."""
    return {
        place: new for place, number in enumerate(step.numbers) if number.value == old and step.result_of(place) is None
    }


def _earlier_use(gold: Gold, at: int, value: Fraction) -> bool:
    """Whether an earlier step has the number right, so that a misreading would contradict it."""
    return any(number.value == value for step in gold.steps[:at] for number in step.numbers)


def _comparable(old: Fraction, other: Fraction) -> bool:
    """Whether two values could be taken for each other: not a small count for a large price, and not a bare 1."""
    small, large = sorted((old, other))
    return small > 0 and other != 1 and large <= 20 * small


def _dropped(gold: Gold, _: Random) -> Iterator[Proposal]:
    """A term or factor of a calculation with three or more is left out."""
    for at, step, number, equation in _calculations(gold):
        for place, operand in enumerate(equation.operands):
            # Without a conversion it is an error of units.
            if operand.value not in CONVERSIONS and (edit := _left_out(at, step, number, place)) is not None:
                yield Proposal(edit)


def _left_out(at: int, step: GoldStep, number: int, place: int) -> Edit | None:
    """An edit that leaves one operand out of a calculation, where something sensible remains."""
    equation = step.equations[number]
    signs = [str(piece) for piece in equation.form[1::2]]
    plain = all(isinstance(piece, int) == (index % 2 == 0) for index, piece in enumerate(equation.form))
    if not equation.visible or len(equation.operands) < 3 or not plain:
        return None
    if _in_fraction(equation, place) or (place and _in_fraction(equation, place - 1)):
        return None
    following = signs[place] if place < len(signs) else ""
    if place == 0:
        if following not in ("+", "*"):
            return None
        places = [step.numbers[operand.number or 0].start for operand in equation.operands[:2]]
        return Edit(at, forms={number: equation.form[2:]}, texts=((places[0], places[1], ""),))
    if signs[place - 1] in ("+", "-") and following in ("*", "/"):
        return None  # what was left would be tied to another term
    start = equation.signs[place - 1][0]
    end = step.text.rfind("=", 0, step.numbers[equation.result].start)
    if following:
        end = equation.signs[place][0]
    form = equation.form[: 2 * place - 1] + equation.form[2 * place + 1 :]
    return Edit(at, forms={number: form}, texts=((start, end, ""),))


def _skipped(gold: Gold, _: Random) -> Iterator[Proposal]:
    """A step is left out, and what it starts from is used in place of its result."""
    for at, step, number, equation in _calculations(gold):
        if not any(operand.value in CONVERSIONS for operand in equation.operands):
            yield from _skips(gold, at, step, number)


def _skips(gold: Gold, at: int, step: GoldStep, number: int) -> Iterator[Proposal]:
    equation = step.equations[number]
    if len(step.equations) != 1 or at == len(gold.steps) - 1:
        return
    later = range(at + 1, len(gold.steps))
    user = next((one for one in later if any(item.value == equation.value for item in gold.steps[one].numbers)), None)
    if user is None or not _computes_with(gold.steps[user], equation.value):
        return
    given = {item.value for item in numbers_in(gold.problem)}
    for operand in equation.operands:
        known = bool(sources(gold, at, operand.value, number)) or operand.value in given
        if known and _same_unit(step, operand.number, equation.result):
            yield Proposal(Edit(user, taken_for={(at, number): operand.value}), drop=at)


def _computes_with(step: GoldStep, value: Fraction) -> bool:
    return any(operand.value == value for equation in step.equations for operand in equation.operands)


def _same_unit(step: GoldStep, operand: int | None, result: int) -> bool:
    """Whether an operand is of the result's kind, so that it can stand in its place."""
    return operand is None or step.numbers[operand].money == step.numbers[result].money


def _copy(gold: Gold, _: Random) -> Iterator[Proposal]:
    """A step takes an earlier result over wrongly: another one in its place, or with two digits swapped."""
    for at, step, number, equation in _calculations(gold):
        before = {other.value for earlier, _, _, other in _calculations(gold) if earlier < at}
        for operand in equation.operands:
            shown = None if operand.number is None else step.numbers[operand.number]
            found = sources(gold, at, operand.value, number)
            if shown is None or not any(source[0] < at for source in found) or operand.scale != 1:
                continue
            others = {value for value in before if value != operand.value and _comparable(operand.value, value)}
            for value in sorted(others) + _miscopied(operand.value):
                yield Proposal(Edit(at, numbers=_everywhere(step, shown.value, value)))


def _miscopied(value: Fraction) -> list[Fraction]:
    """The number with two digits swapped."""
    if value.denominator != 1 or value < 10:
        return []
    digits = str(value)
    swapped = digits[:-2] + digits[-1] + digits[-2]
    return [Fraction(swapped)] if swapped != digits and swapped[0] != "0" else []


def _unit(gold: Gold, _: Random) -> Iterator[Proposal]:
    """A conversion between units is forgotten or done with a wrong factor, or a percentage is taken wrongly."""
    numerals = numbers_in(gold.problem)
    given = {number.value for number in numerals}
    shares = {number.value / 100 for number in numerals if number.percent}
    for at, step, number, equation in _calculations(gold):
        for place, operand in enumerate(equation.operands):
            if sources(gold, at, operand.value, number) or operand.scale != 1:
                continue
            if _converts(gold, step, equation, operand.value) and operand.value not in given:
                if (edit := _left_out(at, step, number, place)) is not None:
                    yield Proposal(edit)
                yield from _skips(gold, at, step, number)
                wrong = tuple(map(Fraction, CONVERSIONS[operand.value]))
            elif operand.value in shares and operand.value < 1:
                wrong = (operand.value * 100, operand.value * 10, operand.value / 10)
            else:
                wrong = ()
            for value in wrong if operand.number is not None else ():
                yield Proposal(Edit(at, numbers=_everywhere(step, operand.value, value)))


def _converts(gold: Gold, step: GoldStep, equation: Equation, value: Fraction) -> bool:
    """Whether a number is a factor between units."""
    if value not in CONVERSIONS or set(equation.form) & {"+", "-"}:
        return False
    return any(UNITS[value].search(text) for text in (gold.problem, step.text))


def _premature(gold: Gold, _: Random) -> Iterator[Proposal]:
    """The steps end early, and an intermediate value is given as the final answer."""
    if len(gold.steps) >= 2 and gold.steps[-2].equations:
        yield Proposal(None)


_KINDS: dict[Kind, Callable[[Gold, Random], Iterator[Proposal]]] = {
    "arithmetic": _arithmetic,
    "operator": _operator,
    "quantity": _quantity,
    "dropped_condition": _dropped,
    "skipped_step": _skipped,
    "copy": _copy,
    "unit": _unit,
    "premature": _premature,
}
