"""`genprm eval` and `genprm calibrate` as a user meets them, with the deterministic fake engine."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from genprm.evaluation.processbench import f1
from genprm.evaluation.rows import Judged


def genprm(*words, env=None):
    command = [sys.executable, "-m", "genprm.cli", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, env={**os.environ, **(env or {})})


def problem(n, wrong_at, hidden=5):
    """Three sums, one of which may be wrong; of every `hidden` errors one lies where the fake cannot see it."""
    steps = [f"{n} + {i} = {n + i + (i == wrong_at and n % hidden > 0)}." for i in range(3)]
    return {"id": f"p-{n}", "problem": f"Add to {n}.", "steps": steps, "label": wrong_at}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    for name, numbers in (("easy", range(20)), ("hard", range(20, 50))):
        rows = [problem(n, n % 3 if n % 2 else -1) for n in numbers]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "easy.jsonl", folder / "hard.jsonl"


@pytest.fixture(scope="module")
def done(files, tmp_path_factory):
    folder = tmp_path_factory.mktemp("out") / "run"
    return genprm("eval", "processbench", *files, "-o", folder, "--config", "scripted"), folder


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_processbench_writes_metrics_predictions_wrong_verdicts_and_a_report(done):
    run, folder = done
    assert run.returncode == 0, run.stderr
    found = json.loads((folder / "metrics.json").read_text())
    assert json.loads(run.stdout) == found
    assert set(found["subsets"]) == {"easy", "hard"}
    assert found["subsets"]["easy"]["n"] == 20
    assert found["threshold"] == 0.5
    assert found["average_f1"] == pytest.approx(sum(entry["f1"] for entry in found["subsets"].values()) / 2)
    predictions = read(folder / "predictions.jsonl")
    assert len(predictions) == 50
    assert set(predictions[0]) >= {"id", "label", "prediction", "step_rewards", "completion_tokens"}
    wrong = read(folder / "wrong.jsonl")
    assert {row["id"] for row in wrong} == {row["id"] for row in predictions if row["prediction"] != row["label"]}
    assert wrong
    assert wrong[0]["steps"][0]["votes"][0]["critique"]
    page = (folder / "report.html").read_text()
    assert "<svg" in page
    assert "ProcessBench" in page


def test_the_metric_is_that_of_the_predictions_it_stands_beside(done):
    _, folder = done
    found = json.loads((folder / "metrics.json").read_text())["subsets"]["hard"]
    rows = [
        Judged(row["id"], "hard", row["label"], tuple(row["step_rewards"]), 3, row["prediction"], None, 0, 0, 0.0)
        for row in read(folder / "predictions.jsonl")
        if row["subset"] == "hard"
    ]
    assert f1(rows) == (found["error_accuracy"], found["correct_accuracy"], found["f1"])
    # The fake finds every wrong sum; n % 5 == 0 hides those of 25, 35 and 45.
    assert found["error_accuracy"] == pytest.approx(12 / 15)
    assert found["correct_accuracy"] == 1.0


def test_a_run_goes_on_where_it_was_killed_and_judges_nothing_twice(files, tmp_path):
    first = genprm("eval", "processbench", files[0], "-o", tmp_path, "--config", "scripted", "--limit", 5)
    assert first.returncode == 0
    kept = (tmp_path / "results.jsonl").read_text()
    assert len(kept.splitlines()) == 5
    again = genprm("eval", "processbench", files[0], "-o", tmp_path, "--config", "scripted")
    assert again.returncode == 0
    assert (tmp_path / "results.jsonl").read_text().startswith(kept)
    assert json.loads(again.stdout)["subsets"]["easy"]["n"] == 20


def test_other_settings_are_refused_and_the_results_stay(files, tmp_path):
    genprm("eval", "processbench", files[0], "-o", tmp_path, "--config", "scripted", "--limit", 2)
    kept = (tmp_path / "results.jsonl").read_bytes()
    other = genprm(
        "eval", "processbench", files[0], "-o", tmp_path, "--config", "scripted", "--set", "verify.threshold=0.4"
    )
    assert other.returncode == 2
    assert "config_sha256" in other.stderr
    assert (tmp_path / "results.jsonl").read_bytes() == kept


def test_results_of_verify_can_be_evaluated_without_judging(files, tmp_path):
    results = tmp_path / "judged.jsonl"
    assert genprm("verify", files[0], "-o", results, "--config", "scripted").returncode == 0
    run = genprm(
        "eval", "processbench", files[0], "-o", tmp_path / "out", "--results", results,
        "--config", "scripted", "--set", "backend.kind=openai",
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["subsets"]["easy"]["n"] == 20
    # Whatever was done first: the same figures, in the order of the rows.
    kept = (tmp_path / "out" / "metrics.json").read_text()
    results.write_text("".join(reversed(results.read_text().splitlines(keepends=True))))
    assert genprm("eval", "processbench", files[0], "-o", tmp_path / "out", "--results", results).returncode == 0
    assert (tmp_path / "out" / "metrics.json").read_text() == kept
    assert [row["id"] for row in read(tmp_path / "out" / "predictions.jsonl")] == [f"p-{n}" for n in range(20)]
    missing = genprm("eval", "processbench", *files, "-o", tmp_path / "out", "--results", results)
    assert missing.returncode == 2
    assert "holds no result for 30 of the rows" in missing.stderr


def test_a_sample_is_drawn_from_each_file_by_the_seed(files, tmp_path):
    def ids(name, seed):
        run = genprm(
            "eval", "processbench", *files, "-o", tmp_path / name, "--config", "scripted", "--sample", 6, "--seed", seed
        )
        assert run.returncode == 0, run.stderr
        assert {entry["n"] for entry in json.loads(run.stdout)["subsets"].values()} == {6}
        return {row["id"] for row in read(tmp_path / name / "predictions.jsonl")}

    assert ids("a", 1) == ids("b", 1)
    assert ids("a", 1) != ids("c", 2)


def test_a_row_without_a_label_is_one_line_and_the_others_are_evaluated(files, tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text(files[0].read_text() + json.dumps({"id": "bare", "problem": "p", "steps": ["1 + 1 = 2."]}) + "\n")
    run = genprm("eval", "processbench", path, "-o", tmp_path / "out", "--config", "scripted")
    assert run.returncode == 2
    assert "'bare' has no label" in run.stderr.splitlines()[0]
    assert json.loads(run.stdout)["subsets"]["in"]["n"] == 20


def test_prmbench_by_class_and_group(tmp_path):
    rows = []
    for n, kind in enumerate(["circular", "redundency", "deception", "multi_solutions"] * 3):
        errors = [] if kind == "multi_solutions" else [2]
        steps = [f"{i}. We have {n} + {i} = {n + i + (i in errors)}." for i in (1, 2, 3)]
        rows.append(
            {
                "idx": f"{n}", "classification": kind, "original_question": "q", "modified_question": f"q {n}",
                "original_process": steps, "modified_process": steps, "modified_steps": errors,
                "error_steps": errors, "reason": "r", "question": "q",
            }
        )  # fmt: skip
    path = tmp_path / "prmbench.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = genprm("eval", "prmbench", path, "-o", tmp_path / "out", "--config", "scripted")
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert found["prm_score"]["prm_score"] == 1.0
    assert found["classes"]["multi_solutions"]["negative_f1"] is None
    assert set(found["groups"]) == {"simplicity", "sensitivity"}
    predictions = read(tmp_path / "out" / "predictions.jsonl")
    by_upstream = {row["idx"]: row["scores"]["step_level_validity_labels"] for row in predictions}
    assert by_upstream["circular_0"] == [True, False, True]
    early = genprm(
        "eval", "prmbench", path, "-o", tmp_path / "early", "--config", "scripted", "--set", "verify.early_stop=true"
    )
    assert early.returncode == 2


def test_best_of_n_beside_cached_scores_of_another_prm(tmp_path):
    rows = []
    spelled = {0: "{}.0", 2: "0{}"}
    for p in range(6):
        for c in range(4):
            right = c % 2 == 0
            value = p + 1 + (not right)
            rows.append(
                {
                    "id": f"q{p}/{c}", "problem": f"What is {p} + 1?", "final_answer_correct": right,
                    "steps": [f"{p} + 1 = {value}.", f"The answer is {spelled.get(c, '{}').format(value)}."],
                    "meta": {"prm_step_scores": {"other": [0.9, 0.1 if right else 0.8]}},
                }
            )  # fmt: skip
    path = tmp_path / "pool.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = genprm("eval", "best-of-n", path, "-o", tmp_path / "out", "--config", "scripted", "--problems", 5)
    assert run.returncode == 0, run.stderr
    pool = json.loads(run.stdout)["pools"]["pool"]
    assert (pool["n_problems"], pool["candidates"]) == (5, 4)
    at = {name: entry["4"]["accuracy"] for name, entry in pool["methods"].items()}
    assert (at["genprm (min)"], at["other (last)"], at["random"], at["oracle"]) == (1.0, 0.0, 0.5, 1.0)
    # `2.0`, `02` and `2` are one answer: two votes against two.
    assert at["majority"] == 0.5
    assert at["genprm (min, weighted vote)"] == 1.0


def test_a_calibration_is_fitted_applied_and_refused_elsewhere(files, tmp_path):
    fitted, train = tmp_path / "cal.json", tmp_path / "train.jsonl"
    # All errors are hidden from the fake, which is far too sure of these steps.
    train.write_text("".join(json.dumps(problem(n, n % 3 if n % 3 < 2 else -1, hidden=1)) + "\n" for n in range(60)))
    run = genprm("calibrate", train, "-o", fitted, "--config", "scripted")
    assert run.returncode == 0, run.stderr
    said = json.loads(run.stdout)
    assert said["after"]["log_loss"] < said["before"]["log_loss"]
    assert json.loads(fitted.read_text())["model"] == "scripted"
    plain = read_results(genprm("verify", files[0], "--config", "scripted"))
    options = ["--config", "scripted", "--set", f"verify.calibration={fitted}"]
    calibrated = read_results(genprm("verify", files[0], *options))
    for before, after in zip(plain, calibrated, strict=True):
        for one, other in zip(before["steps"], after["steps"], strict=True):
            assert other["features"] == {"p_yes": one["reward"]}
            assert 0 <= other["reward"] <= 1
    assert [row["config_sha256"] for row in plain] != [row["config_sha256"] for row in calibrated]
    refused = genprm("verify", files[0], *options, "--set", "verify.mode=direct")
    assert refused.returncode == 2
    assert "fitted for the mode 'full', not 'direct'" in refused.stderr
    again = genprm("calibrate", train, "-o", fitted, "--config", "scripted")
    assert again.returncode == 0
    assert len(read(tmp_path / "cal.json.results.jsonl")) == 60


def read_results(run):
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()]


def test_a_fit_needs_both_kinds_of_steps(tmp_path):
    path = tmp_path / "right.jsonl"
    path.write_text("".join(json.dumps(problem(n, -1)) + "\n" for n in range(20)))
    run = genprm("calibrate", path, "-o", tmp_path / "cal.json", "--config", "scripted")
    assert run.returncode == 2
    assert "there are 60 right and 0 wrong" in run.stderr
