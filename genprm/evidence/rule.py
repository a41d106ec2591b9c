"""The rule-only judge: no critique and nothing fitted, evidence alone.

A solution is right where any program reaches its answer. Otherwise the first error is the step behind which rollouts
no longer reach the programs' answer, where they were asked for and tell; else the first step whose last computed value
no leading program holds (those with the most frequent answer), or the first step with a false equality if that comes
before; where every value is held, it is the last step. Rewards are ordered by support and are no
probabilities: at least 0.5 where the rule calls the step right, under 0.5 where it calls it wrong.
"""

from __future__ import annotations

from .support import SolutionSupport

NO_PROGRAM = "no program written from the problem ran to an answer"
NO_ANSWER = "the solution states no answer that programs could be compared with"


def first_wrong(found: SolutionSupport) -> int:
    """The step that the rule calls wrong; -1 = none. Needs `agree` to be known."""
    if found.agree is not None and found.agree > 0:
        return -1
    if found.rollouts is not None and found.rollouts.first_error is not None:
        return found.rollouts.first_error
    false = next((index for index, step in enumerate(found.steps) if step.false_equations), None)
    candidates = [index for index in (found.first_unsupported, false) if index is not None]
    return min(candidates, default=len(found.steps) - 1)


def rule_rewards(found: SolutionSupport) -> list[float] | str:
    """A reward for each step, or the reason why there is none."""
    if found.programs and all(program.status == "unavailable" for program in found.programs):
        return f"the programs could not be run: {found.programs[0].output}"
    if not found.ran:
        return NO_PROGRAM
    if found.agree is None:
        return NO_ANSWER
    wrong = first_wrong(found)
    rewards = []
    for index, step in enumerate(found.steps):
        share = found.agree if index == len(found.steps) - 1 else step.last
        certainty = 0.5 if share is None else share
        right = wrong < 0 or index < wrong
        rewards.append(0.5 + certainty / 2 if right else 0.49 * certainty)
    return rewards
