"""One JSON line a judged sample, as PRMBench and lm-eval keep them, and the hook that lm-eval calls.

Knows these shapes; imports neither project. `step_scores` holds null for an unscored step, `prediction` is null where
the first error is undecided.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from ..errors import InputError, UsageError
from ..formats import ALIASES
from ..types import Record, VerificationResult
from .core import Source, shared, sharing
from .rewards import Asked, Rewards
from .texts import cut

PROBLEM_KEYS = ALIASES["problem"]


class Sample(Record):
    """One judged sample."""

    idx: str
    prediction: int | None
    """The first error found, 0-based; -1 = none; None = undecided."""
    label: int | None = None
    """The gold first error; None = not known."""
    step_scores: tuple[float | None, ...]
    """One a judged step; None = unscored."""
    reward: float | None = None
    extra: dict[str, Any] = Field(default_factory=dict)
    """What a caller wants to keep beside it."""

    @classmethod
    def of(cls, result: VerificationResult, **extra: Any) -> Sample:
        """The sample that a result makes."""
        return cls(
            idx=result.id,
            prediction=result.first_error,
            label=result.label,
            step_scores=tuple(step.reward for step in result.steps),
            reward=result.reward,
            extra=extra,
        )

    def as_prmbench(self, threshold: float = 0.5) -> dict[str, Any]:
        """PRMBench's own row: `validity` is False where a step is unscored, since no label can stand for it.

        Args:
            threshold: a step is good whose score is above it, as upstream counts.
        """
        scores = [score for score in self.step_scores if score is not None]
        valid = bool(scores) and len(scores) == len(self.step_scores)
        row: dict[str, Any] = {"idx": self.idx, "validity": valid}
        if valid:
            labels = [score > threshold for score in scores]
            row["scores"] = {"step_level_validity_scores": scores, "step_level_validity_labels": labels}
        return row


def write_samples(path: str | Path, samples: Iterable[Sample | VerificationResult], *, append: bool = False) -> int:
    """Write samples, one a line; returns how many.

    Args:
        path: the file.
        samples: samples, or results that are made into them.
        append: keep what the file holds; otherwise it is replaced when all are written.

    Raises:
        UsageError: the file cannot be written.
    """
    target = Path(path)
    part = target if append else target.with_name(target.name + ".part")
    count = 0
    try:
        with part.open("ab" if append else "wb") as file:
            for item in samples:
                sample = item if isinstance(item, Sample) else Sample.of(item)
                file.write(sample.model_dump_json().encode("utf-8", "backslashreplace") + b"\n")
                count += 1
        if not append:
            part.replace(target)  # a reader sees the old file or the new one
    except OSError as error:
        raise UsageError(f"{target} cannot be written: {error.strerror}") from None
    return count


def read_samples(path: str | Path) -> Iterator[Sample]:
    """Read samples, a line at a time.

    Raises:
        InputError: the file cannot be read, or a line is no sample.
    """
    try:
        with Path(path).open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    try:
                        yield Sample.model_validate_json(line)
                    except ValidationError as error:
                        fault = error.errors(include_url=False)[0]
                        field = ".".join(str(part) for part in fault["loc"]) or None
                        raise InputError(fault["msg"], file=str(path), line=number, field=field) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=str(path)) from None


def process_results(
    doc: Mapping[str, Any], results: Sequence[Any], *, verifier: Source | None = None
) -> dict[str, float]:
    """lm-eval's `process_results`: the metrics of one document.

    Name it in a task's YAML as `process_results: !function utils.process_results`.

    Args:
        doc: the document: `problem`, `question` or `prompt`; with samples, `label`.
        results: what the harness gives. Texts are solutions that a model wrote: they are judged, and the metrics are
            means over them. A `Sample` or a result is compared with the document's `label`, as ProcessBench does.
        verifier: judges; None = the config that `GENPRM_CONFIG` names.

    Returns:
        For solutions `genprm_scored`, the share with a reward, and over these `genprm_reward` and `genprm_no_error`;
        for a sample `error_acc` or `correct_acc`, by the label. A metric that is not known is absent, so that a mean
        over documents leaves it out.

    Raises:
        InputError: the document lacks what is needed.
    """
    if results and all(isinstance(item, str) for item in results):
        return _solutions(doc, results, verifier)
    if len(results) != 1 or not isinstance(results[0], Sample | VerificationResult):
        raise InputError("must be texts, or one Sample or result", field="results")
    sample = results[0] if isinstance(results[0], Sample) else Sample.of(results[0])
    label = doc.get("label")
    if isinstance(label, bool) or not isinstance(label, int):
        raise InputError("is missing: the index of the first wrong step, or -1", field="label")
    return {"error_acc" if label >= 0 else "correct_acc": float(sample.prediction == label)}


def _solutions(doc: Mapping[str, Any], texts: Sequence[str], verifier: Source | None) -> dict[str, float]:
    problem = next((doc[key] for key in PROBLEM_KEYS if isinstance(doc.get(key), str)), None)
    if problem is None:
        raise InputError(f"is missing (or {', '.join(PROBLEM_KEYS[1:])})", field="problem")
    judge = shared(verifier) if verifier is None or isinstance(verifier, str) else sharing(verifier)
    found = judge.judge([Asked(problem, cut(text).steps) for text in texts])
    return _metrics(found)


def _metrics(found: Sequence[Rewards]) -> dict[str, float]:
    rewards = [item.reward for item in found if item.reward is not None]
    errors = [item.first_error for item in found if item.first_error is not None]
    metrics = {"genprm_scored": len(rewards) / len(found)}
    if rewards:
        metrics["genprm_reward"] = sum(rewards) / len(rewards)
    if errors:
        metrics["genprm_no_error"] = sum(error < 0 for error in errors) / len(errors)
    return metrics
