"""Solution files: what is read, what is refused and how it is said, and the published formats."""

from __future__ import annotations

import io
import json
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genprm.errors import InputError
from genprm.formats import FORMATS, recognise
from genprm.records import MAX_TEXT_CHARS, Rejected, parse_record, read_solutions, render_record
from genprm.types import Solution

DATA = Path(__file__).parents[2] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"{DATA} is not there")

GOOD: dict[str, Any] = {"problem": "What is 2 + 3?", "steps": ["2 + 3 = 5.", "The answer is 5."]}

PRM800K: dict[str, Any] = {
    "labeler": "someone",
    "question": {"problem": "What is 4 * 6?", "ground_truth_answer": "24", "pre_generated_answer": "25"},
    "label": {
        "steps": [
            {
                "completions": [{"text": "Add fours.", "rating": 0}, {"text": "Double 12.", "rating": 1}],
                "human_completion": None,
                "chosen_completion": 1,
            },
            {
                "completions": [{"text": "12 + 12 = 23.", "rating": -1}],
                "human_completion": {"text": "12 + 12 = 24.", "rating": None},
                "chosen_completion": None,
            },
            {
                "completions": [{"text": "So 25.", "rating": -1}, {"text": "So 24.", "rating": 1}],
                "human_completion": None,
                "chosen_completion": None,
            },
        ],
        "finish_reason": "found_error",
    },
}
SHEPHERD = {
    "input": "What is 4 * 6? Step 1: Double 12. ки\nStep 2: 12 + 12 = 25. ки\nStep 3: The answer is: 25 ки",
    "label": "What is 4 * 6? Step 1: Double 12. +\nStep 2: 12 + 12 = 25. -\nStep 3: The answer is: 25 -",
    "task": "MATH",
}
QUESTION = "What is 4 * 6?"
OMEGA = {
    "question": QUESTION,
    "final_answer": "24",
    "question_id": "q7",
    "reasoning_steps": [
        {"solution_prefix": QUESTION, "mc_value": 0.5},
        {"solution_prefix": QUESTION + "\n\nIt is 24.", "mc_value": 1.0},
        {"solution_prefix": QUESTION + "\n\nDouble 12.\n\nSo 25.", "mc_value": 0.0},
        {"solution_prefix": QUESTION + "\n\nDouble 12.", "mc_value": 0.75},
        {"solution_prefix": QUESTION + "\n\nDouble 12.\n\nSo 24.", "mc_value": 1},
    ],
}
OMEGA_TREE = {
    "question": QUESTION,
    "final_answer": "24",
    "reasoning_steps": {
        "text": QUESTION,
        "mc_value": 0.5,
        "children": [
            {"text": "It is 24.", "mc_value": 1.0, "children": []},
            {
                "text": "Double 12.",
                "mc_value": 0.75,
                "children": [
                    {"text": "So 25.", "mc_value": 0.0, "children": []},
                    {"text": "So 24.", "mc_value": 1.0, "children": []},
                ],
            },
        ],
    },
}
PRMBENCH = {
    "original_question": "What is 2 * 6?",
    "modified_question": QUESTION,
    "original_process": ["1. Double 6."],
    "modified_process": ["1. Double 12.", "2. It is 25.", "3. So 25."],
    "modified_steps": [2],
    "error_steps": [2, 3],
    "reason": "12 + 12 is 24.",
    "idx": "p1",
    "question": QUESTION,
    "classification": "counterfactual",
}


def write(folder: Path, text: str | bytes, name: str = "in.jsonl") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def lines(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def solutions(items: Iterator[Solution | Rejected]) -> list[Solution]:
    found = []
    for item in items:
        assert isinstance(item, Solution), item
        found.append(item)
    return found


def rejected(items: Iterator[Solution | Rejected]) -> Rejected:
    (item,) = [item for item in items if isinstance(item, Rejected)]
    return item


def test_a_record_is_read_from_a_file_of_its_own(tmp_path: Path) -> None:
    row = GOOD | {"id": "a", "answer": "5", "label": -1, "source": "us"}
    (solution,) = solutions(read_solutions(write(tmp_path, json.dumps(row, indent=2), "in.json")))
    assert solution == Solution(
        id="a", problem=GOOD["problem"], steps=GOOD["steps"], answer="5", label=-1, meta={"source": "us"}
    )


@pytest.mark.parametrize("name", ["in.json", "in.jsonl", "in.txt"])
@pytest.mark.parametrize(
    "text",
    [
        lines(GOOD, GOOD),
        "\n\n" + json.dumps(GOOD) + "\r\n\r\n  " + json.dumps(GOOD),
        json.dumps([GOOD, GOOD]),
        json.dumps([GOOD, GOOD], indent=2),
        "[\n" + json.dumps(GOOD) + ",\n" + json.dumps(GOOD) + "\n]\n",
        "\ufeff" + lines(GOOD, GOOD),
        "\ufeff[" + json.dumps(GOOD) + "," + json.dumps(GOOD) + "]",
    ],
)
def test_the_content_tells_json_from_json_lines(tmp_path: Path, text: str, name: str) -> None:
    found = solutions(read_solutions(write(tmp_path, text, name)))
    assert [solution.id for solution in found] == ["0", "1"]
    assert all(solution.steps == tuple(GOOD["steps"]) for solution in found)


@pytest.mark.parametrize("name", ["in.json", "in.jsonl"])
@pytest.mark.parametrize("indent", [None, 0, 1, 4])
def test_one_record_is_read_however_it_is_laid_out(tmp_path: Path, name: str, indent: int | None) -> None:
    text = json.dumps(GOOD | {"meta": {"inner": {}, "list": [{"a": 1}]}}, indent=indent)
    (solution,) = solutions(read_solutions(write(tmp_path, text, name)))
    assert solution.meta == {"inner": {}, "list": [{"a": 1}]}


def test_standard_input_is_a_dash() -> None:
    stdin = io.BytesIO(lines(GOOD, GOOD | {"steps": []}).encode())
    first, second = read_solutions("-", stdin=stdin)
    assert isinstance(first, Solution)
    assert first.id == "0"
    assert isinstance(second, Rejected)
    assert str(second.error) == "<stdin>:2: steps: has no steps"


@pytest.mark.parametrize(
    ("row", "problem", "steps", "answer"),
    [
        ({"question": "Q?", "steps": ["a"]}, "Q?", ("a",), None),
        ({"prompt": "Q?", "response": "a\n\nb"}, "Q?", ("a\n\n", "b"), None),
        ({"problem": "Q?", "completion": "Step 1: a\nStep 2: b"}, "Q?", ("Step 1: a\n", "Step 2: b"), None),
        ({"problem": "Q?", "solution": "a", "reference_answer": "1"}, "Q?", ("a",), "1"),
        ({"problem": None, "question": "Q?", "steps": None, "solution": "a", "answer": None}, "Q?", ("a",), None),
        ({"problem": "Q?", "steps": ["a"], "answer": "  "}, "Q?", ("a",), None),
    ],
)
def test_aliases_stand_for_the_fields(
    row: dict[str, Any], problem: str, steps: tuple[str, ...], answer: str | None
) -> None:
    solution = parse_record(row)
    assert (solution.problem, solution.steps, solution.answer, solution.meta) == (problem, steps, answer, {})


def test_fields_that_are_not_read_are_kept_in_meta() -> None:
    row = GOOD | {"solution": "unread", "prompt": ["x"], "generator": "m", "meta": {"a": 1, "generator": "old"}}
    assert parse_record(row).meta == {"solution": "unread", "prompt": ["x"], "generator": "m", "a": 1}
    assert parse_record(GOOD | {"meta": [1]}).meta == {"meta": [1]}


@pytest.mark.parametrize(("value", "expected"), [("x/1", "x/1"), (7, "7"), (None, "9"), (0, "0")])
def test_an_id_is_text_a_number_or_the_position(value: object, expected: str) -> None:
    assert parse_record(GOOD | {"id": value}, default_id="9").id == expected


def test_positions_count_rejected_rows_and_are_unique_over_files(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    a = write(tmp_path, lines(GOOD, {}, GOOD), "a.jsonl")
    b = write(tmp_path, lines(GOOD), "b.json")
    c = write(tmp_path / "x", lines(GOOD | {"id": "c"}, GOOD), "b.jsonl")
    assert [item.id for item in read_solutions(a) if isinstance(item, Solution)] == ["0", "2"]
    found = [item.id for item in read_solutions([a, b, c]) if isinstance(item, Solution)]
    assert found == ["a:0", "a:2", f"{b}:0", "c", f"{c}:1"]


@pytest.mark.parametrize(("limit", "count"), [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (9, 5), (None, 5)])
def test_a_limit_counts_rows_over_all_files(tmp_path: Path, limit: int | None, count: int) -> None:
    a = write(tmp_path, lines(GOOD, {}, GOOD), "a.jsonl")
    b = write(tmp_path, json.dumps([GOOD, GOOD]), "b.json")
    assert len(list(read_solutions([a, b], limit=limit))) == count


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        ({"problem": None}, "problem", "is missing, text is needed"),
        ({"problem": 5}, "problem", "must be text, found the number 5"),
        ({"problem": " \n"}, "problem", "is empty"),
        ({"problem": "x" * (MAX_TEXT_CHARS + 1)}, "problem", "has 1,000,001 characters"),
        ({"steps": None}, "steps", "is missing: give `steps`"),
        ({"steps": []}, "steps", "has no steps"),
        ({"steps": "a"}, "steps", "must be a list of strings, found text"),
        ({"steps": {"0": "a"}}, "steps", "must be a list of strings, found an object"),
        ({"steps": ["a", 3]}, "steps[1]", "must be text, found the number 3"),
        ({"steps": ["a", None]}, "steps[1]", "is missing"),
        ({"steps": ["a", ["b"]]}, "steps[1]", "must be text, found a list"),
        ({"steps": ["a", ""]}, "steps[1]", "is empty"),
        ({"steps": ["\u2003\n", "b"]}, "steps[0]", "is empty"),
        ({"steps": ["a", "x" * 10_000_000]}, "steps[1]", "has 10,000,000 characters, more than the 1,000,000"),
        ({"steps": None, "solution": " \n "}, "solution", "has no steps"),
        ({"steps": None, "response": 4}, "response", "must be text, found the number 4"),
        ({"steps": None, "solution": "a\n\n" + "x" * 2_000_000}, "solution, step 1", "has 2,000,000 characters"),
        ({"answer": 5}, "answer", "must be text, found the number 5"),
        ({"reference_answer": True}, "reference_answer", "must be text, found true"),
        ({"id": ""}, "id", "is empty"),
        ({"id": True}, "id", "must be text, found true"),
        ({"id": 1.5}, "id", "must be text, found the number 1.5"),
        ({"label": True}, "label", "must be a whole number, found true"),
        ({"label": "1"}, "label", "must be a whole number, found text"),
        ({"label": 0.0}, "label", "must be a whole number, found the number 0.0"),
        ({"label": -2}, "label", "-2 is not allowed: 0 to 1 for the first wrong step of 2, or -1"),
        ({"label": 2}, "label", "2 is not allowed"),
        ({"label": 10**4000}, "label", "is not allowed"),
        ({"note": ["\ud800"]}, "note", "half of a surrogate pair"),
        ({"steps": ["a \udfff"]}, "steps", "half of a surrogate pair"),
        ({"\ud800": 1}, "'\\ud800'", "half of a surrogate pair"),
        ({"two\nlines": ["\ud800"]}, "'two\\nlines'", "half of a surrogate pair"),
    ],
)
def test_a_bad_row_is_one_line_with_file_line_and_field(
    tmp_path: Path, change: dict[str, Any], field: str, message: str
) -> None:
    row = {key: value for key, value in (GOOD | change).items() if key in change or value is not None}
    path = write(tmp_path, lines(GOOD, row, GOOD))
    bad = rejected(read_solutions(path))
    text = str(bad.error)
    assert text.startswith(f"{path}:2: {field}: ")
    assert message in text
    assert "\n" not in text
    assert len(text) < 300 + len(str(path))
    assert bad.raw == json.dumps(row)
    listed = write(tmp_path, json.dumps([GOOD, row], indent=1), "list.json")
    bad = rejected(read_solutions(listed))
    assert bad.field == f"[1].{field}"
    assert bad.line is not None
    assert listed.read_text().split("\n")[bad.line - 1].strip() == "{"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{not json}", "is not JSON: Expecting property name enclosed in double quotes at column 2"),
        (b'{"problem": "x", "steps": ["a"', "is not JSON: Expecting ',' delimiter"),
        (b'{"problem": "unclosed', "is not JSON: Unterminated string"),
        (b'{"problem": "x", "steps": ["a"], "score": NaN}', "is not JSON: NaN is not a JSON value: write null"),
        (b'{"problem": "x", "steps": ["a"], "score": -Infinity}', "is not JSON: -Infinity is not a JSON value"),
        (b'{"problem": "x", "steps": ["a"], "score": 1e999}', "is not JSON: the number 1e999 is too large"),
        (b'{"problem": "x", "label": ' + b"9" * 5000 + b"}", "holds a whole number of too many digits"),
        (b'{"problem": "\xff", "steps": ["a"]}', "invalid UTF-8: byte 0xff at offset 13"),
        (b'{"problem": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "is nested too deeply"),
        (b'{"problem": "x", "steps": ["a"], "m": ' + b"[" * 120 + b"]" * 120 + b"}", "m: is nested deeper than 100"),
        (b"[1, 2]", "a record must be an object, found a list"),
        (b"null", "a record must be an object, found null"),
        (b'"text"', "a record must be an object, found text"),
        (b"\x00\x01", "is not JSON"),
    ],
)
@pytest.mark.parametrize("place", [0, 1, 99])
def test_one_bad_row_among_a_hundred_leaves_the_others(tmp_path: Path, line: bytes, message: str, place: int) -> None:
    rows = [json.dumps(GOOD).encode()] * 99
    path = write(tmp_path, b"\n".join([*rows[:place], line, *rows[place:]]))
    found = list(read_solutions(path))
    assert [index for index, item in enumerate(found) if isinstance(item, Rejected)] == [place]
    bad = rejected(iter(found))
    assert str(bad.error).startswith(f"{path}:{place + 1}: ")
    assert message in str(bad.error)
    assert len(found) == 100
    assert set(bad.as_row()) == {"file", "line", "field", "error", "raw"}
    json.dumps(bad.as_row()).encode()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", ": is empty"),
        (b" \n\n", ": is empty"),
        (b"\xef\xbb\xbf", ": is empty"),
        (b"[]", ": holds an empty list"),
        (b"[\n ]", ": holds an empty list"),
        (b"garbage", ":1: is not JSON: Expecting value at column 1"),
        (b"# Title\n\nSome text.\n", ":1: is not JSON: Expecting value at column 1"),
        (b'{"problem": "x",\n "steps": ["a"],\n}', ":3: is not JSON"),
        (b'[{"problem": "x"},\n {"problem" "y"}]', ":2: is not JSON: Expecting ':' delimiter at column 13"),
        (b'[{"problem": "x"}\n {"problem": "y"}]', ":2: is not JSON: Expecting ',' or ']'"),
        (b'[{"problem": "x"}],\n', ":1: is not JSON: Extra data"),
        (b'[{"problem": "x"},\n', ":2: is not JSON: Expecting value"),
        (b'[{"problem": "\xe9"}]', ":1: invalid UTF-8: byte 0xe9 at offset 14"),
        ('{"problem": "x"}'.encode("utf-16"), ":1: invalid UTF-8: byte 0xff at offset 0"),
        (b'{"problem":\n NaN}', ": is not JSON: NaN is not a JSON value"),
        (b"[" * 100_000, ": is nested too deeply"),
        (b"42", ": must hold an object or a list of objects"),
    ],
)
def test_a_file_that_cannot_be_used_at_all_is_an_error(tmp_path: Path, text: bytes, message: str) -> None:
    path = write(tmp_path, text, "in.json")
    with pytest.raises(InputError) as caught:
        list(read_solutions(path))
    assert str(caught.value).startswith(f"{path}{message}")
    assert "\n" not in str(caught.value)


def test_paths_are_checked_before_anything_is_read(tmp_path: Path) -> None:
    good = write(tmp_path, lines(GOOD))
    with pytest.raises(InputError, match=r"missing.json: there is no such file"):
        read_solutions([good, tmp_path / "missing.json"])
    with pytest.raises(InputError, match="is a folder"):
        read_solutions(tmp_path)
    with pytest.raises(InputError, match="is given twice"):
        read_solutions([good, good])
    with pytest.raises(InputError, match="is not a file name"):
        read_solutions("a\0b")
    with pytest.raises(InputError, match="cannot be read"):
        read_solutions("x" * 5000)
    with pytest.raises(InputError, match="cannot be read: Not a directory"):
        read_solutions(good / "x")
    with pytest.raises(InputError, match="a limit of -1 rows: give 0 or more"):
        read_solutions(good, limit=-1)
    with pytest.raises(InputError, match="unknown format 'csv': choose one of auto, genprm"):
        read_solutions(good, format="csv")  # type: ignore[arg-type]


def test_a_file_without_permission_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, lines(GOOD))
    monkeypatch.setattr(os, "access", lambda *_: False)  # the superuser may read every file
    with pytest.raises(InputError, match="cannot be read: permission denied"):
        read_solutions(path)


def test_an_id_is_used_once_in_all_files(tmp_path: Path) -> None:
    a = write(tmp_path, lines(GOOD | {"id": 1}, GOOD | {"id": "x"}, GOOD | {"id": "1"}), "a.jsonl")
    assert str(rejected(read_solutions(a)).error) == f"{a}:3: id: '1' is used before, at {a}:1"
    b = write(tmp_path, json.dumps([GOOD | {"id": "y"}, GOOD | {"id": "x"}]), "b.json")
    bad = [item for item in read_solutions([a, b]) if isinstance(item, Rejected)]
    assert str(bad[1].error) == f"{b}:1: [1].id: 'x' is used before, at {a}:2"


def test_a_line_that_is_too_long_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genprm.jsonrows.MAX_ROW_BYTES", 300)
    long = json.dumps(GOOD | {"note": "x" * 1000})
    path = write(tmp_path, "\n".join([long, json.dumps(GOOD), long, json.dumps(GOOD)]))
    found = list(read_solutions(path))
    assert [isinstance(item, Solution) for item in found] == [False, True, False, True]
    assert str(rejected(iter(found[:1])).error) == f"{path}:1: is longer than the 300 bytes that a row may have"
    alone = list(read_solutions(write(tmp_path, long)))
    assert [isinstance(item, Rejected) for item in alone] == [True]
    assert len(solutions(read_solutions(write(tmp_path, json.dumps([GOOD] * 50))))) == 50


def test_ten_thousand_steps_are_a_record(tmp_path: Path) -> None:
    row = GOOD | {"steps": [f"{n} is a number." for n in range(10_000)], "label": 9_999}
    (solution,) = solutions(read_solutions(write(tmp_path, json.dumps(row), "in.json")))
    assert len(solution.steps) == 10_000


def test_json_lines_are_streamed_in_flat_memory(tmp_path: Path) -> None:
    row = json.dumps(GOOD | {"note": "x" * 2000})
    path = tmp_path / "big.jsonl"
    with path.open("w") as file:
        for _ in range(20_000):
            file.write(row + "\n")
    tracemalloc.start()
    count = sum(isinstance(item, Solution) for item in read_solutions(path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 20_000
    assert path.stat().st_size > 40e6
    assert peak < 8e6


def test_rows_come_before_the_stream_has_ended() -> None:
    read, write_end = os.pipe()
    with os.fdopen(read, "rb") as stdin, os.fdopen(write_end, "wb") as feed:
        feed.write(lines(GOOD, GOOD, GOOD).encode())
        feed.flush()
        assert len(solutions(read_solutions("-", limit=2, stdin=stdin))) == 2


text = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30).filter(lambda value: value.strip() != "")
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)


@st.composite
def records(draw: st.DrawFn) -> Solution:
    steps = draw(st.lists(text, min_size=1, max_size=4))
    return Solution(
        id=draw(text),
        problem=draw(text),
        steps=tuple(steps),
        answer=draw(st.none() | text),
        label=draw(st.none() | st.integers(-1, len(steps) - 1)),
        meta=draw(st.dictionaries(text | st.sampled_from(["meta", "problem", "steps", "id"]), json_values, max_size=3)),
    )


@given(st.lists(records(), min_size=1, max_size=4, unique_by=lambda record: record.id))
def test_a_rendered_record_is_read_back_equal(made: list[Solution]) -> None:
    stream = io.BytesIO("".join(render_record(record) + "\n" for record in made).encode())
    assert solutions(read_solutions("-", stdin=stream)) == made


@given(st.binary(max_size=200) | st.lists(st.sampled_from([b"{", b"}", b"[", b"]", b"\n", b'"a"', b":", b",", b"1"])))
def test_arbitrary_bytes_are_refused_in_one_line(data: bytes | list[bytes]) -> None:
    stream = io.BytesIO(data if isinstance(data, bytes) else b"".join(data))
    try:
        items = list(read_solutions("-", stdin=stream))
        errors = [item.error for item in items if isinstance(item, Rejected)]
        assert len(errors) == len(items)
    except InputError as error:
        errors = [error]
    assert not any("\n" in str(error) for error in errors)


@given(json_values, st.sampled_from(FORMATS))
def test_arbitrary_values_in_any_field_are_refused_cleanly(value: Any, format: Any) -> None:
    errors = []
    for template in (GOOD, PRM800K, SHEPHERD, OMEGA, OMEGA_TREE, PRMBENCH):
        for key in template:
            try:
                parse_record(template | {key: value}, format=format)
            except InputError as error:
                errors.append(error)
    assert not any("\n" in str(error) for error in errors)


@pytest.mark.parametrize(
    ("row", "format"),
    [
        (GOOD, "genprm"),
        (GOOD | {"label": 0, "generator": "m", "final_answer_correct": False}, "genprm"),
        (GOOD | {"reasoning_steps": [], "modified_process": []}, "genprm"),
        (PRM800K, "prm800k"),
        (SHEPHERD, "math-shepherd"),
        (OMEGA, "omegaprm"),
        (OMEGA_TREE, "omegaprm"),
        (PRMBENCH, "prmbench"),
        ({"anything": 1}, "genprm"),
    ],
)
def test_a_format_is_recognised_by_its_fields(row: dict[str, Any], format: Any) -> None:
    assert recognise(row) == format
    if row != {"anything": 1}:
        assert parse_record(row) == parse_record(row, format=format)


def test_processbench_rows_are_records_and_keep_their_label() -> None:
    row = GOOD | {"id": "math-3", "label": 1, "final_answer_correct": False, "generator": "m"}
    solution = parse_record(row, format="processbench")
    assert (solution.id, solution.label) == ("math-3", 1)
    assert solution.meta == {"final_answer_correct": False, "generator": "m"}
    with pytest.raises(InputError, match="label: is missing: a ProcessBench row"):
        parse_record(GOOD, format="processbench")


def test_a_raw_prm800k_trace_follows_the_choices_and_ends_at_its_first_error() -> None:
    solution = parse_record(PRM800K)
    assert solution.problem == QUESTION
    assert solution.steps == ("Double 12.", "12 + 12 = 24.", "So 25.")
    assert (solution.answer, solution.label) == ("24", 2)
    assert solution.meta == {
        "labeler": "someone",
        "question": {"pre_generated_answer": "25"},
        "finish_reason": "found_error",
        "step_ratings": [1, None, -1],
    }


@pytest.mark.parametrize(
    ("last", "reason", "label", "count"),
    [
        ({"completions": [{"text": "24.", "rating": 1}], "chosen_completion": 0}, "solution", -1, 3),
        ({"completions": [{"text": "24.", "rating": 1}], "chosen_completion": 0}, "give_up", None, 3),
        ({"completions": [{"text": "25.", "rating": -1}], "chosen_completion": 0}, "solution", 2, 3),
        ({"completions": [{"text": "24.", "rating": 0}], "chosen_completion": None}, "bad_problem", None, 2),
        ({"completions": None, "human_completion": None, "chosen_completion": None}, "give_up", None, 2),
    ],
)
def test_a_prm800k_label_is_known_only_where_the_trace_was_judged_to_its_end(
    last: dict[str, Any], reason: str, label: int | None, count: int
) -> None:
    steps = [*PRM800K["label"]["steps"][:2], last]
    solution = parse_record(PRM800K | {"label": {"steps": steps, "finish_reason": reason}})
    assert (solution.label, len(solution.steps)) == (label, count)


def test_math_shepherd_rows_split_at_the_tag() -> None:
    solution = parse_record(SHEPHERD)
    assert solution.problem == QUESTION
    assert solution.steps == ("Step 1: Double 12.", "Step 2: 12 + 12 = 25.", "Step 3: The answer is: 25")
    assert (solution.label, solution.answer) == (1, None)
    assert solution.meta == {"task": "MATH", "step_ratings": [1, -1, -1]}
    good = parse_record({"input": "Q Step 1: a ки\nStep 2: b ки", "label": "Q Step 1: a +\nStep 2: b +"})
    assert good.label == -1
    open_end = parse_record({"input": "Q Step 1: a ки\nStep 2: b", "label": "Q Step 1: a +\nStep 2: b"})
    assert (open_end.label, len(open_end.steps)) == (None, 2)


@pytest.mark.parametrize("row", [OMEGA, OMEGA_TREE])
def test_an_omegaprm_row_is_its_first_deepest_path(row: dict[str, Any]) -> None:
    solution = parse_record(row)
    assert solution.problem == QUESTION
    assert solution.steps == ("Double 12.", "So 25.")
    assert (solution.answer, solution.label) == ("24", 1)
    assert solution.meta["mc_value"] == [0.75, 0.0]


def test_omegaprm_labels_need_monte_carlo_values() -> None:
    def row(*values: float | None) -> dict[str, Any]:
        prefixes = [QUESTION + "".join(f"\n\nStep {k}." for k in range(n + 1)) for n in range(len(values))]
        rollouts = [{"solution_prefix": p, "mc_value": v} for p, v in zip(prefixes, values, strict=True)]
        return OMEGA | {"reasoning_steps": rollouts}

    assert parse_record(row(1.0, 0.5)).label == -1
    assert parse_record(row(1.0, None)).label is None
    assert parse_record(row(0.5, 0, None)).label == 1
    assert parse_record(row(0.5, 0, None)).steps == ("Step 0.", "Step 1.", "Step 2.")


def test_a_very_deep_omegaprm_tree_is_refused_cleanly() -> None:
    node: dict[str, Any] = {"text": "end", "mc_value": 1.0, "children": []}
    for _ in range(500):
        node = {"text": "t", "mc_value": 1.0, "children": [node]}
    with pytest.raises(InputError, match="reasoning_steps: is nested deeper than"):
        parse_record(OMEGA_TREE | {"reasoning_steps": node})


@pytest.mark.parametrize(("errors", "label"), [([2, 3], 1), ([3, 2], 1), ([], -1), ([9, 3], 2), ([9], None), ([1], 0)])
def test_prmbench_counts_error_steps_from_one(errors: list[int], label: int | None) -> None:
    solution = parse_record(PRMBENCH | {"error_steps": errors})
    assert (solution.problem, solution.id, solution.label) == (QUESTION, "p1", label)
    assert solution.steps == tuple(PRMBENCH["modified_process"])
    assert solution.meta["classification"] == "counterfactual"
    assert solution.meta["error_steps"] == errors


def test_prmbench_may_repeat_its_index_in_a_file(tmp_path: Path) -> None:
    path = write(tmp_path, lines(PRMBENCH, PRMBENCH, PRMBENCH))
    assert [solution.id for solution in solutions(read_solutions(path))] == ["p1", "p1#2", "p1#3"]


@pytest.mark.parametrize(
    ("row", "format", "message"),
    [
        (GOOD, "prm800k", "question: is missing, an object is needed"),
        (PRM800K | {"label": {"steps": [3]}}, "prm800k", r"label.steps\[0\]: must be an object, found the number 3"),
        (PRM800K | {"label": {"steps": []}}, "auto", "label.steps: has no steps"),
        (
            PRM800K | {"label": {"steps": [{"completions": [], "chosen_completion": 0}]}},
            "auto",
            r"label.steps\[0\].chosen_completion: 0 is no completion's index",
        ),
        (PRM800K | {"question": {}}, "auto", "question.problem: is missing"),
        (GOOD, "math-shepherd", "input: is missing, text is needed"),
        (SHEPHERD | {"input": "no tag"}, "auto", "input: has no step that ends in the tag"),
        (SHEPHERD | {"label": "other"}, "auto", "label: does not repeat `input` .* at step 0"),
        ({"input": "Q a ки", "label": "Q a +"}, "auto", "input: has no `Step 1:`"),
        (GOOD, "omegaprm", "question: is missing"),
        (OMEGA | {"reasoning_steps": "x"}, "auto", "reasoning_steps: must be a list or an object, found text"),
        (OMEGA | {"reasoning_steps": []}, "auto", "reasoning_steps: has no steps"),
        (OMEGA | {"reasoning_steps": [{"solution_prefix": "x", "mc_value": "1"}]}, "auto", r"\[0\].mc_value: must be"),
        (OMEGA_TREE | {"reasoning_steps": {"text": "a", "children": 3}}, "auto", "children: must be a list"),
        (GOOD, "prmbench", "modified_process: is missing, a list is needed"),
        (PRMBENCH | {"error_steps": ["2"]}, "auto", "error_steps: must be a list of 1-based step numbers"),
        (PRMBENCH | {"modified_process": ["a", " "]}, "auto", r"modified_process\[1\]: is empty"),
        (PRMBENCH, "genprm", "steps: is missing"),
    ],
)
def test_a_row_that_misses_its_format_names_its_own_field(row: dict[str, Any], format: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_record(row, format=format)


@needs_data
@pytest.mark.parametrize("name", ["prm800k", "math-shepherd", "math-aps", "math-aps-tree"])
def test_upstream_samples_are_read_whole(name: str) -> None:
    path = DATA / "formats" / f"{name}.jsonl"
    with path.open(encoding="utf-8") as file:
        count = sum(1 for _ in file)
    assert len(solutions(read_solutions(path))) == count


@needs_data
@pytest.mark.parametrize("name", ["gsm8k", "math", "olympiadbench", "omnimath"])
def test_processbench_files_are_read_as_they_are(name: str) -> None:
    path = DATA / "eval" / "processbench" / f"{name}.jsonl"
    found = solutions(read_solutions(path))
    with path.open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    assert [(s.id, list(s.steps), s.label) for s in found] == [(r["id"], r["steps"], r["label"]) for r in rows]


@needs_data
def test_prmbench_is_read_but_for_its_three_rows_with_an_empty_step() -> None:
    found = list(read_solutions(DATA / "eval" / "prmbench.jsonl"))
    bad = [item for item in found if isinstance(item, Rejected)]
    assert len(found) == 3036
    assert [item.message for item in bad] == ["is empty"] * 3
