"""Ways of writing the same solution, drawn alike for right and wrong ones.

Without them a judge could learn how a perturbed text looks instead of what is wrong with it. Knows texts and where the
error begins; knows no arithmetic.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random
from typing import Literal

from .carry import Look

Closing = Literal["hashes", "step", "sentence", "boxed"]
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class Style:
    """One way of writing."""

    look: Look
    closing: Closing
    """How the final answer is stated: `#### 5` below the last step, a step of its own, a last sentence, or a box."""
    stops: bool
    """Every step ends with a full stop."""
    split: bool
    """A step of two sentences becomes two steps, where there is one."""
    merge: bool
    """Two neighbouring steps become one."""
    place: float
    """Which step that is, as a share of the choices."""


@dataclass(frozen=True, slots=True)
class Styled:
    """A solution as it is written at last."""

    steps: tuple[str, ...]
    label: int
    """The first wrong step; -1 = none."""


def draw_style(rng: Random, *, commas: bool = False) -> Style:
    """Draw a way of writing.

    Args:
        rng: of the row; the same draws whatever the solution is.
        commas: the solution writes `1,200` already.
    """
    cents, thousands, spaced = rng.random() < 0.15, rng.random() < 0.3, rng.random() < 0.5
    closing: Closing = rng.choices(("hashes", "step", "sentence", "boxed"), (4, 2, 2, 2))[0]
    stops, split, merge, place = rng.random() < 0.5, rng.random() < 0.3, rng.random() < 0.15, rng.random()
    return Style(Look(cents, thousands or commas, spaced), closing, stops, split, merge, place)


def write(steps: tuple[str, ...], label: int, at: int, stated: str, money: bool, style: Style) -> Styled:
    """Put a solution into a style and follow its first error.

    Args:
        steps: as they are, without a statement of the answer.
        label: the first wrong step; -1 = none; the number of steps = the statement of the answer.
        at: where in that step the error begins, in characters.
        stated: the final answer as text.
        money: whether it is an amount of dollars.
        style: how to write.
    """
    texts, wrong = list(steps), label
    if style.stops:
        texts = [text if text[-1:] in ".!?" else text + "." for text in texts]
    if style.split:
        wrong, at = _split(texts, wrong, at, style.place)
    if style.merge:
        wrong = _merge(texts, wrong, style.place)
    own, closing = _closing(stated, money, style)
    if own:
        texts.append(closing)
    else:
        last = texts[-1]
        if style.closing == "sentence" and last[-1:] not in ".!?":
            last += "."
        texts[-1] = last + closing
        if wrong == len(texts):
            wrong -= 1
    return Styled(tuple(texts), wrong)


def _closing(stated: str, money: bool, style: Style) -> tuple[bool, str]:
    """Whether the answer is stated in a step of its own, and how."""
    amount = f"${stated}" if money else stated
    if style.closing == "hashes":
        return False, f"\n#### {stated}"
    if style.closing == "sentence":
        return False, f" The answer is {amount}."
    if style.closing == "step":
        return True, f"So the answer is {amount}."
    boxed = stated.replace(",", "{,}")
    return True, f"The final answer is \\boxed{{{boxed}}}."


def _split(texts: list[str], wrong: int, at: int, place: float) -> tuple[int, int]:
    choices = [(step, match.span()) for step, text in enumerate(texts) for match in _SENTENCE.finditer(text)]
    if not choices:
        return wrong, at
    step, (end, start) = choices[int(place * len(choices))]
    text = texts[step]
    texts[step : step + 1] = [text[:end], text[start:]]
    if wrong > step or (wrong == step and at >= start):
        return wrong + 1, at - start if wrong == step else at
    return wrong, at


def _merge(texts: list[str], wrong: int, place: float) -> int:
    if len(texts) < 2:
        return wrong
    step = int(place * (len(texts) - 1))
    first = texts[step] if texts[step][-1:] in ".!?" else texts[step] + "."
    texts[step : step + 2] = [f"{first} {texts[step + 1]}"]
    return wrong - 1 if wrong > step else wrong
