"""The client's end of one confined child: sends a block, reads output, and learns how the block ended.

Everything read here was written by hostile code, but for the watch socket, which only the server holds.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import time
from dataclasses import dataclass, field

from .limits import Limits

# The server's wire, repeated here: the two programs share no code at run time. A test compares them.
REQUEST = struct.Struct("!qq")
RUN = struct.Struct("!cdd")
ENDED = struct.Struct("!ci")
HEADER = struct.Struct("!BI")
ECHO, SILENT = 1, 2

_GRACE_SECONDS = 5.0
_STATUSES = {b"o": "ok", b"e": "error", b"m": "memory"}
_LIFETIME_FACTOR = 20  # blocks' worth of processor time that a child gets in all; the kernel's own backstop
_READ = select.POLLIN | select.POLLHUP | select.POLLERR


class ServerLostError(Exception):
    """The fork server has gone or no longer answers: says nothing about the code."""


class NotConfinedError(Exception):
    """The child could not give up a right and so ran nothing."""


@dataclass
class Raw:
    """How a block ended, before it is put into words."""

    status: str
    output: bytearray = field(default_factory=bytearray)
    seconds: float = 0.0
    exit_code: int = 0
    """Of a block that ended by itself, as of a script."""
    clock: str = ""
    """`cpu` or `wall` where time ran out."""
    wait_status: int = 0


class Channel:
    """One child. Not thread-safe: its session takes care of that."""

    def __init__(self, control: socket.socket, limits: Limits):
        """Ask the server for a child.

        Raises:
            ServerLostError: the server has gone.
            OSError: this process cannot have more descriptors.
        """
        self.limits = limits
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            self.output, output = os.pipe2(os.O_CLOEXEC)
            ours.callback(os.close, self.output)
            theirs.callback(os.close, output)
            self.channel, channel = socket.socketpair()
            ours.enter_context(self.channel)
            theirs.enter_context(channel)
            self.watch, watch = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            ours.enter_context(self.watch)
            theirs.enter_context(watch)
            request = REQUEST.pack(limits.memory_mb << 20, int(limits.cpu_seconds * _LIFETIME_FACTOR) + 1)
            try:
                socket.send_fds(control, [request], [output, channel.fileno(), watch.fileno()])
            except OSError as error:
                raise ServerLostError(str(error)) from error
            os.set_blocking(self.output, False)
            self.channel.setblocking(False)
            ours.pop_all()

    def run(self, source: str, *, echo: bool, silent: bool = False, wall: float | None = None) -> Raw:
        """Run one block to its end.

        Args:
            source: the block.
            echo: show a trailing expression's value.
            silent: no output at all; the block is run again for its variables.
            wall: seconds on the clock, if fewer than the limits allow.

        Raises:
            ServerLostError: the server went away or does not react.
            NotConfinedError: the child refused to run anything.
        """
        limits = self.limits
        wall = limits.wall_seconds if wall is None else wall
        self._drain_channel()
        payload = source.encode("utf-8", "replace")
        pending = memoryview(HEADER.pack(ECHO * echo | SILENT * silent, len(payload)) + payload)
        start = time.monotonic()
        raw = Raw("died")
        try:
            self.watch.send(RUN.pack(b"R", limits.cpu_seconds, wall))
        except OSError:
            if not self._ended(raw):  # it may have ended before this block
                raise ServerLostError("the watch socket is closed") from None
            return raw
        poll = select.poll()
        poll.register(self.output, _READ)
        poll.register(self.watch, _READ)
        poll.register(self.channel, _READ | select.POLLOUT)
        give_up = start + wall + _GRACE_SECONDS
        while True:
            left = give_up - time.monotonic()
            if left <= 0:
                raise ServerLostError("the fork server does not keep its time limit")
            ready = dict(poll.poll(left * 1000))
            if self.output in ready and not self._read_output(raw):
                poll.unregister(self.output)
            if len(raw.output) > limits.output_bytes:
                return self._stop(raw, start)
            if ready.get(self.channel.fileno(), 0) & select.POLLOUT and len(pending):
                with contextlib.suppress(OSError):  # it has ended: the watch socket tells
                    pending = pending[self.channel.send(pending) :]
                if not len(pending):
                    poll.modify(self.channel, _READ)
            if ready.get(self.channel.fileno(), 0) & _READ:
                answer = self._answer()
                if answer is None:
                    poll.unregister(self.channel)
                elif answer:
                    return self._finish(raw, answer, start)
            if self.watch.fileno() in ready and self._ended(raw):
                raw.seconds = time.monotonic() - start
                self._read_output(raw)
                return raw

    def untouched(self) -> bool:
        """Whether the child, which has run nothing yet, is still there."""
        try:
            return not self._ended(Raw("died"))
        except ServerLostError:
            return False

    def _answer(self) -> bytes | None:
        """A status letter and an exit code, empty for what is neither, None at the end."""
        try:
            data = self.channel.recv(256)
        except BlockingIOError:
            return b""
        except OSError:
            return None
        if data[:1] == b"x":
            raise NotConfinedError(data[1:].decode("utf-8", "replace"))
        if not data:
            return None
        return data[:2] if data[:1] in _STATUSES and len(data) > 1 else b""

    def _finish(self, raw: Raw, answer: bytes, start: float) -> Raw:
        raw.status, raw.exit_code, raw.seconds = _STATUSES[answer[:1]], answer[1], time.monotonic() - start
        with contextlib.suppress(OSError):
            self.watch.send(b"I")
        # All that the block printed is in the pipe by now.
        self._read_output(raw)
        if len(raw.output) > self.limits.output_bytes:
            return self._stop(raw, start)
        return raw

    def _stop(self, raw: Raw, start: float) -> Raw:
        raw.status, raw.seconds = "output_limit", time.monotonic() - start
        self.kill()
        return raw

    def _read_output(self, raw: Raw) -> bool:
        """Take what the pipe holds, within the limit; False at its end."""
        while len(raw.output) <= self.limits.output_bytes:
            try:
                data = os.read(self.output, 1 << 16)
            except BlockingIOError:
                return True
            if not data:
                return False
            raw.output += data
        return True

    def _ended(self, raw: Raw) -> bool:
        """Read the server's word on the child's end into `raw`."""
        message = b""
        for _ in range(2):  # a reset (the server has left our last word unread) comes before its own last word
            try:
                message = self.watch.recv(ENDED.size, socket.MSG_DONTWAIT)
                break
            except BlockingIOError:
                return False
            except ConnectionResetError:
                continue
        if len(message) != ENDED.size:
            raise ServerLostError("the fork server has ended")
        reason, raw.wait_status = ENDED.unpack(message)
        raw.clock = {b"C": "cpu", b"W": "wall"}.get(reason, "")
        raw.status = "timeout" if raw.clock else "died"
        return True

    def _drain_channel(self) -> None:
        """Drop what the last block has sent beyond its one answer."""
        with contextlib.suppress(OSError):
            while self.channel.recv(4096):
                pass

    def kill(self) -> None:
        """Ask the server to end the child."""
        with contextlib.suppress(OSError):
            self.watch.send(b"K")

    def close(self) -> None:
        """End the child and close this end; safe to call twice."""
        self.kill()
        self.forget()

    def forget(self) -> None:
        """Close this end only, in a forked process to which the child does not belong."""
        if self.output >= 0:
            os.close(self.output)
            self.output = -1
        self.channel.close()
        self.watch.close()
