"""Solves problems by name of a method: one policy, one judge, many problems, verdicts shared among all of them.

Knows the methods and the parts that they need by their seams; build.py makes the parts from a config.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

from ..config import SPEED_ONLY, Config, SearchConfig
from ..errors import ConfigError
from ..policy import Policy
from ..streaming import in_flight
from ..verifier import Verifier
from .beam import beam, samples_each
from .best_of_n import best_of_n
from .critic import critic
from .dvts import dvts
from .mcts import mcts
from .prefixes import PrefixJudge
from .result import (
    SearchResult,
    candidates_of,
    correctness,
    counts_of,
    picked,
    usage_of,
    votes_of,
)
from .scene import Scene

T = TypeVar("T")
METHODS: dict[str, Callable[[Scene], Awaitable[None]]] = {
    "best-of-n": best_of_n,
    "beam": beam,
    "dvts": dvts,
    "mcts": mcts,
    "critic": critic,
}


@dataclass(frozen=True, slots=True)
class Problem:
    """A question to be solved."""

    id: str
    problem: str
    answer: str | None = None
    """Reference final answer."""


class Searcher:
    """A policy and a judge that solve problems together."""

    def __init__(self, policy: Policy, judge: Verifier | PrefixJudge, settings: SearchConfig | None = None):
        """Put a searcher together.

        Args:
            policy: writes solutions; closed with this object.
            judge: scores their steps, closed with this object; a `PrefixJudge` also brings verdicts that another
                search has asked for.
            settings: sizes and bounds; None = those of the judge's config.
        """
        self.policy = policy
        self.judge = judge if isinstance(judge, PrefixJudge) else PrefixJudge(judge)
        self.settings = settings or self.verifier.config.search

    @property
    def verifier(self) -> Verifier:
        """The judge."""
        return self.judge.verifier

    def digest(self, method: str) -> str:
        """sha256 over every setting that can change a result of this method."""
        return settings_digest(self.verifier.config, self.policy, self.settings, method)

    async def asolve(self, problem: str | Problem, method: str = "best-of-n") -> tuple[SearchResult, Scene]:
        """Solve one problem.

        Args:
            problem: the question, or one with an id and a reference answer.
            method: `best-of-n`, `beam`, `dvts`, `mcts` or `critic`.

        Returns:
            The result, and the scene whose tree can be traced.

        Raises:
            ConfigError: no such method, or its settings do not fit together.
            UnavailableError: an engine or the sandbox is lost.
        """
        run = method_of(method, self.settings)
        asked = Problem("0", problem) if isinstance(problem, str) else problem
        scene = Scene(asked.problem, self.policy, self.judge, self.settings, seed=self.verifier.config.verify.seed)
        started = time.perf_counter()
        async with self._work():
            await run(scene)
        return await self._result(scene, asked, method, time.perf_counter() - started), scene

    async def astream(
        self, problems: Iterable[Problem], method: str = "best-of-n"
    ) -> AsyncGenerator[tuple[SearchResult, Scene], None]:
        """Solve a stream of problems, `search.in_flight` at once; results come as they are done."""
        method_of(method, self.settings)
        most = self.settings.in_flight
        async with self._work(), aclosing(in_flight(problems, lambda one: self.asolve(one, method), most)) as found:
            async for one in found:
                yield one

    def solve(self, problem: str | Problem, method: str = "best-of-n") -> SearchResult:
        """`asolve`, and wait for it; also inside a running event loop, as in a notebook."""
        return blocking(self.asolve(problem, method))[0]

    def close(self) -> None:
        """Free engines and sandbox; safe to call twice."""
        self.policy.close()
        self.verifier.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    @asynccontextmanager
    async def _work(self) -> AsyncIterator[None]:
        """One stretch of work for all engines, so that they keep what prompts share."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.policy.backend.work())
            backend = getattr(self.verifier, "backend", None)
            if backend is not None and backend is not self.policy.backend:
                await stack.enter_async_context(backend.work())
            yield

    async def _result(self, scene: Scene, asked: Problem, method: str, seconds: float) -> SearchResult:
        found = await candidates_of(scene, asked.answer)
        pick = picked(found)
        if scene.answer is not None:
            pick = next((one for one in found if one.node == scene.answer.id), pick)
        plain, weighted = votes_of(found)
        correct = None
        if asked.answer is not None:
            correct = await correctness(pick, plain, weighted, found, asked.answer)
        verifier = self.verifier
        return SearchResult(
            id=asked.id,
            problem=asked.problem,
            method=method,
            pick=pick,
            majority=plain,
            weighted_majority=weighted,
            candidates=tuple(found),
            ended=scene.ended,
            answer=asked.answer,
            correct=correct,
            counts=counts_of(scene, found),
            usage=usage_of(scene, seconds),
            aggregation=self.settings.aggregation,
            model=verifier.model,
            protocol=verifier.protocol_ref,
            policy=self.policy.model,
            policy_protocol=self.policy.protocol.ref,
            config_sha256=self.digest(method),
            sandbox=str(getattr(getattr(verifier, "sandbox", None), "level", "off")),
        )


def method_of(name: str, settings: SearchConfig) -> Callable[[Scene], Awaitable[None]]:
    """A method by its name.

    Raises:
        ConfigError: there is none, or its settings do not fit together.
    """
    if name not in METHODS:
        raise ConfigError(f"there is no search method {name!r}; there are {', '.join(METHODS)}")
    if name in ("beam", "dvts"):
        samples_each(settings)
    return METHODS[name]


def settings_digest(config: Config, policy: Policy, settings: SearchConfig, method: str) -> str:
    """sha256 over what can change a result: judge, policy, search and method; where and how fast does not count."""
    drop: Any = {"max_in_flight": True, "backend": SPEED_ONLY}
    parts = [
        config.digest(),
        policy.model,
        policy.protocol.ref.sha256,
        policy.settings.model_dump(mode="json", exclude=drop),
        settings.model_dump(mode="json", exclude={"in_flight"}),
        method,
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def blocking(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in an event loop of its own; in a thread of its own where this one has a running loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    with ThreadPoolExecutor(1, thread_name_prefix="genprm-search") as thread:
        return thread.submit(asyncio.run, coroutine).result()
