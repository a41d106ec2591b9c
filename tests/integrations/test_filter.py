"""`genprm filter`: which rows are written, with what, and that none is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from genprm.errors import InputError, UsageError
from genprm.integrations.filter import Selection, judge_rows, write_filtered
from genprm.integrations.rewards import Rewards
from genprm.integrations.rows import TrainingRow, read_training_rows, write_training_rows
from genprm.records import Rejected
from genprm.types import Solution


def genprm(*words):
    command = [sys.executable, "-m", "genprm.cli", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env={**os.environ})


def row(n, wrong=False, **more):
    return {"id": f"r{n}", "question": f"Add {n}.", "steps": [f"{n} + 1 = {n + 1 + wrong}."], "source": {"n": n}} | more


def write(path, rows):
    path.write_text("".join(json.dumps(item) + "\n" for item in rows))
    return path


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def rows():
    return [row(n, wrong=n % 3 == 0) for n in range(9)]


@pytest.fixture(scope="module")
def annotated(rows, tmp_path_factory):
    folder = tmp_path_factory.mktemp("filter")
    done = genprm("filter", write(folder / "in.jsonl", rows), "-o", folder / "out.jsonl", "--config", "scripted")
    assert done.returncode == 0, done.stderr
    return folder, done


def test_without_a_choice_every_row_is_written_with_its_rewards(rows, annotated):
    folder, done = annotated
    written = read(folder / "out.jsonl")
    assert [{key: value for key, value in item.items() if not key.startswith("genprm_")} for item in written] == rows
    assert [item["genprm_first_error"] for item in written] == [0 if n % 3 == 0 else -1 for n in range(9)]
    assert all(item["genprm_step_rewards"] == [item["genprm_reward"]] for item in written)
    found = json.loads(done.stdout)
    assert {key: found[key] for key in ("rows", "scored", "unscored", "kept", "dropped", "rejected")} == {
        "rows": 9, "scored": 9, "unscored": 0, "kept": 9, "dropped": 0, "rejected": 0,
    }  # fmt: skip


def test_another_choice_judges_nothing_again(annotated, monkeypatch):
    folder, _ = annotated
    results = (folder / "out.jsonl.results.jsonl").read_bytes()
    done = genprm(
        "filter", folder / "in.jsonl", "-o", folder / "out.jsonl", "--config", "scripted", "--min-reward", 0.5,
        "--set", "scripted.latency_seconds=30",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [item["id"] for item in read(folder / "out.jsonl")] == ["r1", "r2", "r4", "r5", "r7", "r8"]
    assert json.loads(done.stdout)["dropped"] == 3
    assert (folder / "out.jsonl.results.jsonl").read_bytes() == results


def test_a_run_that_ended_early_goes_on_where_it_stopped(rows, tmp_path):
    command = ("filter", write(tmp_path / "in.jsonl", rows), "-o", tmp_path / "out.jsonl", "--config", "scripted")
    assert genprm(*command, "--limit", 4).returncode == 0
    kept = (tmp_path / "out.jsonl.results.jsonl").read_text()
    with (tmp_path / "out.jsonl.results.jsonl").open("a") as file:
        file.write('{"schema_version": 1, "id": "r')  # killed in the middle of a line
    assert genprm(*command).returncode == 0
    results = (tmp_path / "out.jsonl.results.jsonl").read_text()
    assert results.startswith(kept)
    assert sorted(json.loads(line)["id"] for line in results.splitlines()) == [item["id"] for item in rows]
    assert len(read(tmp_path / "out.jsonl")) == 9


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (Selection(min_reward=0.5), [(0, {}), (2, {}), (3, {})]),
        (Selection(top_fraction=0.25), [(2, {})]),
        (Selection(top_fraction=0.3), [(0, {}), (2, {})]),
        (Selection(top_fraction=1.0), [(0, {}), (1, {}), (2, {}), (3, {})]),
        (Selection(rank=True), [(2, {"genprm_rank": 1}), (0, {"genprm_rank": 2}), (3, {"genprm_rank": 3}),
                                (1, {"genprm_rank": 4})]),
        (Selection(weights=True), [(0, {"weight": 1.0}), (1, {"weight": 0.4}), (2, {"weight": 1.6}),
                                   (3, {"weight": 1.0})]),
    ],
)  # fmt: skip
def test_rows_are_picked_as_asked(selection, expected):
    assert selection.pick([0.5, 0.2, 0.8, 0.5]) == expected


def test_a_top_fraction_is_not_raised_by_rounding():
    assert len(Selection(top_fraction=0.07).pick([0.5] * 100)) == 7
    assert [place for place, _ in Selection(top_fraction=0.5).pick([0.5] * 3)] == [0, 1]  # of equals the earlier ones


def test_weights_of_worthless_rows_are_refused():
    with pytest.raises(UsageError, match="every row has the reward 0"):
        Selection(weights=True).pick([0.0, 0.0])


@pytest.mark.parametrize(
    "options",
    [
        ("--min-reward", "0.5", "--rank"), ("--min-reward", "1.5"), ("--top-fraction", "0"),
        ("--format", "nonsense"), ("--set", "verify.nonsense=1"),
    ],
)  # fmt: skip
def test_options_that_cannot_be_meant_are_one_line_and_nothing_is_written(options, rows, tmp_path):
    path = write(tmp_path / "in.jsonl", rows)
    done = genprm("filter", path, "-o", tmp_path / "out.jsonl", "--config", "scripted", *options)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out.jsonl").exists()


def test_the_input_is_never_overwritten(rows, tmp_path):
    path = write(tmp_path / "in.jsonl", rows)
    done = genprm("filter", path, "-o", tmp_path / "." / "in.jsonl", "--config", "scripted")
    assert done.returncode == 2
    assert read(path) == rows


def test_unscored_rows_go_to_a_file_of_their_own_with_the_reason(rows, tmp_path):
    long = row(99, steps=["x" * 9000])
    path = write(tmp_path / "in.jsonl", [*rows[:2], long])
    done = genprm(
        "filter", path, "-o", tmp_path / "out.jsonl", "--config", "scripted", "--rank", "--set",
        "backend.max_context=2000",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (lost,) = read(tmp_path / "out.jsonl.unscored.jsonl")
    assert {key: value for key, value in lost.items() if not key.startswith("genprm_")} == long
    assert lost["genprm_reward"] is None
    assert "context" in lost["genprm_unscored_reason"]
    assert json.loads(done.stdout)["unscored"] == 1
    assert "1 rows have no reward" in done.stderr
    assert [item["id"] for item in read(tmp_path / "out.jsonl")] == ["r1", "r0"]


def test_bad_rows_are_said_and_listed_and_the_others_written(rows, tmp_path):
    path = write(tmp_path / "in.jsonl", [rows[0], {"id": "bad", "question": "q"}, rows[1]])
    done = genprm("filter", path, "-o", tmp_path / "out.jsonl", "--config", "scripted")
    assert done.returncode == 2
    assert "in.jsonl:2: steps" in done.stderr
    assert json.loads(done.stdout)["rejected"] == 1
    assert [item["line"] for item in read(tmp_path / "in.jsonl.rejected.jsonl")] == [2]
    assert len(read(tmp_path / "out.jsonl")) == 2


def test_parquet_keeps_its_column_types(rows, tmp_path):
    from datasets import ClassLabel, Dataset, Features, List, Value

    features = Features(
        {"question": Value("string"), "steps": List(Value("string")), "kind": ClassLabel(names=["a", "b"]),
         "small": Value("int8")}
    )  # fmt: skip
    columns = {
        "question": [item["question"] for item in rows], "steps": [item["steps"] for item in rows],
        "kind": [n % 2 for n in range(9)], "small": list(range(9)),
    }  # fmt: skip
    Dataset.from_dict(columns, features=features).to_parquet(str(tmp_path / "in.parquet"))
    done = genprm(
        "filter", tmp_path / "in.parquet", "-o", tmp_path / "out.parquet", "--config", "scripted", "--weights"
    )
    assert done.returncode == 0, done.stderr
    found = Dataset.from_parquet(str(tmp_path / "out.parquet"), cache_dir=str(tmp_path / "cache"))
    assert {name: found.features[name] for name in features} == features
    assert found.features["genprm_step_rewards"] == List(Value("float64"))
    assert list(found["small"]) == list(range(9))
    assert sum(found["weight"]) == pytest.approx(9)
    assert list(found["genprm_first_error"]) == [0 if n % 3 == 0 else -1 for n in range(9)]


def test_json_lines_become_parquet_though_rows_have_different_fields(tmp_path):
    from datasets import Dataset

    path = tmp_path / "out.parquet"
    assert write_training_rows(path, [{"a": 1}, {"a": 2, "b": "x"}]) == 2
    found = Dataset.from_parquet(str(path), cache_dir=str(tmp_path / "cache"))
    assert found.to_list() == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]
    with pytest.raises(UsageError, match="Parquet cannot hold"):
        write_training_rows(path, [{"a": 1}, {"a": {"b": 2}}])
    assert [file.name for file in tmp_path.glob("*.part")] == []


def test_a_json_output_is_one_list(tmp_path):
    write_training_rows(tmp_path / "out.json", [{"a": 1}, {"a": 2}])
    assert json.loads((tmp_path / "out.json").read_text()) == [{"a": 1}, {"a": 2}]
    write_training_rows(tmp_path / "out.json", [])
    assert json.loads((tmp_path / "out.json").read_text()) == []


def test_several_files_of_any_kind_are_read_with_ids_that_differ(tmp_path):
    from datasets import Dataset

    bare = [{"problem": "p", "steps": ["a"]}] * 2
    for name in ("a.jsonl", "b.jsonl"):
        write(tmp_path / name, bare)
    Dataset.from_list(bare).to_parquet(str(tmp_path / "c.parquet"))
    (tmp_path / "d.json").write_text(json.dumps({"problem": "p", "solution": "a\n\nb", "x": 1}))
    paths = [str(tmp_path / name) for name in ("a.jsonl", "c.parquet", "b.jsonl", "d.json")]
    found = list(read_training_rows(paths))
    assert len({item.solution.id for item in found}) == 7
    assert found[-1].raw == {"problem": "p", "solution": "a\n\nb", "x": 1}
    assert [item.solution.id for item in read_training_rows(paths, limit=3)] == [item.solution.id for item in found[:3]]


def test_a_repeated_id_is_rejected(tmp_path):
    from datasets import Dataset

    write(tmp_path / "a.jsonl", [row(1)])
    Dataset.from_list([row(1), row(2), row(2)]).to_parquet(str(tmp_path / "c.parquet"))
    found = list(read_training_rows([str(tmp_path / "a.jsonl"), str(tmp_path / "c.parquet")]))
    assert [isinstance(item, Rejected) for item in found] == [False, True, False, True]


@pytest.mark.parametrize("name", ["missing.parquet", "broken.parquet", "missing.jsonl", "-"])
def test_a_file_that_cannot_be_read_is_an_error(name, tmp_path):
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises((InputError, UsageError)):
        list(read_training_rows([name if name == "-" else str(tmp_path / name)]))


def test_rows_that_were_edited_do_not_get_the_old_rewards(scripted, tmp_path):
    def judge(step):
        solution = Solution(id="a", problem="p", steps=(step,))
        rows = [TrainingRow({}, solution)]
        return judge_rows(rows, scripted, scripted.config, tmp_path / "results.jsonl", lambda: None)

    assert judge("1 + 1 = 2.") == judge("1 + 1 = 2.")
    with pytest.raises(UsageError, match="other steps for the row 'a'"):
        judge("1 + 1 = 3.")


def test_a_field_of_the_rows_own_is_not_overwritten_by_weights(tmp_path):
    rows = [TrainingRow({"weight": 2}, Solution(id="a", problem="p", steps=("s",)))]
    with pytest.raises(UsageError, match="'weight' already"):
        write_filtered(
            tmp_path / "o.jsonl", tmp_path / "u.jsonl", rows, [Rewards((0.5,), {}, 0.5)], Selection(weights=True)
        )


def test_a_list_of_unscored_rows_of_an_earlier_run_does_not_stay(tmp_path):
    rows = [TrainingRow({}, Solution(id="a", problem="p", steps=("s",)))]
    output, unscored = tmp_path / "o.jsonl", tmp_path / "u.jsonl"
    write_filtered(output, unscored, rows, [Rewards((None,), {0: "lost"})], Selection())
    assert read(unscored)[0]["genprm_unscored_reason"] == "step 0: lost"
    assert output.read_text() == ""
    write_filtered(output, unscored, rows, [Rewards((0.5,), {}, 0.5)], Selection())
    assert not unscored.exists()
