"""Code in a plain subprocess, as this user, with this user's files, network and rights. It protects nothing.

For machines that nobody else's text reaches, and for showing that the tests' attacks do work where nothing stops
them. It is only ever used by its explicit name.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import subprocess
import sys
import time
from types import TracebackType
from typing import Self

from ..types import CodeCheck
from .limits import Limits
from .output import death_note, limit_note
from .replay import Pool, ReplaySession, program, result, status_of

_log = logging.getLogger("genprm.sandbox")


class UnsafeSubprocessSandbox:
    """Runs code with all rights of this process."""

    level = "unsafe-subprocess"

    def __init__(self, limits: Limits | None = None, *, workers: int | None = None):
        self.limits = limits or Limits()
        self._pool = Pool(workers or len(os.sched_getaffinity(0)))
        _log.warning("model-written code runs unconfined: sandbox.kind is unsafe-subprocess")

    def open(self) -> UnsafeSession:
        """A new session."""
        return UnsafeSession(self._pool, self.limits)

    def close(self) -> None:
        """Take no more work; safe to call twice."""
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


class UnsafeSession(ReplaySession):
    """Each block in a fresh interpreter, after the blocks before it."""

    def execute(self, blocks: list[str]) -> CodeCheck:
        """Run the program of all blocks, stopped by the clock and by the length of its output only."""
        start = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-c", "import sys; exec(compile(sys.stdin.read(), '<program>', 'exec'))"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        output, status = bytearray(), ""
        with process:
            try:
                with contextlib.suppress(BrokenPipeError), process.stdin as stdin:
                    stdin.write(program(blocks).encode("utf-8", "replace"))
                end = start + self.limits.wall_seconds
                while not status:
                    if not select.select([process.stdout], [], [], max(0.0, end - time.monotonic()))[0]:
                        status = "timeout"
                    elif not (data := os.read(process.stdout.fileno(), 1 << 16)):
                        break
                    else:
                        output += data
                        if len(output) > self.limits.output_bytes:
                            status = "output_limit"
                if not status:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        code = process.wait(max(0.0, end - time.monotonic()))
                        status = status_of(code) if code >= 0 else "died"
                    status = status or "timeout"
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        note = ""
        if status == "died":
            code = process.returncode
            note = death_note(code << 8 if code >= 0 else -code)
        elif status not in ("ok", "error"):
            note = limit_note(status, self.limits)
        return result(blocks[-1], status, bytes(output), time.monotonic() - start, self.limits, note)
