"""Problems from files of every kind."""

from __future__ import annotations

import json

import pytest
from genprm.distill.inputs import Input, input_digest, input_path, parse_input, read_inputs

from genprm.errors import InputError
from genprm.records import Rejected

WORKED = "He has 2 + 3 = <<2+3=5>>5 eggs.\n#### 5"
ROWS = [
    {"question": "How many eggs?", "answer": WORKED},
    {"problem": "What is 1 + 1?", "answer": "2", "id": "sum", "level": 3},
    {"problem": "And 2 + 2?", "steps": ["2 + 2 = 5."], "label": 0, "answer": "4"},
    {"prompt": "Only a question?"},
]


def write(folder, kind):
    path = folder / f"in.{kind}"
    if kind == "json":
        path.write_text(json.dumps(ROWS))
    elif kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    else:
        from datasets import Dataset

        names = sorted({name for row in ROWS for name in row})
        Dataset.from_dict({name: [row.get(name) for row in ROWS] for name in names}).to_parquet(str(path))
    return str(path)


@pytest.mark.parametrize("kind", ["json", "jsonl", "parquet"])
def test_files_of_every_kind_give_the_same_problems(tmp_path, kind):
    eggs, total, judged, bare = read_inputs([write(tmp_path, kind)])
    assert (eggs.id, eggs.problem, eggs.answer, eggs.worked) == ("in:0", "How many eggs?", "5", WORKED)
    assert (total.id, total.answer, total.worked, total.meta["level"]) == ("sum", "2", None, 3)
    assert (judged.solution.steps, judged.solution.label, judged.answer) == (("2 + 2 = 5.",), 0, "4")
    assert (bare.id, bare.answer, bare.solution) == ("in:3", None, None)


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ({"answer": "5"}, "problem"),
        ({"problem": " "}, "problem"),
        ({"problem": "p", "answer": 5}, "answer"),
        ([], None),
    ],
)
def test_a_row_that_cannot_be_used_is_named(tmp_path, row, field):
    path = tmp_path / "in.jsonl"
    path.write_text(json.dumps({"problem": "fine?"}) + "\n" + json.dumps(row) + "\n")
    good, bad = read_inputs([str(path)])
    assert isinstance(good, Input)
    assert isinstance(bad, Rejected)
    assert (bad.line, bad.field) == (2, field)


def test_the_limit_counts_usable_rows_over_all_files(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text('{"answer": "5"}\n' + '{"problem": "a?"}\n{"problem": "b?"}\n')
    found = list(read_inputs([str(path), "shipped:tiny"], limit=3))
    assert [isinstance(item, Input) for item in found] == [False, True, True, True]


def test_an_id_that_was_used_before_is_refused_unless_all_rows_are_wanted(tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text('{"problem": "a?", "id": 1}\n{"problem": "b?", "id": "1"}\n')
    assert [isinstance(item, Rejected) for item in read_inputs([str(path)])] == [False, True]
    assert [isinstance(item, Rejected) for item in read_inputs([str(path)], unique=False)] == [False, False]


def test_the_packages_own_problems_have_worked_answers():
    problems = list(read_inputs(["shipped:tiny"]))
    assert len(problems) == 12
    assert all(item.worked is not None and item.worked.endswith(item.answer) for item in problems)
    assert all(item.solution.label is not None for item in read_inputs(["shipped:tiny-eval"]))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("none.jsonl", "no such file"),
        ("shipped:none", "it has shipped:tiny"),
        ("owner/none", "GENPRM_OFFLINE forbids"),
        ("plain", "no such file"),
    ],
)
def test_an_input_that_is_not_there_is_named(tmp_path, monkeypatch, name, said):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GENPRM_OFFLINE", "1")
    for read in (lambda: list(read_inputs([name])), lambda: input_digest(name)):
        with pytest.raises(InputError, match=f"^{name}: .*{said}"):
            read()


def test_a_data_set_of_the_hub_is_read_by_its_library(monkeypatch):
    import datasets

    asked = []

    def load_dataset(*words, **options):
        asked.append((words, options))
        return datasets.Dataset.from_list(ROWS[:1])

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    (item,) = read_inputs(["owner/set:main"], split="test")
    assert (item.id, item.answer) == ("set-main:0", "5")
    assert asked == [(("owner/set", "main"), {"split": "test"})]
    assert input_digest("owner/set:main", "test") == input_digest("owner/set:main", "test")


def test_a_folder_and_an_unknown_format_are_refused(tmp_path):
    with pytest.raises(InputError, match="is a folder"):
        input_path(str(tmp_path))
    with pytest.raises(InputError, match="unknown format 'gsm'"):
        list(read_inputs(["shipped:tiny"], format="gsm"))


def test_rows_of_other_formats_are_read_as_verify_reads_them():
    row = {"input": "What? Step 1: 1 + 1 = 3 ки", "label": "What? Step 1: 1 + 1 = 3 -"}
    assert parse_input(row, default_id="m").solution.label == 0
