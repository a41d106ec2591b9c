"""Stage `filter`: consensus. A critique is kept where its verdict agrees with the label and its code ran.

Row: `{"id", "row": the label row, "result": VerificationResult, "keep": [{"step", "vote", "label"}]}` with at least one
critique to keep; `vote` is an index into the step's `votes`. A rejected critique is `ROW#STEP.VOTE` in
`rejected.jsonl`, a rejected row `ROW`. After GenPRM (consensus of critique and label, "relative progress" labels) and
ThinkPRM (all steps' verdicts must match: `consensus: solution`).

Nothing here is slow: a run that was killed begins this stage anew.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..records import Rejected
from .config import DistillConfig, FilterConfig
from .critique import teacher_config
from .decontaminate import Known
from .inputs import read_inputs
from .job import Job
from .store import Row

CONTAMINATED = "contaminated"
NOT_ALIGNED = "the verdict disagrees with a label of the solution"


@dataclass(frozen=True, slots=True)
class Critique:
    """One vote on one step, as it stands in a result."""

    row: str
    step: int
    vote: int
    body: dict[str, Any]

    @property
    def name(self) -> str:
        """Its id in `rejected.jsonl`."""
        return f"{self.row}#{self.step}.{self.vote}"


def run_filter(job: Job) -> None:
    """Choose the critiques to learn; reads the rows of `critique` twice, and holds none of them in memory."""
    settings, store = job.config.filter, job.store
    store.reset()
    job.expect(job.count("critique"))
    picker = Picker(job.config, known_problems(settings))
    kept: dict[str, list[dict[str, Any]]] = {}
    total = 0
    for row in job.rows("critique"):
        chosen, rejected = picker.pick(row)
        total += sum(len(step["votes"]) + len(step["failed_votes"]) for step in row["result"]["steps"])
        for name, reason, more in rejected:
            store.reject(name, reason, **more)
        if chosen:
            kept[row["id"]] = chosen
    verdicts = Counter(item["label"] for keep in kept.values() for item in keep)
    if settings.balance:
        for name in dropped_for_balance(kept, job.config.seed):
            store.reject(name, "balance of verdicts")
        if len(verdicts) == 1:
            job.say("all kept critiques have one verdict: there is nothing to balance them by")
    for row in job.rows("critique"):
        store.wants(row["id"])
        if row["id"] in kept:
            store.add({"id": row["id"], "row": row["row"], "result": row["result"], "keep": kept[row["id"]]})
        elif row["id"] not in store:
            store.reject(row["id"], "no critique is kept")
        job.advance()
    final = Counter(item["label"] for keep in kept.values() for item in keep)
    store.note(
        critiques={"in": total, "kept": final.total(), "yes": final[True], "no": final[False]},
        before_balance={"yes": verdicts[True], "no": verdicts[False]},
        kept_share=round(final.total() / total, 4) if total else None,
    )


def known_problems(settings: FilterConfig) -> Known:
    """The problems of the evaluation files.

    Raises:
        InputError: a file or one of its rows cannot be read; a row that is passed over could be the contaminated one.
    """

    def problems() -> Iterator[tuple[str, str]]:
        for item in read_inputs(settings.against, unique=False):
            if isinstance(item, Rejected):
                raise item.error
            yield item.id, item.problem

    return Known(problems(), settings.ngram)


class Picker:
    """Applies the rules to one row after another; remembers what it has seen."""

    def __init__(self, config: DistillConfig, known: Known):
        self._settings = config.filter
        self._threshold = teacher_config(config).verify.threshold
        self._known = known
        self._seen: set[bytes] = set()

    def pick(self, row: Row) -> tuple[list[dict[str, Any]], list[tuple[str, str, dict[str, Any]]]]:
        """The critiques of one row to keep, and those rejected (id, reason, details); a row may be rejected itself."""
        whole = self._row_fault(row)
        if whole is not None:
            return [], [(row["id"], *whole)]
        keep: list[dict[str, Any]] = []
        rejected: list[tuple[str, str, dict[str, Any]]] = []
        misled = self._misled_votes(row)
        for step in row["result"]["steps"]:
            index, taken = step["index"], 0
            for number, failed in enumerate(step["failed_votes"]):
                name = f"{row['id']}#{index}.failed{number}"
                rejected.append((name, "no verdict", {"why": failed["reason"]}))
            for vote, body in enumerate(step["votes"]):
                critique = Critique(row["id"], index, vote, body)
                label = _label(row["row"], index)
                reason = self._fault(critique, label, misled)
                if reason is None and self._repeats(row, critique):
                    reason = "duplicate"
                if reason is None and self._settings.per_step is not None and taken >= self._settings.per_step:
                    reason = "more critiques than per_step"
                if reason is None:
                    taken += 1
                    keep.append({"step": index, "vote": vote, "label": label})
                else:
                    rejected.append((critique.name, reason, {}))
        return keep, rejected

    def _row_fault(self, row: Row) -> tuple[str, dict[str, Any]] | None:
        match = self._known.match(row["result"]["problem"])
        if match is not None:
            return CONTAMINATED, {"with": match}
        evidence, reference = row["result"]["evidence"], row["row"]["answer"]
        if self._settings.programs_must_reach_answer and evidence is not None and reference is not None:
            return _programs_fault(evidence, reference)
        return None

    def _misled_votes(self, row: Row) -> set[int]:
        """Votes that count as wrong as a whole: by `consensus: solution`, or because one critique covers all steps."""
        steps = row["result"]["steps"]
        judged = [(step["index"], vote, body) for step in steps for vote, body in enumerate(step["votes"])]
        together = self._settings.consensus == "solution" or any(body["shared"] for _, _, body in judged)
        if not together:
            return set()
        every = {vote for _, vote, _ in judged}
        if any(step["failed_votes"] or not step["votes"] for step in steps):
            return every  # with a hole in it no vote is one on the whole solution
        wrong = set()
        for index, vote, body in judged:
            label = _label(row["row"], index)
            if label is not None and (body["p_yes"] >= self._threshold) != label:
                wrong.add(vote)
        return wrong

    def _fault(self, critique: Critique, label: bool | None, misled: set[int]) -> str | None:
        settings, body = self._settings, critique.body
        statuses = [check["status"] for check in body["checks"]]
        if label is None:
            return "no label"
        if (body["p_yes"] >= self._threshold) != label:
            return "the verdict disagrees with the label"
        if critique.vote in misled:
            return NOT_ALIGNED
        if body["direct"]:
            return "no critique"
        if body["notes"]:
            return "cut short"
        if settings.max_tokens is not None and body["completion_tokens"] > settings.max_tokens:
            return "too long"
        if not statuses:
            return "no code" if settings.need_code else None
        if "unavailable" in statuses and settings.ran != "ignore":
            return "code could not be run"
        enough = {"all": len(statuses), "any": 1, "ignore": 0}[settings.ran]
        return None if statuses.count("ok") >= enough else "code failed"

    def _repeats(self, row: Row, critique: Critique) -> bool:
        if critique.body["shared"]:
            return False  # the same text by design: one critique of several steps
        result = row["result"]
        texts = (result["problem"], result["steps"][critique.step]["text"], critique.body["critique"])
        digest = hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).digest()[:16]
        if digest in self._seen:
            return True
        self._seen.add(digest)
        return False


def dropped_for_balance(kept: dict[str, list[dict[str, Any]]], seed: int) -> list[str]:
    """Take critiques of the commoner verdict out of `kept` until both are equally many; returns their names.

    Those with the highest hash of seed and name go, so that the choice hangs on neither order nor chance. Where one
    verdict is missing altogether nothing is dropped.
    """
    names: dict[bool, list[str]] = {True: [], False: []}
    for row, keep in kept.items():
        for item in keep:
            names[item["label"]].append(_name(row, item))
    few, many = sorted(names.values(), key=len)
    if not few:
        return []
    dropped = set(sorted(many, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest())[len(few) :])
    for row, keep in list(kept.items()):
        left = [item for item in keep if _name(row, item) not in dropped]
        if left:
            kept[row] = left
        else:
            del kept[row]
    return [name for name in many if name in dropped]


def _name(row: str, item: dict[str, Any]) -> str:
    return Critique(row, item["step"], item["vote"], {}).name


def _label(row: Row, index: int) -> bool | None:
    label: bool | None = row["step_labels"][index]
    return label


def _programs_fault(evidence: dict[str, Any], reference: str) -> tuple[str, dict[str, Any]] | None:
    """Why programs written from the problem alone are not to be learnt from: rejection sampling by the reference."""
    from ..outcome import compare

    answers = sorted(evidence["answers"], key=lambda item: -item["share"])
    if not evidence["programs"]:
        return None
    if not answers:
        return "the programs give no answer", {}
    same = compare(answers[0]["answer"], reference)
    if same is None:
        return "the programs' answer cannot be compared", {"answer": answers[0]["answer"]}
    return None if same else ("the programs do not reach the answer", {"answer": answers[0]["answer"]})
