"""A deterministic fake engine: no model, no tokens, for tests and for trying the plumbing.

It recomputes the plain equalities of a step (`12 + 30 = 42`) by writing Python for them, and says No where the
executed code printed False. What it knows nothing about it calls right. As a policy or solver it works off the
problem's own arithmetic (scripted_policy.py). Its numbers mean nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ..config import ScriptedConfig
from ..errors import ContextOverflow
from ..prompting import Prompt
from .base import Generation, LabelReading, Labels, SamplingParams
from .scripted_policy import opened_step, write_program, write_step

EQUALITY = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?(?:\s*[-+*/]\s*\d+(?:\.\d+)?)+)\s*=\s*(\d+(?:\.\d+)?)")
PARAGRAPH = re.compile(r"<paragraph_(\d+)>(.*?)</paragraph_", re.DOTALL)


class ScriptedBackend:
    """Answers from the text alone; every answer is a function of prompt, labels and seed."""

    model = "scripted"

    def __init__(self, config: ScriptedConfig | None = None, max_context: int | None = None):
        self.config = config or ScriptedConfig()
        self.max_context = max_context
        self.calls = 0

    @asynccontextmanager
    async def work(self) -> AsyncIterator[None]:
        """Nothing is remembered."""
        yield

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[ScriptedSlot]:
        """A seat; the fake has room for all."""
        yield ScriptedSlot(self)

    def close(self) -> None:
        """Nothing to free."""


class ScriptedSlot:
    """One critique's seat."""

    def __init__(self, backend: ScriptedBackend):
        self._backend = backend

    async def _call(self, prompt: Prompt) -> int:
        backend = self._backend
        backend.calls += 1
        tokens = (sum(len(message.content) for message in prompt.messages) + len(prompt.prefix)) // 4
        if backend.max_context is not None and tokens >= backend.max_context:
            raise ContextOverflow(f"the prompt has {tokens} tokens; the model's context is {backend.max_context}")
        if backend.config.latency_seconds:
            await asyncio.sleep(backend.config.latency_seconds)
        return tokens

    async def generate(self, prompt: Prompt, params: SamplingParams) -> Generation:
        """Code for the step's equalities inside a fence, a solution's next step, or a plain sentence."""
        tokens = await self._call(prompt)
        if (number := opened_step(prompt)) is not None:
            text, ends = write_step(prompt, number, params.seed)
            stop: str | None = None if ends or not params.stop else params.stop[0]
        elif prompt.prefix.count("```") % 2:
            asked = prompt.messages[-1].content
            if asked.startswith("Problem:") and len(asked.strip().splitlines()) == 2:  # no step: a solver's prompt
                text = write_program(asked)
            else:
                text = "\n".join(_checks(asked)) or "print('nothing to recompute')"
            stop = "```"
        else:
            text, stop = "The values are recomputed.", _plain_stop(params.stop)
        words = re.findall(r"\s*\S+", text)
        if len(words) > params.max_tokens:
            return Generation("".join(words[: params.max_tokens]), "length", None, tokens, params.max_tokens)
        finish = "stop" if stop in params.stop else "eos"
        return Generation(text, "stop" if finish == "stop" else "eos", stop, tokens, len(words))

    async def read_label(self, prompt: Prompt, labels: Labels, boundary: str) -> LabelReading:
        """The last label where code printed False, else the first; never quite certain."""
        tokens = await self._call(prompt)
        names = list(labels)
        if "-1" in labels:
            return self._first_error(prompt, names, tokens)
        wrong = re.search(r"(?:^|: )False$", prompt.prefix, re.MULTILINE) is not None
        chosen = names[-1] if wrong else names[0]
        return _reading(prompt, names, chosen, tokens)

    def _first_error(self, prompt: Prompt, names: list[str], tokens: int) -> LabelReading:
        """The first paragraph with a false equality, recomputed here: one critique covers all of them."""
        for index, paragraph in PARAGRAPH.findall(prompt.messages[-1].content):
            if any(not math.isclose(_value(left), float(right)) for left, right in EQUALITY.findall(paragraph)):
                return _reading(prompt, names, index, tokens)
        return _reading(prompt, names, "-1", tokens)


def _plain_stop(stops: tuple[str, ...]) -> str | None:
    """The stop string at which plain text ends: a label's marker where there is one, else the end of the part."""
    if not stops:
        return None
    return stops[-1] if stops[0].startswith("```") else stops[0]


def _reading(prompt: Prompt, names: list[str], chosen: str, tokens: int) -> LabelReading:
    """Nearly all on one label; how nearly hangs on the prompt, so that equal prompts give equal numbers."""
    digest = hashlib.sha256(repr(prompt).encode("utf-8", "surrogatepass")).digest()
    rest = 0.02 + 0.1 * digest[0] / 255
    others = max(len(names) - 1, 1)
    return LabelReading({name: 1 - rest if name == chosen else rest / others for name in names}, 1.0, tokens)


def _value(expression: str) -> float:
    """A plain chain of + - * / over numbers."""
    terms = re.split(r"(?<=[\d.\s])([+-])", expression)
    total, sign = 0.0, 1.0
    for term in terms:
        if term in ("+", "-"):
            sign = 1.0 if term == "+" else -1.0
            continue
        factors = re.split(r"([*/])", term)
        value = float(factors[0])
        for operator, factor in zip(factors[1::2], factors[2::2], strict=True):
            number = float(factor)
            value = value * number if operator == "*" else value / number if number else math.nan
        total += sign * value
    return total


def _checks(question: str) -> list[str]:
    """A line of Python for each equality in the step that is asked about (the last paragraph of the question)."""
    step = question.rsplit("\n\n", 1)[-1]
    return [f"print(abs(({left}) - {right}) < 1e-6)" for left, right in EQUALITY.findall(step)]
