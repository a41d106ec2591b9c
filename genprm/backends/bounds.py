"""Label probabilities from the likeliest tokens that a server shows, with bounds for what it does not show.

Knows numbers and spellings, no server. What is hidden is bounded, never guessed: a token that is not shown has at
most the smallest probability shown, and all of them together at most what is left of 1. Where the bounds leave the
verdict open there is none; otherwise the bound nearest to the threshold stands for the probability.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import Unscored
from .base import Labels

# What a token may begin with and still begin a label: servers differ in whether the label's space is part of it.
SPACES = " \n▁Ġ"
# Most that may be open between more than two labels, whose sums are what verdicts hang on.
MAX_SLACK = 0.1


@dataclass(frozen=True, slots=True)
class Bounded:
    """A label distribution read from some tokens only."""

    probs: Mapping[str, float]
    """Sums to 1."""
    mass: float
    """Probability of the tokens shown that begin a label; no more than all of it."""
    slack: float
    """How much further from the threshold a probability may lie."""


def bounded_labels(shown: Mapping[str, float], labels: Labels, threshold: float = 0.5) -> Bounded:
    """Label probabilities, as far as the tokens shown tell them.

    Args:
        shown: token text -> natural log of its full-vocabulary probability; not empty.
        labels: label -> spellings. A token counts for a label that it begins; one that begins several, for any of
            them.
        threshold: of two labels, the first one's verdict turns here.

    Raises:
        Unscored: the bounds leave the verdict open.
    """
    seen = dict.fromkeys(labels, 0.0)
    open_to = dict.fromkeys(labels, 0.0)
    mass = 0.0
    begun: dict[str, set[str]] = {label: set() for label in labels}
    bare = {label: [spelling.lstrip(SPACES) for spelling in spellings] for label, spellings in labels.items()}
    for token, log in shown.items():
        text, p = token.lstrip(SPACES), math.exp(log)
        fits = [label for label, spellings in bare.items() if text and any(s.startswith(text) for s in spellings)]
        for label in fits:
            begun[label].add(token)
            if len(fits) > 1:
                open_to[label] += p
        if len(fits) == 1:
            seen[fits[0]] += p
        mass += p if fits else 0.0
    rest = max(1.0 - sum(math.exp(log) for log in shown.values()), 0.0)
    smallest = math.exp(min(shown.values()))
    for label, spellings in bare.items():
        # Each beginning may stand with and without a space before it.
        beginnings = {spelling[:end] for spelling in spellings for end in range(1, len(spelling) + 1)}
        open_to[label] += min(rest, smallest * max(2 * len(beginnings) - len(begun[label]), 0))
    if mass > 0 and (read := _settled(seen, open_to, threshold)) is not None:
        probs, slack = read
        return Bounded(probs, min(mass, 1.0), slack)
    said = ", ".join(f"{label} {seen[label]:.2g} to {seen[label] + open_to[label]:.2g}" for label in labels)
    raise Unscored(f"the {len(shown)} likeliest tokens that the server shows leave the verdict open: {said}")


def _settled(
    seen: Mapping[str, float], open_to: Mapping[str, float], threshold: float
) -> tuple[dict[str, float], float] | None:
    """Probabilities and slack, or None where the verdict is open."""
    if len(seen) == 2:
        (first, second) = seen
        low = _share(seen[first], seen[second] + open_to[second])
        high = _share(seen[first] + open_to[first], seen[second])
        if low >= threshold:
            return {first: low, second: 1.0 - low}, high - low
        if high < threshold:
            return {first: high, second: 1.0 - high}, high - low
        return None
    total = sum(seen.values())
    ranked = sorted(seen, key=lambda label: -seen[label])
    most_of_others = max(seen[label] + open_to[label] for label in ranked[1:])
    slack = 1.0 - _share(total, sum(open_to.values()))
    if total == 0 or seen[ranked[0]] <= most_of_others or slack > MAX_SLACK:
        return None
    return {label: p / total for label, p in seen.items()}, slack


def _share(part: float, other: float) -> float:
    return part / (part + other) if part + other > 0 else 0.0
