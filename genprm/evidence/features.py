"""Evidence as numbers: what a fitted reward is made of. Knows the comparison, not how it is weighed."""

from __future__ import annotations

from .rule import first_wrong
from .support import SolutionSupport

NAMES = (
    *("agree", "agree_missing", "ran", "support", "support_missing", "first_unsupported", "after_unsupported"),
    *("false_equation", "true_equation", "position", "last"),
    *("disputed", "rule", "dropped", "dropped_missing"),
)


def step_features(found: SolutionSupport, index: int) -> dict[str, float]:
    """The features of one step, each in [0, 1].

    `agree`: share of programs with the solution's answer. `ran`: share of programs that ended well. `support`: share
    of the leading programs that hold the step's last computed value. `first_unsupported`, `after_unsupported`: this
    step is the first whose value none of them holds, or comes after it. `disputed`: programs ran to answers, and none
    is the solution's. `rule`: the step that the rule-only judge calls wrong. `dropped`: the step behind which rollouts
    no longer reach the programs' answer. A `_missing` flag stands for what is not known, whose value is then 0.
    """
    step, first = found.steps[index], found.first_unsupported
    count = len(found.steps)
    return {
        "agree": found.agree or 0.0,
        "agree_missing": float(found.agree is None),
        "ran": found.ran / len(found.programs) if found.programs else 0.0,
        "support": step.last or 0.0,
        "support_missing": float(step.last is None),
        "first_unsupported": float(first == index),
        "after_unsupported": float(first is not None and index > first),
        "false_equation": float(step.false_equations > 0),
        "true_equation": float(any(equation.true for equation in step.equations)),
        "position": index / (count - 1) if count > 1 else 0.0,
        "last": float(index == count - 1),
        "disputed": float(found.disputed),
        "rule": float(found.disputed and first_wrong(found) == index),
        "dropped": float(found.rollouts is not None and found.rollouts.first_error == index),
        "dropped_missing": float(found.rollouts is None or found.rollouts.first_error is None),
    }
