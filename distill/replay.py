"""Recorded critiques read back into their parts, and written again as a student would write them.

Both go through `CritiqueWriter`, the code that writes critiques at inference, with a replaying slot in place of an
engine: what the host forces, inserts and cleans is the same to the letter, and what the model must write is known to
the character. Knows no tokenizer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ..backends.base import Generation, LabelReading, Labels, SamplingParams
from ..critique import OPEN_CODE, CritiqueWriter, Sampling
from ..errors import GenPRMError
from ..prompting import FENCE, Part, Prompt, Protocol
from ..types import CodeCheck, Vote

Answer = TypeVar("Answer")
OPENED = OPEN_CODE.strip()
INCOMPLETE = "[not run: the block is incomplete]"


class Unteachable(GenPRMError):
    """A critique that no row can be made of; `reason` is counted in the manifest."""

    def __init__(self, reason: str):
        self.reason = reason
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class Stretch:
    """One stretch that the teacher wrote."""

    text: str
    code: bool = False
    cut: bool = False
    """True where a limit ended it, so that it shows no end that could be learnt."""
    check: CodeCheck | None = None
    """What came of a block of code; None = it did not run."""


Parts = Mapping[str, Sequence[Stretch]]
"""A critique's stretches by the name of the part that they belong to."""


@dataclass(frozen=True, slots=True)
class Learnt:
    """What the model shall write at one place."""

    start: int
    """Where it begins, in characters of the critique."""
    text: str
    """With the stop string that ends it, for the model must learn to stop."""
    label: str | None = None
    """The label that it spells, where it is one."""
    ends: bool = False
    """True where the model ends its turn here, as no stop string is there to end it."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """One critique as a student writes it, with the gold label behind it."""

    prompt: Prompt
    text: str
    """The whole critique, as the conversation's next turn sees it."""
    learnt: tuple[Learnt, ...]


class _Replayer(CritiqueWriter):
    """A writer whose slot knows which part asks."""

    def __init__(self, slot: _Slot, protocol: Protocol, prompt: Prompt, number: int, blocks: Mapping[str, str]):
        super().__init__(slot, protocol, prompt, Sampling(), slot.session, number=number, blocks=blocks)
        self._replay = slot

    async def _part(self, part: Part) -> None:
        self._replay.part = part
        if part.kind == "verdicts":
            raise Unteachable(f"the protocol {self._protocol.name!r} reads labels inside of its text")
        await super()._part(part)


class _Slot(ABC):
    """Base of both replaying slots; also the session in which code is not run again."""

    def __init__(self) -> None:
        self.part: Part | None = None
        self.check: CodeCheck | None = None

    def session(self) -> _Slot:
        """The sandbox's place."""
        return self

    async def run(self, source: str) -> CodeCheck:
        """What the code gave when it was run."""
        if self.check is None:
            raise Unteachable("a block of code has no output on record")
        return self.check

    def close(self) -> None:
        """Forget what was run last."""
        self.check = None

    @abstractmethod
    async def generate(self, prompt: Prompt, params: SamplingParams) -> Generation:
        """The recorded stretch."""

    async def read_label(self, prompt: Prompt, labels: Labels, boundary: str) -> LabelReading:
        """Only a slot that teaches has a label on record."""
        raise Unteachable("a label stands inside the critique, where none was recorded")


class _ReadingSlot(_Slot):
    """Gives each stretch of a recorded critique where it stands in the text."""

    def __init__(self, vote: Vote):
        super().__init__()
        self._critique = vote.critique
        self._spans = dict(vote.written or ())
        self._checks = list(vote.checks)
        self._notes = vote.notes
        self.parts: dict[str, list[Stretch]] = {}

    async def generate(self, prompt: Prompt, params: SamplingParams) -> Generation:
        assert self.part is not None
        start = len(prompt.prefix)
        if self._critique[:start] != prompt.prefix:
            raise Unteachable("the critique is not one of the protocol and mode named")
        end = self._spans.get(start, start)
        text, rest = self._critique[start:end], self._critique[end:].lstrip("\n")
        code = prompt.prefix.endswith(OPEN_CODE) and self.part.kind == "code"
        cut = any(note.startswith(f"{self.part.name}: cut") for note in self._notes)
        self.check = None
        if code:
            cut = INCOMPLETE in rest.removeprefix(FENCE).lstrip("\n")[: len(INCOMPLETE) + 40]
            if not cut and text.strip():
                if not self._checks:
                    raise Unteachable("a block of code has no output on record")
                self.check = self._checks.pop(0)
        self.parts.setdefault(self.part.name, []).append(Stretch(text, code, cut, self.check))
        stop = OPENED if not code and rest.startswith(OPENED) else None
        return Generation(text, "length" if code and cut else "stop", stop)


class _TeachingSlot(_Slot):
    """Gives the student's stretches out of the teacher's parts, and notes what is to be learnt."""

    def __init__(self, parts: Parts, gold: str, adapt: bool):
        super().__init__()
        self._adapt = adapt
        self._left = {name: list(stretches) for name, stretches in parts.items()}
        self._gold = gold
        self.asked: list[tuple[int, Stretch, tuple[str, ...]]] = []
        self.label: tuple[int, str] | None = None

    async def generate(self, prompt: Prompt, params: SamplingParams) -> Generation:
        part = self.part
        assert part is not None
        left = self._left.get(part.name, [])
        code = part.kind == "code" and prompt.prefix.endswith(OPEN_CODE)
        # A teacher's text behind its code has no place where the student does not write there.
        while left and left[0].code != code and part.kind == "code":
            left.pop(0)
        if not left:
            raise Unteachable(f"the critique has no part {part.name!r}")
        stretch = left.pop(0)
        adapt = self._adapt and not code
        text = fitted(stretch.text, prompt.prefix, params.stop) if adapt else stretch.text
        if code and FENCE in text:
            raise Unteachable(f"the part {part.name!r} holds a code fence")
        self.check = stretch.check
        self.asked.append((len(prompt.prefix), Stretch(text, code, stretch.cut), params.stop))
        more = part.after and not code and any(item.code for item in left)
        return Generation(text, "length" if code and stretch.cut else "stop", OPENED if more else None)

    async def read_label(self, prompt: Prompt, labels: Labels, boundary: str) -> LabelReading:
        if self._gold not in labels:
            raise Unteachable(f"the label {self._gold!r} is none of the protocol's")
        self.label = (len(prompt.prefix), labels[self._gold][0])
        return LabelReading({label: float(label == self._gold) for label in labels}, 1.0)


def read_parts(
    protocol: Protocol, mode: str, vote: Vote, *, number: int, blocks: Mapping[str, str] | None = None
) -> dict[str, list[Stretch]]:
    """What a recorded critique holds, by the names of its protocol's parts.

    Args:
        protocol: under which it was written.
        mode: the same.
        vote: the critique.
        number: 1-based number of the step.
        blocks: the host's blocks that stand in it; None = they are read from it.

    Raises:
        Unteachable: it does not say what the model wrote, or is not of this protocol and mode.
    """
    if vote.written is None:
        raise Unteachable("the critique does not say what the model wrote")
    slot = _ReadingSlot(vote)
    found = blocks if blocks is not None else _blocks(protocol, mode, vote)
    writer = _Replayer(slot, protocol, Prompt(()), number, found)
    _now(writer.write(mode))
    if not vote.critique.startswith(writer.turn.text):
        raise Unteachable("the critique is not one of the protocol and mode named")
    return slot.parts


def teach(
    protocol: Protocol,
    mode: str,
    prompt: Prompt,
    parts: Parts,
    gold: str,
    *,
    number: int,
    adapt: bool = True,
    labels: Mapping[str, tuple[str, ...]] | None = None,
    blocks: Mapping[str, str] | None = None,
) -> Lesson:
    """A critique as the student writes it under its own protocol, with what it has to learn of it.

    Args:
        protocol: the student's.
        mode: the student's.
        prompt: the conversation that is answered.
        parts: the teacher's stretches.
        gold: the true label.
        number: 1-based number of the step.
        adapt: fit stretches to the student's prefixes and stop strings; False where the protocol is the teacher's own.
        labels: label -> spellings; None = the judgement's own.
        blocks: the host's blocks.

    Raises:
        Unteachable: a part is missing, or its text cannot stand in the student's.
    """
    slot = _TeachingSlot(parts, gold, adapt)
    writer = _Replayer(slot, protocol, prompt, number, blocks or {})
    _now(writer.write(mode))
    _now(writer.judge(labels or protocol.manifest.judgement.labels))
    text = writer.turn.text
    learnt = [_ended(start, stretch, stop, text) for start, stretch, stop in slot.asked]
    assert slot.label is not None
    learnt.append(Learnt(slot.label[0], slot.label[1], label=gold))
    return Lesson(prompt, text, tuple(item for item in learnt if item.text or item.ends))


def fitted(text: str, prefix: str, stops: Sequence[str]) -> str:
    """A teacher's stretch as it can stand behind another prefix and before other stop strings.

    Raises:
        Unteachable: it holds a stop string.
    """
    text = text.rstrip()
    if any(stop in text for stop in stops):
        text = " ".join(text.split())
    if held := [stop for stop in stops if stop and stop in text]:
        raise Unteachable(f"the text holds {held[0]!r}, which ends it")
    if prefix.endswith((" ", "\n")):
        return text.lstrip()
    return text if not text or text[0].isspace() else f" {text}"


def _ended(start: int, stretch: Stretch, stops: Sequence[str], critique: str) -> Learnt:
    """A stretch with the stop string behind it."""
    end = start + len(stretch.text)
    following = critique[end:]
    if stretch.cut:
        return Learnt(start, stretch.text)
    if stretch.code:
        return Learnt(start, critique[start : end + following.index(FENCE) + len(FENCE)])
    met = [stop for stop in stops if following.startswith(stop)]
    if met or stops:
        # Where the host goes on with other words, the model still has to write a stop string to be stopped.
        return Learnt(start, stretch.text + (max(met, key=len) if met else _fallback(stops)))
    return Learnt(start, stretch.text, ends=True)


def _fallback(stops: Sequence[str]) -> str:
    return next((stop for stop in stops if stop != OPENED), stops[0])


def _blocks(protocol: Protocol, mode: str, vote: Vote) -> dict[str, str]:
    """Host blocks as they stand in a critique: between their part's prefix and its close."""
    found: dict[str, str] = {}
    for part in protocol.parts(mode):
        if part.kind == "host" and part.prefix and part.close and part.prefix in vote.critique:
            behind = vote.critique.split(part.prefix, 1)[1]
            found[part.name] = behind.split(part.close, 1)[0]
    return found


def _now(work: Coroutine[Any, Any, Answer]) -> Answer:
    """The result of a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as done:
        answer: Answer = done.value
        return answer
    raise AssertionError("a replayed critique waited for something")
