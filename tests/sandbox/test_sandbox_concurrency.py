"""The sandbox from threads, from asyncio, from a forked process, and with many sessions at once."""

from __future__ import annotations

import asyncio
import os
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from genprm.sandbox import Limits
from genprm.sandbox.embedded import EmbeddedSandbox

LIMITS = Limits(cpu_seconds=2, wall_seconds=30, memory_mb=256)


@pytest.fixture(scope="module")
def sandbox():
    with EmbeddedSandbox(LIMITS, cache_size=0) as made:
        yield made


def test_a_hundred_sessions_at_once_keep_their_states_apart(sandbox):
    async def one(index: int) -> list[str]:
        session = sandbox.open()
        try:
            await session.run(f"mine = {index}")
            await session.run("mine *= 2")
            return [(await session.run("mine")).output]
        finally:
            session.close()

    async def everything() -> list[list[str]]:
        return await asyncio.gather(*[one(index) for index in range(100)])

    assert asyncio.run(everything()) == [[str(2 * index)] for index in range(100)]


def test_a_hundred_open_sessions_each_have_a_child_of_their_own(sandbox):
    sessions = [sandbox.open() for _ in range(100)]
    assert all(session.run_sync(f"x = {index}").status == "ok" for index, session in enumerate(sessions))
    assert [session.run_sync("x").output for session in sessions] == [str(index) for index in range(100)]
    for session in sessions:
        session.close()


def test_the_event_loop_is_not_blocked_while_code_runs(sandbox):
    async def main() -> tuple[float, str]:
        session = sandbox.open()
        run = asyncio.ensure_future(session.run("import time\ntime.sleep(0.5)\n'slept'"))
        longest, last = 0.0, time.monotonic()
        while not run.done():
            await asyncio.sleep(0.005)
            now = time.monotonic()
            longest, last = max(longest, now - last), now
        session.close()
        return longest, (await run).output

    longest, output = asyncio.run(main())
    assert output == "'slept'"
    assert longest < 0.25


def test_a_cancelled_run_leaves_the_sandbox_usable(sandbox):
    async def main() -> str:
        session = sandbox.open()
        run = asyncio.ensure_future(session.run("import time\ntime.sleep(20)"))
        await asyncio.sleep(0.2)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        session.close()
        return (await sandbox.open().run("6 * 7")).output

    start = time.monotonic()
    assert asyncio.run(main()) == "42"
    assert time.monotonic() - start < 10


def test_threads_can_use_one_sandbox_and_one_session(sandbox):
    shared = sandbox.open()
    shared.run_sync("count = 0")

    def work(index: int) -> str:
        session = sandbox.open()
        shared.run_sync("count += 1")
        output = session.run_sync(f"{index} ** 2").output
        session.close()
        return output

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(work, range(40))) == [str(index**2) for index in range(40)]
    assert shared.run_sync("count").output == "40"
    shared.close()


def test_a_thread_that_started_the_server_may_end():
    made: list[EmbeddedSandbox] = []
    thread = threading.Thread(target=lambda: made.append(EmbeddedSandbox(LIMITS, workers=1, cache_size=0)))
    thread.start()
    thread.join()
    time.sleep(0.1)
    assert made[0].open().run_sync("6 * 7").output == "42"
    assert len(made[0].server_pids) == 1
    made[0].close()


def test_a_forked_process_makes_its_own_server_and_the_parents_goes_on(sandbox):
    session = sandbox.open()
    session.run_sync("x = 20")
    before = sandbox.server_pids
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork beside threads is what is tested
        pid = os.fork()
    if pid == 0:
        try:
            text = session.run_sync("x + 1").output
            fresh = sandbox.open().run_sync("6 * 7").output
            own = sandbox.server_pids
            os.write(write, f"{text} {fresh} {len(own)} {own[-1] in before}".encode())
            sandbox.close()
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        assert pipe.read() == b"21 42 1 False"
    os.waitpid(pid, 0)
    assert session.run_sync("x + 2").output == "22"
    assert sandbox.server_pids == before
    session.close()


def test_the_server_ends_when_its_client_is_killed():
    import signal
    import subprocess
    import sys

    from scene import descendants

    code = """
import time
from genprm.sandbox.embedded import EmbeddedSandbox
sandbox = EmbeddedSandbox(workers=1)
session = sandbox.open()
session.run_sync("1")
print("ready", flush=True)
session.run_sync("while True: pass")
"""
    client = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert client.stdout is not None
    assert client.stdout.readline() == b"ready\n"
    below = descendants(client.pid)
    assert len(below) >= 2
    client.send_signal(signal.SIGKILL)
    client.communicate()
    end = time.monotonic() + 5
    while time.monotonic() < end and any(Path(f"/proc/{pid}").exists() for pid in below):
        time.sleep(0.02)
    assert not [pid for pid in below if Path(f"/proc/{pid}").exists()]


def test_only_as_many_blocks_as_workers_run_at_once():
    with EmbeddedSandbox(LIMITS, workers=1, cache_size=0) as sandbox:
        start = time.monotonic()
        with ThreadPoolExecutor(3) as pool:
            sessions = [sandbox.open() for _ in range(3)]
            list(pool.map(lambda session: session.run_sync("import time\ntime.sleep(0.2)"), sessions))
        assert time.monotonic() - start >= 0.6
