"""Judged solutions to show: small ones by hand, and many of a realistic size."""

from __future__ import annotations

import random
from collections.abc import Iterator

from genprm.types import CodeCheck, FailedVote, Outcome, ProtocolRef, StepJudgment, Usage, VerificationResult, Vote

PROTOCOL = ProtocolRef(name="compact", sha256="ab" * 32)
LETTERS = "etaoinshrdlucmfwypvbgkqjxz"


def judged(
    id: str = "trip",
    rewards: tuple[float | None, ...] = (0.97, 0.12, 0.55),
    *,
    label: int | None = None,
    problem: str = "A class of 24 pupils pays 5 dollars each. How much is that?",
    critique: str = "24 times 5 is 120, not 110.",
    **fields,
) -> VerificationResult:
    """A result whose first reward under 0.5 is its first error."""
    steps = tuple(step(index, reward, critique=critique) for index, reward in enumerate(rewards))
    wrong = next((s.index for s in steps if s.verdict != "correct"), -1)
    undecided = wrong >= 0 and steps[wrong].reward is None
    known = [reward for reward in rewards if reward is not None]
    values = {
        "id": id,
        "problem": problem,
        "steps": steps,
        "first_error": None if undecided else wrong,
        "reward": min(known) if len(known) == len(rewards) else None,
        "aggregation": "min",
        "label": label,
        "model": "smollm2-135m",
        "protocol": PROTOCOL,
        "config_sha256": "cd" * 32,
        "sandbox": "L1",
        "usage": Usage(prompt_tokens=900, completion_tokens=1234, code_runs=len(rewards), seconds=1.5),
    }
    return VerificationResult(**{**values, **fields})


def step(
    index: int, reward: float | None, *, critique: str = "Fine.", text: str | None = None, **fields
) -> StepJudgment:
    text = f"Step {index} says that 24 * 5 = {110 + index}." if text is None else text
    if reward is None:
        failed = FailedVote(reason="the model wrote no label", critique=critique, notes=("cut at 512 tokens",))
        return StepJudgment(
            index=index, text=text, reward=None, verdict="unscored", unscored_reason="no vote gave a label",
            failed_votes=(failed,), **fields,
        )  # fmt: skip
    check = CodeCheck(source="24 * 5", status="ok", output="120", seconds=0.01)
    vote = Vote(p_yes=reward, mass=0.98, critique=critique, checks=(check,), completion_tokens=40, seed=7)
    verdict = "correct" if reward >= 0.5 else "incorrect"
    return StepJudgment(index=index, text=text, reward=reward, verdict=verdict, votes=(vote,), **fields)


def many(count: int) -> Iterator[VerificationResult]:
    """Solutions of 5 to 8 steps, critiques and code of about 600 characters; random words compress worse than prose."""
    draw = random.Random(0)
    words = ["".join(draw.choices(LETTERS, k=draw.randint(2, 9))) for _ in range(3000)]
    for place in range(count):
        rewards = [round(min(draw.betavariate(8, 1.2), 1.0), 4) for _ in range(draw.randint(5, 8))]
        if place % 2:
            rewards[draw.randrange(len(rewards))] = draw.betavariate(1.2, 4)
        if place % 97 == 3:
            rewards[-1] = None
        steps = []
        for index, reward in enumerate(rewards):
            made = step(index, reward, text=prose(draw, words, 140), critique=prose(draw, words, 600))
            if made.votes:
                code = "\n".join(
                    f"{draw.choice(words)}_{n} = {draw.random()} * {draw.choice(words)}" for n in range(14)
                )
                check = CodeCheck(
                    source=code, status=draw.choice(["ok"] * 9 + ["error"]), output=prose(draw, words, 60), seconds=0.02
                )
                made = made.model_copy(update={"votes": (made.votes[0].model_copy(update={"checks": (check,)}),)})
            steps.append(made)
        base = judged(f"gsm8k-{place}", tuple(rewards), problem=prose(draw, words, 260).capitalize())
        first = base.first_error
        label = draw.choice([first, first, first, -1, draw.randrange(len(rewards))]) if first is not None else -1
        correct = draw.choice([True, False, None])
        yield base.model_copy(
            update={
                "steps": tuple(steps),
                "label": label,
                "outcome": Outcome(answer=str(draw.randint(1, 99)), correct=correct),
            }
        )


def prose(draw: random.Random, words: list[str], length: int) -> str:
    text = " ".join(draw.choices(words, k=length // 6))
    return text[:length] + "."
