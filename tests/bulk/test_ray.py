"""Bulk runs on a real Ray cluster of two nodes: the local engine's results, whatever dies on the way.

`GENPRM_BULK_RECORDS` sets how many records the larger runs have; 2,000 is a night's worth, the default fits a CI job.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest

from genprm.bulk.stream import judge_stream
from genprm.config import load_config
from genprm.errors import ConfigError, InputError, UnavailableError
from genprm.records import render_record
from genprm.types import Solution

from .watched import bare, solutions, watched_load

pytestmark = [pytest.mark.slow, pytest.mark.timeout(280)]
RECORDS = int(os.environ.get("GENPRM_BULK_RECORDS", "200"))


def config(*overrides):
    common = ["sandbox.kind=off", "ray.batch_size=8", "ray.cpus=0.5", "ray.max_attempts=2"]
    return load_config("scripted", [*common, *overrides])


def by_id(results):
    found = {}
    for result in results:
        assert result.id not in found, "a record came twice"
        found[result.id] = bare(result)
    return found


def test_results_are_the_local_engines_though_workers_end_and_rows_fail(cluster, tmp_path):
    rows = solutions(RECORDS)
    rows[20] = rows[20].model_copy(update={"id": "once-20"})  # its worker ends after it
    bad = [Solution(id=f"{kind}-1", problem="p", steps=("1 + 1 = 2",)) for kind in ("poison", "raises", "breaks")]
    settings = config("ray.batches_in_flight=1", "verify.votes=2")
    failed = []
    given = [*rows[:50], *bad, *rows[50:]]
    found = by_id(judge_stream(given, settings, engine="ray", on_failed=failed.append, load=watched_load(tmp_path)))
    assert found == by_id(judge_stream(rows, settings))
    assert {(row.id, row.attempts) for row in failed} == {("poison-1", 2), ("raises-1", 2), ("breaks-1", 2)}
    assert (tmp_path / "once-20.met").exists()
    judged = Counter((tmp_path / "judged").read_text().split())
    before = [row.id for row in rows[16:20]]  # finished in the process that then ended
    assert [judged[name] for name in [*before, "once-20"]] == [1] * 5


def test_a_node_that_is_lost_costs_no_record(cluster):
    rows = solutions(max(RECORDS // 2, 60))
    settings = config("scripted.latency_seconds=0.1", "ray.actors.min=2", "ray.cpus=1", "backend.max_in_flight=4")
    found = []
    for result in judge_stream(rows, settings, engine="ray"):
        found.append(result)
        if len(found) == 20:
            alive = sum(node["Alive"] for node in cluster.ray.nodes())
            cluster.cluster.remove_node(cluster.node)
            assert alive == 2
    cluster.node = cluster.cluster.add_node(num_cpus=1, object_store_memory=100 * 2**20)
    assert by_id(found) == by_id(judge_stream(rows, config()))


def test_what_is_wrong_with_settings_or_rows_is_said_in_one_line(cluster):
    with pytest.raises(ConfigError, match=r"evidence\.programs"):
        list(judge_stream(solutions(2), config("verify.protocol=programs"), engine="ray"))

    def source():
        yield from solutions(10)
        raise InputError("is broken", file="rows.jsonl", line=11)

    seen = []
    with pytest.raises(InputError, match=r"rows\.jsonl:11"):
        seen.extend(judge_stream(source(), config(), engine="ray"))
    assert len(seen) == 10


def test_rows_that_were_given_up_are_an_error_where_nobody_asks_for_them(cluster, tmp_path):
    rows = [*solutions(3), Solution(id="raises-1", problem="p", steps=("s",))]
    with pytest.raises(UnavailableError, match=r"1 rows could not be judged.*'raises-1' after 2 attempts.*cannot take"):
        list(judge_stream(rows, config(), engine="ray", load=watched_load(tmp_path)))


def command(cluster, source, output, *overrides):
    options = ["scripted.latency_seconds=0.05", "backend.max_in_flight=4", "ray.batch_size=4", *overrides]
    return [
        *(sys.executable, "-m", "genprm.cli", "verify", str(source), "--config", "scripted", "--engine", "ray"),
        *("--set", f"ray.address={cluster.address}", "--set", "sandbox.kind=off", "-o", str(output)),
        *(part for option in options for part in ("--set", option)),
    ]


def written(path):
    """Ids of the whole lines of a result file."""
    if not path.exists():
        return []
    return [json.loads(line)["id"] for line in path.read_bytes().split(b"\n")[:-1]]


def test_a_full_disk_and_a_killed_driver_cost_no_record(cluster, tmp_path):
    rows = solutions(max(RECORDS // 2, 60))
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(render_record(row) + "\n" for row in rows))

    def small_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))

    full = subprocess.run(
        command(cluster, source, out), capture_output=True, text=True, timeout=200, preexec_fn=small_files
    )
    assert full.returncode == 3, full.stderr
    assert "out.jsonl cannot be written: File too large" in full.stderr
    first = written(out)
    assert out.read_bytes().endswith(b"\n")
    assert 0 < len(first) < len(rows)

    driver = subprocess.Popen(command(cluster, source, out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while len(written(out)) < len(first) + 5 and driver.poll() is None:
        time.sleep(0.05)
    driver.send_signal(signal.SIGKILL)
    assert driver.wait() == -signal.SIGKILL, "the run ended before it could be killed"
    assert len(written(out)) < len(rows)

    done = subprocess.run(command(cluster, source, out), capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert Counter(written(out)) == Counter(row.id for row in rows)
    assert "Traceback" not in full.stderr + done.stderr


def test_an_evaluation_on_workers_has_the_local_metrics(cluster, tmp_path):
    from typer.testing import CliRunner

    from genprm.cli.main import app

    source = tmp_path / "gsm8k.jsonl"
    source.write_text("".join(render_record(row) + "\n" for row in solutions(30)))
    metrics = []
    for engine in ("local", "ray"):
        options = ["--config", "scripted", "--set", "ray.cpus=0.5", "-o", str(tmp_path / engine), "--engine", engine]
        done = CliRunner().invoke(app, ["eval", "processbench", str(source), *options, "--json"])
        assert done.exit_code == 0, done.output
        found = json.loads((tmp_path / engine / "metrics.json").read_text())
        found["subsets"]["gsm8k"].pop("seconds_per_solution")
        metrics.append(found)
    assert metrics[0] == metrics[1]
    assert metrics[0]["subsets"]["gsm8k"]["f1"] == 1.0


@pytest.mark.model
def test_the_embedded_model_gives_workers_the_same_rewards(cluster, embedded_folder):
    rows = solutions(20, steps=1)
    # One sequence at a time in float32: what else is in a batch moves the last digits.
    settings = load_config(
        "default",
        [
            *("verify.mode=direct", "backend.dtype=float32", "backend.max_batch=1", "sandbox.kind=off"),
            *("ray.actors.max=1", "backend.prefix_cache_mb=0"),
        ],
    )
    found = {result.id: result for result in judge_stream(rows, settings, engine="ray")}
    here = {result.id: result for result in judge_stream(rows, settings)}
    assert found.keys() == here.keys()
    for name, result in here.items():
        assert found[name].steps[0].reward == pytest.approx(result.steps[0].reward, abs=1e-5)
        assert found[name].first_error == result.first_error
