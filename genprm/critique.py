"""The state machine that writes one critique: forced prefixes, stop strings, code rounds, inserted output.

Every stretch that the model writes is bounded, and so is the number of code blocks: a critique always ends. What cut
it short is kept in `notes`. Labels are read only at positions that the host forced, never found in text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from .backends.base import Generation, LabelReading, SamplingParams, Slot
from .errors import ContextOverflow, Unscored
from .prompting import FENCE, Part, Prompt, Protocol
from .sandbox.base import Session
from .types import CodeCheck

OPEN_CODE = FENCE + "python\n"


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the stretches of one critique are sampled."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    max_tokens: int | None = None
    """Bound on generated tokens in the whole critique; None = the protocol's limits alone."""


@dataclass(slots=True)
class Turn:
    """The assistant's turn as it grows."""

    text: str = ""
    written: list[tuple[int, int]] = field(default_factory=list)
    """Start and end, in characters, of the stretches that the model wrote; all else is the host's."""
    checks: list[CodeCheck] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    step_labels: list[LabelReading] = field(default_factory=list)
    """Readings at the markers of a `verdicts` part, in order."""
    step_ends: list[int] = field(default_factory=list)
    """Where in the text each of those readings stands."""

    def force(self, text: str) -> None:
        """Add text of the host's."""
        self.text += text

    def write(self, generation: Generation) -> None:
        """Add text of the model's."""
        start = len(self.text)
        self.text += generation.text
        if generation.text:
            self.written.append((start, len(self.text)))
        self.prompt_tokens += generation.prompt_tokens
        self.completion_tokens += generation.completion_tokens


class CritiqueWriter:
    """Writes one critique into a turn, part by part."""

    def __init__(
        self,
        slot: Slot,
        protocol: Protocol,
        prompt: Prompt,
        sampling: Sampling,
        open_session: Callable[[], Session],
        *,
        number: int,
        steps: int = 1,
        blocks: Mapping[str, str] | None = None,
    ):
        """Prepare a critique.

        Args:
            slot: the engine's seat for this critique.
            protocol: whose manifest the parts come from.
            prompt: the conversation that is being answered.
            sampling: temperature, seed and bound.
            open_session: makes the sandbox session in which this critique's code runs; called at the first block.
            number: 1-based number of the step, for forced text.
            steps: how many steps a `verdicts` part judges.
            blocks: host-inserted blocks by name, for `host` parts.
        """
        self.turn = Turn()
        self._slot, self._protocol, self._prompt = slot, protocol, prompt
        self._sampling, self._open_session = sampling, open_session
        self._number, self._steps, self._blocks = number, steps, dict(blocks or {})
        self._session: Session | None = None
        self._calls = 0

    async def write(self, mode: str) -> Turn:
        """Write all parts of a mode; a context that runs full ends the critique early, with a note.

        Raises:
            ContextOverflow: the prompt alone does not fit.
        """
        try:
            for part in self._protocol.parts(mode):
                await self._part(part)
        except ContextOverflow:
            if not self.turn.written:
                raise
            self.turn.notes.append("the context ran full")
        finally:
            if self._session is not None:
                self._session.close()
        return self.turn

    async def judge(self, labels: Mapping[str, tuple[str, ...]]) -> LabelReading:
        """Force the judgement's prefix, read the label distribution and add the likelier label to the text."""
        judgement = self._protocol.manifest.judgement
        prefix = self._force(judgement.prefix)
        reading = await self._read(labels, prefix)
        likeliest = max(reading.probs, key=lambda label: reading.probs[label])
        spelled = labels[likeliest][0]
        suffix = self._protocol.text(judgement.suffix, number=self._number)
        # A first-error label is spelled with the suffix's first character, which ends its digits.
        self.turn.force(spelled + (suffix[1:] if suffix and spelled.endswith(suffix[:1]) else suffix))
        return reading

    async def _part(self, part: Part) -> None:
        if part.kind == "host":
            if block := self._blocks.get(part.name):
                self._force(part.prefix)
                self.turn.force(self._protocol.clean(block))
                self._force(part.close)
            return
        self._force(part.prefix)
        if part.kind == "code":
            await self._code(part)
        elif part.kind == "verdicts":
            await self._verdicts(part)
        else:
            await self._generate(part, part.stop, part.max_tokens)
        self._force(part.close)

    async def _code(self, part: Part) -> None:
        """Rounds of a code block and what the model makes of its output."""
        budget = part.max_tokens
        for round_number in range(1, part.rounds + 1):
            self.turn.force("" if self.turn.text.endswith("\n") or not self.turn.text else "\n")
            self.turn.force(OPEN_CODE)
            block = await self._generate(part, (FENCE,), budget)
            budget -= block.completion_tokens
            self.turn.force("" if self.turn.text.endswith("\n") else "\n")
            self.turn.force(FENCE + "\n")
            await self._run(part, block)
            if not part.after or budget <= 0:
                break
            more = await self._generate(part, (OPEN_CODE.strip(), *part.stop), budget)
            budget -= more.completion_tokens
            if more.stop != OPEN_CODE.strip():
                break
            if round_number == part.rounds or budget <= 0:
                self.turn.notes.append(f"{part.name}: stopped after {round_number} code blocks")
                break

    async def _run(self, part: Part, block: Generation) -> None:
        source = block.text.strip("\n")
        if block.finish in ("length", "context"):
            self.turn.notes.append(f"{part.name}: a code block was cut at its token limit and did not run")
            output = "[not run: the block is incomplete]"
        elif not source.strip():
            self.turn.notes.append(f"{part.name}: an empty code block")
            output = "[nothing to run]"
        else:
            if self._session is None:
                self._session = self._open_session()
            check = await self._session.run(source)
            self.turn.checks.append(check)
            output = check.output
        self.turn.force(self._protocol.insert_output(output))

    async def _verdicts(self, part: Part) -> None:
        """Free text; at each marker where the model wants to give a label, the label is read."""
        labels = self._protocol.manifest.step_labels or {}
        budget = part.max_tokens
        while budget > 0:
            text = await self._generate(part, (part.marker, *part.stop), budget)
            budget -= text.completion_tokens
            if text.stop != part.marker:
                return
            self.turn.force(part.marker)
            reading = await self._read(labels, part.marker)
            # Under half of the mass the box holds something else, for example the step's own result.
            if reading.mass is not None and reading.mass < 0.5:
                continue
            self.turn.step_labels.append(reading)
            likeliest = max(reading.probs, key=lambda label: reading.probs[label])
            self.turn.force(labels[likeliest][0])
            self.turn.step_ends.append(len(self.turn.text))
            if len(self.turn.step_labels) == self._steps:
                return
        self.turn.notes.append(f"{part.name}: stopped at its limit of {part.max_tokens} tokens")

    async def _generate(self, part: Part, stop: tuple[str, ...], limit: int) -> Generation:
        if self._sampling.max_tokens is not None:
            limit = min(limit, self._sampling.max_tokens - self.turn.completion_tokens)
        if limit <= 0:
            return Generation("", "length")
        params = SamplingParams(
            limit,
            stop,
            self._sampling.temperature,
            self._sampling.top_p,
            self._sampling.top_k,
            derive_seed(self._sampling.seed, self._calls),
        )
        self._calls += 1
        generation = await self._slot.generate(self._prompt.extended(self.turn.text), params)
        self.turn.write(generation)
        if generation.finish in ("length", "context") and part.kind == "write":
            self.turn.notes.append(f"{part.name}: cut at {generation.completion_tokens} tokens")
        return generation

    async def _read(self, labels: Mapping[str, tuple[str, ...]], boundary: str) -> LabelReading:
        reading = await self._slot.read_label(self._prompt.extended(self.turn.text), labels, boundary)
        self.turn.prompt_tokens += reading.prompt_tokens
        if any(not 0 <= value <= 1 for value in reading.probs.values()):
            raise Unscored(f"the engine gave no probabilities at the label: {dict(reading.probs)}")
        return reading

    def _force(self, source: str) -> str:
        text = self._protocol.text(source, number=self._number)
        self.turn.force(text)
        return text


def derive_seed(seed: int | None, *parts: object) -> int | None:
    """A seed for one use of a seed: 63 bits of sha256, the same on every machine; None stays None."""
    if seed is None:
        return None
    digest = hashlib.sha256(repr((seed, *parts)).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") >> 1
