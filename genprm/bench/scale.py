"""Figures of bulk runs: two workers beside one on a Ray cluster of two nodes, and the driver's memory over a long run.

The fake engine answers after 50 ms, so what is measured is how well work is spread and what the spreading costs.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..bulk.cluster import import_ray
from ..bulk.stream import Engine, judge_stream
from ..config import Config, load_config
from ..output import ResultFile
from .figure import figure
from .work import solutions

LATENCY = 0.05
STORE = 100 * 2**20
_SKIP = 0.1  # of the results, before timing starts: workers and their engines are up by then


def bench_ray(count: int = 2_000) -> list[dict[str, Any]]:
    """Records a second with two workers beside one, each on a node of its own, once the workers are up."""
    rates, results = [], []
    with two_nodes():
        for workers in (1, 2):
            settings = _settings(workers)
            with judge_timed(count, settings) as (rate, ids):
                rates.append(rate)
                results.append(ids)
    result = figure(
        "ray",
        rates[1] / rates[0],
        1.8,
        "at least",
        ours_seconds=count / rates[1],
        other_seconds=count / rates[0],
        runs=count,
        records_per_second=round(rates[1], 1),
        records_per_second_alone=round(rates[0], 1),
        each_record_once=all(sorted(ids) == sorted(set(ids)) and len(ids) == count for ids in results),
    )
    result["ok"] = result["ok"] and result["each_record_once"]
    return [result]


def _settings(workers: int) -> Config:
    # So few in flight that waiting, not this machine's processor, is what a worker's time goes to.
    options = ["sandbox.kind=off", f"scripted.latency_seconds={LATENCY}", "backend.max_in_flight=4"]
    pool = [f"ray.actors.min={workers}", f"ray.actors.max={workers}", "ray.cpus=1", "ray.batch_size=8"]
    return load_config("scripted", [*options, *pool])


@contextmanager
def judge_timed(count: int, settings: Config) -> Iterator[tuple[float, list[str]]]:
    """Judge `count` records on Ray: records a second behind the first tenth, and the ids that came back."""
    ids: list[str] = []
    start, begun = time.perf_counter(), 0
    for result in judge_stream(solutions(count, steps=2), settings, engine="ray"):
        ids.append(result.id)
        if not begun and len(ids) >= _SKIP * count:
            start, begun = time.perf_counter(), len(ids)
    yield (len(ids) - begun) / (time.perf_counter() - start), ids


@contextmanager
def two_nodes() -> Iterator[Any]:
    """A cluster of two nodes of one core on this machine, joined."""
    ray = import_ray()
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "object_store_memory": STORE, "include_dashboard": False},
    )
    try:
        cluster.add_node(num_cpus=1, object_store_memory=STORE)
        ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")
        yield ray
    finally:
        ray.shutdown()
        cluster.shutdown()


def long_run(
    count: int, engine: Engine, output: Path, say: Callable[[dict[str, Any]], None], points: int = 10
) -> dict[str, Any]:
    """Judge `count` records of the fake engine into a result file, and watch this process's memory.

    Args:
        count: records.
        engine: `local` or `ray`.
        output: results are appended to it.
        say: told records, seconds and MiB at each of `points` points.
        points: how many.

    Returns:
        Records a second, and by how many MiB the resident memory grew from the first point to the last.
    """
    settings = load_config(
        "scripted",
        ["sandbox.kind=off", "ray.batch_size=64", "ray.cpus=0.5", f"ray.object_store_mb={STORE // 2**20}"],
    )
    start, seen = time.perf_counter(), list[float]()
    every = max(count // points, 1)
    with ResultFile(output, model=None, protocol_sha256=None, config_sha256=settings.digest()) as results:
        for done, result in enumerate(judge_stream(solutions(count, steps=2), settings, engine=engine), 1):
            results.add(result)
            if done % every == 0:
                seen.append(resident_mb())
                say({"records": done, "seconds": round(time.perf_counter() - start, 1), "rss_mb": round(seen[-1], 1)})
    seconds = time.perf_counter() - start
    return {
        "engine": engine,
        "records": count,
        "records_per_second": round(count / seconds, 1),
        "rss_growth_mb": round(seen[-1] - seen[0], 1),
    }


def resident_mb() -> float:
    """Resident memory of this process now, in MiB."""
    import os

    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def bench_long(count: int, engine: Engine, say: Callable[[dict[str, Any]], None]) -> list[dict[str, Any]]:
    """`long_run` as a figure: growth of the driver's memory in MiB, from a tenth of the run to its end."""
    with tempfile.TemporaryDirectory() as folder:
        found = long_run(count, engine, Path(folder) / "out.jsonl", say)
    seconds = count / found["records_per_second"]
    return [
        figure(
            f"long_{engine}",
            found["rss_growth_mb"],
            100.0,
            "at most",
            ours_seconds=seconds,
            other_seconds=seconds,
            runs=count,
            unit="MiB more",
            records_per_second=found["records_per_second"],
        )
    ]
