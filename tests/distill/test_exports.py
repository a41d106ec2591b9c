"""Exports: labelled solutions in other trainers' forms."""

from __future__ import annotations

import pytest
from genprm.distill.exports import known_labels, step_dpo_pairs, stepwise_rows, write_export
from genprm.distill.store import Store

from genprm.errors import ConfigError, UsageError

RIGHT = {"id": "p/0", "problem": "P", "steps": ["a", "b", "c"], "label": -1, "step_labels": [True, True, True]}
WRONG = {"id": "p/1", "problem": "P", "steps": ["a", "x", "c"], "label": 1, "step_labels": [True, False, None]}
FIRST = {"id": "p/2", "problem": "P", "steps": ["y", "z"], "label": 0, "step_labels": None}
OTHER = {"id": "q/0", "problem": "Q", "steps": ["a", "v"], "label": 1, "step_labels": [True, False]}
UNKNOWN = {"id": "q/1", "problem": "Q", "steps": ["a", "w"], "label": None, "step_labels": [None, None]}
ROWS = [RIGHT, WRONG, FIRST, OTHER, UNKNOWN]


@pytest.mark.parametrize(
    ("row", "labels"),
    [
        (RIGHT, [True, True, True]),
        (WRONG, [True, False]),
        (FIRST, [False]),
        (UNKNOWN, []),
        ({"steps": ["a", "b"], "step_labels": [True, None]}, [True]),
    ],
)
def test_labels_end_behind_the_first_error_and_before_the_first_unknown_step(row, labels):
    assert known_labels(row) == labels


def test_stepwise_rows_have_a_label_for_each_step_and_none_without_labels():
    assert list(stepwise_rows(ROWS)) == [
        {"prompt": "P", "completions": ["a", "b", "c"], "labels": [True, True, True]},
        {"prompt": "P", "completions": ["a", "x"], "labels": [True, False]},
        {"prompt": "P", "completions": ["y"], "labels": [False]},
        {"prompt": "Q", "completions": ["a", "v"], "labels": [True, False]},
    ]


def test_a_pair_shares_problem_and_steps_and_differs_in_one_right_and_one_wrong_step():
    assert list(step_dpo_pairs(ROWS)) == [
        {"prompt": "P\n\n", "chosen": "a", "rejected": "y"},
        {"prompt": "P\n\na\n\n", "chosen": "b", "rejected": "x"},
    ]


def test_a_step_labelled_both_ways_is_in_no_pair():
    both = {**WRONG, "id": "p/3", "steps": ["a", "b"], "step_labels": [True, False]}
    assert list(step_dpo_pairs([RIGHT, both])) == []


@pytest.mark.parametrize(("kind", "columns"), [("trl-stepwise", 3), ("step-dpo", 3)])
def test_files_are_read_by_datasets(tmp_path, kind, columns):
    from datasets import load_dataset

    with Store(tmp_path / "label") as store:
        for row in ROWS:
            store.add(row)
        store.finish()
    count = write_export(kind, tmp_path)
    read = load_dataset(
        "json", data_files=str(tmp_path / "format" / f"{kind}.jsonl"), split="train", cache_dir=str(tmp_path / "cache")
    )
    assert len(read) == count > 0
    assert len(read.column_names) == columns


def test_an_unknown_export_and_a_run_without_labels_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="there is no export 'csv'; there are: trl-stepwise, step-dpo"):
        write_export("csv", tmp_path)
    with pytest.raises(UsageError, match="cannot be read"):
        write_export("step-dpo", tmp_path)
