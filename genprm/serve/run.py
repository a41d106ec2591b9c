"""The service as a process: its socket, its signals, and its end.

The socket is taken before the model is loaded, so that a taken port is said at once; connections are accepted when the
model is there. SIGTERM or SIGINT drains: new work is refused with 503, work under way finishes or is given up after
`serve.drain_seconds`; a second signal ends at once.
"""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Callable
from functools import partial
from types import FrameType

import uvicorn

from ..errors import UsageError
from ..verifier import Verifier
from .app import Service
from .desk import Desk
from .logs import say

BACKLOG = 2048
CLOSING_SECONDS = 5
"""How long answers may take to be read by their callers once everything is judged or given up."""
# A full collection over an engine's hundreds of thousands of objects stops every request for up to half a second.
COLLECT_AFTER = (20_000, 20, 20)


def take_socket(host: str, port: int) -> socket.socket:
    """A socket bound to an address; 0 = any free port.

    Raises:
        UsageError: it cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError, UnicodeError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot listen on {host} port {port}: {reason}") from None
    return listener


def address_of(listener: socket.socket) -> str:
    """The URL under which a socket is reached."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(verifier: Verifier, listener: socket.socket, *, key: str | None = None) -> None:
    """Serve until a signal ends it; tunes the garbage collector of the whole process for that.

    Args:
        verifier: judges; closed by the caller.
        listener: from `take_socket`.
        key: the bearer token that callers must send; None = none is asked for.
    """
    service = Service(verifier, key=key)
    gc.collect()
    gc.freeze()  # what is loaded stays for as long as the process
    gc.set_threshold(*COLLECT_AFTER)
    config = uvicorn.Config(
        service.app,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        backlog=BACKLOG,
        timeout_graceful_shutdown=CLOSING_SECONDS,
    )
    ready = partial(say, "ready", url=address_of(listener), model=verifier.model, token=key is not None)
    _Server(config, service.desk, ready).run(sockets=[listener])
    say("ended")


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, desk: Desk, ready: Callable[[], None]):
        super().__init__(config)
        self._desk, self._ready = desk, ready
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await self._desk.begin()
        await super().startup(sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        await self._desk.end()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain; the second time, end."""
        if self._loop is None or self._desk.draining:
            self.should_exit = self.force_exit = True
            return
        self._desk.drain()
        self._loop.call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        self._draining = asyncio.ensure_future(self._drain())

    async def _drain(self) -> None:
        say("draining", requests=self._desk.requests)
        if not await self._desk.finished(self._desk.settings.drain_seconds):
            say("giving up what is under way", requests=self._desk.requests)
            self._desk.stop()
            await self._desk.finished(CLOSING_SECONDS)
        self.should_exit = True
