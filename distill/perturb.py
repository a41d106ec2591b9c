"""Wrong solutions made from right ones: one controlled error each, so that the first wrong step is known exactly.

kinds.py proposes errors and carry.py recomputes all that follows, so that later steps are consistent with the error, as
they are in a model's own wrong solutions. Everything is drawn from the generator that is given. Which proposals were
refused, and why, is said.

What is known by construction is that the labelled step is the first one to state something false of its problem. It is
only as true as the worked solution: where that is wrong before, the label is too.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from random import Random

from .carry import Carried, Edit, Look, carry, look_of, written
from .gold import Gold, Number, Refused
from .kinds import KINDS, Kind, Proposal, propose

__all__ = ["KINDS", "Kind", "Perturbed", "final_text", "perturb"]
NO_PLACE = "no place for this kind"


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


def perturb(gold: Gold, kind: Kind, rng: Random, look: Look | None = None) -> Perturbed:
    """Make one wrong solution of a kind.

    Args:
        gold: a right solution.
        kind: of error.
        rng: draws where the error is and what it is.
        look: how numbers are written; None = as in the solution.

    Raises:
        Refused: no proposal of this kind holds; the reason is that of most of them.
    """
    look = look or look_of(gold)
    reasons: Counter[str] = Counter()
    proposals = propose(gold, kind, rng)
    rng.shuffle(proposals)
    for proposal in proposals:
        try:
            return _made(gold, kind, proposal, look)
        except Refused as refused:
            reasons[refused.reason] += 1
    raise Refused(reasons.most_common(1)[0][0] if reasons else NO_PLACE)


def _made(gold: Gold, kind: Kind, proposal: Proposal, look: Look) -> Perturbed:
    if proposal.edit is None:
        made = _cut_short(gold, kind, look)
    else:
        edit, drop = proposal.edit, proposal.drop
        carried = carry(gold, edit, look)
        _check_step_is_wrong(gold, edit, carried)
        steps = tuple(text for at, text in enumerate(carried.steps) if at != drop)
        label = edit.step - (drop is not None and drop < edit.step)
        made = Perturbed(kind, steps, label, carried.at, carried.value, written(carried.value, _final(gold), look))
    if made.value == gold.value:
        raise Refused("the final answer stays right")
    return made


def _cut_short(gold: Gold, kind: Kind, look: Look) -> Perturbed:
    kept = carry(gold, None, look).steps[:-1]
    step = gold.steps[-2]
    number = step.numbers[step.equations[-1].result]
    if number.money != _final(gold).money:
        raise Refused("an intermediate value of another kind")
    return Perturbed(kind, kept, len(kept), 0, number.value, written(number.value, number, look))


def _check_step_is_wrong(gold: Gold, edit: Edit, carried: Carried) -> None:
    """The changed step must come to another result than the right one."""
    equations = gold.steps[edit.step].equations
    if all(carried.results[edit.step, at] == equation.value for at, equation in enumerate(equations)):
        raise Refused("the step's result stays right")


def _final(gold: Gold) -> Number:
    last = gold.steps[-1]
    return last.numbers[last.equations[-1].result]


def final_text(gold: Gold, look: Look) -> tuple[str, bool]:
    """The right answer as the text would have it, and whether it is money."""
    return written(gold.value, _final(gold), look), _final(gold).money
