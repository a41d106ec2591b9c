"""Stage `critique`: the teacher judges every labelled row, along the code path of `genprm verify`; traces are kept.

Row: `{"id", "row": the label row, "result": VerificationResult}`. The teacher is never shown a label or a reference
answer; they count afterwards, in `filter`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..config import Config
from ..types import Solution
from .config import DistillConfig
from .job import Job
from .store import Row

NO_LABEL = "no label"


def run_critique(job: Job) -> None:
    """Judge each row of `label` that is not held yet; rows come as they are done."""
    from ..build import load_generative

    settings = job.config.critique
    job.expect(job.count("label"))
    with load_generative(teacher_config(job.config), say=job.say) as teacher:
        # A protocol that sees the whole solution at once would learn that what it sees ends with its error.
        cut = settings.stop_after_error and teacher.protocol.manifest.layout != "whole"
        waiting: dict[str, Row] = {}

        def fresh() -> Iterator[Solution]:
            for row in job.rows("label"):
                if not job.store.wants(row["id"]):
                    job.advance()
                elif not settings.unlabelled and all(label is None for label in row["step_labels"]):
                    job.store.reject(row["id"], NO_LABEL)
                    job.advance()
                else:
                    waiting[row["id"]] = row
                    yield to_judge(row, cut=cut)

        for result in teacher.verify_many(fresh()):
            row = waiting.pop(result.id)
            job.store.add({"id": result.id, "row": row, "result": result.model_dump(mode="json")})
            job.advance()
    job.store.note(**summary(job.store.rows()))


def teacher_config(config: DistillConfig) -> Config:
    """The teacher's settings with those of the run on top: seed, votes, programs."""
    more = [f"verify.seed={config.seed}"]
    if config.critique.votes is not None:
        more.append(f"verify.votes={config.critique.votes}")
    if config.critique.evidence_programs is not None:
        more.append(f"evidence.programs={config.critique.evidence_programs}")
    return config.verify_config.load(*more)


def to_judge(row: Row, *, cut: bool) -> Solution:
    """A label row as a solution.

    Args:
        row: of stage `label`.
        cut: leave out the steps after the first error. They follow from it, so that they are neither right nor wrong;
            nor is there then a final answer to compare.
    """
    label, steps = row["label"], tuple(row["steps"])
    if cut and label is not None and label >= 0 and label + 1 < len(steps):
        return Solution(id=row["id"], problem=row["problem"], steps=steps[: label + 1], label=label)
    return Solution(id=row["id"], problem=row["problem"], steps=steps, answer=row["answer"], label=label)


def summary(rows: Iterator[Row]) -> dict[str, Any]:
    """What the critiques cost and how often the verdict is the label's, for the manifest."""
    tokens = {"prompt": 0, "completion": 0}
    counts = {"steps": 0, "critiques": 0, "unscored_steps": 0, "code_runs": 0}
    agree = judged = 0
    for row in rows:
        usage = row["result"]["usage"]
        tokens["prompt"] += usage["prompt_tokens"]
        tokens["completion"] += usage["completion_tokens"]
        counts["code_runs"] += usage["code_runs"]
        for step, label in zip(row["result"]["steps"], row["row"]["step_labels"], strict=False):
            counts["steps"] += 1
            counts["critiques"] += len(step["votes"])
            counts["unscored_steps"] += step["reward"] is None
            if label is not None and step["reward"] is not None:
                judged += 1
                agree += (step["verdict"] == "correct") == label
    return {"tokens": tokens, "critiques": {**counts, "agree": round(agree / judged, 4) if judged else None}}
