"""Stages in one folder: skipped, resumed, refused; and the command line around them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from genprm.distill.config import STAGES, DistillConfig, load_distill_config
from genprm.distill.critique import to_judge
from genprm.distill.pipeline import chosen_stages, run_stages
from genprm.distill.store import lock_run, read_manifest, read_rows

from genprm.errors import ConfigError, UsageError

from .judged import label_row, put

SCRIPTED = {role: {"config": "scripted"} for role in ("verify_config", "student", "policy")}


def config(**settings):
    return DistillConfig.model_validate({**SCRIPTED, "filter": {"balance": False}, **settings})


def labelled():
    rows = [label_row(f"p{at}/0", problem=f"What is {at} + 3, twice?", answer=None) for at in range(5)]
    for at, row in enumerate(rows):
        wrong = at % 2
        row["steps"] = [f"{at} + 3 = {at + 3}.", f"2 * {at + 3} = {2 * at + 6 + wrong}.", "That is all."]
        row["step_labels"] = [True, not wrong, None if wrong else True]
        row["label"] = 1 if wrong else -1
    return rows


@pytest.fixture
def out(tmp_path) -> Path:
    """A run whose rows are labelled."""
    for stage in ("sample", "label"):
        put(config(), tmp_path, stage, labelled())
    return tmp_path


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A run that is done up to the filter; copied by those who change it."""
    folder = tmp_path_factory.mktemp("finished")
    for stage in ("sample", "label"):
        put(config(), folder, stage, labelled())
    run(folder)
    return folder


@pytest.fixture
def done(finished, tmp_path) -> Path:
    """The same, for one test alone."""
    return shutil.copytree(finished, tmp_path / "done")


def run(out, first="critique", last="filter", settings=None, **options):
    return list(run_stages(settings or config(), out, chosen_stages(first, last), **options))


def test_the_teacher_judges_every_step_up_to_the_first_error_and_its_traces_are_kept(out):
    critique, filtered = run(out)
    rows = {row["id"]: row for row in read_rows(out / "critique")}
    assert [len(row["result"]["steps"]) for row in rows.values()] == [3, 2, 3, 2, 3]
    assert rows["p1/0"]["row"] == labelled()[1]
    assert "print(abs((2 * 4) - 9)" in rows["p1/0"]["result"]["steps"][1]["votes"][0]["critique"]
    assert critique["critiques"]["agree"] == 1.0
    assert critique["tokens"]["completion"] > 0
    assert filtered["kept_share"] == 1.0


def test_votes_and_programs_of_the_run_are_set_on_top_of_the_teachers_own(out):
    settings = config(critique={"votes": 3, "stop_after_error": False})
    run(out, settings=settings, last="critique")
    (row, *_) = read_rows(out / "critique")
    assert [len(step["votes"]) for step in row["result"]["steps"]] == [3, 3, 3]


def test_steps_behind_an_error_are_left_out_with_the_answer_to_compare():
    row = {**label_row(labels=[False, None]), "answer": "5"}
    assert to_judge(row, cut=True).steps == ("2 + 3 = 5.",)
    assert to_judge(row, cut=True).answer is None
    assert to_judge(row, cut=False).steps == tuple(row["steps"])
    assert to_judge(label_row(), cut=True).answer == "5"


def test_a_row_without_any_label_is_not_judged(tmp_path):
    rows = [label_row("p0/0", labels=[None, None]), label_row("p1/0", labels=[None, True])]
    for stage in ("sample", "label"):
        put(config(), tmp_path, stage, rows)
    (line,) = run(tmp_path, last="critique")
    assert (line["out"], line["reasons"]) == (1, {"no label": 1})


def test_a_stage_that_is_done_is_skipped(done):
    before = {path: path.read_bytes() for path in done.rglob("*.json*")}
    lines = run(done)
    assert [line["skipped"] for line in lines] == [True, True]
    assert {path: path.read_bytes() for path in done.rglob("*.json*")} == before


def test_a_stage_goes_on_with_the_rows_that_it_has(done):
    rows = list(read_rows(done / "critique"))
    manifest = done / "critique" / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "status": "running"}))
    # Two rows were there, with a mark that only the first try could have made, and half of a third.
    for row in rows[:2]:
        row["mark"] = "first try"
    held = [json.dumps(row) for row in (rows[1], rows[0])]
    (done / "critique" / "rows.jsonl").write_text("\n".join(held) + '\n{"id": "p2/')
    run(done, last="critique")
    again = list(read_rows(done / "critique"))
    assert [row["id"] for row in again] == [row["id"] for row in rows]
    assert [row.get("mark") for row in again] == ["first try", "first try", None, None, None]


@pytest.mark.parametrize("state", ["done", "running"])
@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"critique": {"votes": 2}}, r"setting critique\.votes \(null, now 2\)"),
        ({"seed": 7}, r"setting seed \(0, now 7\)"),
        (
            {"verify_config": {"config": "scripted", "overrides": {"verify": {"mode": "direct"}}}},
            r'setting verify_config\.verify\.mode \("full", now "direct"\)',
        ),
    ],
)
def test_rows_of_other_settings_are_refused_by_the_settings_name(done, state, changed, named):
    manifest = done / "critique" / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "status": state}))
    before = (done / "critique" / "rows.jsonl").read_bytes()
    with pytest.raises(UsageError, match=named):
        run(done, settings=config(**changed))
    assert (done / "critique" / "rows.jsonl").read_bytes() == before


def test_settings_that_change_no_row_may_change(done):
    faster = {"config": "scripted", "overrides": {"scripted.latency_seconds": 0.1, "backend.max_in_flight": 3}}
    lines = run(done, settings=config(verify_config=faster, critique={"cost": {"tokens": 5}}))
    assert [line["skipped"] for line in lines] == [True, True]


def test_restart_drops_the_rows_of_the_chosen_stages_only(done):
    lines = run(done, settings=config(critique={"votes": 2}), restart=True)
    assert lines[1]["critiques"]["in"] == 2 * 13
    assert [row["id"] for row in read_rows(done / "label")] == [row["id"] for row in labelled()]


def test_rows_made_from_other_rows_are_refused(done):
    run(done, settings=config(critique={"votes": 2}), last="critique", restart=True)
    with pytest.raises(UsageError, match=r"filter was made with another input critique/rows\.jsonl"):
        run(done, first="filter")


def test_an_evaluation_file_that_has_changed_is_another_input(out, tmp_path):
    file = tmp_path / "eval.json"
    file.write_text('[{"problem": "x", "steps": ["y"]}]')
    settings = config(filter={"against": [str(file)], "balance": False})
    run(out, settings=settings)
    file.write_text('[{"problem": "z", "steps": ["y"]}]')
    with pytest.raises(UsageError, match=r"another input .*eval\.json"):
        run(out, settings=settings)


@pytest.mark.parametrize(("stage", "first"), [("label", "critique"), ("critique", "critique"), ("critique", "filter")])
def test_rows_that_were_edited_after_their_stage_was_done_are_refused(done, stage, first):
    with (done / stage / "rows.jsonl").open("a") as file:
        file.write('{"id": "planted"}\n')
    with pytest.raises(UsageError, match=f"{stage}/rows.jsonl was changed since"):
        run(done, first=first)


def test_a_stage_without_the_one_before_it_says_what_to_run(tmp_path, done):
    with pytest.raises(UsageError, match=r"critique reads .*label, which has not been run: run `genprm distill label`"):
        run(tmp_path / "empty")
    manifest = done / "critique" / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "status": "running"}))
    with pytest.raises(UsageError, match="critique, which is not finished"):
        run(done, first="filter")


def test_a_folder_that_another_run_writes_is_left_alone(out):
    with lock_run(out), pytest.raises(UsageError, match="is being written by another"):
        run(out)


def test_a_manifest_tells_what_the_rows_were_made_of(done):
    manifest = read_manifest(done / "critique")
    assert manifest["inputs"] == {"label/rows.jsonl": read_manifest(done / "label")["rows_sha256"]}
    assert manifest["settings"]["critique"]["stop_after_error"] is True
    assert manifest["settings"]["verify_config"]["model"] == "scripted"
    assert set(manifest["versions"]) >= {"python", "genprm", "transformers"}
    assert (manifest["seed"], manifest["status"]) == (0, "done")
    assert manifest["counts"] == {"out": 5, "rejected": 0, "in": 5}


def test_rows_are_readable_as_a_data_set(done):
    from datasets import load_dataset

    cache = str(done / "cache")
    for stage in ("label", "critique", "filter"):
        rows = load_dataset("json", data_files=str(done / stage / "rows.jsonl"), split="train", cache_dir=cache)
        assert rows["id"] == [row["id"] for row in labelled()]


# ---------------------------------------------------------------- settings and command line


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["critique.vote=3"], "unknown setting 'critique.vote'; did you mean 'votes'?"),
        (["filter.consensus=some"], "setting 'filter.consensus'"),
        (["critic.votes=3"], "unknown setting 'critic'; did you mean 'critique'?"),
        (["nonsense"], "is not of the form a.b=value"),
    ],
)
def test_a_wrong_setting_is_named(overrides, said):
    with pytest.raises(ConfigError, match=said.replace("?", r"\?")):
        load_distill_config("tiny", overrides)


def test_a_config_of_verify_is_told_from_one_of_distill(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("backend: {kind: scripted}\n")
    with pytest.raises(ConfigError, match="this is a config of `genprm verify`"):
        load_distill_config(str(file))


def test_overrides_of_a_model_may_be_nested_or_dotted():
    nested = config(student={"config": "scripted", "overrides": {"verify": {"votes": 4, "seed": 2}}})
    dotted = config(student={"config": "scripted", "overrides": {"verify.votes": 4, "verify.seed": 2}})
    assert nested.student.load() == dotted.student.load()
    assert nested.student.load().verify.votes == 4


@pytest.mark.parametrize(
    ("first", "last", "wanted"),
    [
        (None, None, list(STAGES)),
        ("filter", None, ["filter", "format", "train", "evaluate"]),
        (None, "label", ["sample", "label"]),
        ("critique", "critique", ["critique"]),
    ],
)
def test_stages_are_chosen_from_one_to_another(first, last, wanted):
    assert chosen_stages(first, last) == wanted


def genprm(*arguments, cwd):
    command = [sys.executable, "-m", "genprm.cli", "distill", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


def test_the_command_gives_one_json_line_a_stage_and_nothing_else_on_stdout(out):
    put_config = out / "c.yaml"
    put_config.write_text(json.dumps({**SCRIPTED, "filter": {"balance": False}}))
    done = genprm("run", "--from", "critique", "--to", "filter", "--config", "c.yaml", "--out", ".", cwd=out)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line["stage"], line["status"], line["out"]) for line in lines] == [
        ("critique", "done", 5),
        ("filter", "done", 5),
    ]
    assert lines[1]["kept_share"] == 1.0


def test_a_dry_run_estimates_what_is_left_and_makes_nothing(out):
    put_config = out / "c.yaml"
    settings = {**SCRIPTED, "sample": {"inputs": ["shipped:tiny"]}, "evaluate": {"files": ["shipped:tiny-eval"]}}
    settings["critique"] = {"cost": {"tokens": 1000, "tokens_per_second": 50}}
    put_config.write_text(json.dumps(settings))
    before = sorted(out.rglob("*"))
    done = genprm("run", "--config", "c.yaml", "--out", ".", "--dry-run", cwd=out)
    assert done.returncode == 0, done.stderr
    assert sorted(out.rglob("*")) == before
    cells = {line.split()[0]: line.split() for line in done.stdout.splitlines()}
    assert cells["label"][1:] == ["done", "5", "5", "0", "0:00:00"]
    assert cells["critique"][1:7] == ["to", "do", "5", "5", "5,000", "0:01:40"]
    assert "1000 tokens a row, 50 tokens/s" in done.stdout
    assert cells["evaluate"][3] == "16"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run", "--config", "none"), "there is no config 'none'; shipped:"),
        (("run", "--config", "none.yaml"), "'none.yaml' cannot be read"),
        (("run", "--config", "tiny", "--from", "train", "--to", "label"), "'label' comes before 'train'"),
        (("run", "--config", "tiny", "--to", "traim"), "no stage 'traim'"),
        (("filter", "--config", "tiny", "--out", "x"), "run `genprm distill critique` first"),
        (("run", "--config", "tiny", "--set", "sample.inputs=[none.jsonl]", "--out", "x"), "none.jsonl"),
    ],
)
def test_a_wrong_call_is_one_line_and_exit_code_2(tmp_path, arguments, said):
    done = genprm(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
