"""The fork server: loads sympy and numpy once, then forks one confined child a session and watches it.

It never sees a block of code: the client sends descriptors, of which the child gets the code's end, so that the
memory that a child inherits holds nothing of another session. It keeps the children's time, because only it can
read their clocks and wait for them.

Wire, all datagrams: over the control socket come requests of four numbers with three descriptors (output, channel,
watch); over a session's watch socket come RUN, IDLE and KILL, and one answer goes back when the child has ended.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import math
import os
import selectors
import signal
import site
import socket
import struct
import sys
import time
from types import CodeType
from typing import Any

from . import child, confine

REQUEST = struct.Struct("!qq")
"""address space in bytes beyond the server's own size, processor seconds for the child's whole life"""
RUN = struct.Struct("!cdd")
"""b"R", processor seconds, wall seconds"""
ENDED = struct.Struct("!ci")
"""b"C" processor time, b"W" wall time, b"K" killed on request, b"X" ended by itself; the wait status"""
RUN_LETTER, IDLE, KILL = b"R", b"I", b"K"
_FIRST_FREE = 10


class Job:
    """One child: who to tell of its end, and when to look at its clocks next."""

    def __init__(self, pid: int, watch: socket.socket):
        self.pid, self.watch = pid, watch
        self.clock = (~pid << 3) | 2  # the kernel's name for the processor-time clock of another process
        self.reason = b"X"
        self.wall_end: float | None = None
        self.cpu_end: float | None = None
        self.look_at: float | None = None

    def used(self) -> float:
        """Processor seconds so far."""
        try:
            return time.clock_gettime(self.clock)
        except OSError:  # it has just ended
            return 0.0

    def begin(self, cpu: float, wall: float) -> None:
        """A block begins: it may use so much from now on."""
        now = time.monotonic()
        self.wall_end, self.cpu_end = now + wall, self.used() + cpu
        self.look_at = now + min(cpu, wall)

    def idle(self) -> None:
        """The block has ended, or so the child says: its processor time stays bounded all the same."""
        self.wall_end = None

    def check(self, now: float) -> None:
        """Kill the child if a limit has passed, else set the time of the next look."""
        if self.cpu_end is None:
            return
        left = self.cpu_end - self.used()
        if left <= 0:
            self.kill(b"C")
        elif self.wall_end is not None and now >= self.wall_end:
            self.kill(b"W")
        else:
            self.look_at = min(now + max(left, 0.001), self.wall_end or math.inf)

    def kill(self, reason: bytes) -> None:
        """End the child; the first reason is the one reported."""
        if self.reason == b"X":
            self.reason = reason
        self.look_at = self.cpu_end = None
        os.kill(self.pid, signal.SIGKILL)  # not reaped yet, so the number is still the child's


class Server:
    """The loop over the control socket, the watch sockets and the children's ends."""

    def __init__(self, control: socket.socket, ruleset: int | None, touch: CodeType):
        self.control, self.ruleset, self.touch = control, ruleset, touch
        self.pid = os.getpid()
        self.size = confine.address_space_bytes()
        self.jobs: dict[int, Job] = {}
        self.selector = selectors.DefaultSelector()
        self.selector.register(control, selectors.EVENT_READ, None)
        self.wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.selector.register(self.wake_read, selectors.EVENT_READ, None)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)

    def loop(self) -> None:
        """Serve until the client closes the control socket."""
        while True:
            looks = [job.look_at for job in self.jobs.values() if job.look_at is not None]
            timeout = None if not looks else max(0.0, min(looks) - time.monotonic())
            for key, _ in self.selector.select(timeout):
                if key.fileobj is self.control:
                    if not self.accept():
                        return self.end()
                elif key.data is None:
                    os.read(self.wake_read, 4096)
                elif key.data.pid in self.jobs:
                    self.listen(key.data)
            now = time.monotonic()
            for job in self.jobs.values():
                if job.look_at is not None and job.look_at <= now:
                    job.check(now)
            self.reap()

    def accept(self) -> bool:
        """Fork one child; False when the client has gone."""
        try:
            message, descriptors, _, _ = socket.recv_fds(self.control, REQUEST.size, 3)
        except OSError:
            return False
        if not message:
            return False
        budget, cpu_seconds = REQUEST.unpack(message)
        output, channel, watch = descriptors
        pid = os.fork()
        if pid == 0:
            self.become_child(output, channel, self.size + budget, cpu_seconds)
        os.close(output)
        os.close(channel)
        job = self.jobs[pid] = Job(pid, socket.socket(fileno=watch))
        self.selector.register(job.watch, selectors.EVENT_READ, job)
        return True

    def become_child(self, output: int, channel: int, address_space: int, cpu_seconds: int) -> None:
        """Everything from the fork to the child's end; never returns into the server."""
        code = 70
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            confine.die_with(self.pid)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.dup2(channel, child.CHANNEL)
            ruleset = None
            if self.ruleset is not None:
                ruleset = os.dup2(self.ruleset, child.CHANNEL + 1)
            confine.close_from(child.CHANNEL + (1 if ruleset is None else 2))
            try:
                confine.restrict(ruleset, address_space, cpu_seconds)
            except (confine.ConfinementError, OSError, ValueError) as error:
                os.write(child.CHANNEL, f"x{error}".encode())
            else:
                child.serve(self.touch)
                code = 0
        finally:
            os._exit(code)

    def listen(self, job: Job) -> None:
        """Hear the client's word on one child; its silence ends the child too."""
        try:
            message = job.watch.recv(RUN.size)
        except OSError:
            message = b""
        if message[:1] == RUN_LETTER:
            _, cpu, wall = RUN.unpack(message)
            job.begin(cpu, wall)
        elif message == IDLE:
            job.idle()
        else:
            self.selector.unregister(job.watch)
            job.kill(b"K")

    def reap(self) -> None:
        """Report the children that have ended."""
        while self.jobs:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            job = self.jobs.pop(pid, None)
            if job is None:
                continue
            with contextlib.suppress(OSError):  # the client has closed the session
                job.watch.send(ENDED.pack(job.reason, status))
            if job.watch in self.selector.get_map():
                self.selector.unregister(job.watch)
            job.watch.close()

    def end(self) -> None:
        """Leave no child behind."""
        for job in self.jobs.values():
            job.kill(b"K")
        while self.jobs:
            self.jobs.pop(os.waitpid(-1, 0)[0], None)


def _preload(modules: list[str], warm_up: str) -> dict[str, str]:
    for name in modules:
        importlib.import_module(name)
    exec(warm_up, {})  # the client's fixed text: fills caches and runs the imports that hide inside functions
    versions = {name: str(sys.modules[name].__version__) for name in ("sympy", "numpy")}
    return {"python": sys.version.split()[0], **versions}


def main(argument: str) -> None:
    """Start from one JSON argument: control, sys_path, readable, landlock, modules, warm_up, touch."""
    options: dict[str, Any] = json.loads(argument)
    number = os.dup2(options["control"], _FIRST_FREE, inheritable=False)
    confine.close_from(_FIRST_FREE + 1)
    for free in range(3, _FIRST_FREE):  # keeps received descriptors clear of the child's own numbers
        os.dup2(0, free, inheritable=False)
    control = socket.socket(fileno=number)
    sys.path[:] = options["sys_path"]
    sys.set_int_max_str_digits(0)  # a processor limit stops what this guards against; models print large powers
    hello: dict[str, Any] = {"landlock": 0, "seccomp": confine.seccomp_known()}
    descriptors = []
    ruleset = None
    try:
        site.setquit()  # `exit` and `quit`, which programs expect; `site` itself was not run
        touch = compile(options["touch"], "<touch>", "exec")
        hello["versions"] = _preload(options["modules"], options["warm_up"])
        if options["landlock"] and (abi := confine.landlock_abi()) > 0:
            ruleset = confine.make_ruleset(options["readable"], abi)
            hello["landlock"] = abi
        confine.give_up_privileges()
        descriptors = [os.pidfd_open(os.getpid())]
    except (ImportError, confine.ConfinementError) as error:
        hello["error"] = str(error)
    except (AttributeError, OSError):
        pass  # no pidfd here (gVisor): the client then only knows the wrapper's process
    os.dup2(0, 2)  # the client read start-up errors from there
    socket.send_fds(control, [json.dumps(hello).encode()], descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    if "error" in hello:
        return
    gc.collect()
    gc.freeze()  # children then do not write to, and so copy, the pages of old objects
    try:
        Server(control, ruleset, touch).loop()
    finally:
        os._exit(0)
