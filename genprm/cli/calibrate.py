"""`genprm calibrate`: fit, on labelled training rows, the map from P(Yes) to a reward that is a probability."""

from __future__ import annotations

import hashlib
import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Literal

import typer

from .verify import effective_config, progress_bar


def calibrate(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Labelled rows that may be trained on.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The calibration, a JSON file.")],
    config: Annotated[str, typer.Option(help="A shipped config's name or a YAML file.")] = "default",
    model: Annotated[str | None, typer.Option(help="A named model, a local folder or a hub id.")] = None,
    votes: Annotated[int | None, typer.Option(help="Critiques sampled for each step.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all sampling and of --sample.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Override a setting: a.b=value.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N records.")] = None,
    sample: Annotated[int | None, typer.Option(min=1, help="N rows drawn at random by --seed.")] = None,
    method: Annotated[
        Literal["auto", "temperature", "platt", "isotonic", "fusion"],
        typer.Option(help="auto = the one with the least cross-validated log loss; fusion weighs evidence too."),
    ] = "auto",
) -> None:
    """Judge labelled rows, fit a calibration on them, and print its cross-validated scores.

    The judged rows are kept beside the output (`OUT.results.jsonl`), so that a killed run goes on where it ended.
    """
    from ..build import load
    from ..evaluation.fit import fit_calibration
    from ..evaluation.rows import labelled_steps, step_evidence
    from ..evaluation.run import Selection, judge_into, read_results, read_rows, write_json
    from ..evaluation.tasks import judged_row, processbench_lacks

    overrides = ["verify.calibration=null", *(set_ or [])]
    settings = effective_config(config, model=model, votes=votes, seed=seed, overrides=overrides)
    selection = Selection(limit, sample, settings.verify.seed)
    rows, rejected = read_rows([file], "auto", selection, processbench_lacks)
    for bad in rejected:
        print(f"genprm: {bad.error}", file=sys.stderr)
    results = output.with_name(f"{output.name}.results.jsonl")
    with ExitStack() as stack:
        progress, say = progress_bar(stack)
        verifier = stack.enter_context(load(settings, say=say))
        bar = progress.add_task("judging", total=len(rows))
        judge_into(results, rows, verifier, settings, lambda: progress.advance(bar))
        name, protocol = verifier.model, verifier.protocol_ref
    judged, problems, evidence = [], [], []
    for row, result in read_results(rows, results):
        judged.append(judged_row(row, result))
        problems.append(row.solution.problem)
        evidence.append([step.features for step in result.steps])
    owners, scores, truths = labelled_steps(judged)
    features = step_evidence(judged, evidence)
    fitted = fit_calibration(
        scores,
        truths,
        [problems[owner] for owner in owners],
        model=name,
        protocol=protocol,
        mode=settings.verify.mode,
        sha256=hashlib.sha256(Path(file).read_bytes()).hexdigest(),
        method=None if method == "auto" else method,
        features=features,
    )
    write_json(output, fitted.model_dump(mode="json"))
    assert fitted.fitted is not None
    shown = fitted.fitted.model_dump(mode="json")
    print(json.dumps({"calibration": str(output), "method": fitted.method, **shown}))
    if rejected:
        raise typer.Exit(2)
