"""Blocks that share state, in one confined child of the embedded sandbox.

When the child is gone (a limit, a crash, a server that was replaced, a fork of this process), the session's earlier
blocks are run again, silently, in a new one: they ended by themselves once, take no input and are seeded, so they
give the same variables. A block that was stopped leaves nothing behind. If the repetition does not fit one block's
time, the output says that earlier variables were lost.
"""

from __future__ import annotations

import asyncio
import hashlib
import signal
import threading
import time
from concurrent.futures import Future
from typing import Protocol

from ..types import CodeCheck
from .channel import Channel, NotConfinedError, Raw, ServerLostError
from .limits import Limits
from .output import death_note, limit_note, present
from .process import ServerProcess

LOST_NOTE = "[the variables of earlier blocks were lost]"
_LAST_WORDS = 0.05
"""Seconds in which a server that was killed with its child is seen to be gone."""


class Owner(Protocol):
    """What a session needs of its sandbox."""

    def submit(self, session: EmbeddedSession, source: str, echo: bool) -> Future[CodeCheck]:
        """Have `session.step` called in one of the sandbox's threads."""
        ...

    def take_channel(self, limits: Limits) -> tuple[ServerProcess, Channel]:
        """A child that has run nothing, and its server."""
        ...

    def make_ready(self) -> None:
        """Prepare children for later."""
        ...

    def cached(self, key: bytes) -> CodeCheck | None:
        """The result kept under a key."""
        ...

    def remember(self, key: bytes, check: CodeCheck) -> None:
        """Keep a result."""
        ...


class EmbeddedSession:
    """State shared by the code blocks of one critique."""

    def __init__(self, owner: Owner, limits: Limits):
        self.limits = limits
        self.server: ServerProcess | None = None
        """The server whose child this session has at present."""
        self._owner = owner
        self._channel: Channel | None = None
        self._closed = False
        # Blocks that ended by themselves, with whether they echoed, make up the state; the first `_done` of them
        # have run in the present child.
        self._history: list[tuple[str, bool]] = []
        self._done = 0
        self._digest = hashlib.sha256(limits.model_dump_json().encode()).digest()
        self._lock = threading.Lock()

    async def run(self, source: str, *, echo: bool = True) -> CodeCheck:
        """Run one block after the blocks before it; never raises for what the code does.

        Args:
            source: the block.
            echo: show the value of a trailing expression.
        """
        return await asyncio.wrap_future(self._owner.submit(self, source, echo))

    def run_sync(self, source: str, *, echo: bool = True) -> CodeCheck:
        """The same from plain threads, without an event loop."""
        return self._owner.submit(self, source, echo).result()

    def close(self) -> None:
        """End the session and its child; safe to call twice. A block that runs is stopped."""
        self._closed = True
        if self._lock.acquire(blocking=False):
            try:
                self._drop()
            finally:
                self._lock.release()
        elif (channel := self._channel) is not None:
            channel.kill()  # the thread that runs the block then drops it

    def __del__(self) -> None:
        if getattr(self, "_channel", None) is not None:
            self._drop()

    def step(self, source: str, echo: bool) -> CodeCheck:
        """Run one block; called in a thread of the sandbox."""
        with self._lock:
            try:
                return self._step(source, echo)
            finally:
                self._owner.make_ready()
                if self._closed:
                    self._drop()

    def _step(self, source: str, echo: bool) -> CodeCheck:
        if self._closed:
            return _unavailable(source, "the session is closed")
        if len(source) > self.limits.source_chars:
            text = f"[not run: the block has more than {self.limits.source_chars:,} characters]"
            return CodeCheck(source=source, status="error", output=text, seconds=0.0)
        key = hashlib.sha256(self._digest + bytes([echo]) + source.encode("utf-8", "replace")).digest()
        check = self._owner.cached(key)
        if check is None:
            check, repeatable = self._execute(source, echo)
            if repeatable:
                self._owner.remember(key, check)
        if check.status in ("ok", "error"):
            self._history.append((source, echo))
            self._digest = key
        return check

    def _execute(self, source: str, echo: bool) -> tuple[CodeCheck, bool]:
        """Run one block; also tells whether the result may be kept for the same code."""
        try:
            raw, lost = self._attempt(source, echo)
        except ServerLostError as error:
            return _unavailable(source, str(error)), False
        ended_well = raw.status in ("ok", "error")
        if ended_well:
            self._done = len(self._history) + 1
        else:
            self._drop()
        return self._check(source, raw, lost), ended_well and not lost

    def _attempt(self, source: str, echo: bool) -> tuple[Raw, bool]:
        """Run in the child, once more if the server is lost. Also tells whether earlier variables were lost.

        Raises:
            ServerLostError: twice, or the session was closed meanwhile.
        """
        reason = "the session is closed"
        for _ in range(2):
            if self._closed:
                break
            try:
                lost = self._catch_up()
                if self._closed:  # while there was no child yet that `close` could have killed
                    break
                assert self._channel is not None
                raw = self._channel.run(source, echo=echo)
                # Killed together, the server may still have told of the child's end before its own.
                if _killed(raw) and self.server is not None and self.server.ended(_LAST_WORDS):
                    raise ServerLostError("the fork server was killed, and the child with it")
            except NotConfinedError as error:
                self._drop()
                raise ServerLostError(f"the child could not be confined: {error}") from error
            except ServerLostError as error:
                reason = str(error)
                if self.server is not None:
                    self.server.close()
                self._drop()
                continue
            except OSError as error:  # this process is out of descriptors or memory: no fault of the server
                self._drop()
                raise ServerLostError(str(error)) from error
            if self._closed:
                reason = "the session is closed"
                break
            return raw, lost
        raise ServerLostError(reason)

    def run_script(self, source: str) -> Raw:
        """Run one whole program and give its bytes as they are; the session ends with it.

        Raises:
            ServerLostError: it could not be run.
        """
        with self._lock:
            try:
                return self._attempt(source, echo=False)[0]
            finally:
                self._owner.make_ready()
                self._closed = True
                self._drop()

    def _catch_up(self) -> bool:
        """Have a child in which all earlier blocks have run. True if their variables could not be had again."""
        if self._channel is None:
            self.server, self._channel = self._owner.take_channel(self.limits)
            self._done = 0
        end = time.monotonic() + self.limits.wall_seconds
        for source, echo in self._history[self._done :]:
            wall = max(0.01, end - time.monotonic())
            raw = self._channel.run(source, echo=echo, silent=True, wall=wall)
            if raw.status not in ("ok", "error"):
                self._drop()
                self._history.clear()
                self._catch_up()
                return True
            self._done += 1
        return False

    def _check(self, source: str, raw: Raw, lost: bool) -> CodeCheck:
        notes = []
        if raw.status == "died":
            notes.append(death_note(raw.wait_status))
        elif raw.status not in ("ok", "error"):
            notes.append(limit_note(raw.status, self.limits, clock=raw.clock))
        if lost:
            notes.append(LOST_NOTE)
        output = present(bytes(raw.output), self.limits, note="\n".join(notes))
        return CodeCheck.model_validate(
            {"source": source, "status": raw.status, "output": output, "seconds": raw.seconds}
        )

    def _drop(self) -> None:
        channel, self._channel, self.server, self._done = self._channel, None, None, 0
        if channel is not None:
            channel.close()

    def after_fork(self) -> None:
        """In a forked process: let go of the parent's child; the state is made again when it is needed."""
        if self._channel is not None:
            self._channel.forget()
        self._channel, self.server, self._done = None, None, 0
        self._lock = threading.Lock()


def _killed(raw: Raw) -> bool:
    return raw.status == "died" and raw.wait_status & 0x7F == signal.SIGKILL


def _unavailable(source: str, reason: str) -> CodeCheck:
    return CodeCheck(source=source, status="unavailable", output=f"[code execution failed: {reason}]", seconds=0.0)
