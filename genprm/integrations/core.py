"""What all adapters share: one verifier for many threads, lists in and lists in the same order out.

Knows verifiers by `verify_many` alone, so a client of `genprm serve` does as well. Knows no other project's shapes.
"""

from __future__ import annotations

import asyncio
import atexit
import inspect
import os
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

from ..build import load
from ..config import Config
from ..errors import BackendUnavailable, ConfigError, InputError
from ..types import Solution, VerificationResult
from .rewards import Asked, Rewards, rewards_of

CONFIG_ENV = "GENPRM_CONFIG"


class Judges(Protocol):
    """A verifier, or a client of the service."""

    def verify_many(self, solutions: Iterable[Solution]) -> Iterator[VerificationResult]:
        """Judge a stream of solutions; results come as they are done."""
        ...

    def close(self) -> None:
        """Free what it holds."""
        ...


Source = Judges | Config | str | Path
"""A verifier, a client, or what opens one: a config, its name or path, or the address of a service."""


class SharedVerifier:
    """A verifier that is opened when it is first needed and may be called from any number of threads.

    A forked or unpickled copy opens one of its own. What it opened itself is closed with it, or when Python ends.
    """

    def __init__(self, source: Source):
        """Remember what to open; nothing is loaded yet.

        Raises:
            ConfigError: it is nothing that judges.
        """
        self._source = source
        self._owned = isinstance(source, str | Path | Config)
        if not self._owned:
            verify_many = getattr(source, "verify_many", None)
            if not callable(verify_many) or inspect.isasyncgenfunction(verify_many):
                kind = type(source).__name__
                raise ConfigError(f"a {kind} cannot judge here: give a verifier, a Client, or the name of a config")
        self._reset()
        _ALL.add(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._verifier: Judges | None = None
        self._forked = False

    def open(self) -> Judges:
        """The verifier.

        Raises:
            ConfigError: the config is wrong, or a verifier object was carried over a fork.
            UnavailableError: model, engine or sandbox cannot be had.
        """
        with self._lock:
            if self._forked and not self._owned:
                raise ConfigError("a verifier object does not survive a fork: give the name of a config instead")
            if self._verifier is None:
                verifier = _open(self._source)
                # Starts its event loop's thread here, where no second thread can start another.
                for _ in verifier.verify_many(()):
                    pass
                self._verifier = verifier
                if self._owned:
                    _OPEN.add(self)
            return self._verifier

    def judge(self, asked: Sequence[Asked]) -> list[Rewards]:
        """Judge solutions; equal ones are judged once.

        Returns:
            One entry a solution, in order.

        Raises:
            InputError: a problem is blank.
            UnavailableError: model, engine or sandbox is lost.
        """
        ids: dict[Asked, str] = {}
        for place, item in enumerate(asked):
            if not item.problem.strip():
                raise InputError(f"the problem of solution {place} is empty")
            if item.steps:
                ids.setdefault(item, str(len(ids)))
        found: dict[str, VerificationResult] = {}
        if ids:
            solutions = [
                Solution(id=name, problem=item.problem, steps=item.steps, answer=item.answer)
                for item, name in ids.items()
            ]
            found = {result.id: result for result in self.open().verify_many(solutions)}
        if len(found) != len(ids):
            raise BackendUnavailable(f"the verifier answered for {len(found)} of {len(ids)} solutions")
        return [rewards_of(found[ids[item]], len(item.steps)) if item.steps else Rewards(()) for item in asked]

    async def ajudge(self, asked: Sequence[Asked]) -> list[Rewards]:
        """`judge` without holding up the running event loop."""
        return await asyncio.to_thread(self.judge, asked)

    def close(self) -> None:
        """Close what was opened here; safe to call twice."""
        with self._lock:
            verifier, self._verifier = self._verifier, None
            _OPEN.discard(self)
        if verifier is not None and self._owned:
            verifier.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        if not self._owned:
            raise TypeError("a verifier object cannot be pickled: give the name of a config instead")
        return {"_source": self._source, "_owned": True}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()
        _ALL.add(self)


_ALL: weakref.WeakSet[SharedVerifier] = weakref.WeakSet()
_OPEN: set[SharedVerifier] = set()
_NAMED: dict[str, SharedVerifier] = {}
# What a forked child inherits is of no use to it, and freeing it there could reach the parent's processes.
_LEFT: list[object] = []


def shared(config: str | None = None) -> SharedVerifier:
    """The process's one verifier of a config, for callers that can hold no object.

    Args:
        config: a config's name or path, or a service's address; None = what `GENPRM_CONFIG` holds, else `default`.
    """
    name = config or os.environ.get(CONFIG_ENV, "").strip() or "default"
    return _NAMED.setdefault(name, SharedVerifier(name))


def sharing(source: Source | SharedVerifier) -> SharedVerifier:
    """The source as something that threads may share."""
    return source if isinstance(source, SharedVerifier) else SharedVerifier(source)


def _open(source: Source) -> Judges:
    if isinstance(source, str) and source.startswith(("http://", "https://")):
        from ..client import Client

        return Client(source)
    if isinstance(source, str | Path):
        return load(str(source))
    return load(source) if isinstance(source, Config) else source


def _close_all() -> None:
    for judge in list(_OPEN):
        judge.close()


def _after_fork() -> None:
    for judge in list(_ALL):
        if judge._verifier is not None:
            _LEFT.append(judge._verifier)
        judge._reset()
        judge._forked = True
    _OPEN.clear()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_after_fork)
