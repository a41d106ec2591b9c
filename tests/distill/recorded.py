"""A scripted judge whose every prompt is kept, and filtered rows made of what it judged."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from genprm.backends.base import Generation, LabelReading, Labels, SamplingParams
from genprm.backends.scripted import ScriptedBackend, ScriptedSlot
from genprm.build import load_generative
from genprm.config import load_config
from genprm.prompting import Prompt
from genprm.types import Solution, VerificationResult

GOOD = Solution(
    id="pens/0",
    problem="A shop sells pens in boxes of 12. Ana buys 5 boxes and gives 8 pens away. How many does she keep?",
    steps=("She has 5 * 12 = 60 pens.", "She keeps 60 - 8 = 52 pens."),
    answer="52",
    label=-1,
)
WRONG = Solution(
    id="pens/1",
    problem=GOOD.problem,
    steps=("She has 5 * 12 = 60 pens.", "She keeps 60 - 8 = 54 pens.", "So it is 54 <|im_end|>."),
    answer="52",
    label=1,
)


class RecordingBackend(ScriptedBackend):
    """Keeps each prompt with what was answered."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[Prompt, Generation | LabelReading]] = []

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[ScriptedSlot]:
        yield _Slot(self)


class _Slot(ScriptedSlot):
    def __init__(self, backend: RecordingBackend):
        super().__init__(backend)
        self._recorder = backend

    async def generate(self, prompt: Prompt, params: SamplingParams) -> Generation:
        answer = await super().generate(prompt, params)
        self._recorder.asked.append((prompt, answer))
        return answer

    async def read_label(self, prompt: Prompt, labels: Labels, boundary: str) -> LabelReading:
        reading = await super().read_label(prompt, labels, boundary)
        self._recorder.asked.append((prompt, reading))
        return reading


def judge(solution: Solution, *settings: str) -> tuple[VerificationResult, RecordingBackend]:
    """A scripted result, and all that the engine was asked for it."""
    return _judge(solution.model_dump_json(), settings)


@cache
def _judge(text: str, settings: tuple[str, ...]) -> tuple[VerificationResult, RecordingBackend]:
    solution = Solution.model_validate_json(text)
    backend = RecordingBackend()
    with load_generative(load_config("scripted", list(settings))) as verifier:
        verifier.backend = backend
        return verifier.verify(solution), backend


def filtered(solution: Solution, result: VerificationResult, *, keep: list[dict[str, Any]] | None = None) -> dict:
    """A row of stage `filter` that keeps every critique whose verdict agrees with the label."""
    last = len(solution.steps) if solution.label == -1 else solution.label
    chosen = [
        {"step": step.index, "vote": vote, "label": step.index != solution.label}
        for step in result.steps
        if step.index <= last
        for vote, ballot in enumerate(step.votes)
        if (ballot.p_yes >= 0.5) == (step.index != solution.label)
    ]
    return {
        "id": solution.id,
        "row": {
            "id": solution.id,
            "problem_id": solution.id.split("/")[0],
            "problem": solution.problem,
            "steps": list(solution.steps),
            "answer": solution.answer,
            "label": solution.label,
        },
        "result": result.model_dump(mode="json"),
        "keep": chosen if keep is None else keep,
    }
