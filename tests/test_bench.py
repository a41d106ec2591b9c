"""The exact counts among the speed figures; timings are for `genprm bench` itself."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.mark.parametrize(("name", "ratio"), [("evidence", 0.125), ("cache", 1.0)])
def test_a_counted_figure_is_exact_and_printed_as_one_json_line(name, ratio):
    command = [sys.executable, "-m", "genprm.cli", "bench", name, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    (figure,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert figure["ratio"] == pytest.approx(ratio)
    assert figure["ok"] is True
    assert set(figure) >= {"name", "ratio", "goal", "ok", "ours_seconds", "other_seconds", "runs"}


def test_adaptive_votes_save_tokens_within_their_bound():
    done = subprocess.run(
        [sys.executable, "-m", "genprm.cli", "bench", "votes", "--json", "--count", "60"],
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    votes = json.loads(done.stdout.splitlines()[0])
    assert votes["ratio"] <= 0.5
    assert votes["verdicts_changed"] <= votes["bound"]


def test_the_service_under_load_loses_and_mixes_nothing_and_keeps_its_memory():
    done = subprocess.run(
        [sys.executable, "-m", "genprm.cli", "bench", "serve", "--json", "--seconds", "1", "--soak", "5"],
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    full, soak = [json.loads(line) for line in done.stdout.splitlines()]
    for figure in (full, soak):
        assert (figure["failed"], figure["mixed"]) == (0, 0), figure
        assert figure["answered"] > 0
        assert figure["p99_ms"] >= figure["p50_ms"] > 0
    assert full["answered"] + full["refused"] >= 500
    assert soak["rss_start_mb"] > 0
    assert abs(soak["rss_end_mb"] - soak["rss_start_mb"]) < 100
