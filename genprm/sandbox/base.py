"""The seam behind which model-written code runs, and the two stand-ins that run nothing.

A `Sandbox` opens `Session`s. Blocks of one critique share a session and so share state; nothing else does. A run
never raises for what the code did: it returns a `CodeCheck` whose status says how it ended. Infrastructure
failure is the status `unavailable`, which is no verdict on the code.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

from ..types import CodeCheck

OFF_MESSAGE = "[code execution is not available]"


@runtime_checkable
class Session(Protocol):
    """State shared by the code blocks of one critique."""

    async def run(self, source: str) -> CodeCheck:
        """Run one block after the blocks before it; never raises for what the code does."""
        ...

    def run_sync(self, source: str) -> CodeCheck:
        """The same from plain threads, without an event loop."""
        ...

    def close(self) -> None:
        """End the session and everything that runs in it; safe to call twice."""
        ...


@runtime_checkable
class Sandbox(Protocol):
    """Where code runs."""

    level: str
    """What confines the code, e.g. `L1`; stored in every result."""

    def open(self) -> Session:
        """A new session with no state of any other."""
        ...

    def close(self) -> None:
        """End all sessions and processes; safe to call twice."""
        ...


class OffSession:
    """Runs nothing and says so."""

    async def run(self, source: str) -> CodeCheck:
        """Return status `unavailable`."""
        return self.run_sync(source)

    def run_sync(self, source: str) -> CodeCheck:
        """Return status `unavailable`."""
        return CodeCheck(source=source, status="unavailable", output=OFF_MESSAGE, seconds=0.0)

    def close(self) -> None:
        """Nothing to end."""


class OffSandbox:
    """`sandbox.kind: off`: the model is told that code execution is not available."""

    level = "off"

    def open(self) -> OffSession:
        """A session that runs nothing."""
        return OffSession()

    def close(self) -> None:
        """Nothing to end."""


class ScriptedSandbox:
    """A deterministic fake for tests: answers runs from a list, in order, then repeats the last answer."""

    level = "scripted"

    def __init__(self, outputs: Sequence[str] = ("",)):
        self.outputs = list(outputs)
        self.sources: list[str] = []
        self.opened = 0

    def open(self) -> ScriptedSession:
        """A session that replays this sandbox's outputs from the start."""
        self.opened += 1
        return ScriptedSession(self)

    def close(self) -> None:
        """Nothing to end."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


class ScriptedSession:
    """One replay of a `ScriptedSandbox`."""

    def __init__(self, sandbox: ScriptedSandbox):
        self._sandbox = sandbox
        self._position = 0

    async def run(self, source: str) -> CodeCheck:
        """Answer with the next output."""
        return self.run_sync(source)

    def run_sync(self, source: str) -> CodeCheck:
        """Answer with the next output."""
        outputs = self._sandbox.outputs
        output = outputs[min(self._position, len(outputs) - 1)]
        self._position += 1
        self._sandbox.sources.append(source)
        return CodeCheck(source=source, status="ok", output=output, seconds=0.0)

    def close(self) -> None:
        """Nothing to end."""
