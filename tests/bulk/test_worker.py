"""What a worker does with a chunk, and what the ledger knows of it, without a cluster."""

from __future__ import annotations

import asyncio
import threading

import pytest

from genprm.bulk.chunks import Outcome, dump_rows, error_of, load_rows
from genprm.bulk.gate import Gate
from genprm.bulk.ledger import Ledger
from genprm.bulk.stream import judge_stream
from genprm.bulk.worker import ChunkJudge
from genprm.config import load_config
from genprm.errors import BackendUnavailable, ConfigError, UsageError
from genprm.types import Solution, VerificationResult

from .watched import bare, solutions, watched_load


def config(*overrides):
    return load_config("scripted", ["sandbox.kind=off", "ray.max_attempts=2", *overrides])


def judge_with(ledger, tmp_path, *overrides):
    def call(name, *arguments):
        return asyncio.run(getattr(ledger, name)(*arguments))

    return ChunkJudge(config(*overrides), watched_load(tmp_path), call)


def opened(*chunks):
    ledger = Ledger(window=10)

    async def fill():
        for chunk in chunks:
            await ledger.put(dump_rows(chunk))

    asyncio.run(fill())
    return ledger


def ids(outcome):
    return [VerificationResult.model_validate_json(result).id for result in outcome.results]


def lines(path):
    return path.read_text().splitlines() if path.exists() else []


def bad(kind):
    return Solution(id=f"{kind}-1", problem="p", steps=("1 + 1 = 2",))


def test_a_chunk_survives_the_way_to_a_worker():
    rows = [*solutions(3), Solution(id="é", problem="a\nb\u2028", steps=("x",), meta={"k": [1, None]})]
    assert load_rows(dump_rows(rows)) == rows


def test_an_outcome_survives_the_way_back():
    outcome = Outcome((b"{}",), (), ("ConfigError", "no"))
    assert Outcome.load(outcome.dump()) == outcome


@pytest.mark.parametrize(
    ("name", "kind"), [("ConfigError", ConfigError), ("BackendUnavailable", BackendUnavailable), ("Odd", UsageError)]
)
def test_a_workers_error_keeps_its_kind(name, kind):
    error = error_of(name, "why")
    assert isinstance(error, kind)
    assert str(error) == "why"


@pytest.mark.parametrize("kind", ["raises", "breaks"])
def test_a_row_that_fails_is_given_up_after_so_many_attempts_and_the_others_are_judged(tmp_path, kind):
    rows = [*solutions(4), bad(kind)]
    ledger = opened(rows)
    outcome = judge_with(ledger, tmp_path).judge(0, rows)
    assert ids(outcome) == ["0", "1", "2", "3"]
    ((failed,), fatal) = outcome.failed, outcome.fatal
    assert (failed.id, failed.attempts, fatal) == (f"{kind}-1", 2, None)
    assert ("cannot take" if kind == "raises" else "engine is dead") in failed.reason


def test_an_engine_that_failed_is_made_anew(tmp_path):
    rows = [bad("breaks"), *solutions(1)]
    judge_with(opened(rows), tmp_path).judge(0, rows)
    assert len(lines(tmp_path / "loads")) == 3  # at first, and after each of two failures


def test_an_engine_that_fails_over_every_row_ends_the_run(tmp_path):
    rows = [Solution(id=f"breaks-{n}", problem="p", steps=("s",)) for n in range(5)]
    outcome = judge_with(opened(rows), tmp_path).judge(0, rows)
    assert outcome.fatal == ("BackendUnavailable", "the engine is dead")


def test_rows_that_an_earlier_worker_finished_are_not_judged_again(tmp_path):
    rows = solutions(3)
    ledger = opened(rows)
    asyncio.run(ledger.begin(0))
    asyncio.run(ledger.keep(0, 1, next(judge_stream(rows[1:2], config())).model_dump_json().encode()))
    outcome = judge_with(ledger, tmp_path).judge(0, rows)
    assert ids(outcome) == ["0", "1", "2"]
    assert lines(tmp_path / "judged") == ["0", "2"]


def test_a_row_over_which_workers_ended_is_given_up(tmp_path):
    rows = [*solutions(2), bad("poison")]
    ledger = opened(rows)
    asyncio.run(ledger.begin(0))
    for _ in range(2):
        asyncio.run(ledger.charge(0, 2))
    outcome = judge_with(ledger, tmp_path).judge(0, rows)
    assert ids(outcome) == ["0", "1"]
    assert [(row.id, row.reason) for row in outcome.failed] == [("poison-1", "the process that judged it ended")]


def test_a_chunk_that_the_driver_has_is_not_judged_again(tmp_path):
    rows = solutions(2)
    ledger = opened(rows)
    asyncio.run(ledger.finish(0))
    assert judge_with(ledger, tmp_path).judge(0, rows) == Outcome()
    assert lines(tmp_path / "judged") == []


def test_the_ledger_takes_in_no_more_than_its_window_and_gives_chunks_in_order():
    async def scene():
        ledger = Ledger(window=2)
        assert [await ledger.put(b"a"), await ledger.put(b"b")] == [0, 1]
        third = asyncio.ensure_future(ledger.put(b"c"))
        await asyncio.sleep(0)
        assert not third.done()
        await ledger.finish(0)
        assert await third == 2
        assert [await ledger.get(n) for n in range(3)] == [b"", b"b", b"c"]
        await ledger.close()
        assert await ledger.get(3) is None
        assert await ledger.state() == (3, 2)

    asyncio.run(scene())


def test_who_is_alone_at_the_gate_is_alone():
    gate, inside, worst = Gate(), [], []

    def share():
        with gate.shared():
            inside.append("shared")
            worst.append(tuple(inside))
            inside.remove("shared")

    def alone():
        with gate.alone():
            inside.append("alone")
            worst.append(tuple(inside))
            inside.remove("alone")

    threads = [threading.Thread(target=alone if n % 4 == 0 else share) for n in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(worst) == 40
    assert all(state == ("alone",) for state in worst if "alone" in state)


def test_the_local_stream_gives_what_the_verifier_gives():
    rows = solutions(5)
    found = sorted(judge_stream(rows, config()), key=lambda result: int(result.id))
    assert [result.first_error for result in found] == [-1] * 5  # with the sandbox off no code tells
    assert [bare(result)["id"] for result in found] == [row.id for row in rows]
