"""Calls a running `genprm serve` as if it were a verifier: the same results, the same errors.

Knows the service's routes and when a request may be sent again. A full queue and a service that is starting or ending
are waited for; what the service finds wrong with a request is an `InputError`, and a service that cannot be reached or
cannot judge is `BackendUnavailable`.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import time
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast, overload

from .blocking import Blocking
from .config import Config
from .errors import BackendUnavailable, ConfigError, InputError
from .score import Score
from .streaming import in_flight
from .types import Record, Solution, VerificationResult

if TYPE_CHECKING:
    import httpx

Given = Solution | Mapping[str, Any]
"""A solution, or what a row of a solution file may hold."""
R = TypeVar("R", bound=Record)

AGAIN = {429, 502, 503}
KEY_ENV = "GENPRM_API_KEY"
_HOST = re.compile(rb"[A-Za-z0-9.:_-]+")


class AsyncClient:
    """Calls a service from one event loop; use as an asynchronous context manager.

    >>> async with AsyncClient("http://127.0.0.1:8000") as judge:  # doctest: +SKIP
    ...     result = await judge.verify({"problem": "1 + 1?", "steps": ["1 + 1 = 3"]})
    """

    def __init__(
        self,
        base_url: str = "http://127.0.0.1:8000",
        *,
        api_key: str | None = None,
        timeout: float = 600.0,
        connect_timeout: float = 10.0,
        patience: float = 900.0,
        retries: int = 10,
        backoff: float = 0.5,
        max_backoff: float = 30.0,
        concurrency: int = 32,
    ):
        """Prepare; nothing is sent yet.

        Args:
            base_url: address of the service.
            api_key: bearer token; None = what `GENPRM_API_KEY` holds, if it is set.
            timeout: seconds for one attempt; the service is told, and gives up by then as well.
            connect_timeout: seconds for reaching the service.
            patience: seconds after which no further attempt is made.
            retries: further attempts after 429, 502, 503, and connections that fail.
            backoff: seconds before the first of them; doubles, with jitter. `Retry-After` goes before it.
            max_backoff: the longest of these pauses.
            concurrency: solutions of `verify_many` that are asked for at once.

        Raises:
            ConfigError: the address is no HTTP URL.
        """
        import httpx

        try:
            url = httpx.URL(base_url)
        except httpx.InvalidURL:
            url = httpx.URL("")
        if url.scheme not in ("http", "https") or not _HOST.fullmatch(url.raw_host):
            raise ConfigError(f"{base_url!r} is no address of a service: give e.g. http://127.0.0.1:8000")
        self.url = str(url).rstrip("/")
        self.timeout, self.patience, self.concurrency = timeout, patience, concurrency
        self._retries, self._backoff, self._max_backoff = retries, backoff, max_backoff
        key = api_key if api_key is not None else os.environ.get(KEY_ENV, "").strip()
        headers = {b"X-Request-Deadline": f"{timeout:g}".encode()}
        if key:
            headers[b"Authorization"] = f"Bearer {key}".encode()
        # A moment more than the service has, so that its own answer comes first.
        limits = httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency)
        times = httpx.Timeout(timeout + 5, connect=connect_timeout, pool=None)
        self._http = httpx.AsyncClient(headers=headers, timeout=times, limits=limits)

    async def verify(self, solution: Given) -> VerificationResult:
        """Judge one solution.

        Raises:
            InputError: the service cannot use it.
            ConfigError: the token is missing or wrong.
            BackendUnavailable: the service cannot be reached, or does not judge it in time.
        """
        return _read(VerificationResult, await self._post("/v1/verify", _row(solution)))

    async def verify_many(
        self, solutions: Iterable[Given] | AsyncIterable[Given]
    ) -> AsyncGenerator[VerificationResult, None]:
        """Judge a stream of solutions; results come as they are done, and little is read ahead."""
        async with aclosing(in_flight(solutions, self.verify, self.concurrency)) as results:
            async for result in results:
                yield result

    @overload
    async def score(self, solutions: Given) -> Score: ...
    @overload
    async def score(self, solutions: Sequence[Given]) -> list[Score]: ...
    async def score(self, solutions: Given | Sequence[Given]) -> Score | list[Score]:
        """Rewards only, of one solution or of a list in one request; raises as `verify` does."""
        if isinstance(solutions, Solution | Mapping):
            return _read(Score, await self._post("/v1/score", _row(solutions)))
        if not solutions:
            return []
        answer = await self._post("/v1/score", [_row(solution) for solution in solutions])
        if not isinstance(answer, list) or len(answer) != len(solutions):
            raise BackendUnavailable(f"{self.url} did not answer for each of {len(solutions)} solutions")
        return [_read(Score, row) for row in answer]

    async def aclose(self) -> None:
        """Close the connections; safe to call twice."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _post(self, path: str, body: object) -> Any:
        """The decoded answer to a request, which is sent again while that may help."""
        import httpx

        data = json.dumps(body, ensure_ascii=True).encode()
        end = time.monotonic() + self.patience
        attempt = 0
        while True:
            pause: float | None = None
            try:
                answer = await self._http.post(
                    self.url + path, content=data, headers={"Content-Type": "application/json"}
                )
            except httpx.TimeoutException as error:
                if not isinstance(error, httpx.ConnectTimeout):
                    raise BackendUnavailable(f"{self.url} gave no answer within {self.timeout:g} seconds") from None
                failure = BackendUnavailable(f"{self.url} cannot be reached: the connection timed out")
            except httpx.TransportError as error:
                reason = " ".join(str(error).split()) or type(error).__name__
                failure = BackendUnavailable(f"{self.url} cannot be reached: {reason}")
            else:
                if answer.status_code == 200:
                    return _decoded(answer, self.url)
                if answer.status_code not in AGAIN:
                    raise _error(answer, self.url)
                failure = BackendUnavailable(str(_error(answer, self.url)))
                pause = _retry_after(answer)
            if pause is None:
                pause = min(self._backoff * 2**attempt, self._max_backoff)
            pause *= 1 + random.random() / 4  # so that many callers do not come back at once
            attempt += 1
            if attempt > self._retries or time.monotonic() + pause > end:
                raise failure
            await asyncio.sleep(pause)


class Client(Blocking):
    """Calls a service and waits; also works inside a running event loop, as in a notebook.

    >>> with Client("http://127.0.0.1:8000") as judge:  # doctest: +SKIP
    ...     result = judge.verify({"problem": "1 + 1?", "steps": ["1 + 1 = 3"]})
    """

    def __init__(self, base_url: str = "http://127.0.0.1:8000", **options: Any):
        """Prepare; nothing is sent yet.

        Args:
            base_url: address of the service.
            options: as `AsyncClient` takes them.
        """
        super().__init__(Config())
        self._client = AsyncClient(base_url, **options)

    async def averify(self, solution: Given) -> VerificationResult:
        """What `verify` runs in a thread of its own; in an event loop of yours use `AsyncClient`."""
        return await self._client.verify(solution)

    def astream(self, solutions: Iterable[Given]) -> AsyncGenerator[VerificationResult, None]:
        """What `verify_many` runs in a thread of its own; in an event loop of yours use `AsyncClient`."""
        return self._client.verify_many(solutions)

    def verify(self, solution: Given) -> VerificationResult:
        """Judge one solution and wait for it; raises as `AsyncClient.verify` does."""
        return self._run(self.averify(solution))

    def verify_many(self, solutions: Iterable[Given]) -> Iterator[VerificationResult]:
        """Judge a stream of solutions; results come as they are done. Leaving the loop early stops the work."""
        return super().verify_many(cast("Iterable[Solution]", solutions))

    @overload
    def score(self, solutions: Given) -> Score: ...
    @overload
    def score(self, solutions: Sequence[Given]) -> list[Score]: ...
    def score(self, solutions: Given | Sequence[Given]) -> Score | list[Score]:
        """Rewards only, of one solution or of a list in one request."""
        if isinstance(solutions, Solution | Mapping):
            return self._run(self._client.score(solutions))
        return self._run(self._client.score(solutions))

    def close(self) -> None:
        """Close the connections and end the thread; safe to call twice."""
        if self._loop is not None:
            self._run(self._client.aclose())
        self._end_loop()


def _row(solution: Given) -> dict[str, Any]:
    """What is sent: all that can change a result."""
    if isinstance(solution, Solution):
        return solution.model_dump(mode="json", exclude={"meta"}, exclude_none=True)
    return dict(solution)


def _decoded(answer: httpx.Response, url: str) -> Any:
    try:
        return answer.json()
    except ValueError:
        raise BackendUnavailable(f"{url} answered with something that is no JSON") from None


def _read(kind: type[R], value: Any) -> R:
    from pydantic import ValidationError

    try:
        # By way of JSON, whose lists and keys become the record's own.
        return kind.model_validate_json(json.dumps(value))
    except ValidationError as error:
        raise BackendUnavailable(
            f"the answer is no {kind.__name__}: {error.errors(include_url=False)[0]['msg']}; "
            "do client and service have the same version?"
        ) from None


def _error(answer: httpx.Response, url: str) -> InputError | ConfigError | BackendUnavailable:
    """What an answer other than 200 means."""
    try:
        told = answer.json()["error"]
        message, field = str(told["message"]), told.get("field")
    except (ValueError, KeyError, TypeError, AttributeError):
        return BackendUnavailable(f"{url} answered {answer.status_code} and is no genprm service")
    if answer.status_code in (400, 413, 422):
        return InputError(message.removeprefix(f"{field}: "), field=field)
    if answer.status_code in (401, 403):
        return ConfigError(f"{url}: {message} (api_key, or the variable {KEY_ENV})")
    return BackendUnavailable(f"{url}: {message}")


def _retry_after(answer: httpx.Response) -> float | None:
    """Seconds that a service asks to be left alone for; dates, which genprm does not send, are not read."""
    try:
        return max(float(answer.headers["Retry-After"]), 0.0)
    except (KeyError, ValueError):
        return None
