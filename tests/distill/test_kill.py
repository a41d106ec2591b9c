"""`genprm distill run`, killed with `kill -9` at ten random moments, ends with the rows of a run that was not."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

STAGES = ("sample", "label", "critique", "filter", "format")
KILLS = 10
SEED = 20

# The command itself. It counts the moments between its writes, and within them, and at the one that is asked for it
# waits to be killed: so every kill hits, however fast or slow the machine is.
CHILD = """
import os, sys, time
from pathlib import Path
import genprm.distill.store as store

folder, wanted = Path(sys.argv[1]), int(sys.argv[2])
count = 0

def moment(what, where):
    global count
    count += 1
    if count == wanted:
        (folder / "moment.part").write_text(f"{where}: {what}")
        (folder / "moment.part").rename(folder / "moment")
        time.sleep(600)

append, replace = store.Store._append, store.replace_file

def slow_append(self, file, row):
    moment("before a row", self.folder.name)
    line, end = store.encode(row), file.tell()
    file.write(line[: len(line) // 2])
    moment("half a row", self.folder.name)
    file.truncate(end)
    file.seek(end)
    append(self, file, row)
    moment("after a row", self.folder.name)

def slow_replace(path, data):
    pieces = [data] if isinstance(data, bytes) else list(data)
    part = path.with_name(path.name + ".part")
    part.write_bytes(b"".join(pieces)[:-9])
    moment(f"half of a new {path.name}", path.parent.name)
    replace(path, pieces)
    moment(f"after a new {path.name}", path.parent.name)

store.Store._append, store.replace_file = slow_append, slow_replace
store.SYNC_SECONDS = float("inf")  # else the number of moments would hang on the time that things take
sys.argv = ["genprm", "distill", "run", *sys.argv[3:]]
from genprm.cli.main import run
try:
    run()
finally:
    (folder / "count").write_text(str(count))
"""

CONFIG = {
    "verify_config": {"config": "scripted", "overrides": {"verify.votes": 2}},
    "sample": {"inputs": ["shipped:tiny"], "limit": 5, "per_problem": 1},
    "filter": {"against": ["shipped:tiny-eval"]},
}


def start(folder, moment):
    arguments = [sys.executable, "-c", CHILD, folder, moment, "--config", folder.parent / "c.yaml"]
    arguments += ["--out", folder / "out", "--to", STAGES[-1]]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [str(item) for item in arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
    )


def finish(folder):
    with start(folder, 0) as child:
        assert child.wait() == 0, child.stderr.read()
    return int((folder / "count").read_text())


def kill_at(folder, moment):
    """Start the command, kill it at a moment, and say where that was."""
    with start(folder, moment) as child:
        while not (folder / "moment").exists():
            assert child.poll() is None, f"it ended before moment {moment}: {child.stderr.read()}"
            time.sleep(0.01)
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
    where = (folder / "moment").read_text()
    (folder / "moment").unlink()
    return where


def timeless(value):
    """A row without what time it took and what was recalled: all else of it must be the same."""
    if isinstance(value, dict):
        return {key: timeless(inner) for key, inner in value.items() if key not in ("seconds", "usage")}
    return [timeless(inner) for inner in value] if isinstance(value, list) else value


def lines(folder, stage, name):
    path = folder / "out" / stage / name
    return [timeless(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_that_was_killed_ten_times_has_the_rows_of_one_that_was_not(tmp_path, embedded_folder, record_property):
    (tmp_path / "c.yaml").write_text(json.dumps(CONFIG))
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    moments = finish(whole)
    rng = random.Random(SEED)
    points = [rng.randint(moments * part // KILLS + 1, moments * (part + 1) // KILLS) for part in range(KILLS)]
    hit = [kill_at(killed, point - before) for before, point in zip([0, *points], points, strict=False)]
    record_property("killed_at", hit)
    print(*hit, sep="\n")
    finish(killed)
    for stage in STAGES:
        assert lines(whole, stage, "rows.jsonl"), f"{stage} made nothing to compare"
        for name in ("rows.jsonl", "rejected.jsonl"):
            assert lines(killed, stage, name) == lines(whole, stage, name), (stage, name, hit)
    assert (killed / "out/format/rows.jsonl").read_bytes() == (whole / "out/format/rows.jsonl").read_bytes()
    assert len({where.split(":")[0] for where in hit}) >= 3, f"the kills hit too few stages: {hit}"
