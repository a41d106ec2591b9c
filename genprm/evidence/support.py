"""What executed programs say of a solution: does anything they computed agree with its answer and its steps?

Knows programs, claims and equations; knows no model and gives no verdict. Shares are over programs that ended well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..types import Record, Solution
from .claims import Claim, final_answer, numbers, restated, step_claims
from .equations import Equation, links, step_equations
from .programs import Program
from .rollouts import Rollouts
from .values import Value, alike, same

MAX_CLAIMS = 12
"""Claims of a step that are looked up; the last ones, since results stand at the end."""


class ClaimSupport(Record):
    """One claimed value."""

    value: str
    support: float
    """Share of the leading programs that hold it in a variable."""
    names: tuple[str, ...] = ()
    """Under which names, at most three."""
    given: bool = False
    """True where it only repeats a number of the problem or of an earlier step."""


class StepSupport(Record):
    """What is known of one step."""

    claims: tuple[ClaimSupport, ...] = ()
    equations: tuple[Equation, ...] = ()
    last: float | None = None
    """Support of the step's last computed value; None where it computes none, or no program ran."""

    @property
    def false_equations(self) -> int:
        """Equalities that the step states and that do not hold."""
        return sum(equation.true is False for equation in self.equations)


class AnswerShare(Record):
    """One answer and the share of programs that reached it."""

    answer: str
    share: float


class SolutionSupport(Record):
    """What is known of one solution."""

    programs: tuple[Program, ...] = ()
    answers: tuple[AnswerShare, ...] = ()
    """Most frequent first."""
    agree: float | None = None
    """Share of programs whose answer is the solution's; None where no program ended well or no answer is stated."""
    steps: tuple[StepSupport, ...] = ()
    rollouts: Rollouts | None = None
    """Where the solution's prefixes stop leading to the leading answer; None = not asked for, or no reason to."""

    @property
    def disputed(self) -> bool:
        """Whether programs ran to answers and none of them is the solution's."""
        return self.agree == 0

    @property
    def ran(self) -> int:
        """Programs that ended well, with an answer."""
        return sum(program.answer is not None for program in self.programs)

    @property
    def leading(self) -> list[Program]:
        """The programs with the most frequent answer; of equally frequent ones, the one found first."""
        groups = _by_answer([program for program in self.programs if program.answer is not None])
        return groups[0] if groups else []

    @property
    def first_unsupported(self) -> int | None:
        """The first step whose last computed value no leading program holds."""
        return next((index for index, step in enumerate(self.steps) if step.last == 0), None)

    def as_evidence(self) -> dict[str, Any]:
        """The `evidence` field of a result."""
        return {
            "programs": [
                {
                    "source": program.source,
                    "status": program.status,
                    "answer": None if program.answer is None else program.answer.text,
                    "values": {name: value.text for name, value in program.values.items()},
                }
                for program in self.programs
            ],
            "answers": [item.model_dump() for item in self.answers],
            "agree": self.agree,
            "steps": [
                {
                    "claims": [claim.model_dump(mode="json") for claim in step.claims],
                    "equations": [{"text": item.text, "true": item.true} for item in step.equations],
                }
                for step in self.steps
            ],
            "rollouts": None if self.rollouts is None else self.rollouts.model_dump(mode="json"),
        }


def support(solution: Solution, programs: Sequence[Program]) -> SolutionSupport:
    """Compare a solution with programs written from its problem."""
    groups = _by_answer([program for program in programs if program.answer is not None])
    ran = sum(len(group) for group in groups)
    stated = final_answer(solution.steps)
    agree = None
    if ran and stated is not None:
        agree = sum(len(group) for group in groups if alike(stated, group[0].answer)) / ran
    leading = groups[0] if groups else []
    return SolutionSupport(
        programs=tuple(programs),
        answers=tuple(AnswerShare(answer=_text(group[0].answer), share=len(group) / ran) for group in groups),
        agree=agree,
        steps=tuple(_step(solution, index, leading) for index in range(len(solution.steps))),
    )


def _by_answer(programs: Sequence[Program]) -> list[list[Program]]:
    """Programs with the same answer together, the most frequent answer first; of equals, the one found first."""
    groups: list[list[Program]] = []
    for program in programs:
        for group in groups:
            if alike(program.answer, group[0].answer):
                group.append(program)
                break
        else:
            groups.append([program])
    return sorted(groups, key=len, reverse=True)


def _step(solution: Solution, index: int, leading: Sequence[Program]) -> StepSupport:
    step = solution.steps[index]
    linked = links(solution.steps[index - 1], step, solution.problem) if index else []
    equations = (*linked, *step_equations(step, solution.problem))
    claims = step_claims(step)
    given = {claim.span for claim in restated(step, solution.problem, solution.steps[:index])}
    known = numbers(solution.problem)
    looked_up: list[ClaimSupport] = []
    last: float | None = None
    for claim in claims[-MAX_CLAIMS:]:
        holders = [_holder(claim.value, program) for program in leading]
        share = sum(name is not None for name in holders) / len(leading) if leading else 0.0
        found = ClaimSupport(
            value=claim.value.text,
            support=share,
            names=tuple(dict.fromkeys(name for name in holders if name))[:3],
            given=claim.span in given,
        )
        looked_up.append(found)
        if leading and _computed(claim, found, known):
            last = share
    return StepSupport(claims=tuple(looked_up), equations=equations, last=last)


def _computed(claim: Claim, found: ClaimSupport, known: Sequence[Value]) -> bool:
    """Whether a claim is a result of the step, and not a number that stands in the problem."""
    if not claim.sure or found.given or claim.value.kind in ("text", "boolean"):
        return False
    return claim.computed or not any(same(claim.value, value) for value in known)


def _holder(value: Value, program: Program) -> str | None:
    """The name under which a program holds a value; its answer counts too."""
    for name, held in program.values.items():
        if alike(value, held):
            return name
    return "answer" if alike(value, program.answer) else None


def _text(value: Value | None) -> str:
    return "" if value is None else value.text
