"""What a session promises: shared state within, none without, and what becomes of it when its child dies."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest
from scene import descendants

from genprm.sandbox import Limits, Session, open_sandbox
from genprm.sandbox.base import Sandbox
from genprm.sandbox.embedded import EmbeddedSandbox
from genprm.sandbox.session import LOST_NOTE

LIMITS = Limits(cpu_seconds=1.0, wall_seconds=6.0, memory_mb=256)


@pytest.fixture(scope="module")
def sandbox():
    with EmbeddedSandbox(LIMITS, workers=2, cache_size=0) as made:
        yield made


def outputs(sandbox: EmbeddedSandbox, *blocks: str) -> list[str]:
    session = sandbox.open()
    try:
        return [session.run_sync(block).output for block in blocks]
    finally:
        session.close()


def test_the_embedded_sandbox_keeps_the_protocols(sandbox):
    assert isinstance(sandbox, Sandbox)
    assert isinstance(sandbox.open(), Session)


def test_blocks_of_one_session_share_variables_and_imports(sandbox):
    blocks = ("import math\ndef f(n):\n    return math.factorial(n)", "x = f(5)", "x + 1")
    assert outputs(sandbox, *blocks) == ["", "", "121"]


def test_another_session_sees_nothing_of_it(sandbox):
    first, second = sandbox.open(), sandbox.open()
    first.run_sync("secret = 1")
    assert "NameError" in second.run_sync("secret").output
    assert first.run_sync("secret").output == "1"
    first.close()
    second.close()


@pytest.mark.parametrize(
    ("block", "shown"),
    [
        ("1 + 1", "2"),
        ("'text'", "'text'"),
        ("None", ""),
        ("x = 3", ""),
        ("print('a')\n4", "a\n4"),
        ("import sys\nprint('out')\nprint('err', file=sys.stderr)\nprint('out')", "out\nerr\nout"),
        ("from sympy import *\nx = symbols('x')\nsolve(x**2 - 4)", "[-2, 2]"),
        ("import numpy as np\nnp.arange(3)", "array([0, 1, 2])"),
        ("if True:\n    5", ""),
        ("len(str(2**100000))", "30103"),
        ("#nothing", ""),
        ("", ""),
    ],
)
def test_output_is_what_was_printed_then_the_last_value(sandbox, block, shown):
    assert outputs(sandbox, block) == [shown]


def test_a_traceback_has_the_blocks_own_frames_only(sandbox):
    first = "def f(x):\n    return 1 / x"
    second = "import sympy\ntry:\n    f(0)\nexcept ZeroDivisionError as error:\n    raise ValueError('no') from error"
    text = outputs(sandbox, first, second)[1]
    assert [line for line in text.splitlines() if not line.strip().startswith(("^", "~"))] == [
        "Traceback (most recent call last):",
        '  File "<block 2>", line 3, in <module>',
        "    f(0)",
        '  File "<block 1>", line 2, in f',
        "    return 1 / x",
        "ZeroDivisionError: division by zero",
        "",
        "The above exception was the direct cause of the following exception:",
        "",
        "Traceback (most recent call last):",
        '  File "<block 2>", line 5, in <module>',
        "    raise ValueError('no') from error",
        "ValueError: no",
    ]


def test_no_frame_or_path_of_a_library_is_shown(sandbox):
    text = outputs(sandbox, "import sympy\nsympy.sympify('1 +')")[0]
    assert "SympifyError" in text or "SyntaxError" in text
    assert "site-packages" not in text
    assert "server.py" not in text
    assert os.sep + "lib" not in text


def test_runs_are_the_same_each_time(sandbox):
    block = """
import random, numpy, sympy, time, os
print(random.random(), numpy.random.rand(), numpy.random.default_rng().random(), sympy.core.random.rng.random())
print(hash("text"), list({"a", "b", "c"}), time.tzname, os.environ.get("OPENBLAS_NUM_THREADS"))
print(object(), sympy.Dummy("d").dummy_index, sympy.solve(sympy.Symbol("x") ** 3 - 2), sympy.Symbol("x") ** 2 - 3)
"""
    seen = set()
    for pause in (0.0, 0.0, 0.0, 0.3, 0.3):  # a child that waits for long uses the time
        time.sleep(pause)
        seen.add(outputs(sandbox, block)[0])
    assert len(seen) == 1
    assert "Error" not in seen.pop()


def test_a_stopped_block_is_undone_and_earlier_blocks_are_kept(sandbox):
    session = sandbox.open()
    assert session.run_sync("print('once')\nx = 1").output == "once"
    assert session.run_sync("x += 1\n1 / 0").status == "error"
    stopped = session.run_sync("x = 100\nwhile True: pass")
    assert (stopped.status, stopped.output) == ("timeout", "[stopped: more than 1 s of processor time]")
    assert session.run_sync("x").output == "2"
    assert session.run_sync("import os\nx = 100\nos._exit(0)").status == "died"
    assert session.run_sync("x").output == "2"
    assert session.run_sync("y = bytearray(1 << 40)").output.endswith("[stopped: more than 256 MB of memory]")
    assert session.run_sync("x").output == "2"
    session.close()


def test_state_that_cannot_be_made_again_in_time_is_reported_lost(sandbox):
    session = sandbox.open(Limits(cpu_seconds=2, wall_seconds=1.0, memory_mb=256))
    assert session.run_sync("import time\nx = 1\ntime.sleep(0.6)").status == "ok"
    assert session.run_sync("time.sleep(0.6)").status == "ok"
    assert session.run_sync("import os\nos._exit(1)").output == "[the program ended its own process with exit code 1]"
    after = session.run_sync("'x' in globals()")
    assert (after.status, after.output) == ("ok", f"False\n{LOST_NOTE}")
    assert session.run_sync("2").output == "2"
    session.close()


def kill_all(pid: int) -> None:
    """A server with its wrapper and children; the first to go may take the others with it."""
    for victim in [*descendants(pid), pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)


def test_a_server_that_dies_while_nobody_uses_it_is_replaced(sandbox):
    sandbox.open().run_sync("1")
    kill_all(sandbox.server_pids[-1])
    for _ in range(3):
        session = sandbox.open()
        check = session.run_sync("6 * 7")
        session.close()
        assert (check.status, check.output) == ("ok", "42")


def test_a_server_that_tells_of_its_childs_end_before_its_own_is_replaced(sandbox):
    session = sandbox.open()
    session.run_sync("x = 41")
    below = descendants(sandbox.server_pids[-1])
    leaves = [pid for pid in below if not descendants(pid)]
    assert leaves
    for pid in leaves:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    time.sleep(0.3)  # the word on the child's end is on its way
    kill_all(sandbox.server_pids[-1])
    check = session.run_sync("x + 1")
    session.close()
    assert (check.status, check.output) == ("ok", "42")


def test_a_killed_server_is_replaced_and_the_run_repeated(sandbox):
    session = sandbox.open()
    session.run_sync("x = 41")
    before = sandbox.server_pids
    kill_all(before[-1])
    check = session.run_sync("x + 1")
    assert (check.status, check.output) == ("ok", "42")
    assert sandbox.server_pids != before
    session.close()


def test_a_server_killed_during_a_run_is_replaced_and_the_run_repeated(sandbox):
    import threading
    import time

    session = sandbox.open()
    session.run_sync("x = 41")
    pids = sandbox.server_pids

    def kill() -> None:
        time.sleep(0.3)
        kill_all(pids[-1])

    thread = threading.Thread(target=kill)
    thread.start()
    check = session.run_sync("import time\ntime.sleep(0.6)\nx + 1")
    thread.join()
    assert (check.status, check.output) == ("ok", "42")
    session.close()


def test_a_run_whose_server_dies_twice_is_unavailable(sandbox, monkeypatch):
    from genprm.sandbox.channel import Channel, ServerLostError

    def lost(*_args: object, **_options: object) -> None:
        raise ServerLostError("gone")

    with monkeypatch.context() as patch:
        patch.setattr(Channel, "run", lost)
        session = sandbox.open()
        check = session.run_sync("1")
        assert check.status == "unavailable"
        assert "gone" in check.output
    assert session.run_sync("1").output == "1"
    session.close()


def test_a_stopped_server_does_not_hang_the_client(monkeypatch):
    from genprm.sandbox import channel

    monkeypatch.setattr(channel, "_GRACE_SECONDS", 0.2)
    with EmbeddedSandbox(Limits(wall_seconds=0.3), workers=1, cache_size=0) as sandbox:
        session = sandbox.open()
        session.run_sync("1")
        stopped = [*sandbox.server_pids, *descendants(sandbox.server_pids[-1])]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        check = session.run_sync("2")
        assert (check.status, check.output) == ("ok", "2")
        session.close()
    end = time.monotonic() + 5
    while any(Path(f"/proc/{pid}").exists() for pid in stopped) and time.monotonic() < end:
        time.sleep(0.02)
    assert not [pid for pid in stopped if Path(f"/proc/{pid}").exists()]


def test_a_server_is_replaced_after_its_share_of_sessions(monkeypatch):
    from genprm.sandbox import embedded

    monkeypatch.setattr(embedded, "_SESSIONS_PER_SERVER", 5)
    with EmbeddedSandbox(LIMITS, workers=1, cache_size=0) as sandbox:
        long = sandbox.open()
        long.run_sync("kept = 7")
        first = sandbox.server_pids
        for _ in range(8):
            assert outputs(sandbox, "6 * 7") == ["42"]
        assert sandbox.server_pids[-1] not in first
        assert long.run_sync("kept").output == "7"
        long.close()
        for _ in range(8):
            assert outputs(sandbox, "6 * 7") == ["42"]
        assert len(sandbox.server_pids) <= 2


def test_closing_is_safe_twice_and_later_runs_are_unavailable():
    sandbox = EmbeddedSandbox(LIMITS, workers=1)
    session = sandbox.open()
    assert session.run_sync("1").status == "ok"
    pids = sandbox.server_pids
    session.close()
    session.close()
    assert session.run_sync("1").status == "unavailable"
    other = sandbox.open()
    sandbox.close()
    sandbox.close()
    assert other.run_sync("1").status == "unavailable"
    assert sandbox.open().run_sync("1").status == "unavailable"
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_closing_stops_a_block_that_runs(sandbox):
    import threading
    import time

    session = sandbox.open()
    timer = threading.Timer(0.3, session.close)
    timer.start()
    start = time.monotonic()
    assert session.run_sync("import time\ntime.sleep(5)").status == "unavailable"
    assert time.monotonic() - start < 4
    timer.join()


def test_a_sandbox_that_is_dropped_without_closing_ends_its_server():
    sandbox = EmbeddedSandbox(LIMITS, workers=1)
    pid = sandbox.server_pids[0]
    sandbox.open().run_sync("1")
    del sandbox
    import gc

    gc.collect()
    assert not Path(f"/proc/{pid}").exists()


def test_results_are_kept_by_code_and_by_what_ran_before():
    with EmbeddedSandbox(LIMITS, workers=1) as sandbox:
        block = "import time\ntime.time_ns()"
        first = outputs(sandbox, block)
        assert outputs(sandbox, block) == first
        assert outputs(sandbox, "x = 1", block)[1] != first[0]
        # A kept result has not run in this session; a later block still finds its variables.
        assert outputs(sandbox, "y = 5", "y") == ["", "5"]
        assert outputs(sandbox, "y = 5", "y + 1") == ["", "6"]
        sandbox.open().run_sync("import os\nos._exit(0)")
        assert sandbox.open().run_sync("import os\nos._exit(0)").status == "died"


def test_a_block_that_is_too_long_is_refused(sandbox):
    session = sandbox.open(Limits(source_chars=10))
    check = session.run_sync("x = 1 # too long")
    assert (check.status, check.output) == ("error", "[not run: the block has more than 10 characters]")
    session.close()


def test_a_large_block_and_a_large_output_pass_whole(sandbox):
    limits = Limits(source_chars=2_000_000, output_chars=900_000, wall_seconds=20, cpu_seconds=10)
    session = sandbox.open(limits)
    text = "abc " * 200_000
    assert session.run_sync(f"print({text!r})").output == text.rstrip()
    session.close()


def test_off_says_so_and_unknown_kinds_are_refused():
    from genprm.errors import ConfigError

    check = open_sandbox("off").open().run_sync("1")
    assert (check.status, check.output) == ("unavailable", "[code execution is not available]")
    with pytest.raises(ConfigError, match="kinds are embedded, http, off, unsafe-subprocess"):
        open_sandbox("docker")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"sandbox\.url"):
        open_sandbox("http")


def test_a_process_out_of_descriptors_gets_unavailable_and_recovers(sandbox):
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held: list[int] = []
    session = sandbox.open()
    before = sandbox.server_pids
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        sandbox._drop_spares()
        while True:
            try:
                held.append(os.open("/dev/null", os.O_RDONLY))
            except OSError:
                break
        check = session.run_sync("6 * 7")
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert check.status == "unavailable"
    assert "Too many open files" in check.output
    assert session.run_sync("6 * 7").output == "42"
    assert sandbox.server_pids == before
    session.close()


def test_another_system_than_linux_is_refused(monkeypatch):
    import sys

    from genprm.errors import SandboxUnavailable

    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SandboxUnavailable, match="this is darwin") as caught:
        EmbeddedSandbox()
    assert caught.value.missing == ("Linux",)
