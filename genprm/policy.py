"""The policy: a model that writes solutions step by step, or goes on with one that was begun.

Knows an engine by its seam and a protocol whose first part is a step: the host forces the step's marker, the model
writes until the separator. Knows nothing of rewards. What is not finished says why; no text is cut in silence.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from .backends.base import Backend, SamplingParams, Slot
from .config import PolicyConfig
from .critique import derive_seed
from .errors import ConfigError, Unscored
from .outcome import extract_answer
from .prompting import Message, Prompt, Protocol
from .types import Solution

# Where a step ends the solution although the model might write on. A last sentence with a number in it is read as an
# answer only where the model itself ended its turn.
_STATES = re.compile(r"\\boxed\s*\{|^####|\banswer\s+is\b", re.IGNORECASE | re.MULTILINE)
_STEP_MARKER = re.compile(r"\s*(?:[#*]+\s*)?step\s*\d+", re.IGNORECASE)
BLANK_TRIES = 2
"""How often a model may begin a step with a separator before the step counts as empty."""


@dataclass(frozen=True)
class Draft:
    """A solution as far as it is written."""

    steps: tuple[str, ...]
    """All of it, the given prefix included; without the markers that the host forces before steps."""
    finished: bool
    """True where it states a final answer."""
    completion_tokens: int
    """Tokens that the model wrote for it now; those of the prefix are not counted."""
    note: str | None = None
    """Why it is unfinished and cannot go on; None where it is finished, or where a further step can be asked for."""
    prompt_tokens: int = 0

    @property
    def text(self) -> str:
        """The steps as one text."""
        return "\n\n".join(self.steps)


class Policy:
    """Samples solutions from one model; every sample is a function of its problem, prefix, number and seed."""

    def __init__(
        self,
        backend: Backend,
        protocol: Protocol,
        settings: PolicyConfig,
        *,
        seats: asyncio.Semaphore | None = None,
        owns: bool = False,
    ):
        """Prepare.

        Args:
            backend: whose model writes.
            protocol: how a problem is put to it; its first part is one step.
            settings: sampling and limits.
            seats: bound on what is under way, shared with others; None = one of its own in each event loop.
            owns: True where `close` also closes the backend.

        Raises:
            ConfigError: the protocol judges, so it writes no solutions.
        """
        if protocol.manifest.judges:
            raise ConfigError(f"policy.protocol {protocol.name!r} judges steps: name one that writes solutions")
        self.backend, self.protocol, self.settings = backend, protocol, settings
        self._part = protocol.manifest.parts[0]
        self._seats, self._owns = seats, owns
        self._own: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = weakref.WeakKeyDictionary()

    @property
    def model(self) -> str:
        """The model's name."""
        return self.backend.model

    async def complete(self, problem: str, steps: Sequence[str] = (), *, n: int, seed: int | None) -> list[Draft]:
        """Sample whole solutions.

        Args:
            problem: the question.
            steps: how the solution begins; it is kept as it is.
            n: how many continuations.
            seed: of the sampling; None = not reproducible.

        Returns:
            `n` drafts, each finished or with a note why it is not.

        Raises:
            ConfigError: several greedy samples are asked for; they would all be the same.
            UnavailableError: the engine is lost.
        """
        return await self._sample(problem, tuple(steps), n, seed, whole=True)

    async def next_steps(self, problem: str, steps: Sequence[str], *, n: int, seed: int | None) -> list[Draft]:
        """Sample one further step, `n` times; see `complete`.

        Returns:
            Drafts that are finished, or have a note why they cannot go on, or can be given to `next_steps` again.
        """
        return await self._sample(problem, tuple(steps), n, seed, whole=False)

    async def rewrite(
        self, problem: str, steps: Sequence[str], wrong: int, critique: str, *, seed: int | None
    ) -> Draft:
        """Write a solution again after a critique of one of its steps.

        Args:
            problem: the question.
            steps: the solution that was criticised.
            wrong: 0-based index of the step that the critique is about.
            critique: what is wrong with it.
            seed: of the sampling.

        Raises:
            ConfigError: the protocol has no template `rewrite.jinja`.
            UnavailableError: the engine is lost.
        """
        template = self.protocol.files.get("rewrite.jinja")
        if template is None:
            raise ConfigError(f"the protocol {self.protocol.name!r} has no rewrite.jinja, which asks for a rewrite")
        clean = self.protocol.clean
        asked = self.protocol.text(
            template, number=wrong + 1, step=clean(steps[wrong]), critique=clean(critique).strip()
        )
        prompt = self._prompt(problem)
        answer = Message("assistant", self.settings.separator.join(self._written(steps)))
        prompt = replace(prompt, messages=(*prompt.messages, answer, Message("user", asked.strip())))
        async with self.backend.work():
            return await self._write(prompt, (), self._seed(seed, problem, (*steps, critique), 0), whole=True)

    def close(self) -> None:
        """Free the engine where it is this object's own; safe to call twice."""
        if self._owns:
            self.backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    # ------------------------------------------------------------------ sampling

    async def _sample(
        self, problem: str, steps: tuple[str, ...], n: int, seed: int | None, *, whole: bool
    ) -> list[Draft]:
        if n < 1:
            raise ConfigError(f"{n} samples are asked for: give 1 or more")
        if n > 1 and self.settings.temperature == 0:
            raise ConfigError(f"policy.temperature is 0, so all {n} samples would be the same: set it above 0")
        prompt = self._prompt(problem)
        async with self.backend.work():
            seeds = [self._seed(seed, problem, steps, number) for number in range(n)]
            return list(await asyncio.gather(*(self._write(prompt, steps, one, whole=whole) for one in seeds)))

    def _prompt(self, problem: str) -> Prompt:
        return self.protocol.conversation(Solution(id="", problem=problem, steps=("",)), 0)

    def _seed(self, seed: int | None, problem: str, steps: tuple[str, ...], number: int) -> int | None:
        if self.settings.temperature == 0:
            return None
        digest = hashlib.sha256(repr((problem, steps)).encode("utf-8", "surrogatepass")).hexdigest()
        return derive_seed(seed, digest, number)

    async def _write(self, prompt: Prompt, steps: tuple[str, ...], seed: int | None, *, whole: bool) -> Draft:
        draft = Draft(steps, False, 0)
        async with self._bound(), self.backend.slot() as slot:
            while True:
                draft = await self._step(slot, prompt, draft, seed, whole=whole)
                if draft.finished or draft.note is not None or not whole:
                    return draft

    async def _step(self, slot: Slot, prompt: Prompt, draft: Draft, seed: int | None, *, whole: bool) -> Draft:
        """One further step."""
        settings, number = self.settings, len(draft.steps) + 1
        if number > settings.max_steps:
            return replace(draft, note=f"reached policy.max_steps = {settings.max_steps}")
        limit, limited_by = settings.step_tokens, f"policy.step_tokens = {settings.step_tokens}"
        if whole and settings.max_tokens - draft.completion_tokens < limit:
            limit = settings.max_tokens - draft.completion_tokens
            limited_by = f"policy.max_tokens = {settings.max_tokens}"
        before = "".join(step + settings.separator for step in self._written(draft.steps)) + self._marker(number)
        stops = (settings.separator, *(self.protocol.text(stop, number=number) for stop in self._part.stop))
        text, used, read = "", 0, 0
        for attempt in range(BLANK_TRIES + 1):
            if used >= limit:
                return self._after(draft, used, read, note=f"step {number} was cut at {limited_by}")
            greedy = settings.temperature == 0
            params = SamplingParams(
                limit - used,
                stops,
                settings.temperature,
                1.0 if greedy else settings.top_p,
                0 if greedy else settings.top_k,
                derive_seed(seed, number, attempt),
            )
            try:
                written = await slot.generate(prompt.extended(before + text), params)
            except Unscored as error:
                return self._after(draft, used, read, note=error.reason)
            used, read = used + written.completion_tokens, read + written.prompt_tokens
            text += written.text
            if text.strip() or written.finish != "stop":
                break
            text += written.stop or ""
        if not text.strip():
            return self._after(draft, used, read, note=f"the model wrote nothing as step {number}")
        step = text.strip()
        draft = replace(draft, steps=(*draft.steps, step))
        if written.finish in ("length", "context"):
            where = "the end of the model's context" if written.finish == "context" else limited_by
            return self._after(draft, used, read, note=f"step {number} was cut at {where}")
        if _STATES.search(step) and extract_answer(step) is not None:
            return self._after(draft, used, read, finished=True)
        if written.finish != "eos":
            return self._after(draft, used, read)
        if extract_answer(step) is not None:
            return self._after(draft, used, read, finished=True)
        return self._after(draft, used, read, note="the model ended without a final answer")

    def _after(self, draft: Draft, used: int, read: int, *, finished: bool = False, note: str | None = None) -> Draft:
        return replace(
            draft,
            finished=finished,
            note=note,
            completion_tokens=draft.completion_tokens + used,
            prompt_tokens=draft.prompt_tokens + read,
        )

    def _marker(self, number: int) -> str:
        """What the host puts before a step, counted from 1."""
        return self.protocol.text(self._part.prefix, number=number)

    def _written(self, steps: Sequence[str]) -> list[str]:
        """Steps as they stand in the answer: with their markers, but for those that bring one of their own."""
        shown = []
        for number, step in enumerate(steps, 1):
            marker = "" if _STEP_MARKER.match(step) else self._marker(number)
            shown.append(f"{marker} {self.protocol.clean(step)}".strip())
        return shown

    def _bound(self) -> asyncio.Semaphore:
        if self._seats is not None:
            return self._seats
        loop = asyncio.get_running_loop()
        if loop not in self._own:
            self._own[loop] = asyncio.Semaphore(self.settings.max_in_flight)
        return self._own[loop]
