"""From judged rows to the files of an evaluation: metrics, predictions, wrong verdicts, and a report.

Knows what each benchmark wants shown; the metrics themselves stand in a file each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..outcome import compare, extract_answer
from ..report.html import ReportWriter
from ..types import Solution, VerificationResult
from . import best_of_n, prmbench, processbench
from .charts import best_of_n_sections, prmbench_sections, processbench_sections
from .rows import Judged
from .run import Row, read_results, write_json, write_lines


def processbench_lacks(solution: Solution) -> str | None:
    """What a row lacks for ProcessBench."""
    if solution.label is None:
        return "has no label, the index of its first error or -1"
    if solution.label >= len(solution.steps):
        return f"has the label {solution.label}, but {len(solution.steps)} steps"
    return None


def prmbench_lacks(solution: Solution) -> str | None:
    """What a row lacks for PRMBench."""
    missing = [name for name in ("classification", "error_steps") if name not in solution.meta]
    return f"has no {' and no '.join(missing)}" if missing else None


def best_of_n_lacks(solution: Solution) -> str | None:
    """What a row lacks for best-of-N."""
    if "/" not in solution.id:
        return "has an id that is not of the form PROBLEM/CANDIDATE"
    known = isinstance(solution.meta.get("final_answer_correct"), bool)
    return None if known else "has no final_answer_correct, true or false"


def evaluate_processbench(
    rows: Sequence[Row], results: Path, folder: Path, *, threshold: float, oracle: bool, seed: int
) -> dict[str, Any]:
    """Write the files of a ProcessBench evaluation and return its metrics."""
    judged: list[Judged] = []
    predictions: list[dict[str, Any]] = []
    wrong: list[dict[str, Any]] = []
    with _report(folder, "ProcessBench") as report:
        for row, result in read_results(rows, results):
            one = judged_row(row, result)
            judged.append(one)
            predictions.append(_prediction(one))
            if one.prediction != one.label:
                wrong.append({"subset": row.subset, "label": one.label, **result.model_dump(mode="json")})
            report.add(result.model_copy(update={"label": row.solution.label}), {"group": row.subset})
        found = processbench.metrics(judged, threshold=threshold, oracle=oracle, seed=seed)
        found = {"benchmark": "processbench", **found, **_made_by(results)}
        report.finish(processbench_sections(found, judged))
    _write(folder, found, predictions)
    write_lines(folder / "wrong.jsonl", wrong)
    return found


def evaluate_prmbench(
    rows: Sequence[Row], results: Path, folder: Path, *, threshold: float, weight: float, seed: int
) -> dict[str, Any]:
    """Write the files of a PRMBench evaluation and return its metrics."""
    judged: list[prmbench.Steps] = []
    predictions: list[dict[str, Any]] = []
    with _report(folder, "PRMBench") as report:
        for row, result in read_results(rows, results):
            meta = row.solution.meta
            verdicts = tuple(None if step.reward is None else step.reward >= threshold for step in result.steps)
            errors = frozenset(step - 1 for step in meta["error_steps"])
            judged.append(prmbench.Steps(str(meta["classification"]), verdicts, errors))
            one = judged_row(row, result)
            predictions.append(
                {
                    **_prediction(one),
                    "classification": meta["classification"],
                    "error_steps": meta["error_steps"],
                    # The fields that PRMBench's own evaluator reads.
                    "idx": f"{meta['classification']}_{row.solution.id.partition('#')[0]}",
                    "validity": None not in verdicts,
                    "scores": {
                        "step_level_validity_scores": list(one.rewards),
                        "step_level_validity_labels": list(verdicts),
                    },
                }
            )
            report.add(result, {"group": meta["classification"]})
        found = prmbench.metrics(judged, weight=weight, threshold=threshold, seed=seed)
        found = {"benchmark": "prmbench", **found, **_made_by(results)}
        report.finish(prmbench_sections(found))
    _write(folder, found, predictions)
    return found


def evaluate_best_of_n(rows: Sequence[Row], results: Path, folder: Path, *, seed: int) -> dict[str, Any]:
    """Write the files of a best-of-N evaluation and return its metrics; a pool for each file."""
    pools: dict[str, dict[str, list[tuple[int, Solution, VerificationResult]]]] = {}
    order = {row.solution.id: position for position, row in enumerate(rows)}
    predictions: list[dict[str, Any]] = []
    with _report(folder, "Best-of-N") as report:
        for row, result in read_results(rows, results):
            problem = row.solution.id.rpartition("/")[0]
            # Critiques would fill the memory: a pool holds eight solutions of each problem.
            bare = tuple(step.model_copy(update={"votes": ()}) for step in result.steps)
            light = result.model_copy(update={"steps": bare})
            pools.setdefault(row.subset, {}).setdefault(problem, []).append((order[result.id], row.solution, light))
            one = judged_row(row, result)
            right = row.solution.meta["final_answer_correct"]
            predictions.append({**_prediction(one), "reward": result.reward, "final_answer_correct": right})
            report.add(result, {"group": row.subset, "final answer": "right" if right else "wrong"})
        metrics = {}
        for name, pool in pools.items():
            problems = [_candidates(sorted(members, key=lambda item: item[0])) for members in pool.values()]
            metrics[name] = best_of_n.metrics(problems, seed=seed)
        found = {"benchmark": "best-of-n", "pools": metrics, **_costs(predictions), **_made_by(results)}
        report.finish(best_of_n_sections(found))
    _write(folder, found, predictions)
    return found


def judged_row(row: Row, result: VerificationResult) -> Judged:
    """The numbers of a judged row."""
    return Judged.of(result, subset=row.subset, label=row.solution.label, steps=len(row.solution.steps))


def _candidates(members: Sequence[tuple[int, Solution, VerificationResult]]) -> list[best_of_n.Candidate]:
    """One problem's pool; equal answers get equal texts."""
    texts: list[str] = []
    found: list[best_of_n.Candidate] = []
    for _, solution, result in members:
        answer = extract_answer("\n".join(solution.steps))
        if answer is not None:
            same = next((text for text in texts if text == answer or compare(answer, text)), None)
            if same is None:
                texts.append(answer)
            answer = same or answer
        scores: dict[str, Sequence[float | None]] = {best_of_n.OURS: [step.reward for step in result.steps]}
        cached = (solution.meta.get("meta") or solution.meta).get("prm_step_scores") or {}
        scores |= {str(name): [float(value) for value in values] for name, values in cached.items()}
        factors: dict[str, float | None] = {}
        if result.evidence is not None and result.evidence.get("programs"):
            # The share of independent programs with this answer: an estimate of the outcome without a reference.
            agree = result.evidence.get("agree")
            scores |= {best_of_n.PROGRAMS: [agree], best_of_n.JOINT: scores[best_of_n.OURS]}
            factors[best_of_n.JOINT] = agree
        found.append(best_of_n.Candidate(bool(solution.meta["final_answer_correct"]), answer, scores, factors))
    return found


def _prediction(one: Judged) -> dict[str, Any]:
    return {
        "id": one.id,
        "subset": one.subset,
        "label": one.label,
        "prediction": one.prediction,
        "step_rewards": list(one.rewards),
        "completion_tokens": one.completion_tokens,
    }


def _costs(predictions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    tokens = [row["completion_tokens"] for row in predictions]
    return {"n": len(tokens), "completion_tokens_per_solution": sum(tokens) / len(tokens) if tokens else None}


def _made_by(results: Path) -> dict[str, Any]:
    """What judged, from the first result: model, protocol, config, sandbox."""
    with results.open(encoding="utf-8") as file:
        first = VerificationResult.model_validate_json(file.readline())
    return {
        "model": first.model,
        "protocol": first.protocol.model_dump(),
        "config_sha256": first.config_sha256,
        "sandbox": first.sandbox,
    }


def _report(folder: Path, title: str) -> ReportWriter:
    return ReportWriter(folder / "report.html", title=title)


def _write(folder: Path, metrics: Mapping[str, Any], predictions: Iterable[dict[str, Any]]) -> None:
    write_json(folder / "metrics.json", metrics)
    write_lines(folder / "predictions.jsonl", predictions)
