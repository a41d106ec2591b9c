"""Thousands of runs of good and hostile code: nothing is left behind and memory does not grow.

`GENPRM_SOAK_RUNS=10000` for the full length; the default is shorter.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from pathlib import Path

import pytest
from scene import descendants

from genprm.sandbox import Limits
from genprm.sandbox.embedded import EmbeddedSandbox

RUNS = int(os.environ.get("GENPRM_SOAK_RUNS", "1000"))
MARK = f"genprm-soak-{os.getpid()}"

GOOD = [
    ("6 * 7", "42"),
    ("print(sum(range(100)))", "4950"),
    ("import sympy\nx = sympy.Symbol('x')\nsympy.solve(x**2 - 4)", "[-2, 2]"),
    ("import numpy as np\nint(np.arange(10).sum())", "45"),
    ("from fractions import Fraction\nFraction(1, 3) + Fraction(1, 6)", "Fraction(1, 2)"),
]
HOSTILE = [
    "1 / 0",
    "import os\nos._exit(0)",
    "import os\nos.fork()",
    "import ctypes\nctypes.string_at(0)",
    "x = bytearray(1 << 40)",
    f"for path in ('/tmp', '/dev/shm', '/var/tmp', '.'): open(path + '/{MARK}', 'w')",
    "import ctypes\nctypes.CDLL(None).shmget(0, 4096, 0o1666)",
    "import os\nos.write(3, b'o\\0' * 50)\nos.closerange(0, 64)",
    "import os\nfor number in range(64):\n    try: os.write(number, b'junk')\n    except OSError: pass",
    "import socket\nsocket.socket()",
    "import builtins\nbuiltins.print = None\nbuiltins.__dict__.clear()",
    "import subprocess\nsubprocess.run(['/bin/sh'])",
    "raise SystemExit(3)",
    "input()",
    "def (",
]
SLOW = [
    "x = []\nwhile True: x.append(bytes(1 << 20))",
    "while True: print('x' * 10000)",
    "import sys\nsys.setrecursionlimit(10**9)\ndef f(): return f()\nf()",
    "while True: pass",
    "import os\nos.write(3, b'o\\0')\nwhile True: pass",
    "import signal\nsignal.raise_signal(19)",
]
"""Stopped by a limit only: one run in fifty."""
STATUSES = {"ok", "error", "timeout", "memory", "output_limit", "died"}


def resident(pid: int) -> int:
    """Resident memory in kB; 0 for a process that has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmRSS")), 0)


def segments() -> int:
    return len(Path("/proc/sysvipc/shm").read_text().splitlines())


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.slow
@pytest.mark.attack
@pytest.mark.timeout(1800)
def test_nothing_is_left_after_thousands_of_good_and_hostile_runs(capsys):
    rng = random.Random(0)
    others, shared, open_before = descendants(os.getpid()), segments(), descriptors()
    start = time.monotonic()
    own: list[int] = []
    servers: dict[int, list[int]] = {}
    wrong: list[str] = []
    with EmbeddedSandbox(Limits(cpu_seconds=0.2, wall_seconds=10, memory_mb=96), cache_size=0) as sandbox:

        async def one(index: int) -> None:
            session = sandbox.open(Limits(cpu_seconds=0.2, wall_seconds=0.5, memory_mb=96) if index % 50 == 0 else None)
            try:
                if index % 50 == 0:
                    check = await session.run(rng.choice(SLOW))
                    if check.status not in STATUSES:
                        wrong.append(f"{check}")
                elif rng.random() < 0.3:
                    check = await session.run(rng.choice(HOSTILE))
                    if check.status not in STATUSES:
                        wrong.append(f"{check}")
                else:
                    source, expected = rng.choice(GOOD)
                    check = await session.run(source)
                    if (check.status, check.output) != ("ok", expected):
                        wrong.append(f"{check}")
            finally:
                session.close()

        async def everything() -> None:
            for batch in range(0, RUNS, 50):
                await asyncio.gather(*[one(index) for index in range(batch, batch + 50)])
                own.append(resident(os.getpid()))
                for pid in descendants(sandbox.server_pids[-1]) | {sandbox.server_pids[-1]}:
                    if (size := resident(pid)) > 30_000:
                        servers.setdefault(pid, []).append(size)

        asyncio.run(everything())
        below = descendants(os.getpid()) - others
        assert len(below) <= 4 + 2 * sandbox.workers, below  # servers with wrappers, and children made ready
    seconds = time.monotonic() - start
    assert not wrong, wrong[:3]
    end = time.monotonic() + 5
    while descendants(os.getpid()) - others and time.monotonic() < end:
        time.sleep(0.05)
    assert not descendants(os.getpid()) - others
    assert descriptors() <= open_before + 1  # the event loop's own machinery may keep one
    assert segments() == shared
    assert not [path for folder in ("/tmp", "/dev/shm", "/var/tmp", ".") for path in Path(folder).glob(f"{MARK}*")]
    quarter = own[len(own) // 4]
    assert max(own[len(own) // 2 :]) - quarter < 8_000, own
    for sizes in servers.values():
        if len(sizes) >= 5:  # a server, not a child that happened to be seen
            assert max(sizes) - sizes[0] < 8_000, sizes
    with capsys.disabled():
        growth = own[-1] - quarter
        print(f"\n{RUNS} runs in {seconds:.0f} s ({RUNS / seconds:.0f}/s), client grew by {growth} kB, servers steady")
