"""Wrong solutions made from right ones: one controlled error each, so that the first wrong step is known exactly.

Each kind of error is a function that proposes edits; carry.py recomputes all that follows, so that later steps are
consistent with the error, as they are in a model's own wrong solutions. Everything is drawn from the generator that is
given. Which proposals were refused, and why, is kept.

What is known by construction is that the labelled step is the first one to state something false of its problem. It is
only as true as the worked solution: where that is wrong before, the label is too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from random import Random
from typing import Literal, get_args

from .carry import UNITS, Carried, Edit, Look, carry, look_of, sources, written
from .gold import SIGNS, Equation, Gold, GoldStep, Number, Refused, numbers_in

Kind = Literal["arithmetic", "operator", "quantity", "dropped_condition", "skipped_step", "copy", "unit", "premature"]
KINDS: tuple[Kind, ...] = get_args(Kind)
CONVERSIONS: dict[Fraction, tuple[int, ...]] = {
    Fraction(right): wrong
    for right, wrong in {
        60: (100, 24, 10),
        24: (12, 60),
        7: (5, 6),
        12: (10, 6),
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
class Perturbed:
    """A wrong solution."""

    kind: Kind
    steps: tuple[str, ...]
    label: int
    """The first wrong step; where it equals the number of steps, it is the closing that states the answer."""
    at: int
    """Where in that step the error begins, in characters."""
    value: Fraction
    """The final answer that it comes to."""
    stated: str
    """That answer as the text has it."""


@dataclass(slots=True)
class Refusals:
    """What was proposed and could not be used, by kind and reason."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, kind: str, reason: str) -> None:
        """Count one."""
        self.counts[kind, reason] += 1


def perturb(
    gold: Gold, kind: Kind, rng: Random, look: Look | None = None, refusals: Refusals | None = None
) -> Perturbed:
    """Make one wrong solution of a kind.

    Args:
        gold: a right solution.
        kind: of error.
        rng: draws where the error is and what it is.
        look: how numbers are written; None = as in the solution.
        refusals: counts what was proposed and refused; one reason for a kind that cannot be made at all.

    Raises:
        Refused: no proposal of this kind holds; the reason is that of most of them.
    """
    look = look or look_of(gold)
    reasons: Counter[str] = Counter()
    proposals = list(_PROPOSERS[kind](gold, rng))
    rng.shuffle(proposals)
    for proposal in proposals:
        try:
            made = proposal(look)
            _check(gold, made)
        except Refused as refused:
            reasons[refused.reason] += 1
        else:
            return made
    reason = reasons.most_common(1)[0][0] if reasons else "no place for this kind"
    if refusals is not None:
        refusals.add(kind, reason)
    raise Refused(reason)


Proposal = Callable[[Look], Perturbed]


def _check(gold: Gold, made: Perturbed) -> None:
    if made.value == gold.value:
        raise Refused("the final answer stays right")


def _edited(gold: Gold, kind: Kind, edit: Edit, drop: int | None = None) -> Proposal:
    """A proposal by an edit; `drop` is a step that is left out before it."""

    def make(look: Look) -> Perturbed:
        carried = carry(gold, edit, look)
        _check_step_is_wrong(gold, edit, carried)
        steps = tuple(text for at, text in enumerate(carried.steps) if at != drop)
        label = edit.step - (drop is not None and drop < edit.step)
        return Perturbed(kind, steps, label, carried.at, carried.value, _stated(gold, carried.value, look))

    return make


def _check_step_is_wrong(gold: Gold, edit: Edit, carried: Carried) -> None:
    """The changed step must come to another result than the right one."""
    equations = gold.steps[edit.step].equations
    if all(carried.results[edit.step, at] == equation.value for at, equation in enumerate(equations)):
        raise Refused("the step's result stays right")


def _stated(gold: Gold, value: Fraction, look: Look) -> str:
    return written(value, _final(gold), look)


def _final(gold: Gold) -> Number:
    last = gold.steps[-1]
    return last.numbers[last.equations[-1].result]


def final_text(gold: Gold, look: Look) -> tuple[str, bool]:
    """The right answer as the text would have it, and whether it is money."""
    return _stated(gold, gold.value, look), _final(gold).money


def _calculations(gold: Gold) -> Iterator[tuple[int, GoldStep, int, Equation]]:
    for at, step in enumerate(gold.steps):
        for number, equation in enumerate(step.equations):
            yield at, step, number, equation


def _arithmetic(gold: Gold, rng: Random) -> Iterator[Proposal]:
    """A calculation that the text shows comes to a wrong result."""
    for at, _, number, equation in _calculations(gold):
        if equation.visible:
            for value in slips(equation, rng)[:2]:
                yield _edited(gold, "arithmetic", Edit(at, result=(number, value)))


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
        signs = [place for place, piece in enumerate(equation.form) if isinstance(piece, str) and piece not in "()"]
        for (start, end), place in zip(equation.signs, signs, strict=False):
            old = str(equation.form[place])
            for new in {"+": "-*", "-": "+", "*": "+/", "/": "*-"}[old]:
                form = (*equation.form[:place], new, *equation.form[place + 1 :])
                text = _same_style(step.text[start:end], new, times)
                yield _edited(gold, "operator", Edit(at, forms={number: form}, texts=((start, end, text),)))


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
    for at, step, number, equation in _calculations(gold):
        for operand in equation.operands:
            shown = None if operand.number is None else step.numbers[operand.number]
            if shown is None or counts[shown.value] != 1 or shown.value in CONVERSIONS or operand.scale != 1:
                continue
            old = next(item for item in numerals if item.value == shown.value)
            if sources(gold, at, shown.value, number) or _earlier_use(gold, at, shown.value):
                continue
            for other in {item.value: item for item in numerals}.values():
                alike = other.money == old.money and other.percent == old.percent
                if other.value != old.value and alike and _comparable(old.value, other.value):
                    forced = _everywhere(step, shown.value, other.value)
                    yield _edited(gold, "quantity", Edit(at, numbers=forced, misread={shown.value: other.value}))


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
        if not equation.visible or len(equation.operands) < 3 or "(" in equation.form:
            continue
        sign = step.text.rfind("=", 0, step.numbers[equation.result].start)
        signs = [*equation.form[1::2], ""]
        for place in range(len(equation.operands)):
            if place and signs[place - 1] in ("+", "-") and signs[place] in ("*", "/"):
                continue  # what was left would be tied to another term
            shown = step.numbers[equation.operands[place].number or 0]
            if place:
                start = equation.signs[place - 1][0]
                end = equation.signs[place][0] if place < len(equation.signs) else sign
                form = _without(equation.form, 2 * place - 1)
            elif equation.form[1] in ("+", "*"):
                start, end = shown.start, step.numbers[equation.operands[1].number or 0].start
                form = _without(equation.form, 0)
            else:
                continue
            yield _edited(gold, "dropped_condition", Edit(at, forms={number: form}, texts=((start, end, ""),)))


def _without(form: tuple[str | int, ...], at: int) -> tuple[str | int, ...]:
    return form[:at] + form[at + 2 :]


def _skipped(gold: Gold, _: Random) -> Iterator[Proposal]:
    """A step is left out, and what it starts from is used in place of its result."""
    for at, step, number, equation in _calculations(gold):
        if len(step.equations) != 1 or at == len(gold.steps) - 1:
            continue
        user = next(
            (
                later
                for later in range(at + 1, len(gold.steps))
                if any(item.value == equation.value for item in gold.steps[later].numbers)
            ),
            None,
        )
        if user is None or not _computes_with(gold.steps[user], equation.value):
            continue
        for operand in equation.operands:
            known = sources(gold, at, operand.value, number) or operand.value in {
                item.value for item in numbers_in(gold.problem)
            }
            if known and _same_unit(step, operand.number, equation.result):
                yield _edited(gold, "skipped_step", Edit(user, taken_for={(at, number): operand.value}), drop=at)


def _computes_with(step: GoldStep, value: Fraction) -> bool:
    return any(operand.value == value for equation in step.equations for operand in equation.operands)


def _same_unit(step: GoldStep, operand: int | None, result: int) -> bool:
    """Whether an operand is of the result's kind, so that it can stand in its place."""
    return operand is None or step.numbers[operand].money == step.numbers[result].money


def _copy(gold: Gold, _: Random) -> Iterator[Proposal]:
    """A step takes an earlier result over wrongly: another one in its place, or with a digit changed."""
    for at, step, number, equation in _calculations(gold):
        for operand in equation.operands:
            shown = None if operand.number is None else step.numbers[operand.number]
            found = sources(gold, at, operand.value, number)
            if shown is None or not any(source[0] < at for source in found) or operand.scale != 1:
                continue
            others = {
                earlier.value
                for before, _, _, earlier in _calculations(gold)
                if before < at
                and earlier.value != operand.value
                and operand.value <= 20 * earlier.value
                and earlier.value <= 20 * operand.value
            }
            for value in sorted(others) + _miscopied(operand.value):
                yield _edited(gold, "copy", Edit(at, numbers=_everywhere(step, shown.value, value)))


def _miscopied(value: Fraction) -> list[Fraction]:
    """The number with two digits swapped."""
    if value.denominator != 1 or value < 10:
        return []
    digits = str(value)
    swapped = digits[:-2] + digits[-1] + digits[-2]
    return [Fraction(swapped)] if swapped != digits and swapped[0] != "0" else []


def _unit(gold: Gold, _: Random) -> Iterator[Proposal]:
    """A factor between units is wrong, or a percentage is taken as a plain number or a point is misplaced."""
    given = {number.value for number in numbers_in(gold.problem)}
    shares = {number.value / 100 for number in numbers_in(gold.problem) if number.percent}
    for at, step, number, equation in _calculations(gold):
        for operand in equation.operands:
            if operand.number is None or operand.scale != 1 or sources(gold, at, operand.value, number):
                continue
            wrong: tuple[Fraction, ...] = ()
            if operand.value in shares and operand.value < 1:
                wrong = (operand.value * 100, operand.value * 10, operand.value / 10)
            elif operand.value in CONVERSIONS and operand.value not in given and _is_product(equation):
                if not any(UNITS[operand.value].search(text) for text in (gold.problem, step.text)):
                    continue
                wrong = tuple(map(Fraction, CONVERSIONS[operand.value]))
            for value in wrong:
                yield _edited(gold, "unit", Edit(at, numbers=_everywhere(step, operand.value, value)))


def _is_product(equation: Equation) -> bool:
    return not set(equation.form) & {"+", "-"}


def _premature(gold: Gold, _: Random) -> Iterator[Proposal]:
    """The steps end early, and an intermediate value is given as the final answer."""
    if len(gold.steps) < 2 or not gold.steps[-2].equations:
        return

    def make(look: Look) -> Perturbed:
        kept = carry(gold, None, look).steps[:-1]
        step = gold.steps[-2]
        number = step.numbers[step.equations[-1].result]
        if number.money != _final(gold).money:
            raise Refused("an intermediate value of another kind")
        return Perturbed("premature", kept, len(kept), 0, number.value, written(number.value, number, look))

    yield make


_PROPOSERS: dict[Kind, Callable[[Gold, Random], Iterator[Proposal]]] = {
    "arithmetic": _arithmetic,
    "operator": _operator,
    "quantity": _quantity,
    "dropped_condition": _dropped,
    "skipped_step": _skipped,
    "copy": _copy,
    "unit": _unit,
    "premature": _premature,
}
