"""The client's end of one fork server process: start, greeting, end.

The server ends when its control socket closes, so that it cannot outlive a client that was killed. No
parent-death signal is used: it fires when the starting thread ends, and judges start servers from pool threads.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

from .channel import Channel, ServerLostError
from .launch import ENVIRONMENT, Level, server_command, wrap
from .limits import Limits

_START_SECONDS = 60.0
_END_SECONDS = 3.0


class StartError(Exception):
    """The wrapper or the server did not come up; the message is the reason, in one line."""


class ServerProcess:
    """A running fork server and the number of children it was asked for."""

    def __init__(self, level: Level):
        """Start the server inside the level's wrapper and wait until it is loaded.

        Raises:
            StartError: it is not installed, not allowed here, or broken.
        """
        self.level, self.owner = level, os.getpid()
        self.alive, self.started = True, 0
        self._lock = threading.Lock()
        self._pidfd = -1
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = wrap(level, server_command(theirs.fileno(), landlock=level.landlock))
            if command is None:
                self._control.close()
                raise StartError("not installed")
            try:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    env=ENVIRONMENT,
                    cwd="/",
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            except OSError as error:
                self._control.close()
                raise StartError(str(error)) from error
        with contextlib.suppress(OSError):  # where memory runs out, the kernel is to take hosted code first
            Path(f"/proc/{self._process.pid}/oom_score_adj").write_text("500")
        try:
            self.hello = self._greet()
        except BaseException:
            self.close()
            raise

    def _greet(self) -> dict[str, Any]:
        stderr = self._process.stderr
        assert stderr is not None
        with stderr:
            poll = select.poll()
            poll.register(self._control, select.POLLIN)
            if not poll.poll(_START_SECONDS * 1000):
                raise StartError(f"no answer in {_START_SECONDS:g} s")
            try:
                message, descriptors, _, _ = socket.recv_fds(self._control, 1 << 16, 1)
            except OSError:
                message, descriptors = b"", []
            if not message:
                lines = stderr.read(10_000).decode("utf-8", "replace").strip().splitlines()
                raise StartError(lines[-1] if lines else f"ended with status {self._process.wait()}")
        if descriptors:
            self._pidfd = descriptors[0]
            os.set_inheritable(self._pidfd, False)
        hello: dict[str, Any] = json.loads(message)
        if "error" in hello:
            raise StartError(hello["error"])
        return hello

    @property
    def pid(self) -> int:
        """The started process: the wrapper, or the server itself where there is none."""
        return self._process.pid

    def open_channel(self, limits: Limits) -> Channel:
        """Ask for one more child.

        Raises:
            ServerLostError: the server has gone.
        """
        try:
            with self._lock:
                if not self.alive:
                    raise ServerLostError("the fork server has ended")
                self.started += 1
                return Channel(self._control, limits)
        except ServerLostError:
            self.close()  # it may have died while nobody used it; the next one who asks gets a new one
            raise

    def ended(self, seconds: float) -> bool:
        """Whether the server has gone, or goes within so long."""
        with self._lock:
            if not self.alive:
                return True
            poll = select.poll()
            if self._pidfd >= 0:
                poll.register(self._pidfd, select.POLLIN)
            else:
                poll.register(self._control, select.POLLHUP)
            return bool(poll.poll(seconds * 1000))

    def close(self) -> None:
        """End the server with all its children; safe to call twice."""
        with self._lock:
            if not self.alive:
                return
            self.alive = False
            self._control.close()
        if self.owner == os.getpid():
            try:
                self._process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:  # stopped or stuck, the wrapper or the server in it
                below = _below(self._process.pid)
                with contextlib.suppress(OSError):
                    if self._pidfd >= 0:
                        signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
                self._process.kill()
                for pid in below:
                    with contextlib.suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
                self._process.wait()
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1

    def forget(self) -> None:
        """Close this end in a forked process, which must not talk to its parent's server."""
        self._lock = threading.Lock()
        self._process.returncode = 0  # not this process' child: nothing to wait for
        self.close()


def _below(pid: int) -> list[int]:
    """The processes below one, as far as the kernel lists them: a stopped wrapper does not end with its parent."""
    try:
        children = [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return [*children, *(deeper for child in children for deeper in _below(child))]
