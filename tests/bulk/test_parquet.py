"""Parquet in and out, and rows from other places than a local file."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from typer.testing import CliRunner

from genprm.bulk.parquet import ParquetFolder, is_folder_of_parquet
from genprm.bulk.stream import judge_stream
from genprm.cli.main import app
from genprm.config import load_config
from genprm.digests import DigestMap
from genprm.errors import InputError, UnavailableError, UsageError
from genprm.records import Rejected, read_solutions, render_record
from genprm.types import Solution

from .watched import bare, solutions

CONFIG = load_config("scripted", ["sandbox.kind=off"])


@pytest.fixture(scope="module")
def results():
    return sorted(judge_stream(solutions(10), CONFIG), key=lambda result: int(result.id))


def folder(path, *, rows=4, sha256=None):
    return ParquetFolder(str(path), rows=rows, config_sha256=sha256 or CONFIG.digest())


def parts(path):
    return sorted(path.glob("*.parquet"))


def test_results_come_back_as_they_went_in(tmp_path, results):
    with folder(tmp_path / "out.parquet") as out:
        for result in results:
            out.add(result)
    assert len(parts(tmp_path / "out.parquet")) == 3
    with folder(tmp_path / "out.parquet") as again:
        assert all(again.holds(row) for row in solutions(10))
        assert sorted(map(str, map(bare, again.results()))) == sorted(map(str, map(bare, results)))


def test_a_killed_run_leaves_whole_files_only(tmp_path, results):
    out = folder(tmp_path / "out.parquet")
    for result in results[:6]:
        out.add(result)
    out._closing.close()  # what a killed process does not do is write the two that wait
    with folder(tmp_path / "out.parquet") as again:
        held = [row.id for row in solutions(10) if again.holds(row)]
        assert held == ["0", "1", "2", "3"]
        for result in results[4:]:
            again.add(result)
    with folder(tmp_path / "out.parquet") as whole:
        assert Counter(result.id for result in whole.results()) == Counter(str(n) for n in range(10))


def test_a_file_that_cannot_be_written_leaves_nothing_and_says_so(tmp_path, results, monkeypatch):
    import pyarrow.parquet

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    out = folder(tmp_path / "out.parquet", rows=2)
    out.add(results[0])
    monkeypatch.setattr(pyarrow.parquet, "write_table", full)
    with pytest.raises(UnavailableError, match="No space left"):
        out.add(results[1])
    monkeypatch.undo()
    out.close()
    assert [path.name for path in (tmp_path / "out.parquet").iterdir() if path.name != ".lock"] == []


def test_results_of_other_settings_are_not_mixed_in(tmp_path, results):
    with folder(tmp_path / "out.parquet", rows=1) as out:
        out.add(results[0])
    with pytest.raises(UsageError, match="another config_sha256"):
        folder(tmp_path / "out.parquet", sha256="other")


def test_two_writers_of_a_folder_are_refused(tmp_path):
    with folder(tmp_path / "out.parquet"), pytest.raises(UsageError, match="another process"):
        folder(tmp_path / "out.parquet")


def test_another_problem_under_an_id_is_refused(tmp_path, results):
    with folder(tmp_path / "out.parquet") as out:
        out.add(results[0])
        with pytest.raises(InputError, match="another problem"):
            out.holds(Solution(id="0", problem="other", steps=("s",)))


def test_object_storage_is_read_and_written(results):
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.pipe("/bulk/in.jsonl", "".join(render_record(row) + "\n" for row in solutions(3)).encode())
    assert list(read_solutions("memory://bulk/in.jsonl")) == solutions(3)
    with folder("memory://bulk/out.parquet", rows=2) as out:
        for result in results[:3]:
            out.add(result)
    with folder("memory://bulk/out.parquet") as again:
        assert sum(1 for _ in again.results()) == 3


def test_an_unknown_scheme_is_one_line():
    with pytest.raises(InputError, match=r"nowhere://bucket/rows\.jsonl: cannot be read"):
        list(read_solutions("nowhere://bucket/rows.jsonl"))


def test_parquet_rows_are_read_like_json_rows(tmp_path):
    import pyarrow
    import pyarrow.parquet

    rows = [json.loads(render_record(row)) for row in solutions(3)] + [{"id": "bad", "problem": "p", "steps": []}]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "in.parquet")
    *good, bad = read_solutions(tmp_path / "in.parquet")
    assert good == solutions(3)
    assert isinstance(bad, Rejected)
    assert (bad.line, bad.field) == (4, "steps")


@pytest.mark.parametrize("content", [b"", b"not parquet"])
def test_a_broken_parquet_file_is_one_line(tmp_path, content):
    (tmp_path / "in.parquet").write_bytes(content)
    with pytest.raises(InputError, match="no Parquet file"):
        list(read_solutions(tmp_path / "in.parquet"))


def test_both_outputs_can_be_read_by_datasets(tmp_path):
    from datasets import load_dataset

    source = tmp_path / "in.jsonl"
    source.write_text("".join(render_record(row) + "\n" for row in solutions(6)))
    for name in ("out.jsonl", "out.parquet"):
        options = ["--config", "scripted", "--set", "sandbox.kind=off", "--set", "ray.batch_size=2", "--json"]
        done = CliRunner().invoke(app, ["verify", str(source), *options, "-o", str(tmp_path / name)])
        assert done.exit_code == 0, done.output
    cache = str(tmp_path / "cache")
    lines = load_dataset("json", data_files=str(tmp_path / "out.jsonl"), cache_dir=cache, split="train")
    table = load_dataset("parquet", data_files=str(tmp_path / "out.parquet/*.parquet"), cache_dir=cache, split="train")
    assert sorted(lines["id"]) == sorted(table["id"]) == [str(n) for n in range(6)]
    assert {row["id"]: row["step_rewards"] for row in table} == {
        row["id"]: [step["reward"] for step in row["steps"]] for row in lines
    }


def test_shards_share_out_the_records(tmp_path):
    source = tmp_path / "in.jsonl"
    source.write_text("".join(render_record(row) + "\n" for row in solutions(7)))
    seen = []
    for part in range(3):
        options = ["--config", "scripted", "--set", "sandbox.kind=off", "--json", "--shard", f"{part}/3"]
        done = CliRunner().invoke(app, ["verify", str(source), *options])
        assert done.exit_code == 0, done.output
        seen += [json.loads(line)["id"] for line in done.stdout.splitlines()]
    assert sorted(seen) == [str(n) for n in range(7)]


@pytest.mark.parametrize(
    ("name", "folder"), [("a.parquet", True), ("s3://b/a.parquet/", True), ("a.jsonl", False), ("parquet", False)]
)
def test_a_folder_is_told_by_its_name(name, folder):
    assert is_folder_of_parquet(name) is folder


def test_a_digest_map_is_a_map_however_many_entries_it_has():
    entries = DigestMap()
    for number in range(20_000):
        entries[f"id {number}"] = number
    entries["id 7"] = 2**64 - 1
    assert len(entries) == 20_000
    assert (entries.get("id 19999"), entries.get("id 7"), entries.get("id 20000")) == (19_999, 2**64 - 1, None)
    assert "id 3" in entries
    assert "x" not in entries
