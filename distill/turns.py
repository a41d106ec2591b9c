"""From a filtered row to asks: the student's conversations about one solution, and what is learnt in each.

Knows layouts and protocols; knows no tokenizer beyond its chat template. The conversation is laid out as `judging`
lays it out, by the same `Protocol.conversation`, with the teacher's critiques in the place of the student's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..config import Config, EvidenceConfig
from ..errors import ConfigError
from ..evidence.block import evidence_block
from ..evidence.programs import Program
from ..evidence.reading import read_value
from ..evidence.support import SolutionSupport, support
from ..prompting import Message, Prompt, Protocol
from ..rendering import ChatRenderer
from ..types import Solution, VerificationResult, Vote
from .masks import Ask
from .replay import Lesson, Unteachable, read_parts, teach

Blocks = Callable[[int], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Kept:
    """One critique that is to be learnt."""

    step: int
    vote: int
    label: bool


@dataclass(frozen=True, slots=True)
class Teaching:
    """Who taught under which protocol, and who learns under which."""

    teacher: Protocol
    teacher_mode: str
    student: Protocol
    mode: str
    evidence: EvidenceConfig
    """The student's."""

    @classmethod
    def of(cls, teacher: Config, student: Config, load: Callable[[str], Protocol]) -> Teaching:
        """From both configs.

        Raises:
            ConfigError: what one writes cannot be put into the other's layout.
        """
        theirs, own = load(teacher.verify.protocol), load(student.verify.protocol)
        theirs.parts(teacher.verify.mode)
        own.parts(student.verify.mode)
        if (theirs.manifest.layout == "whole") != (own.manifest.layout == "whole"):
            raise ConfigError(
                f"the teacher's protocol {theirs.name!r} ({theirs.manifest.layout}) and the student's {own.name!r} "
                f"({own.manifest.layout}): critiques of whole solutions and of steps cannot be turned into each other"
            )
        return cls(theirs, teacher.verify.mode, own, student.verify.mode, student.evidence)

    @property
    def same(self) -> bool:
        """True where the student writes exactly what the teacher wrote."""
        return self.teacher.ref == self.student.ref


@dataclass(frozen=True, slots=True)
class Conversation:
    """Asks that may share rows, in their order; `refused` are kept critiques that cannot be learnt."""

    name: str
    asks: tuple[Ask, ...]
    refused: tuple[tuple[str, str], ...] = ()
    """Name of the critique and the reason."""


def conversations(
    teaching: Teaching,
    solution: Solution,
    result: VerificationResult,
    kept: Sequence[Kept],
    renderer: ChatRenderer,
    *,
    most: int | None = None,
    pack: bool = True,
) -> Iterator[Conversation]:
    """The student's conversations about one solution.

    Args:
        teaching: both protocols.
        solution: with its gold label, which `whole` protocols learn.
        result: the teacher's.
        kept: what is learnt of it.
        renderer: of the student's tokenizer.
        most: bound on `multi_turn` conversations.
        pack: `multi_turn`: keep turns of a conversation together.
    """
    layout = teaching.student.manifest.layout
    if layout == "whole":
        yield from _whole(teaching, solution, result, kept, renderer)
        return
    blocks = host_blocks(teaching, solution, result)
    if layout == "independent":
        yield from _independent(teaching, solution, result, kept, renderer, blocks)
        return
    by_step = {step: [item for item in kept if item.step == step] for step in {item.step for item in kept}}
    count = min(max((len(items) for items in by_step.values()), default=0), most or len(kept))
    for number in range(count):
        turns = _multi_turn(teaching, solution, result, by_step, renderer, blocks, number)
        if pack:
            asks = tuple(ask for turn in turns for ask in turn.asks)
            yield Conversation(f"c{number}", asks, tuple(item for turn in turns for item in turn.refused))
        else:
            yield from turns


def host_blocks(teaching: Teaching, solution: Solution, result: VerificationResult) -> Blocks:
    """The evidence that the student's host inserts, made anew from the programs on record."""
    settings = teaching.evidence
    shown = settings.show and (settings.programs > 0 or settings.equations)
    if not shown or not any(part.kind == "host" for part in teaching.student.parts(teaching.mode)):
        return lambda _: {}
    found = recorded_support(solution, result, settings)
    return lambda index: {"evidence": evidence_block(found, index)}


def recorded_support(solution: Solution, result: VerificationResult, settings: EvidenceConfig) -> SolutionSupport:
    """What the programs on record say of a solution, as `Evidence` would find it."""
    programs = recorded_programs(result)[: settings.programs]
    found = support(solution, programs)
    if settings.equations:
        return found
    steps = tuple(step.model_copy(update={"equations": ()}) for step in found.steps)
    return found.model_copy(update={"steps": steps})


def recorded_programs(result: VerificationResult) -> tuple[Program, ...]:
    """The programs in a result's evidence."""
    listed = (result.evidence or {}).get("programs") or ()
    return tuple(
        Program(
            source=item["source"],
            status=item["status"],
            output="",
            answer=None if item.get("answer") is None else read_value(item["answer"]),
            values={name: read_value(text) for name, text in (item.get("values") or {}).items()},
        )
        for item in listed
    )


# ---------------------------------------------------------------------- layouts


def _independent(
    teaching: Teaching,
    solution: Solution,
    result: VerificationResult,
    kept: Sequence[Kept],
    renderer: ChatRenderer,
    blocks: Blocks,
) -> Iterator[Conversation]:
    protocol = teaching.student
    rendered = [protocol.render_step(text, index) for index, text in enumerate(solution.steps)]
    for item in kept:
        given = blocks(item.step)
        prompt = protocol.conversation(solution, item.step, previous="".join(rendered[: item.step]), blocks=given)
        yield _alone(teaching, prompt, result, item, given, renderer)


def _multi_turn(
    teaching: Teaching,
    solution: Solution,
    result: VerificationResult,
    kept: Mapping[int, Sequence[Kept]],
    renderer: ChatRenderer,
    blocks: Blocks,
    number: int,
) -> list[Conversation]:
    """Turns of one conversation. Each kept critique is learnt in one of a solution's conversations and stands masked
    in the others; a step none of whose critiques is kept stands in it as the teacher judged it, masked."""
    history: list[Message] = []
    turns: list[Conversation] = []
    for step in result.steps:
        own = kept.get(step.index, ())
        if not own and not step.votes:
            break
        learns = number < len(own)
        if own:
            chosen = own[number % len(own)]
        else:
            vote = number % len(step.votes)
            chosen = Kept(step.index, vote, step.votes[vote].p_yes >= 0.5)
        given = blocks(step.index)
        prompt = teaching.student.conversation(solution, step.index, history=tuple(history), blocks=given)
        try:
            lesson = _lesson(teaching, prompt, result, chosen, given)
        except Unteachable as error:
            # Later turns would have a hole before them.
            reasons = [
                (_name(item), error.reason if item is chosen else "the conversation breaks off before it")
                for index in range(step.index, len(result.steps))
                for item in kept.get(index, ())[number : number + 1]
            ]
            turns.append(Conversation(f"{_name(chosen)}", (), tuple(reasons)))
            break
        if learns:
            turns.append(Conversation(_name(chosen), _asks(lesson, renderer, step.index)))
        history += [prompt.messages[-1], Message("assistant", lesson.text)]
    return turns


def _whole(
    teaching: Teaching, solution: Solution, result: VerificationResult, kept: Sequence[Kept], renderer: ChatRenderer
) -> Iterator[Conversation]:
    """One critique of all steps for each vote of which anything is kept; its label is the index of the first error."""
    protocol = teaching.student
    judged = solution.model_copy(update={"steps": tuple(step.text for step in result.steps)})
    count = len(judged.steps)
    blocks = host_blocks(teaching, judged, result)
    shown = "".join(protocol.render_step(text, index) for index, text in enumerate(judged.steps))
    for vote in dict.fromkeys(item.vote for item in kept):
        name = f"{count - 1}.{vote}"
        given = blocks(count - 1)
        prompt = protocol.conversation(judged, count - 1, previous=shown, blocks=given)
        first = protocol.manifest.judgement.kind == "first_error"
        labels = protocol.first_error_labels(count) if first else protocol.manifest.judgement.labels
        names = list(labels)
        gold = str(solution.label) if first else names[0] if solution.label == -1 else names[1]
        try:
            if solution.label is None:
                raise Unteachable("the solution has no label")
            parts = read_parts(teaching.teacher, teaching.teacher_mode, _vote(result, 0, vote), number=count)
            lesson = teach(
                protocol,
                teaching.mode,
                prompt,
                parts,
                gold,
                number=count,
                adapt=not teaching.same,
                labels=labels,
                blocks=given,
            )
            yield Conversation(name, _asks(lesson, renderer, count - 1))
        except Unteachable as error:
            yield Conversation(name, (), ((name, error.reason),))


# ---------------------------------------------------------------------- small pieces


def _alone(
    teaching: Teaching,
    prompt: Prompt,
    result: VerificationResult,
    item: Kept,
    given: Mapping[str, str],
    renderer: ChatRenderer,
) -> Conversation:
    name = _name(item)
    try:
        lesson = _lesson(teaching, prompt, result, item, given)
    except Unteachable as error:
        return Conversation(name, (), ((name, error.reason),))
    return Conversation(name, _asks(lesson, renderer, item.step))


def _lesson(
    teaching: Teaching, prompt: Prompt, result: VerificationResult, item: Kept, given: Mapping[str, str]
) -> Lesson:
    vote = _vote(result, item.step, item.vote)
    number = item.step + 1
    parts = read_parts(teaching.teacher, teaching.teacher_mode, vote, number=number)
    yes, no = list(teaching.student.manifest.judgement.labels)[:2]
    return teach(
        teaching.student,
        teaching.mode,
        prompt,
        parts,
        yes if item.label else no,
        number=number,
        adapt=not teaching.same,
        blocks=given,
    )


def _vote(result: VerificationResult, step: int, vote: int) -> Vote:
    found = next((item for item in result.steps if item.index == step), None)
    if found is None or not 0 <= vote < len(found.votes):
        raise Unteachable("there is no such critique in the result")
    return found.votes[vote]


def _asks(lesson: Lesson, renderer: ChatRenderer, step: int) -> tuple[Ask, ...]:
    """What is learnt of a critique, each behind the prompt that inference renders there."""
    asks = []
    for item in lesson.learnt:
        learn = renderer.clean(item.text)
        if item.ends:
            learn += str(renderer.tokenizer.eos_token or "")
        context = renderer.text(lesson.prompt.extended(lesson.text[: item.start]))
        asks.append(Ask(context, learn, step, item.label))
    return tuple(asks)


def _name(item: Kept) -> str:
    return f"{item.step}.{item.vote}"
