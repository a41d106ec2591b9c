"""The cost model: arithmetic that can be checked by hand, and held against a simulated run."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from genprm.bulk.cost import Engine, Limits, Work, estimate, seconds_a_solution, seconds_of_calls
from genprm.config import load_config
from genprm.verifier import GenPRM

WORK = Work(steps=8, votes=4, critique_tokens=500, prompt_tokens=1000, cached_share=0.5, result_bytes=1000)
ENGINE = Engine(generated_per_second=2000, prompt_per_second=20_000, gpus=2)


def test_a_solution_takes_the_time_of_its_tokens():
    assert WORK.critiques == 16
    assert seconds_a_solution(WORK, ENGINE) == pytest.approx(16 * 500 / 2000 + 16 * 1000 / 20_000)


def test_gpu_hours_count_every_gpu_and_do_not_depend_on_the_number_of_workers():
    one, many = (estimate(10**6, WORK, ENGINE, workers=workers) for workers in (1, 100))
    assert one.gpu_hours == many.gpu_hours == pytest.approx(10**6 * 4.8 * 2 / 3600)
    assert one.days == pytest.approx(100 * many.days)


@pytest.mark.parametrize(
    ("workers", "limits", "bottleneck"),
    [
        (10, Limits(), "engines"),
        (100_000, Limits(), "driver"),
        (100_000, Limits(rows_per_second=1e9, bytes_per_second=1e6), "output"),
    ],
)
def test_the_slowest_part_bounds_the_run(workers, limits, bottleneck):
    found = estimate(10**9, WORK, ENGINE, workers=workers, limits=limits)
    assert found.bottleneck == bottleneck
    assert found.days == max(found.details.values())
    assert (workers <= found.workers_useful) == (bottleneck == "engines")


def test_more_drivers_make_room_for_more_workers():
    one, eight = (estimate(10**9, WORK, ENGINE, limits=Limits(drivers=drivers)) for drivers in (1, 8))
    assert eight.workers_useful == pytest.approx(8 * one.workers_useful, rel=0.01)


@pytest.mark.parametrize("solutions", [0, -1])
def test_a_number_that_must_be_positive_is_refused(solutions):
    with pytest.raises(ValueError, match="positive"):
        estimate(solutions, WORK, ENGINE)


@pytest.mark.parametrize("in_flight", [1, 4])
def test_a_simulated_run_takes_the_calls_and_no_less_than_the_time_that_are_predicted(in_flight):
    """The calls are counted exactly; a loaded machine only adds to the time."""
    from genprm.backends.scripted import ScriptedBackend
    from genprm.prompting import load_protocol
    from genprm.sandbox.base import OffSandbox

    from .watched import solutions

    latency, count, steps = 0.02, 8, 2
    options = ["verify.mode=direct", f"scripted.latency_seconds={latency}", f"backend.max_in_flight={in_flight}"]
    config = load_config("scripted", options)
    backend = ScriptedBackend(config.scripted)
    start = time.perf_counter()
    with GenPRM(backend, load_protocol(config.verify.protocol), OffSandbox(), config) as verifier:
        found = list(verifier.verify_many(solutions(count, steps=steps)))
    seconds = time.perf_counter() - start
    assert len(found) == count
    assert backend.calls == count * steps  # a direct judgement is one label read
    predicted = seconds_of_calls(count, calls=steps, latency=latency, in_flight=in_flight)
    assert predicted == pytest.approx(count * steps * latency / in_flight)
    assert seconds >= 0.98 * predicted


def test_the_prediction_is_near_on_a_clock_that_only_waiting_moves():
    """The same scheduler in virtual time, where computing costs nothing: the prediction holds to a few percent."""
    import asyncio

    from genprm.backends.scripted import ScriptedBackend
    from genprm.prompting import load_protocol
    from genprm.sandbox.base import OffSandbox

    from .watched import solutions

    class VirtualTime(asyncio.SelectorEventLoop):
        now = 0.0

        def time(self):
            return self.now

        def _run_once(self):
            if not self._ready and self._scheduled:
                self.now = max(self.now, self._scheduled[0]._when)
            super()._run_once()

    config = load_config(
        "scripted", ["verify.mode=direct", "scripted.latency_seconds=0.5", "backend.max_in_flight=8", "verify.votes=2"]
    )
    verifier = GenPRM(ScriptedBackend(config.scripted), load_protocol("compact"), OffSandbox(), config)

    async def run():
        return [result async for result in verifier.astream(solutions(200, steps=2))]

    loop = VirtualTime()
    try:
        assert len(loop.run_until_complete(run())) == 200
        calls = verifier.backend.calls / 200
        predicted = seconds_of_calls(200, calls=calls, latency=0.5, in_flight=8)
        assert loop.now == pytest.approx(predicted, rel=0.05)
    finally:
        loop.close()
        verifier.close()


def test_the_command_prints_an_estimate_for_each_number_of_solutions():
    command = [sys.executable, "-m", "genprm.cli", "bench", "cost", "--json", "--workers", "16"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    million, billion = [json.loads(line) for line in done.stdout.splitlines()]
    assert (million["solutions"], billion["solutions"]) == (10**6, 10**9)
    assert billion["gpu_hours"] == pytest.approx(1000 * million["gpu_hours"])
    assert million["gpu_hours"] == pytest.approx(10**6 * (8 * 400 / 2500 + 8 * 1000 / 25_000) / 3600)
