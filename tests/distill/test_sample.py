"""Sampling: the rows of each source, what is given up, and the same rows after a kill."""

from __future__ import annotations

import json

import pytest
from genprm.distill.config import DistillConfig
from genprm.distill.pipeline import chosen_stages, run_stages
from genprm.distill.sample import kind_order
from genprm.distill.store import Store, read_rows

from genprm.errors import ConfigError, GenPRMError
from tests.distill.worked import ALL, equalities, last_number

KNOWN_KINDS = ["arithmetic", "copy", "dropped_condition", "operator", "premature", "quantity", "skipped_step", "unit"]


def problems(tmp_path, rows=None):
    file = tmp_path / "in.jsonl"
    rows = (
        rows
        if rows is not None
        else [{"id": name, "question": question, "answer": answer} for name, (question, answer) in ALL.items()]
    )
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def sample(out, inputs, **settings):
    config = DistillConfig.model_validate(
        {"policy": {"config": "scripted"}, "sample": {"inputs": [inputs], **settings}}
    )
    (summary,) = run_stages(config, out, chosen_stages("sample", "sample"))
    return list(read_rows(out / "sample")), list(read_rows(out / "sample", "rejected.jsonl")), summary


def test_worked_solutions_give_right_rows_and_wrong_ones_of_different_kinds(tmp_path):
    rows, rejected, summary = sample(tmp_path / "out", problems(tmp_path), per_problem=3)
    for name in ALL:
        gold, *wrong = [row for row in rows if row["problem_id"] == name]
        assert (gold["id"], gold["source"], gold["label"], gold["final_correct"]) == (f"{name}/gold", "gold", -1, True)
        assert len(wrong) == 3
        assert len({row["source"] for row in wrong}) == 3
        for row in wrong:
            assert row["final_correct"] is False
            assert 0 <= row["label"] < len(row["steps"])
            false = [at for at, step in enumerate(row["steps"]) if not all(equalities(step))]
            assert false == ([row["label"]] if row["source"] == "perturb:arithmetic" else [])
    assert rejected == []
    assert summary["known_labels"] == {"right": 5, "wrong": 15}
    assert all(reason.split(":")[0] in KNOWN_KINDS for reason in summary["perturbations_refused"])


def test_rows_do_not_depend_on_what_else_is_sampled(tmp_path):
    all_rows, _, _ = sample(tmp_path / "all", problems(tmp_path))
    few, _, _ = sample(tmp_path / "few", problems(tmp_path), limit=2)
    assert few == all_rows[: len(few)]
    assert len(few) == 6


def test_what_cannot_be_made_is_rejected_with_the_reason(tmp_path):
    short = {"id": "short", "question": "3 and 4?", "answer": "3 + 4 = <<3+4=7>>7\n#### 7"}
    algebra = {"id": "algebra", "question": "x?", "answer": "x = 4\n2 + 2 = <<2+2=4>>4\n#### 4"}
    bare = {"id": "bare", "question": "5 and 6?", "answer": "11"}
    rows, rejected, summary = sample(tmp_path / "out", problems(tmp_path, [short, algebra, bare]), per_problem=8)
    reasons = {row["id"]: row["reason"] for row in rejected}
    assert reasons["algebra/gold"] == "the worked solution cannot be traced: an equation without annotation"
    assert reasons["bare/perturb"] == "no worked solution"
    assert reasons["short/perturb7"] == "no error of a further kind fits"
    assert {row["problem_id"] for row in rows} == {"short"}
    assert summary["perturbations_refused"]["dropped_condition: no place for this kind"] == 1


def test_a_file_s_own_steps_keep_their_label_and_are_compared_with_the_reference(tmp_path):
    rows = [
        {"id": "a", "problem": "1 + 1?", "steps": ["1 + 1 = 3", "The answer is 3."], "label": 0, "answer": "2"},
        {"id": "b", "problem": "1 + 1?", "steps": ["1 + 1 = 2", "The answer is $2$."], "label": -1, "answer": "2.0"},
        {"id": "c", "problem": "1 + 1?", "steps": ["Who knows?"], "answer": "2"},
        {"id": "d", "problem": "1 + 1?", "answer": "2"},
    ]
    made, rejected, summary = sample(tmp_path / "out", problems(tmp_path, rows), sources=["file"])
    assert [(row["id"], row["label"], row["final_correct"]) for row in made] == [
        ("a/file", 0, False),
        ("b/file", -1, True),
        ("c/file", None, None),
    ]
    assert [(row["id"], row["reason"]) for row in rejected] == [("d/file", "no steps in the input")]
    assert summary["final_answers"] == {"right": 1, "unknown": 1, "wrong": 1}


def test_a_row_that_cannot_be_read_is_listed_and_the_others_are_sampled(tmp_path):
    rows = [{"id": "a"}, {"id": "b", "problem": "1 + 1?", "steps": ["1 + 1 = 2"], "label": -1}]
    made, rejected, _ = sample(tmp_path / "out", problems(tmp_path, rows), sources=["file"])
    assert [row["id"] for row in made] == ["b/file"]
    assert rejected[0]["reason"] == "the input row cannot be used"


# ---------------------------------------------------------------- a policy

SUMS = [{"id": f"s{at}", "problem": f"{at} + 7 + 5?", "answer": str(at + 12)} for at in range(1, 5)]


def test_a_policy_is_sampled_until_enough_right_and_wrong_solutions_exist(tmp_path):
    rows, rejected, summary = sample(tmp_path / "out", problems(tmp_path, SUMS), sources=["policy"], max_samples=16)
    assert summary["sources"] == {"policy:scripted": len(rows)}
    for problem in SUMS:
        mine = [row for row in rows if row["problem_id"] == problem["id"]]
        assert sorted(row["final_correct"] for row in mine) == [False, True]
        for row in mine:
            assert row["final_correct"] == (last_number(row["steps"][-1]) == int(problem["answer"]))
            assert row["label"] is None
    assert not any(row["reason"].startswith("given up") for row in rejected)
    assert summary["tokens"]["completion"] > sum(row["meta"]["tokens"] for row in rows) > 0


def test_giving_up_is_said_and_counted(tmp_path):
    hard = [{"id": "hard", "problem": "3 + 4?", "answer": "1000"}]
    rows, rejected, summary = sample(tmp_path / "out", problems(tmp_path, hard), sources=["policy"], max_samples=4)
    assert summary["reasons"]["given up: too few right samples"] == 1
    assert [row["final_correct"] for row in rows] == [False]
    (marker,) = [row for row in rejected if row["reason"].startswith("given up")]
    assert marker["lacking"] == {"right": 1}


def test_an_answer_that_cannot_be_compared_is_unknown_and_not_wrong(tmp_path):
    odd = [{"id": "odd", "problem": "3 + 4?", "answer": "it depends on how one looks at it"}]
    rows, _, summary = sample(tmp_path / "out", problems(tmp_path, odd), sources=["policy"], max_samples=4)
    assert rows == []
    assert summary["reasons"]["given up: too few right and wrong samples"] == 1
    assert summary["reasons"]["a sample's answer is unknown"] >= 1
    assert "enough wrong samples" not in summary["reasons"]


def test_a_problem_without_a_reference_answer_is_not_sampled(tmp_path):
    rows, rejected, _ = sample(tmp_path / "out", problems(tmp_path, [{"problem": "3?"}]), sources=["policy"])
    assert (rows, [row["reason"] for row in rejected]) == ([], ["no reference answer"])


class Killed(GenPRMError):
    """Stands for the end of the process."""


@pytest.mark.parametrize("after", [0, 1, 3, 5])
def test_a_killed_run_goes_on_to_the_same_rows(tmp_path, monkeypatch, after):
    inputs = problems(tmp_path, [{**row, "answer": row["answer"]} for row in SUMS])
    settings = {"sources": ["policy"], "max_samples": 8, "in_flight": 2}
    whole = sample(tmp_path / "whole", inputs, **settings)
    written = 0
    for name in ("add", "reject"):
        real = getattr(Store, name)

        def dying(self, *args, real=real, **more):
            nonlocal written
            if written >= after:
                raise Killed("killed")
            written += 1
            real(self, *args, **more)

        monkeypatch.setattr(Store, name, dying)
    with pytest.raises(Killed):
        sample(tmp_path / "killed", inputs, **settings)
    monkeypatch.undo()
    again = sample(tmp_path / "killed", inputs, **settings)
    assert again[:2] == whole[:2]


# ---------------------------------------------------------------- settings


def test_heavier_kinds_are_tried_earlier_and_those_without_weight_never():
    orders = [kind_order({"unit": 5.0, "copy": 1.0, "operator": 0.0}, seed) for seed in range(200)]
    assert all(set(order) == {"unit", "copy"} for order in orders)
    first = sum(order[0] == "unit" for order in orders)
    assert 140 < first < 195  # 5 to 1
    assert kind_order({"unit": 1.0, "copy": 1.0}, 3) == kind_order({"copy": 1.0, "unit": 1.0}, 3)


def test_an_unknown_kind_of_error_is_refused():
    with pytest.raises((ConfigError, ValueError), match="there is no kind 'typo'"):
        DistillConfig.model_validate({"sample": {"kinds": {"typo": 1}}})
