"""The sandbox on this machine: a fork server, one confined child a session, a pool of threads that drive them.

Level and self-test are settled when the sandbox is made; where code cannot be confined that raises
`SandboxUnavailable`, and no code runs. What is not stopped is listed in `inside/confine.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self, TypeVar

from ..errors import SandboxUnavailable
from ..types import CodeCheck
from .channel import Channel, Raw, ServerLostError
from .limits import Limits
from .process import ServerProcess
from .session import EmbeddedSession
from .startup import CHOICES, LayerError, choose, start_server

T = TypeVar("T")

_log = logging.getLogger("genprm.sandbox")
_SESSIONS_PER_SERVER = 1_000


class EmbeddedSandbox:
    """Runs code on this machine, confined by the kernel."""

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        workers: int | None = None,
        level: str | None = None,
        cache_size: int = 1_024,
    ):
        """Start the fork server at the best level that this machine gives, and test it.

        Args:
            limits: of each block.
            workers: blocks that run at the same time; default one for each processor.
            level: `L3`, `L2`, `L1` or `L1'` to insist on one.
            cache_size: results kept, by the code of the session so far; 0 = none.

        Raises:
            SandboxUnavailable: code cannot be confined here, or not at `level`.
        """
        if sys.platform != "linux":
            raise SandboxUnavailable(
                f"code is confined by Linux, and this is {sys.platform}; {CHOICES}", missing=["Linux"]
            )
        self.limits = limits or Limits()
        self.workers = workers or len(os.sched_getaffinity(0))
        self._cache_size = cache_size
        self._cache: OrderedDict[bytes, CodeCheck] = OrderedDict()
        self._sessions: weakref.WeakSet[EmbeddedSession] = weakref.WeakSet()
        self._spares: deque[tuple[ServerProcess, Channel]] = deque()
        self._closed = False
        self._lock = threading.RLock()
        self._executor: ThreadPoolExecutor | None = None
        server, self.canaries, self.passed_over = choose(level)
        self._servers = [server]  # the last one takes new children, the others run out
        self._finalizer = weakref.finalize(self, _end_all, self._servers, self._spares)
        self._level = server.level
        self.level = self._level.name
        self.versions: dict[str, str] = dict(server.hello["versions"])
        _sandboxes.add(self)
        _log.info("code runs at level %s: %s", self.level, ", ".join(self.layers))

    @property
    def layers(self) -> tuple[str, ...]:
        """What confines the code, outermost first."""
        return self._level.layers

    @property
    def server_pids(self) -> list[int]:
        """The started processes: servers, or their wrappers."""
        return [server.pid for server in self._servers]

    def open(self, limits: Limits | None = None) -> EmbeddedSession:
        """A new session; its child starts with its first block."""
        session = EmbeddedSession(self, limits or self.limits)
        with self._lock:
            self._sessions.add(session)
            if self._closed:
                session.close()
        return session

    async def run_script(self, source: str, limits: Limits | None = None) -> Raw:
        """Run one whole program in a session of its own and give its bytes as they are.

        Raises:
            SandboxUnavailable: it could not be run; says nothing about the program.
        """
        session = self.open(limits)
        try:
            return await asyncio.wrap_future(self._in_thread(session.run_script, source))
        except ServerLostError as error:
            raise SandboxUnavailable(f"code execution failed: {error}", missing=["fork server"]) from error

    def close(self) -> None:
        """End all sessions and processes; safe to call twice."""
        with self._lock:
            self._closed = True
            executor, self._executor = self._executor, None
        for session in list(self._sessions):
            session.close()
        if executor is not None:
            executor.shutdown(wait=True, cancel_futures=True)
        with self._lock:
            _end_all(self._servers, self._spares)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    # What sessions need; see `session.Owner`.

    def submit(self, session: EmbeddedSession, source: str, echo: bool) -> Future[CodeCheck]:
        """Run a block in one of the threads."""
        return self._in_thread(session.step, source, echo)

    def _in_thread(self, function: Callable[..., T], *arguments: object) -> Future[T]:
        with self._lock:
            if self._closed:  # so is the session, which says so at once
                done: Future[T] = Future()
                try:
                    done.set_result(function(*arguments))
                except ServerLostError as error:
                    done.set_exception(error)
                return done
            if self._executor is None:
                self._executor = ThreadPoolExecutor(self.workers, thread_name_prefix="genprm-sandbox")
            return self._executor.submit(function, *arguments)

    def current_server(self) -> ServerProcess:
        """The server for new children: a new one where the last has died or done its share.

        Raises:
            ServerLostError: it cannot be had any more.
        """
        with self._lock:
            if self._closed:
                raise ServerLostError("the sandbox is closed")
            if self._servers and self._servers[-1].alive and self._servers[-1].started < _SESSIONS_PER_SERVER:
                return self._servers[-1]
            self._drop_spares()
            used = {session.server for session in list(self._sessions)}
            for server in [server for server in self._servers if server not in used]:
                self._servers.remove(server)
                server.close()
            try:
                server, _ = start_server(self._level)
            except (LayerError, OSError) as error:
                raise ServerLostError(f"the sandbox could not be restarted: {error}") from error
            self._servers.append(server)
            return server

    def take_channel(self, limits: Limits) -> tuple[ServerProcess, Channel]:
        """A child: one that was made ready before, or else a new one.

        Raises:
            ServerLostError: it cannot be had any more.
        """
        server = self.current_server()
        while limits == self.limits:
            with self._lock:
                if not self._spares:
                    break
                owner, channel = self._spares.popleft()
            if owner is server and channel.untouched():
                return owner, channel
            channel.close()
        return server, server.open_channel(limits)

    def make_ready(self) -> None:
        """Have children made while nobody waits for them: that saves a session's first block the fork."""
        with self._lock, contextlib.suppress(ServerLostError, OSError):
            while not self._closed and len(self._spares) < self.workers and self._servers:
                if not self._servers[-1].alive:
                    break
                self._spares.append((self._servers[-1], self._servers[-1].open_channel(self.limits)))

    def cached(self, key: bytes) -> CodeCheck | None:
        """A result of the same code after the same blocks."""
        with self._lock:
            if (check := self._cache.get(key)) is not None:
                self._cache.move_to_end(key)
            return check

    def remember(self, key: bytes, check: CodeCheck) -> None:
        """Keep a result, and drop the one that was not used for the longest time."""
        with self._lock:
            self._cache[key] = check
            while len(self._cache) > self._cache_size:
                self._cache.popitem(last=False)

    def _drop_spares(self) -> None:
        while self._spares:
            self._spares.popleft()[1].close()

    def after_fork(self) -> None:
        """In a forked process: let go of the parent's servers and children; new ones start when code is run."""
        self._lock = threading.RLock()
        self._executor = None
        for session in list(self._sessions):
            session.after_fork()
        while self._spares:
            self._spares.popleft()[1].forget()
        for server in self._servers:
            server.forget()
        self._servers.clear()


def _end_all(servers: list[ServerProcess], spares: deque[tuple[ServerProcess, Channel]]) -> None:
    while spares:
        spares.popleft()[1].close()
    while servers:
        servers.pop().close()


_sandboxes: weakref.WeakSet[EmbeddedSandbox] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for sandbox in list(_sandboxes):
        sandbox.after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
