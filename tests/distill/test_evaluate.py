"""The table of teacher, base, student and direct baseline, and the model card; without a model."""

from __future__ import annotations

import json

import pytest
from genprm.distill.card import card, run_of, write_card
from genprm.distill.config import DistillConfig
from genprm.distill.evaluate import judge_config, run_evaluate
from genprm.distill.job import Job
from genprm.distill.merge import push
from genprm.distill.store import Store

from genprm.errors import ConfigError, UnavailableError, UsageError


def settings(**evaluate):
    return DistillConfig.model_validate(
        {
            "verify_config": {"config": "scripted", "overrides": {"verify.protocol": "compact"}},
            "student": {"config": "scripted", "overrides": {"verify.protocol": "student"}},
            "evaluate": {"files": ["shipped:tiny-eval"], **evaluate},
        }
    )


@pytest.fixture
def run(tmp_path):
    """A run's folder whose training is done."""
    final = tmp_path / "train" / "final"
    final.mkdir(parents=True)
    (final / "adapter_config.json").write_text("{}")
    with Store(tmp_path / "train", {"settings": {"method": "lora", "epochs": 1.0}}) as store:
        store.note(base_model="smollm2-135m", steps=12, best={"step": 8, "verdict_f1": 0.75})
        store.reject("x", "longer than max_length")
        store.finish()
    return tmp_path


def evaluate(run, config):
    done = []
    with Store(run / "evaluate") as store:
        run_evaluate(Job(config, "evaluate", run, store, advance=lambda: done.append(1)))
        store.finish()
    return json.loads((run / "evaluate" / "table.json").read_text()), len(done)


def test_the_table_holds_each_judge_with_n_intervals_and_tokens(run):
    table, done = evaluate(run, settings())
    assert list(table["judges"]) == ["teacher", "base", "student", "direct"]
    assert done == 4 * table["rows"] == 16
    subset = table["judges"]["teacher"]["metrics"]["subsets"]["tiny-eval"]
    # The fake recomputes plain equalities, so it finds both planted errors; without a critique it finds none.
    assert (subset["error_accuracy"], subset["correct_accuracy"], subset["f1"]) == (1.0, 1.0, 1.0)
    direct = table["judges"]["direct"]["metrics"]["subsets"]["tiny-eval"]
    assert (direct["error_accuracy"], direct["f1"]) == (0.0, 0.0)
    lines = (run / "evaluate" / "table.md").read_text().splitlines()
    assert len([line for line in lines if line.startswith("| ")]) == 5
    student = next(line for line in lines if line.startswith("| student"))
    assert "| 4 (2/2) |" in student
    assert "student, full, votes 1" in student
    assert (run / "train" / "final" / "README.md").read_text().count("| student |") == 1


def test_a_run_that_was_killed_keeps_the_judges_that_are_done(run):
    evaluate(run, settings(judges=["teacher"]))
    stamp = (run / "evaluate" / "teacher" / "results.jsonl").stat().st_mtime_ns
    table, _ = evaluate(run, settings(judges=["teacher", "direct"]))
    assert list(table["judges"]) == ["teacher", "direct"]
    assert (run / "evaluate" / "teacher" / "results.jsonl").stat().st_mtime_ns == stamp


def test_each_judge_has_its_own_settings(run):
    config = settings(base={"verify.protocol": "compact"})
    final = run / "train" / "final"
    found = {name: judge_config(name, config, final) for name in ("base", "direct", "student", "student_direct")}
    assert {name: (one.verify.protocol, one.verify.mode) for name, one in found.items()} == {
        "base": ("compact", "full"),
        "direct": ("compact", "direct"),
        "student": ("student", "full"),
        "student_direct": ("student", "direct"),
    }
    assert [name for name, one in found.items() if one.backend.lora] == ["student", "student_direct"]
    (final / "adapter_config.json").unlink()
    (final / "config.json").write_text("{}")
    assert judge_config("student", config, final).model == str(final)
    (final / "config.json").unlink()
    with pytest.raises(UsageError, match="holds no trained weights"):
        judge_config("student", config, final)


def test_no_file_to_evaluate_is_said_in_one_line(run):
    with pytest.raises(ConfigError, match=r"evaluate\.files names no file"):
        evaluate(run, settings(files=[]))


def test_the_card_tells_data_recipe_and_licence_from_the_manifests_and_what_is_not_known(run):
    text = write_card(run).read_text()
    for words in ("base_model: smollm2-135m", "license: apache-2.0", "epochs: 1.0", "steps: 12", '"verdict_f1": 0.75'):
        assert words in text
    assert "Not measured" in text
    assert "license: other" in card({}, None)
    assert "Unknown." in card({}, None)
    assert "license: mit" in card({}, None, licence="MIT")


def test_weights_are_pushed_to_a_folder_with_their_card_and_nothing_is_overwritten(run, tmp_path, monkeypatch):
    final = run / "train" / "final"
    assert run_of(final) == run.resolve()
    assert run_of(tmp_path) is None
    write_card(run)
    target = tmp_path / "copy"
    assert push(final, str(target)) == str(target)
    assert {file.name for file in target.iterdir()} == {"README.md", "adapter_config.json"}
    with pytest.raises(UsageError, match="is there already"):
        push(final, str(target))
    with pytest.raises(UsageError, match="holds no model"):
        push(tmp_path, str(tmp_path / "other"))
    monkeypatch.setenv("GENPRM_OFFLINE", "1")
    with pytest.raises(UnavailableError, match="GENPRM_OFFLINE"):
        push(final, "owner/name")
