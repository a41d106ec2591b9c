"""Result files: resumed, healed, locked, never mixed."""

from __future__ import annotations

import json

import pytest

from genprm.errors import InputError, UsageError
from genprm.output import ResultFile
from genprm.types import ProtocolRef, Solution, VerificationResult

KEYS = {"model": "m", "protocol_sha256": "p", "config_sha256": "c"}


def result(identity: str, problem: str = "q", first_error: int | None = -1) -> VerificationResult:
    return VerificationResult(
        id=identity,
        problem=problem,
        steps=(),
        first_error=first_error,
        reward=None,
        aggregation="min",
        model="m",
        protocol=ProtocolRef(name="x", sha256="p"),
        config_sha256="c",
        sandbox="off",
    )


def ids(path):
    return [json.loads(line)["id"] for line in path.read_text().splitlines()]


def test_a_file_goes_on_where_it_ended(tmp_path):
    path = tmp_path / "out.jsonl"
    with ResultFile(path, **KEYS) as file:
        file.add(result("a", first_error=2))
    with ResultFile(path, **KEYS) as file:
        assert file.holds(Solution(id="a", problem="q", steps=("s",)))
        assert not file.holds(Solution(id="b", problem="q", steps=("s",)))
        assert file.errors == 1
        file.add(result("b"))
    assert ids(path) == ["a", "b"]


@pytest.mark.parametrize("tail", [b'{"id": "b", "prob', b"{", b'{"id":"b"}'])
def test_a_half_written_last_line_is_removed(tmp_path, tail):
    path = tmp_path / "out.jsonl"
    with ResultFile(path, **KEYS) as file:
        file.add(result("a"))
    path.write_bytes(path.read_bytes() + tail)
    with ResultFile(path, **KEYS) as file:
        file.add(result("b"))
    assert ids(path) == ["a", "b"]


@pytest.mark.parametrize(
    ("key", "said"), [("model", "model"), ("protocol_sha256", "protocol"), ("config_sha256", "config")]
)
def test_results_of_other_settings_are_not_mixed_in(tmp_path, key, said):
    path = tmp_path / "out.jsonl"
    with ResultFile(path, **KEYS) as file:
        file.add(result("a"))
    before = path.read_bytes()
    with pytest.raises(UsageError, match=said):
        ResultFile(path, **{**KEYS, key: "other"})
    assert path.read_bytes() == before


def test_a_file_that_holds_something_else_is_left_alone(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("dear diary\n")
    with pytest.raises(UsageError, match="nothing was changed"):
        ResultFile(path, **KEYS)
    assert path.read_text() == "dear diary\n"


def test_the_same_id_with_another_problem_is_an_input_error(tmp_path):
    with ResultFile(tmp_path / "out.jsonl", **KEYS) as file:
        file.add(result("a"))
        with pytest.raises(InputError, match="another problem"):
            file.holds(Solution(id="a", problem="other", steps=("s",)))


def test_two_writers_are_refused(tmp_path):
    with ResultFile(tmp_path / "out.jsonl", **KEYS), pytest.raises(UsageError, match="another process"):
        ResultFile(tmp_path / "out.jsonl", **KEYS)
    ResultFile(tmp_path / "out.jsonl", **KEYS).close()


def test_a_place_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        ResultFile(tmp_path / "file" / "out.jsonl", **KEYS)


def test_a_missing_folder_is_made(tmp_path):
    with ResultFile(tmp_path / "new" / "folder" / "out.jsonl", **KEYS) as file:
        file.add(result("a"))
    assert ids(tmp_path / "new" / "folder" / "out.jsonl") == ["a"]
