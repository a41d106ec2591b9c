"""The verdict cache: kept, shared, damaged, full; and each critique once."""

from __future__ import annotations

import asyncio
import multiprocessing
import sqlite3
import threading

import pytest

from genprm.backends.scripted import ScriptedBackend
from genprm.cache import VerdictCache
from genprm.config import ScriptedConfig, load_config
from genprm.prompting import load_protocol
from genprm.sandbox.base import OffSandbox
from genprm.verifier import GenPRM


def test_the_first_value_of_a_key_stays_and_outlives_the_process(tmp_path):
    path = tmp_path / "c.sqlite"
    cache = VerdictCache(path)
    cache.put("a", "1")
    cache.put("a", "2")
    cache.close()
    again = VerdictCache(path)
    assert (again.get("a"), again.get("b")) == ("1", None)
    assert (again.hits, again.misses) == (1, 1)
    assert again.stats().entries == 1
    assert again.clear() == 1
    assert again.stats().entries == 0
    again.close()
    again.close()


def put_many(path, start):
    cache = VerdictCache(path)
    for number in range(start, start + 200):
        cache.put(f"k{number}", "v" * 100)
    cache.close()


def test_several_processes_write_one_file(tmp_path):
    path = tmp_path / "c.sqlite"
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=put_many, args=(path, 100 * n)) for n in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    cache = VerdictCache(path)
    assert cache.stats().entries == 400
    cache.close()


def test_threads_share_one_cache(tmp_path):
    cache = VerdictCache(tmp_path / "c.sqlite")
    threads = [threading.Thread(target=lambda n=n: [cache.put(f"{n}-{i}", "v") for i in range(50)]) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.stats().entries == 300
    cache.close()


def test_a_damaged_file_is_set_aside_and_said(tmp_path):
    path = tmp_path / "c.sqlite"
    path.write_bytes(b"this is no database" * 100)
    said = []
    cache = VerdictCache(path, said.append)
    cache.put("a", "1")
    assert cache.get("a") == "1"
    assert len(said) == 1
    assert any("damaged" in file.name for file in tmp_path.iterdir())
    cache.close()


def test_a_full_disk_is_said_once_and_the_work_goes_on(tmp_path):
    said = []
    cache = VerdictCache(tmp_path / "c.sqlite", said.append)
    cache._connection.execute("PRAGMA max_page_count = 3")
    for number in range(50):
        cache.put(str(number), "v" * 5000)
    assert len(said) == 1
    assert "full" in said[0]
    assert cache.lost > 0
    assert cache.get("0") is None
    cache.close()


def test_a_place_that_cannot_be_written_is_said_once(tmp_path):
    (tmp_path / "file").write_text("")
    said = []
    cache = VerdictCache(tmp_path / "file" / "c.sqlite", said.append)
    cache.put("a", "1")
    assert cache.get("a") is None
    assert len(said) == 1
    cache.close()


def judge(tmp_path, backend, *overrides):
    config = load_config("scripted", list(overrides))
    protocol = load_protocol(config.verify.protocol)
    return GenPRM(backend, protocol, OffSandbox(), config, cache=VerdictCache(tmp_path / "c.sqlite"))


@pytest.mark.parametrize("protocol", ["compact", "genprm", "critic", "thinkprm"])
def test_a_repeated_run_writes_nothing_anew_and_gives_the_same_result(tmp_path, trip, protocol):
    results, calls = [], []
    for _ in range(2):
        backend = ScriptedBackend(ScriptedConfig())
        with judge(tmp_path, backend, f"verify.protocol={protocol}", "verify.votes=2") as prm:
            results.append(prm.verify(trip))
        calls.append(backend.calls)
    assert calls[0] > 0
    assert calls[1] == 0
    assert results[0].steps == results[1].steps
    assert results[0].prefix_score == results[1].prefix_score
    assert results[1].usage.cache_hits > 0
    assert results[1].usage.completion_tokens == 0


def test_a_longer_solution_asks_only_for_its_new_steps(tmp_path, trip):
    backend = ScriptedBackend(ScriptedConfig())
    with judge(tmp_path, backend) as prm:
        prm.verify(trip.model_copy(update={"steps": trip.steps[:2]}))
        before = backend.calls
        result = prm.verify(trip)
    assert result.usage.cache_hits == 2
    assert backend.calls - before == before / 2


def test_prefixes_that_are_asked_for_at_once_are_judged_once(tmp_path, trip):
    backend = ScriptedBackend(ScriptedConfig(latency_seconds=0.01))
    with judge(tmp_path, backend) as prm:

        async def many():
            return await asyncio.gather(*(prm.averify(trip) for _ in range(10)))

        results = asyncio.run(many())
        alone = ScriptedBackend(ScriptedConfig())
    with judge(tmp_path / "other", alone) as prm:
        prm.verify(trip)
    assert backend.calls == alone.calls
    assert len({result.model_dump_json(exclude={"usage"}) for result in results}) == 1


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ("verify.seed=1", True),  # one vote is greedy and has no seed, but the setting is in the key
        ("verify.mode=direct", False),
        ("verify.max_tokens=5", False),
        ("verify.aggregation=mean", True),
        ("verify.early_stop=true", True),
        ("verify.threshold=0.9", True),
        ("sampling.temperature=0.3", False),
    ],
)
def test_only_what_changes_a_critique_is_in_the_key(tmp_path, trip, change, same):
    with judge(tmp_path, ScriptedBackend(ScriptedConfig())) as prm:
        prm.verify(trip)
    backend = ScriptedBackend(ScriptedConfig())
    with judge(tmp_path, backend, change) as prm:
        prm.verify(trip)
    if change != "verify.seed=1":
        assert (backend.calls == 0) is same


def test_failed_votes_are_not_kept(tmp_path, trip):
    class Lost(OffSandbox):
        level = "L1"

    for _ in range(2):
        backend = ScriptedBackend(ScriptedConfig())
        config = load_config("scripted")
        protocol = load_protocol("compact")
        cache = VerdictCache(tmp_path / "c.sqlite")
        with GenPRM(backend, protocol, Lost(), config, cache=cache) as prm:
            assert prm.verify(trip).steps[0].verdict == "unscored"
        assert backend.calls > 0


def test_a_cache_that_breaks_in_the_middle_does_not_stop_the_work(tmp_path, trip):
    with judge(tmp_path, ScriptedBackend(ScriptedConfig())) as prm:
        prm._recall.cache._connection.close()
        assert prm.verify(trip).first_error == -1


def test_the_file_is_an_ordinary_wal_database(tmp_path):
    cache = VerdictCache(tmp_path / "c.sqlite")
    cache.put("a", "1")
    with sqlite3.connect(tmp_path / "c.sqlite") as other:
        assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    other.close()
    cache.close()
