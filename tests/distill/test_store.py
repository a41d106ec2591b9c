"""A stage's folder: nothing lost, nothing doubled, nothing half-written, whenever the run dies."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from genprm.distill.store import Store, lock_run, natural, read_manifest, row_seed
from hypothesis import given, settings
from hypothesis import strategies as st

from genprm.errors import UsageError

IDS = [f"p{number}/{k}" for number in range(4) for k in range(2)]


def row(identity):
    return {"id": identity, "text": f"é of {identity}\nand a line"}


def work(folder, *, die_after=None):
    """What a stage does: asks for every row in order, adds or refuses those that are wanted."""
    store = Store(folder, {"settings": {}})
    done = 0
    for identity in IDS:
        if store.wants(identity):
            if done == die_after:
                store._rows.close()  # neither synced nor finished
                store._rejections.close()
                return
            done += 1
            if identity.endswith("3/1"):
                store.reject(identity, "no good")
            else:
                store.add(row(identity))
    store.finish()
    store.close()


def content(folder):
    return {name: (folder / name).read_bytes() for name in ("rows.jsonl", "rejected.jsonl")}


@given(cuts=st.lists(st.tuples(st.integers(0, len(IDS)), st.integers(0, 10_000)), max_size=4))
@settings(max_examples=25, deadline=None)
def test_a_run_that_died_anywhere_ends_with_the_bytes_of_one_that_did_not(cuts, tmp_path_factory):
    """Each death comes after some rows, and takes with it any number of bytes that were still on their way."""
    whole, killed = tmp_path_factory.mktemp("whole"), tmp_path_factory.mktemp("killed")
    work(whole)
    for rows, lost in cuts:
        work(killed, die_after=rows)
        path = killed / "rows.jsonl"
        data = path.read_bytes()
        path.write_bytes(data[: len(data) - min(lost, len(data))])
    work(killed)
    assert content(killed) == content(whole)


@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_every_whole_line_before_a_torn_one_is_held_and_the_torn_one_is_not(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("torn")
    work(folder)
    path = folder / "rows.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    end = data.draw(st.integers(0, sum(map(len, lines))))
    path.write_bytes(b"".join(lines)[:end])
    whole = [line for at, line in enumerate(lines) if sum(map(len, lines[: at + 1])) <= end]
    with Store(folder) as store:
        assert [json.dumps(item) for item in store.rows()] == [json.dumps(json.loads(line)) for line in whole]
        assert store.ids == tuple(json.loads(line)["id"] for line in whole)


@pytest.mark.parametrize("tail", [b"{", b'{"id": "x"}', b"\0\0\0\0", b"\0\0\n", b'{"no": "id"}\n'])
def test_a_last_line_that_is_no_row_is_cut_off(tmp_path, tail):
    with Store(tmp_path) as store:
        store.add(row("a"))
    path = tmp_path / "rows.jsonl"
    path.write_bytes(path.read_bytes() + tail)
    with Store(tmp_path) as store:
        assert store.ids == ("a",)
        store.add(row("b"))
    assert [json.loads(line)["id"] for line in path.read_text().splitlines()] == ["a", "b"]


@pytest.mark.parametrize("name", ["rows.jsonl", "rejected.jsonl"])
def test_a_broken_line_in_the_middle_is_refused_and_left_alone(tmp_path, name):
    text = '{"id": "a"}\ndear diary\n{"id": "b"}\n'
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=rf"{name}:2: .*nothing was changed"):
        Store(tmp_path)
    assert (tmp_path / name).read_text() == text


def test_an_id_is_held_once_over_rows_and_rejected_rows(tmp_path):
    with Store(tmp_path) as store:
        store.add(row("a"))
        store.reject("b", "why")
        for identity in ("a", "b"):
            assert identity in store
            with pytest.raises(UsageError, match=f"'{identity}' twice"):
                store.add(row(identity))
            with pytest.raises(UsageError, match=f"'{identity}' twice"):
                store.reject(identity, "why")
    (tmp_path / "rejected.jsonl").write_text('{"id": "a", "reason": "why"}\n')
    with pytest.raises(UsageError, match="'a' twice"):
        Store(tmp_path)


def test_rows_end_in_the_order_in_which_they_were_asked_for_not_in_which_they_came(tmp_path):
    with Store(tmp_path) as store:
        for identity in ("z", "a", "m"):
            assert store.wants(identity)
        for identity in ("a/10", "a/9#2", "a/9", "new", "z", "m/0"):
            store.add(row(identity))
        store.finish()
    names = [json.loads(line)["id"] for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert names == ["z", "a/9", "a/9#2", "a/10", "m/0", "new"]


def test_the_manifest_counts_rows_reasons_and_the_seconds_of_all_tries(tmp_path):
    with Store(tmp_path, {"stage": "label"}) as store:
        store.reject("a", "too long")
        store.reject("b", "too long", length=9)
        store.add(row("c"))
    first = read_manifest(tmp_path)
    assert first["status"] == "running"
    assert first["counts"] == {"out": 1, "rejected": 2}
    assert first["reasons"] == {"too long": 2}
    (tmp_path / "manifest.json").write_text(json.dumps({**first, "seconds": 100.0}))
    with Store(tmp_path, {"stage": "something else"}) as store:
        store.finish()
    last = read_manifest(tmp_path)
    assert (last["status"], last["stage"]) == ("done", "label")
    assert last["seconds"] >= 100.0


def test_a_manifest_that_is_none_is_refused(tmp_path):
    (tmp_path / "manifest.json").write_text("[]")
    with pytest.raises(UsageError, match="is no manifest"):
        Store(tmp_path)


def test_a_reset_store_is_empty(tmp_path):
    with Store(tmp_path) as store:
        store.add(row("a"))
        store.reject("b", "why")
        store.reset()
        assert (len(store), dict(store.reasons), list(store.rows())) == (0, {}, [])
        store.add(row("b"))
    assert (tmp_path / "rejected.jsonl").read_bytes() == b""


def test_a_second_run_of_the_same_folder_is_refused_and_a_dead_one_lets_go_of_it(tmp_path):
    code = (
        "import sys, pathlib; from genprm.distill.store import lock_run\n"
        f"with lock_run(pathlib.Path({str(tmp_path)!r})): print('held', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(UsageError, match="is being written by another"), lock_run(tmp_path):
            pass
        other.kill()
        other.wait()
        with lock_run(tmp_path):
            pass


def test_seeds_hang_on_the_row_and_the_draw_and_on_nothing_else():
    assert row_seed(0, "p1/0", 3) == row_seed(0, "p1/0", 3)
    assert len({row_seed(seed, name, draw) for seed in (0, 1) for name in ("a", "b") for draw in range(50)}) == 200
    assert all(0 <= row_seed(seed, "x") < 2**31 for seed in range(100))


@given(st.lists(st.text(alphabet="p19/#²", max_size=6)))
def test_any_ids_can_be_sorted(names):
    ordered = sorted(names, key=natural)
    assert sorted(ordered) == sorted(names)
    assert natural("p9") < natural("p10")
