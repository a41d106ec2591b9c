"""Hand-made rows of the stages `label` and `critique`, and a run's folder that holds them as if it had made them."""

from __future__ import annotations

from pathlib import Path

from genprm.distill.config import DistillConfig
from genprm.distill.pipeline import inputs_of
from genprm.distill.store import Store

from genprm.types import CodeCheck, FailedVote, ProtocolRef, StepJudgment, VerificationResult, Vote


def label_row(identity="p0/0", *, problem="What is 2 + 3?", steps=("2 + 3 = 5.", "So 5."), labels=None, answer="5"):
    labels = [True] * len(steps) if labels is None else labels
    first = labels.index(False) if False in labels else -1 if None not in labels else None
    return {
        "id": identity,
        "problem_id": identity.split("/")[0],
        "problem": problem,
        "steps": list(steps),
        "answer": answer,
        "source": "file",
        "final_correct": None,
        "label": first,
        "meta": {},
        "step_labels": labels,
        "label_method": "known",
        "mc": None,
        "rpe": None,
        "rollouts": None,
    }


def vote(p_yes=0.9, critique="fine", *, statuses=("ok",), **more):
    checks = tuple(CodeCheck(source="print(1)", status=status, output="1", seconds=0.1) for status in statuses)
    return Vote(p_yes=p_yes, mass=1.0, critique=critique, checks=checks, completion_tokens=10, **more)


def critique_row(row, votes, *, failed=(), evidence=None):
    """Votes for each step; `failed` names steps with a failed vote beside them."""
    judged = []
    for index, (text, cast) in enumerate(zip(row["steps"], votes, strict=False)):
        lost = (FailedVote(reason="the prompt does not fit"),) if index in failed else ()
        reward = sum(item.p_yes for item in cast) / len(cast) if cast else None
        verdict = "unscored" if reward is None else "correct" if reward >= 0.5 else "incorrect"
        judged.append(
            StepJudgment(index=index, text=text, reward=reward, verdict=verdict, votes=tuple(cast), failed_votes=lost)
        )
    result = VerificationResult(
        id=row["id"],
        problem=row["problem"],
        steps=tuple(judged),
        first_error=-1,
        reward=None,
        aggregation="min",
        evidence=evidence,
        model="scripted",
        protocol=ProtocolRef(name="compact", sha256="0"),
        config_sha256="0",
        sandbox="off",
    )
    return {"id": row["id"], "row": row, "result": result.model_dump(mode="json")}


def put(config: DistillConfig, out: Path, stage, rows) -> None:
    """A stage that is done."""
    made_of = {"stage": stage, "settings": config.result_settings(stage), "inputs": inputs_of(config, out, stage)}
    with Store(out / stage, made_of) as store:
        for row in rows:
            store.add(row)
        store.finish()
