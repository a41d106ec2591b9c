"""With the kernel's means taken away one by one: the next level, or `SandboxUnavailable` with the right names."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from scene import HERE, host_environment

from genprm.errors import SandboxUnavailable
from genprm.sandbox import open_sandbox, startup
from genprm.sandbox.channel import NotConfinedError, Raw
from genprm.sandbox.embedded import EmbeddedSandbox
from genprm.sandbox.launch import LEVELS
from genprm.sandbox.process import StartError

OPEN = """
import json, sys
from genprm.errors import SandboxUnavailable
from genprm.sandbox import open_sandbox
try:
    with open_sandbox("embedded", level=json.loads(sys.argv[1])) as sandbox:
        print(json.dumps({"level": sandbox.level, "output": sandbox.open().run_sync("6 * 7").output}))
except SandboxUnavailable as error:
    print(json.dumps({"missing": error.missing, "message": str(error)}))
"""


def programs(folder: Path, *names: str) -> dict[str, str]:
    """An environment in which only these programs are found."""
    for name in names:
        if (found := shutil.which(name)) is None:
            pytest.skip(f"{name} is not installed")
        (folder / name).symlink_to(found)
    return {**host_environment(), "PATH": str(folder)}


def run_without(denied: list[str], environment: dict[str, str], code: str, *arguments: str) -> dict[str, object]:
    command = [sys.executable, str(HERE / "deny.py"), *denied, "--", sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize(
    ("denied", "installed", "level"),
    [
        ([], ("bwrap", "unshare"), "L3"),
        ([], ("unshare",), "L2"),
        ([], (), "L1"),
        (["namespaces"], ("bwrap", "unshare"), "L1"),
        (["landlock"], ("bwrap", "unshare"), "L1'"),
        (["pidfd"], ("bwrap",), "L3"),
        (["pidfd"], (), "L1"),
    ],
)
def test_the_best_level_that_works_is_taken(tmp_path, denied, installed, level):
    answer = run_without(denied, programs(tmp_path, *installed), OPEN, "null")
    assert answer == {"level": level, "output": "42"}


@pytest.mark.parametrize(
    ("denied", "installed", "wanted", "missing"),
    [
        (["seccomp"], ("bwrap", "unshare"), None, {"seccomp"}),
        (["seccomp"], (), None, {"seccomp", "bwrap", "unshare"}),
        (["landlock"], ("unshare",), None, {"Landlock", "bwrap"}),
        (["landlock"], (), None, {"Landlock", "bwrap", "unshare"}),
        (["landlock", "namespaces"], ("bwrap", "unshare"), None, {"Landlock", "bwrap", "unshare"}),
        (["landlock", "namespaces", "seccomp"], ("bwrap",), None, {"Landlock", "bwrap", "unshare"}),
        ([], (), "L3", {"bwrap"}),
        ([], (), "L2", {"unshare"}),
        ([], (), "L1'", {"bwrap"}),
        (["namespaces"], ("bwrap",), "L3", {"bwrap"}),
        (["landlock"], (), "L1", {"Landlock"}),
        (["landlock"], ("bwrap",), "L3", {"Landlock"}),
        (["seccomp"], (), "L1", {"seccomp"}),
    ],
)
def test_what_is_missing_is_named_and_nothing_is_opened(tmp_path, denied, installed, wanted, missing):
    answer = run_without(denied, programs(tmp_path, *installed), OPEN, json.dumps(wanted))
    assert "level" not in answer
    named = set(answer["missing"])  # type: ignore[call-overload]
    assert named == missing
    for text in (*missing, "`off`", "`sandbox.kind: http`", "`unsafe-subprocess`"):
        assert text in str(answer["message"])


def test_a_child_that_cannot_be_confined_runs_no_code(tmp_path):
    # Below the self-test, which would not let it come so far.
    code = """
import json, sys
from genprm.sandbox.channel import NotConfinedError
from genprm.sandbox.launch import LEVELS
from genprm.sandbox.limits import Limits
from genprm.sandbox.process import ServerProcess
server = ServerProcess(next(level for level in LEVELS if level.name == "L1"))
channel = server.open_channel(Limits())
try:
    raw = channel.run(f"open({sys.argv[1]!r}, 'w').write('ran')", echo=False)
    print(json.dumps({"status": raw.status}))
except NotConfinedError as error:
    print(json.dumps({"refused": str(error)}))
channel.close()
server.close()
"""
    marker = tmp_path / "marker"
    answer = run_without(["seccomp"], programs(tmp_path), code, str(marker))
    assert answer == {"refused": "seccomp: Function not implemented"}
    assert not marker.exists()


def test_a_canary_that_gets_through_closes_the_sandbox(monkeypatch):
    def lenient() -> tuple[str, Path]:
        results = {"read_file": "ALLOWED: 'root'", "fork": "refused: no", "environment": ["AWS_SECRET_ACCESS_KEY"]}
        return f"print('CANARIES' + {json.dumps(json.dumps(results))})", Path("/nonexistent/marker")

    monkeypatch.setattr(startup, "canary_source", lenient)
    with pytest.raises(SandboxUnavailable, match="read_file ALLOWED") as caught:
        EmbeddedSandbox(level="L1")
    assert caught.value.missing == ("self-test",)
    assert "environment exposed: AWS_SECRET_ACCESS_KEY" in str(caught.value)


def test_canaries_that_do_not_report_close_the_sandbox(monkeypatch):
    monkeypatch.setattr(startup, "canary_source", lambda: ("print('hello')", Path("/nonexistent/marker")))
    with pytest.raises(SandboxUnavailable, match="did not report"):
        EmbeddedSandbox(level="L1")


def test_a_machine_without_a_syscall_table_is_refused(monkeypatch):
    from genprm.sandbox.process import ServerProcess

    greet = ServerProcess._greet
    monkeypatch.setattr(ServerProcess, "_greet", lambda self: {**greet(self), "seccomp": False})
    with pytest.raises(SandboxUnavailable) as caught:
        EmbeddedSandbox(level="L1")
    assert caught.value.missing == ("seccomp",)


def test_a_package_that_cannot_be_loaded_is_named(monkeypatch):
    from genprm.sandbox import launch

    monkeypatch.setattr(launch, "MODULES", ("no_such_module",))
    with pytest.raises(SandboxUnavailable, match="No module named 'no_such_module'"):
        EmbeddedSandbox(level="L1")


def test_a_server_that_does_not_come_up_is_not_waited_for_in_vain(monkeypatch):
    from genprm.sandbox import process

    monkeypatch.setattr(process, "server_command", lambda *_args, **_options: ["/bin/sleep", "60"])
    monkeypatch.setattr(process, "_START_SECONDS", 0.3)
    monkeypatch.setattr(process, "_END_SECONDS", 0.1)
    with pytest.raises(StartError, match="no answer in"):
        process.ServerProcess(LEVELS[2])


def test_an_unknown_level_is_refused():
    with pytest.raises(SandboxUnavailable, match="levels are L3, L2, L1 and L1'"):
        open_sandbox("embedded", level="L9")


def test_confinement_lost_later_makes_a_run_unavailable(monkeypatch):
    from genprm.sandbox.channel import Channel

    def refuse(*_args: object, **_options: object) -> Raw:
        raise NotConfinedError("Landlock: Operation not permitted")

    with EmbeddedSandbox(level="L1", workers=1, cache_size=0) as sandbox:
        monkeypatch.setattr(Channel, "run", refuse)
        check = sandbox.open().run_sync("1")
    assert check.status == "unavailable"
    assert "could not be confined: Landlock" in check.output


def test_only_its_explicit_name_runs_code_unconfined(caplog):
    with open_sandbox("unsafe-subprocess") as sandbox:
        assert sandbox.level == "unsafe-subprocess"
        session = sandbox.open()
        assert session.run_sync("import os\nx = os.getpid()").status == "ok"
        check = session.run_sync("print(x != os.getppid())\nx > 0")
        assert (check.status, check.output) == ("ok", "True\nTrue")
        assert int(session.run_sync("os.getppid()").output) == os.getpid()
    assert "runs unconfined" in caplog.text


@pytest.mark.parametrize(
    ("block", "status", "shown"),
    [
        ("1 / 0", "error", "ZeroDivisionError"),
        ("import time\ntime.sleep(30)", "timeout", "[stopped: not done after 1 s]"),
        ("import os\nos._exit(0)", "died", "exit code 0]"),
        ("import os, signal\nos.kill(os.getpid(), 11)", "died", "[the interpreter died: SIGSEGV]"),
        ("raise MemoryError", "memory", "[stopped: more than 512 MB of memory]"),
        ("while True: print('x' * 10000)", "output_limit", "bytes of output]"),
        ("exit(0)", "ok", ""),
    ],
)
def test_the_unsafe_kind_reports_like_the_others(block, status, shown):
    from genprm.sandbox import Limits

    with open_sandbox("unsafe-subprocess", Limits(wall_seconds=1.0 if status == "timeout" else 20.0)) as sandbox:
        check = sandbox.open().run_sync(block)
    assert check.status == status
    assert shown in check.output
