"""Stage `label`: which steps of each solution are wrong, and how that is known.

Row: the row of `sample` with `label` (first wrong step, -1 = none, null = not known), `step_labels`, `label_method`,
`mc`, `hard` and `rpe` (of steps 1 to n, null where not drawn) and `rollouts`, from which all of them follow. Rows of
which no step could be labelled are rejected with the reason. Knows the methods' order and cost; the rules themselves
are in rules.py, rollouts in rollouts.py, programs in solvers.py.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from .config import LabelConfig, MethodName
from .crowd import each
from .grading import Grader
from .job import Job
from .rollouts import Point, Roller
from .rules import (
    Bisection,
    Question,
    first_error,
    hard_labels,
    labels_of,
    outcome_labels,
    relative_progress,
    rpe_labels,
    soft_labels,
)
from .sample import as_solution
from .solvers import ProgramLabels
from .store import REJECTED, Row, read_rows

BY_ROLLOUTS: tuple[MethodName, ...] = ("mc_soft", "mc_hard", "rpe", "binary_search")
NEVER_SOLVED = "the policy never solves the problem"
NO_REFERENCE = "no reference answer"
UNKNOWN_FINAL = "the final answer is unknown"
UNKNOWN_ROLLOUTS = "no rollout's answer could be compared"
DISAGREE = "two methods disagree"


@dataclass(slots=True)
class Labelled:
    """What one method says of one solution."""

    method: MethodName
    first: int | None
    """The first wrong step, 0-based; -1 = none; None = not known."""
    steps: list[bool | None]
    reason: str = ""
    """Why the first error is not known."""
    values: list[float | None] = field(default_factory=list)
    """MC(1) to MC(n); empty where no rollouts were drawn."""
    rate: Point | None = None
    points: list[Point] = field(default_factory=list)


def run_label(job: Job) -> None:
    """Label each row of `sample` that is not held yet."""
    asyncio.run(_Stage(job).run())
    job.store.note(**summary(job.store.rows(), read_rows(job.folder, REJECTED)))


class _Stage:
    def __init__(self, job: Job):
        self.job, self.settings, self.store = job, job.config.label, job.store

    async def run(self) -> None:
        job, settings = self.job, self.settings
        job.expect(job.count("sample"))
        with ExitStack() as made:
            self.labeller = made.enter_context(_open(job))
            await each(self._wanted(), self._one, settings.in_flight)

    def _wanted(self) -> Iterator[Row]:
        for row in self.job.rows("sample"):
            if self.store.wants(row["id"]):
                yield row
            else:
                self.job.advance()

    async def _one(self, row: Row) -> None:
        found = await self.labeller.label(row, method_for(row, self.settings))
        second = self.settings.agree_with
        other = None
        if second is not None and second != found.method and found.first is not None:
            other = await self.labeller.label(row, second)
        made = label_row(row, found, other)
        if all(label is None for label in found.steps):
            self._reject(made, found.reason or "no step could be labelled")
        elif second is not None and found.first is None:
            self._reject(made, found.reason or "the first error is not known")
        elif other is not None and other.first != found.first:
            reason = f"{second}: {other.reason or 'not known'}" if other.first is None else DISAGREE
            self._reject(made, reason, methods={found.method: found.first, other.method: other.first})
        else:
            self.store.add(made)
        self.job.advance()

    def _reject(self, row: Row, reason: str, **more: Any) -> None:
        kept = {key: row[key] for key in ("problem", "label_method", "rollouts", "pass_rate")}
        self.store.reject(row["id"], reason, **kept, **more)


def _open(job: Job) -> Labeller:
    """What the run's methods need, and nothing else."""
    settings = job.config.label
    methods = {settings.method, settings.agree_with}
    if settings.method == "auto":
        methods.add(settings.rollout_method)
        # Where every row's label is known no model is loaded.
        if all(row["label"] is not None for row in job.rows("sample")):
            methods.discard(settings.rollout_method)
    needs_policy, needs_programs = bool(methods & set(BY_ROLLOUTS)), "programs" in methods
    with ExitStack() as made:
        grader = made.enter_context(Grader())
        roller = programs = None
        if needs_policy or needs_programs:
            from ..build import load_policy, make_backend

            config = job.config.policy.load()
            own = config.model_copy(
                update={
                    "model": config.policy.model or config.model,
                    "backend": config.policy.backend or config.backend,
                }
            )
            backend = make_backend(own, job.say)
            made.callback(backend.close)
            if needs_policy:
                roller = Roller(
                    load_policy(own, backend), grader, settings, job.config.seed, whole_rate="rpe" in methods
                )
            if needs_programs:
                programs = made.enter_context(ProgramLabels(backend, own, settings.programs, job.config.seed))
        return Labeller(settings, roller, programs, made.pop_all())


class Labeller:
    """Labels rows by any of the methods that it has the parts for."""

    def __init__(
        self,
        settings: LabelConfig,
        roller: Roller | None = None,
        programs: ProgramLabels | None = None,
        parts: ExitStack | None = None,
    ):
        """Prepare; `parts` is closed with it."""
        self._settings, self._roller, self._programs = settings, roller, programs
        self._parts = parts or ExitStack()

    def __enter__(self) -> Labeller:
        return self

    def __exit__(self, *_: object) -> None:
        self._parts.close()

    async def label(self, row: Row, method: MethodName) -> Labelled:
        """What a method says of a row of `sample`."""
        count = len(row["steps"])
        if method in ("gold", "construction"):
            by_hand = not str(row["source"]).startswith(("perturb", "gold"))
            if row["label"] is None or by_hand != (method == "gold"):
                how = "by hand" if method == "gold" else "by construction"
                return Labelled(method, None, [None] * count, f"no label {how}")
            return Labelled(method, row["label"], labels_of(row["label"], count))
        if method == "outcome":
            labels = outcome_labels(count, row["final_correct"])
            return Labelled(method, first_error(labels), labels, UNKNOWN_FINAL)
        if method == "programs":
            assert self._programs is not None
            first, reason = await self._programs.first_error(as_solution(row))
            return Labelled(method, first, labels_of(first, count), reason)
        if row["answer"] is None:
            return Labelled(method, None, [None] * count, NO_REFERENCE)
        if method == "binary_search":
            return await self._bisect(row)
        return await self._scan(row, method)

    # ------------------------------------------------------------------ rollouts

    async def _scan(self, row: Row, method: MethodName) -> Labelled:
        """MC(1) to MC(n-1) in order; MC(n) is 1 or 0 by the final answer."""
        assert self._roller is not None
        settings, steps = self._settings, row["steps"]
        rate = await self._roller.pass_rate(row["problem"], row["answer"])
        final = row["final_correct"]
        values: list[float | None] = []
        points: list[Point] = []
        labels: list[bool | None] = []
        for length in range(1, len(steps)):
            question = self._question(method, [rate.value, *values][-1])
            point = await self._roller.prefix(row["problem"], steps[:length], row["answer"], rate.planned, question)
            points.append(point)
            values.append(point.value)
            labels = self._labels(method, [*values, None], rate.value, None)[:-1]
            if False in labels and not settings.after_error and not settings.exact:
                break
        drawn = len(values)
        values += [None] * (len(steps) - 1 - drawn)
        labels = self._labels(method, [*values, None if final is None else float(final)], rate.value, final)
        values.append(None if final is None else float(final))
        if rate.value == 0 and not any(values):
            return Labelled(method, None, [None] * len(steps), NEVER_SOLVED, values, rate, points)
        unknown = UNKNOWN_ROLLOUTS if None in values[:drawn] or rate.value is None else UNKNOWN_FINAL
        return Labelled(method, first_error(labels), labels, unknown, values, rate, points)

    def _question(self, method: MethodName, before: float | None) -> Question:
        if method == "mc_soft":
            return Question(threshold=self._settings.soft_threshold, above_zero=True)
        if method == "rpe" and before:
            return Question(threshold=self._settings.rpe_threshold * before, above_zero=True)
        return Question(above_zero=True)

    def _labels(
        self, method: MethodName, values: Sequence[float | None], rate: float | None, final: bool | None
    ) -> list[bool | None]:
        if method == "mc_soft":
            return soft_labels(values, self._settings.soft_threshold)
        if method == "mc_hard":
            return hard_labels(values)
        return rpe_labels(values, rate, final, self._settings.rpe_threshold)

    async def _bisect(self, row: Row) -> Labelled:
        assert self._roller is not None
        steps, final = row["steps"], row["final_correct"]
        values: list[float | None] = [*[None] * (len(steps) - 1), None if final is None else float(final)]
        if final is None:
            return Labelled("binary_search", None, [None] * len(steps), UNKNOWN_FINAL, values)
        if final:
            return Labelled("binary_search", -1, labels_of(-1, len(steps)), "", values)
        rate = await self._roller.pass_rate(row["problem"], row["answer"])
        search = Bisection(len(steps))
        points: list[Point] = []
        while (length := search.ask()) is not None:
            question = Question(above_zero=True)
            point = await self._roller.prefix(row["problem"], steps[:length], row["answer"], rate.planned, question)
            points.append(point)
            values[length - 1] = point.value
            search.tell(length, point.value)
        first, reason = search.first, UNKNOWN_ROLLOUTS
        if search.right == 0 and not rate.value:
            # That the problem can be solved at all is what the search leans on.
            first, reason = None, NEVER_SOLVED if rate.value == 0 else UNKNOWN_ROLLOUTS
        return Labelled("binary_search", first, labels_of(first, len(steps)), reason, values, rate, points)


def method_for(row: Row, settings: LabelConfig) -> MethodName:
    """The method that labels a row."""
    if settings.method != "auto":
        return settings.method
    if row["label"] is None:
        return settings.rollout_method
    return "construction" if str(row["source"]).startswith(("perturb", "gold")) else "gold"


def label_row(row: Row, found: Labelled, other: Labelled | None = None) -> Row:
    """A row of this stage; `other` is what the second method said, whose rollouts are kept where the first has none."""
    drawn = next((one for one in (found, other) if one is not None and one.values), None)
    values = [] if drawn is None else drawn.values
    rate = None if drawn is None or drawn.rate is None else drawn.rate
    progress = [] if rate is None else relative_progress(values, rate.value)
    return {
        **row,
        "label": found.first,
        "step_labels": found.steps,
        "label_method": found.method if other is None else f"{found.method}+{other.method}",
        "pass_rate": None if rate is None else rate.as_row(),
        "mc": values or None,
        "hard": hard_labels(values) or None,
        "rpe": [None if one is None or math.isinf(one) else round(one, 6) for one in progress] or None,
        "rollouts": [point.as_row() for point in drawn.points] if drawn is not None else None,
    }


def summary(rows: Iterator[Row], rejected: Iterator[Row]) -> dict[str, Any]:
    """What came of it, for the manifest; rejected rows' rollouts and tokens count too, pass rates once a problem."""
    methods: Counter[str] = Counter()
    firsts: Counter[str] = Counter()
    total = {"drawn": 0, "planned": 0, "unknown": 0}
    rates: dict[str, Row] = {}
    tokens = 0

    def take(row: Row) -> None:
        nonlocal tokens
        if row.get("pass_rate") is not None:
            rates[row["problem"]] = row["pass_rate"]
        for point in row.get("rollouts") or ():
            total["drawn"] += point["n"]
            total["planned"] += point["planned"]
            total["unknown"] += point["n"] - point["known"]
            tokens += point["tokens"]

    for row in rows:
        methods[row["label_method"]] += 1
        firsts["unknown" if row["label"] is None else "none" if row["label"] < 0 else "some"] += 1
        take(row)
    for row in rejected:
        take(row)
    tokens += sum(rate["tokens"] for rate in rates.values())
    facts: dict[str, Any] = {"methods": dict(sorted(methods.items())), "first_errors": dict(sorted(firsts.items()))}
    if total["drawn"]:
        total["of_pass_rates"] = sum(rate["n"] for rate in rates.values())
        facts["rollouts"] = {**total, "saved_share": round(1 - total["drawn"] / total["planned"], 4)}
    return {**facts, "tokens": {"completion": tokens}}
