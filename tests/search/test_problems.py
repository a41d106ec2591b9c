"""Reading problems: texts, files, aliases, faults."""

from __future__ import annotations

import io
import json

import pytest

from genprm.errors import InputError
from genprm.records import Rejected
from genprm.search import Problem
from genprm.search.problems import read_problems


def write(path, *rows):
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return str(path)


def test_texts_files_and_standard_input_are_read_in_their_order(tmp_path):
    file = write(tmp_path / "rows.jsonl", {"question": "b", "reference_answer": 7}, {"problem": "c", "id": 12})
    stdin = io.BytesIO(b'[{"prompt": "d", "answer": "#### 5"}]')
    assert list(read_problems(["a, a question", file, "-"], stdin=stdin)) == [
        Problem("0", "a, a question"),
        Problem("1", "b", "7"),
        Problem("12", "c"),
        Problem("3", "d", "#### 5"),
    ]


def test_rows_of_other_uses_are_problems_too(tmp_path):
    row = {"id": "gsm8k-1", "problem": "q", "steps": ["s"], "label": -1, "final_answer_correct": True, "answer": "2"}
    assert list(read_problems([write(tmp_path / "a.json", row)])) == [Problem("gsm8k-1", "q", "2")]


@pytest.mark.parametrize(
    ("row", "field", "words"),
    [
        ({"answer": "3"}, "problem", "is missing"),
        ({"question": ["q"]}, "question", "must be text, found a list"),
        ({"problem": " "}, "problem", "is empty"),
        ({"problem": "q", "answer": {"a": 1}}, "answer", "must be text, found an object"),
        ({"problem": "q", "id": "0"}, "id", "is used before"),
        ('{"problem": "q"', None, "is not JSON"),
        ([1], None, "must be an object"),
    ],
)
def test_a_bad_row_is_listed_in_its_place_and_the_others_are_used(tmp_path, row, field, words):
    first, bad, last = read_problems([write(tmp_path / "rows.jsonl", {"problem": "a"}, row, {"problem": "b"})])
    assert (first, last) == (Problem("0", "a"), Problem("2", "b"))
    assert isinstance(bad, Rejected)
    assert (bad.line, bad.field) == (2, field)
    assert words in bad.message


def test_a_file_name_that_is_not_there_is_no_problem_text(tmp_path):
    with pytest.raises(InputError, match=r"nothing\.jsonl: cannot be read: No such file"):
        list(read_problems([str(tmp_path / "nothing.jsonl")]))


def test_limit_takes_the_first_and_sample_draws_among_them_in_their_order(tmp_path):
    file = write(tmp_path / "rows.jsonl", *({"problem": f"q{n}"} for n in range(50)))
    drawn = list(read_problems([file], limit=20, sample=5, seed=1))
    numbers = [int(problem.id) for problem in drawn]
    assert len(numbers) == 5
    assert numbers == sorted(numbers)
    assert max(numbers) < 20
    assert drawn == list(read_problems([file], limit=20, sample=5, seed=1))
    assert drawn != list(read_problems([file], limit=20, sample=5, seed=2))


def test_a_long_text_is_a_problem_and_no_file_name():
    text = "How many? " * 1000
    assert list(read_problems([text])) == [Problem("0", text)]
