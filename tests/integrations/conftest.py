"""The deterministic fake verifier, shared by all adapters' tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import genprm
from genprm.types import Solution, StepJudgment, VerificationResult
from genprm.verifier import Verifier

RIGHT, WRONG = "12 + 30 = 42.", "42 + 1 = 44."


@pytest.fixture(scope="session")
def scripted() -> Iterator[Verifier]:
    with genprm.load("scripted") as verifier:
        yield verifier


class Counting:
    """Judges by a function of the step's text, and counts what it is asked."""

    def __init__(self, reward=lambda text: None if "?" in text else 0.9):
        self.reward, self.asked = reward, []

    def verify_many(self, solutions):
        for solution in solutions:
            self.asked.append(solution)
            yield result_of(solution, [self.reward(step) for step in solution.steps])

    def close(self):
        pass


def result_of(solution: Solution, rewards) -> VerificationResult:
    """A result with these rewards."""
    steps = tuple(
        StepJudgment(
            index=index,
            text=text,
            reward=reward,
            verdict="unscored" if reward is None else "correct" if reward >= 0.5 else "incorrect",
            unscored_reason="the model was lost" if reward is None else None,
        )
        for index, (text, reward) in enumerate(zip(solution.steps, rewards, strict=True))
    )
    known = [reward for reward in rewards if reward is not None]
    wrong = next((step.index for step in steps if step.verdict != "correct"), None)
    return VerificationResult(
        id=solution.id,
        problem=solution.problem,
        steps=steps,
        first_error=-1 if wrong is None else None if rewards[wrong] is None else wrong,
        reward=min(known) if len(known) == len(rewards) else None,
        aggregation="min",
        label=solution.label,
        model="counting",
        protocol={"name": "none", "sha256": "0"},
        config_sha256="0",
        sandbox="off",
    )
