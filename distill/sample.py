"""Stage `sample`: solutions to judge.

Row: `{"id": "PROBLEM/SOURCE", "problem_id", "problem", "steps", "answer", "source", "final_correct", "label", "meta"}`.
`label` is the first wrong step where it is known: by construction for perturbed rows, by hand where a file has it.

Problems that a policy never gets right, or never wrong, are given up after `max_samples` and say so among the rejected.
Every draw hangs on the run's seed and the problem's id alone.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from random import Random
from typing import Any

from ..policy import Draft, Policy
from ..records import Rejected
from ..types import Solution
from .carry import carry, look_of
from .config import DistillConfig
from .crowd import each
from .gold import Gold, Refused, read_gold, read_number
from .grading import Grader, stated_answer
from .inputs import Input, read_inputs
from .job import Job
from .perturb import Kind, Perturbed, final_text, perturb
from .store import REJECTED, Row, read_rows, row_seed
from .style import Style, draw_style, write

NO_REFERENCE = "no reference answer"
NOT_WORKED = "no worked solution"
UNREAD = "the worked solution cannot be traced"
GIVEN_UP = "given up"
NO_ERROR = "no error of a further kind fits"


def run_sample(job: Job) -> None:
    """Make the rows of every input and source that are not held yet."""
    asyncio.run(_Sampler(job).run())
    job.store.note(**summary(job.store.rows(), read_rows(job.folder, REJECTED)))


class _Sampler:
    def __init__(self, job: Job):
        self.job, self.config, self.settings = job, job.config, job.config.sample
        self.store = job.store

    async def run(self) -> None:
        settings = self.settings
        job = self.job
        job.expect(sum(1 for _ in self._read_inputs()))
        with ExitStack() as made:
            self.grader = made.enter_context(Grader())
            self.policy = made.enter_context(open_policy(self.config, job)) if "policy" in settings.sources else None
            self.complete = _complete(self.store.rows()) if self.policy is not None else set()
            await each(self._inputs(), self._one, settings.in_flight)

    def _read_inputs(self) -> Iterator[Input | Rejected]:
        settings = self.settings
        return read_inputs(settings.inputs, format=settings.format, split=settings.split, limit=settings.limit)

    def _inputs(self) -> Iterator[Input]:
        for at, item in enumerate(self._read_inputs()):
            if isinstance(item, Rejected):
                identity = f"input:{item.file}:{at}"
                if self.store.wants(identity):
                    self.store.reject(identity, "the input row cannot be used", detail=str(item.error))
                self.job.advance()
            else:
                self.store.wants(item.id)
                yield item

    async def _one(self, item: Input) -> None:
        for source in self.settings.sources:
            if source == "file":
                await self._file(item)
            elif source == "gold":
                self._gold(item)
            elif source == "perturb":
                self._perturb(item)
            elif self.policy is not None:
                await self._policy(item, self.policy)
        self.job.advance()

    # ------------------------------------------------------------------ steps of the input itself

    async def _file(self, item: Input) -> None:
        identity = f"{item.id}/file"
        if identity in self.store:
            return
        solution = item.solution
        if solution is None:
            self.store.reject(identity, "no steps in the input")
            return
        _, correct = await self.grader.solution(solution.steps, item.answer)
        if correct is None and isinstance(stated := item.meta.get("final_answer_correct"), bool):
            correct = stated
        self.store.add(_row(item, identity, solution.steps, "file", correct, solution.label, item.meta))

    # ------------------------------------------------------------------ worked solutions

    def _gold(self, item: Input) -> None:
        identity = f"{item.id}/gold"
        if identity in self.store:
            return
        gold = self._read(item, identity)
        if gold is not None:
            style = self._style(identity, gold)
            stated, money = final_text(gold, style.look)
            steps = carry(gold, None, style.look).steps
            styled = write(steps, -1, 0, stated, money, style)
            self.store.add(_row(item, identity, styled.steps, "gold", True, -1, {}))

    def _perturb(self, item: Input) -> None:
        wanted = [f"{item.id}/perturb{number}" for number in range(self.settings.per_problem)]
        if not wanted or all(identity in self.store for identity in wanted) or f"{item.id}/perturb" in self.store:
            return
        gold = self._read(item, f"{item.id}/perturb")
        if gold is None:
            return
        made = self._wrongs(item, gold)
        for identity in wanted:
            row, refused_now = next(made, (None, []))
            if identity in self.store:
                continue
            if row is None:
                self.store.reject(identity, NO_ERROR, refused=refused_now)
            else:
                self.store.add({**row, "id": identity})

    def _wrongs(self, item: Input, gold: Gold) -> Iterator[tuple[Row | None, list[tuple[str, str]]]]:
        """Rows of different kinds, each with what was refused on the way to it."""
        refused: list[tuple[str, str]] = []
        number = 0
        for kind in kind_order(self.settings.kinds, row_seed(self.config.seed, item.id, "kinds")):
            identity = f"{item.id}/perturb{number}"
            style = self._style(identity, gold)
            rng = Random(row_seed(self.config.seed, item.id, "perturb", kind))
            try:
                wrong = perturb(gold, kind, rng, style.look)
                row = self._wrong_row(item, identity, gold, wrong, style)
            except Refused as reason:
                refused.append((kind, reason.reason))
                continue
            row["meta"]["refused"] = refused
            yield row, refused
            refused, number = [], number + 1
        yield None, refused

    def _wrong_row(self, item: Input, identity: str, gold: Gold, wrong: Perturbed, style: Style) -> Row:
        styled = write(wrong.steps, wrong.label, wrong.at, wrong.stated, final_text(gold, style.look)[1], style)
        _check_read_back(styled.steps, wrong)
        meta = {"kind": wrong.kind}
        return _row(item, identity, styled.steps, f"perturb:{wrong.kind}", False, styled.label, meta)

    def _read(self, item: Input, identity: str) -> Gold | None:
        if item.worked is None:
            self.store.reject(identity, NOT_WORKED)
            return None
        try:
            return read_gold(item.problem, item.worked)
        except Refused as refused:
            self.store.reject(identity, f"{UNREAD}: {refused.reason}")
            return None

    def _style(self, identity: str, gold: Gold) -> Style:
        rng = Random(row_seed(self.config.seed, identity, "style"))
        return draw_style(rng, commas=look_of(gold).commas)

    # ------------------------------------------------------------------ a policy

    async def _policy(self, item: Input, policy: Policy) -> None:
        marker, nothing = f"{item.id}/policy", f"{item.id}/policy-none"
        if item.id in self.complete or nothing in self.store:
            return
        if item.answer is None:
            self.store.reject(nothing, NO_REFERENCE)
            return
        kept, refused = await self._draw(item, policy)
        right = sum(correct for _, correct, _ in kept)
        lacking = {"right": self.settings.want_right - right, "wrong": self.settings.want_wrong - len(kept) + right}
        missing = [kind for kind, count in lacking.items() if count > 0]
        if missing:
            # Before the rows: whether a problem is done is told by them, or by this where there are none.
            more = {"lacking": {kind: lacking[kind] for kind in missing}}
            refused.append((marker if kept else nothing, f"{GIVEN_UP}: too few {' and '.join(missing)} samples", more))
        for identity, reason, more in refused:
            if identity not in self.store:
                self.store.reject(identity, reason, **more)
        for draft, correct, number in kept:
            identity = f"{marker}{number}"
            meta = {"tokens": draft.completion_tokens, "of": len(kept)}
            if identity not in self.store:
                self.store.add(_row(item, identity, draft.steps, f"policy:{policy.model}", correct, None, meta))

    async def _draw(
        self, item: Input, policy: Policy
    ) -> tuple[list[tuple[Draft, bool, int]], list[tuple[str, str, dict[str, Any]]]]:
        """Solutions to keep, with verdict and number, and those refused."""
        settings = self.settings
        left = {True: settings.want_right, False: settings.want_wrong}
        kept: list[tuple[Draft, bool, int]] = []
        refused: list[tuple[str, str, dict[str, Any]]] = []
        seen: set[tuple[str, ...]] = set()
        drawn = wave = 0
        while drawn < settings.max_samples and any(count > 0 for count in left.values()):
            count = min(max(sum(left.values()), 1), settings.max_samples - drawn)
            seed = row_seed(self.config.seed, item.id, "policy", wave)
            drafts = await policy.complete(item.problem, n=count, seed=seed)
            for number, draft in enumerate(drafts, drawn):
                identity = f"{item.id}/policy{number}"
                more: dict[str, Any] = {"tokens": draft.completion_tokens}
                correct = None
                if not draft.finished:
                    reason = "a sample is unfinished"
                    more["detail"] = draft.note
                elif draft.steps in seen:
                    reason = "a sample repeats another"
                else:
                    answer, correct = await self.grader.solution(draft.steps, item.answer)
                    reason = "a sample's answer is unknown"
                    more["answer"] = answer
                    if correct is not None and left[correct] <= 0:
                        reason = f"enough {'right' if correct else 'wrong'} samples"
                        correct = None
                seen.add(draft.steps)
                if correct is None:
                    refused.append((identity, reason, more))
                else:
                    left[correct] -= 1
                    kept.append((draft, correct, number))
            drawn, wave = drawn + count, wave + 1
        return kept, refused


def open_policy(config: DistillConfig, job: Job) -> Policy:
    """The model that `policy` names."""
    from ..build import load_policy

    return load_policy(config.policy.load(), say=job.say)


def kind_order(weights: Mapping[str, float], seed: int) -> list[Kind]:
    """The kinds in the order in which they are tried: heavier ones tend to come first (Efraimidis and Spirakis)."""
    rng = Random(seed)
    keys = {kind: rng.random() ** (1 / weight) for kind, weight in sorted(weights.items()) if weight > 0}
    return sorted(keys, key=lambda kind: -keys[kind])  # type: ignore[arg-type]


def summary(rows: Iterator[Row], rejected: Iterator[Row]) -> dict[str, Any]:
    """What came of it, for the manifest; tokens count samples that were not kept too."""
    sources: Counter[str] = Counter()
    finals: Counter[str] = Counter()
    labels: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    tokens = 0
    for row in rows:
        sources[row["source"]] += 1
        finals[{True: "right", False: "wrong", None: "unknown"}[row["final_correct"]]] += 1
        labels["unknown" if row["label"] is None else "right" if row["label"] < 0 else "wrong"] += 1
        tokens += row["meta"].get("tokens", 0) if row["source"].startswith("policy:") else 0
        refused.update(f"{kind}: {reason}" for kind, reason in row["meta"].get("refused", ()))
    for row in rejected:
        tokens += row.get("tokens", 0)
        refused.update(f"{kind}: {reason}" for kind, reason in row.get("refused", ()))
    return {
        "sources": dict(sorted(sources.items())),
        "final_answers": dict(sorted(finals.items())),
        "known_labels": dict(sorted(labels.items())),
        "perturbations_refused": dict(sorted(refused.items())),
        "tokens": {"completion": tokens},
    }


def as_solution(row: Row) -> Solution:
    """A row as a solution, with its label."""
    return Solution(
        id=row["id"], problem=row["problem"], steps=tuple(row["steps"]), answer=row["answer"], label=row["label"]
    )


def _check_read_back(steps: tuple[str, ...], wrong: Perturbed) -> None:
    """The final answer that others will read from the text must be the one that was meant."""
    answer = stated_answer(steps)
    try:
        read = None if answer is None else read_number(answer.replace("{,}", ","))
    except ValueError:
        read = None
    if read != wrong.value:
        raise Refused("the stated answer is not read back")


def _complete(rows: Iterator[Row]) -> set[str]:
    """Problems all of whose kept policy rows are held; a kill between two of them leaves the rest to be made."""
    held: Counter[str] = Counter()
    wanted: dict[str, int] = {}
    for row in rows:
        if row["source"].startswith("policy:"):
            held[row["problem_id"]] += 1
            wanted[row["problem_id"]] = row["meta"]["of"]
    return {problem for problem, count in held.items() if count == wanted[problem]}


def _row(
    item: Input,
    identity: str,
    steps: tuple[str, ...],
    source: str,
    correct: bool | None,
    label: int | None,
    meta: Mapping[str, Any],
) -> Row:
    return {
        "id": identity,
        "problem_id": item.id,
        "problem": item.problem,
        "steps": list(steps),
        "answer": item.answer,
        "source": source,
        "final_correct": correct,
        "label": label,
        "meta": dict(meta),
    }
