"""`genprm sandbox` and `genprm bench sandbox` as a user meets them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from scene import HERE, descendants, host_environment

GENPRM = [sys.executable, "-c", "from genprm.cli.main import run; run()"]


def genprm(
    *arguments: str, denied: tuple[str, ...] = (), text: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(HERE / "deny.py"), *denied, "--", *GENPRM, *arguments]
    variables = {**os.environ, **host_environment(), **environment}
    return subprocess.run(command, input=text, env=variables, capture_output=True, text=True, timeout=180, check=False)


def test_check_prints_level_layers_canaries_and_what_is_missing():
    done = genprm("sandbox", "check", PATH="")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.split(None, 2) for line in done.stdout.splitlines()]
    assert lines[0] == ["level", "L1"]
    assert done.stdout.splitlines()[1] == "layers    Landlock, seccomp, capabilities, rlimits"
    assert {line[1] for line in lines if line[0] == "canary"} == {
        *("read_file", "write_file", "network", "fork", "execute", "chmod", "signal", "environment"),
    }
    assert {line[1] for line in lines if line[0] == "missing"} == {"L3", "L2"}
    assert "bwrap: not installed" in done.stdout


def test_check_speaks_json():
    done = genprm("sandbox", "check", "--json", "--level", "L1")
    report = json.loads(done.stdout)
    assert (done.returncode, report["available"], report["level"]) == (0, True, "L1")
    assert report["layers"] == ["Landlock", "seccomp", "capabilities", "rlimits"]
    assert all(text.startswith("refused") for text in report["canaries"].values())


def test_check_ends_with_3_and_one_line_where_nothing_confines():
    done = genprm("sandbox", "check", denied=("landlock", "namespaces"))
    assert (done.returncode, done.stdout) == (3, "")
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Landlock" in done.stderr
    done = genprm("sandbox", "check", "--json", denied=("seccomp",), PATH="")
    report = json.loads(done.stdout)
    assert (done.returncode, report["available"]) == (3, False)
    assert "seccomp" in report["missing"]


def test_run_prints_what_a_model_would_see(tmp_path):
    path = tmp_path / "block.py"
    path.write_text("x = 6\nprint('hi')\nx * 7\n")
    done = genprm("sandbox", "run", str(path), "--level", "L1")
    assert (done.returncode, done.stdout) == (0, "hi\n42\n")
    assert done.stderr.startswith("ok, ")
    done = genprm("sandbox", "run", "-", "--json", text="1 / 0")
    result = json.loads(done.stdout)
    assert (done.returncode, result["status"], result["source"]) == (1, "error", "1 / 0")
    assert result["level"].startswith("L")
    done = genprm("sandbox", "run", "-", "--kind", "off", text="1")
    assert (done.returncode, done.stdout) == (3, "[code execution is not available]\n")
    done = genprm("sandbox", "run", "-", "--cpu-seconds", "0.2", text="while True: pass")
    assert (done.returncode, done.stdout) == (1, "[stopped: more than 0.2 s of processor time]\n")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("run", "no_such_file.py"), 2, "no_such_file.py"),
        (("run", "-", "--kind", "docker"), 2, "docker"),
        (("run", "-", "--kind", "http"), 2, "sandbox.url"),
        (("check", "--kind", "off"), 2, "off"),
        (("check", "--kind", "http"), 2, "--url"),
        (("check", "--kind", "http", "--url", "http://127.0.0.1:9"), 3, "http://127.0.0.1:9"),
        (("check", "--level", "L7"), 3, "L7"),
    ],
)
def test_errors_are_one_line_with_the_users_own_value(arguments, code, said):
    done = genprm("sandbox", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert len(done.stderr.strip().splitlines()) == 1
    assert said in done.stderr


def test_serve_answers_and_ends_with_nothing_left():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    variables = {**os.environ, **host_environment()}
    server = subprocess.Popen(
        [*GENPRM, "sandbox", "serve", "--port", str(port), "--level", "L1"],
        stderr=subprocess.PIPE,
        text=True,
        env=variables,
    )
    try:
        assert server.stderr is not None
        assert server.stderr.readline().startswith("level L1: Landlock, seccomp")
        url = f"http://127.0.0.1:{port}"
        end = time.monotonic() + 30
        while True:
            done = genprm("sandbox", "check", "--kind", "http", "--url", url)
            if done.returncode == 0 or time.monotonic() > end:
                break
        assert done.stdout.startswith("level     http\n"), done.stderr
        done = genprm("sandbox", "run", "-", "--kind", "http", "--url", url, text="6 * 7")
        assert (done.returncode, done.stdout) == (0, "42\n")
        below = descendants(server.pid)
        assert below
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=20)
        end = time.monotonic() + 5
        while any(Path(f"/proc/{pid}").exists() for pid in below) and time.monotonic() < end:
            time.sleep(0.02)
        assert not [pid for pid in below if Path(f"/proc/{pid}").exists()]
    finally:
        server.kill()
        server.communicate()


def test_bench_gives_a_line_a_figure():
    done = genprm("bench", "sandbox", "--json", "--rounds", "2")
    figures = {figure["name"]: figure for figure in map(json.loads, done.stdout.splitlines())}
    assert set(figures) == {"sandbox", "sandbox_rate"}
    for figure in figures.values():
        assert {"ratio", "goal", "ok", "ours_seconds", "other_seconds", "runs", "level", "cores"} <= set(figure)
        # How fast depends on who else uses the machine; that a confined run beats a cold interpreter does not.
        assert figure["ratio"] > 3
    assert figures["sandbox_rate"]["runs_per_second"] > 5
    assert done.returncode == (0 if all(figure["ok"] for figure in figures.values()) else 1)
