"""An outcome reward model without a model: the final answer, compared with the reference by math-verify.

A right answer says nothing of any single step before the last, so those are unscored, and the solution's reward is
the last step's. What could not be decided is unscored too, never 0.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from ..errors import Unscored
from ..outcome import TIME_LIMIT, judge_outcome
from ..types import Outcome, Solution
from .scored import Scored, StepScore

NOT_OF_STEPS = "an outcome check says nothing of single steps"


class OutcomeScorer:
    """1 for a right final answer, 0 for a wrong one, at the last step."""

    name = "outcome"
    model = "math-verify"

    def settings_digest(self) -> str:
        """sha256 over the judge's name and the time that a comparison may take."""
        settings = {"name": self.name, "time_limit": TIME_LIMIT}
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()

    def score(self, batch: Sequence[Solution]) -> list[Scored]:
        """Compare each solution's answer.

        Raises:
            UnavailableError: the comparing process does not start.
        """
        return [self._one(solution) for solution in batch]

    def close(self) -> None:
        """Nothing to free: the comparing process serves the whole interpreter."""

    def _one(self, solution: Solution) -> Scored:
        outcome = None if solution.answer is None else judge_outcome(solution.steps, solution.answer)
        before: list[StepScore] = [Unscored(NOT_OF_STEPS)] * (len(solution.steps) - 1)
        return Scored((*before, _last(outcome)), outcome=outcome, last_only=True)


def _last(outcome: Outcome | None) -> StepScore:
    if outcome is None:
        return Unscored("an outcome check needs the reference `answer`, and the record has none")
    if outcome.correct is None:
        found = "states no final answer" if outcome.answer is None else f"answers {outcome.answer!r}"
        return Unscored(f"the outcome could not be decided: the solution {found}")
    return float(outcome.correct)
