"""Stage `format`: kept critiques become rows of token ids, learnt where the model writes and masked elsewhere.

Knows files and the tokenizer; what is learnt is `turns`' and `replay`'s business, and how it becomes ids is `masks`'.
The stage is quick and makes all its rows anew when it goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..critique import OPEN_CODE
from ..errors import ConfigError
from ..labels import encode
from ..models import resolve
from ..prompting import FENCE, Protocol, load_protocol
from ..rendering import ChatRenderer
from ..types import Solution, VerificationResult
from .exports import write_export
from .job import Job
from .masks import Ask, Tokens, build_rows
from .masks import Row as TokenRow
from .store import Row
from .turns import Kept, Teaching, conversations, recorded_programs

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def run_format(job: Job) -> None:
    """Make the rows of stage `format`."""
    settings = job.config.format
    student = job.config.student.load()
    teaching = Teaching.of(job.config.verify_config.load(), student, load_protocol)
    solver = load_protocol(student.evidence.protocol) if settings.programs else None
    tokenizer = student_tokenizer(student.model, student.backend.kind, job)
    renderer = ChatRenderer(tokenizer, student.backend.template_kwargs)
    tokens = tokens_of(tokenizer)
    store = job.store
    store.reset()
    job.expect(job.count("filter"))
    counts: Counter[str] = Counter()
    programs: Counter[str] = Counter()
    known: set[tuple[str, str]] = set()
    for row in job.rows("filter"):
        name = row["id"]
        problem = str(row["row"].get("problem_id") or name)
        store.wants(name)
        solution, result, kept = read_filtered(row)
        found = conversations(
            teaching, solution, result, kept, renderer, most=settings.conversations, pack=settings.pack_turns
        )
        made = 0
        for conversation in found:
            for critique, reason in conversation.refused:
                store.reject(f"{name}/{critique}!", reason)
            made += _rows(job, problem, f"{name}/{conversation.name}", conversation.asks, tokens, counts)
        if not made and not kept:
            store.reject(name, "nothing of it is kept")
        if solver is not None:
            for source in _right_programs(row, result):
                if programs[solution.problem] >= settings.programs_per_problem or (solution.problem, source) in known:
                    continue
                known.add((solution.problem, source))
                programs[solution.problem] += 1
                ask = program_ask(solver, solution.problem, source, renderer)
                _rows(job, problem, f"{name}/program{programs[solution.problem]}", (ask,), tokens, counts)
        job.advance()
    for export in settings.exports:
        counts[f"export_{export}"] = write_export(export, job.out, job.folder)
    store.note(
        tokens=counts.pop("tokens", 0),
        learnt_tokens=counts.pop("learnt", 0),
        verdicts={key.removeprefix("verdict_"): counts[key] for key in sorted(counts) if key.startswith("verdict_")},
        programs=sum(programs.values()),
        exports={name: counts[f"export_{name}"] for name in settings.exports},
    )


def read_filtered(row: Row) -> tuple[Solution, VerificationResult, list[Kept]]:
    """A row of stage `filter`: the solution, the teacher's result, and what is kept of it."""
    source = row["row"]
    solution = Solution(
        id=str(row["id"]),
        problem=source["problem"],
        steps=tuple(source["steps"]),
        answer=source.get("answer"),
        label=source.get("label"),
    )
    result = VerificationResult.model_validate(row["result"])
    kept = [Kept(item["step"], item["vote"], item["label"]) for item in row["keep"]]
    return solution, result, kept


def program_ask(solver: Protocol, problem: str, source: str, renderer: ChatRenderer) -> Ask:
    """A program behind the prompt in which `evidence.programs` asks for one."""
    prompt = solver.conversation(Solution(id="", problem=problem, steps=("",)), 0).extended(OPEN_CODE)
    return Ask(renderer.text(prompt), renderer.clean(source.strip("\n")) + "\n" + FENCE)


def tokens_of(tokenizer: PreTrainedTokenizerBase) -> Tokens:
    """A Hugging Face tokenizer, as rows need it."""

    def decode(ids: object) -> str:
        return str(tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    return Tokens(lambda text: encode(tokenizer, text), decode)


def student_tokenizer(model: str, kind: str, job: Job) -> PreTrainedTokenizerBase:
    """The tokenizer of the model that is trained.

    Raises:
        ConfigError: the student is no model that can be trained here.
        ModelUnavailable: its files cannot be had.
    """
    from ..backends.loading import load_tokenizer

    if kind in ("scripted", "openai"):
        raise ConfigError(f"the student has backend.kind {kind!r}: only a model with weights can be trained")
    return load_tokenizer(resolve(model, job.say))


def _rows(job: Job, problem: str, name: str, asks: tuple[Ask, ...], tokens: Tokens, counts: Counter[str]) -> int:
    """Add a conversation's rows and refuse what does not fit; returns how many rows there are."""
    rows, refused = build_rows(asks, tokens, job.config.format.max_length)
    for item in refused:
        job.store.reject(f"{name}/{item.step}!", item.reason)
    for number, row in enumerate(rows):
        counts["tokens"] += len(row.input_ids)
        counts["learnt"] += row.learnt
        for *_, label in row.verdicts:
            counts[f"verdict_{label}"] += 1
        job.store.add(as_row(f"{name}/r{number}", problem, row))
    return len(rows)


def as_row(identity: str, problem: str, row: TokenRow) -> Row:
    """A row as it is stored."""
    return {
        "id": identity,
        "problem_id": problem,
        "input_ids": row.input_ids,
        "labels": row.labels,
        "text": row.text,
        "step": row.steps[0] if len(row.steps) == 1 else None,
        "verdicts": [list(item) for item in row.verdicts],
    }


def _right_programs(row: Row, result: VerificationResult) -> Iterator[str]:
    """Programs that reached the reference answer."""
    from ..evidence.reading import read_value
    from ..evidence.values import alike

    reference = row["row"].get("answer")
    if reference is None:
        return
    wanted = read_value(str(reference))
    for program in recorded_programs(result):
        if program.status == "ok" and program.source.strip() and alike(program.answer, wanted):
            yield program.source
