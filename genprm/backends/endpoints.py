"""Calls to one or several HTTP servers that serve the same model: balancing, retries, limits, and an honest count.

Knows HTTP and patience, not what is asked. A fault that may mend (429, 5xx, a broken or silent connection, an answer
that is no JSON) is tried again elsewhere or later, a bounded number of times; one that will not (another 4xx) ends
at once. Nothing is tried again without being counted.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from ..config import BackendConfig
from ..errors import BackendUnavailable
from ..text import shorten
from .base import ServerState
from .checks import Checks
from .endpoint import Endpoint
from .pace import Pace
from .streams import BrokenStream, StreamedAnswer

Answer = dict[str, Any]

CONNECTIONS_A_CLIENT = 8
ERROR_CHARS = 300


@dataclass(slots=True)
class Traffic:
    """What was asked of the servers so far, failed attempts included."""

    requests: int = 0
    retries: int = 0
    failures: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


class Refused(BackendUnavailable):
    """An answer that will not get better by asking again."""


class _Mendable(Exception):
    """A fault that may mend; `after` is the server's own word on when, `lost` says that no server was reached."""

    def __init__(self, message: str, after: float | None = None, *, lost: bool = False):
        super().__init__(message)
        self.after, self.lost = after, lost


class Endpoints:
    """A pool of addresses that serve one model."""

    def __init__(self, config: BackendConfig):
        """Prepare; connects to nothing yet.

        Raises:
            BackendUnavailable: no address is given.
        """
        given = (config.base_url,) if isinstance(config.base_url, str) else config.base_url
        if not given:
            raise BackendUnavailable("no server is given: --set backend.base_url=http://HOST:PORT/v1")
        self.config = config
        self.traffic = Traffic()
        self._endpoints = [Endpoint(url) for url in dict.fromkeys(map(_with_version, given))]
        self._pace = Pace(config.requests_per_minute, config.tokens_per_minute)
        self._clients: dict[int, list[httpx.AsyncClient]] = {}
        self._checks: dict[int, asyncio.Task[None]] = {}
        self._turn = itertools.count()
        self._jitter = random.Random()

    @property
    def urls(self) -> list[str]:
        """The addresses."""
        return [endpoint.url for endpoint in self._endpoints]

    async def post(
        self, path: str, body: Mapping[str, Any], *, tokens: int = 0, need: str | None = None
    ) -> dict[str, Any]:
        """Post JSON and return the JSON object that comes back.

        Args:
            path: behind an address, e.g. `/completions`.
            body: what is asked.
            tokens: about how many tokens it will use, for the rate limit.
            need: a field that must hold a list that is not empty; without it the answer is a broken one.

        Raises:
            Refused: it will not get better by asking again.
            BackendUnavailable: no attempt succeeded.
        """

        async def ask(endpoint: Endpoint) -> dict[str, Any]:
            response = await self._client().request("POST", endpoint.url + path, json=body, headers=self._headers())
            return _answer(response, need)

        return await self._persist(path, tokens, ask)

    async def get(self, path: str) -> dict[str, Any]:
        """Get a JSON object; see `post`."""

        async def ask(endpoint: Endpoint) -> dict[str, Any]:
            return _answer(await self._client().request("GET", endpoint.url + path, headers=self._headers()), None)

        return await self._persist(path, 0, ask)

    async def stream(self, path: str, body: Mapping[str, Any], *, tokens: int = 0) -> dict[str, Any]:
        """Post for a stream and leave it at the first of `body["stop"]`, which are not sent; see `post`.

        Returns:
            An answer of the unstreamed shape whose `stop_reason` is the stop string that was met, or None.
        """
        sent = {key: value for key, value in body.items() if key != "stop"} | {"stream": True}
        sent["stream_options"] = {"include_usage": True}

        async def ask(endpoint: Endpoint) -> dict[str, Any]:
            streamed = StreamedAnswer(body["stop"])
            url = endpoint.url + path
            async with self._client().stream("POST", url, json=sent, headers=self._headers()) as response:
                if response.status_code != 200 or "event-stream" not in response.headers.get("content-type", ""):
                    await response.aread()
                    return streamed.whole(_answer(response, "choices"))
                async for line in response.aiter_lines():
                    streamed.line(line)
                    if streamed.done:
                        break
            return streamed.answer(max(tokens - int(body["max_tokens"]), 0))

        return await self._persist(path, tokens, ask)

    async def try_beside(self, path: str, body: Mapping[str, Any]) -> dict[str, Any] | None:
        """Ask once for something that a server may have beside its `/v1`; None where it has not."""
        url = self._choose().url.removesuffix("/v1") + path
        try:
            response = await self._client().request("POST", url, json=body, headers=self._headers())
            return _answer(response, None)
        except (httpx.HTTPError, BackendUnavailable, _Mendable):
            return None

    def begin_checks(self, model: str) -> None:
        """Check in this event loop, until `close`, whether the servers are well; see `checks`."""
        loop = asyncio.get_running_loop()
        known = self._checks.get(id(loop))
        if self.config.health_seconds and (known is None or known.done()):

            async def get(url: str) -> httpx.Response:
                return await self._client().request("GET", url, headers=self._headers())

            checks = Checks(self._endpoints, get, model, self.config.health_seconds)
            self._checks[id(loop)] = loop.create_task(checks.run())

    def states(self) -> list[ServerState]:
        """How each server fares."""
        return [endpoint.state() for endpoint in self._endpoints]

    async def close(self) -> None:
        """End this event loop's checks and close its connections."""
        loop = id(asyncio.get_running_loop())
        checks, clients = self._checks.pop(loop, None), self._clients.pop(loop, [])
        if checks is not None:
            checks.cancel()
            await asyncio.gather(checks, return_exceptions=True)
            for endpoint in self._endpoints:
                endpoint.down = None  # no one would take it back any more
        for client in clients:
            await client.aclose()

    async def _persist(self, path: str, tokens: int, ask: Callable[[Endpoint], Awaitable[Answer]]) -> Answer:
        for attempt in range(self.config.retries + 1):
            await self._pace.wait(tokens)
            await self._await_held()
            endpoint = self._choose()
            self.traffic.requests += 1
            self.traffic.retries += attempt > 0
            try:
                answer = await self._once(endpoint, ask)
            except Refused as error:
                self.traffic.failures += 1
                raise Refused(f"{endpoint.url}{path}: {error}") from None
            except _Mendable as error:
                self.traffic.failures += 1
                endpoint.rest(self.config.backoff_seconds, error.after)
                if error.lost and self._checks:
                    endpoint.down = str(error)  # the checks take it back when it answers
                if attempt == self.config.retries:
                    tried = f"{attempt + 1} attempts" if attempt else "1 attempt"
                    raise BackendUnavailable(f"{endpoint.url}{path}: {error} (after {tried})") from None
                await asyncio.sleep(self._pause(attempt))
            else:
                endpoint.answers()
                return answer
        raise AssertionError("the last attempt returns or raises")

    async def _once(self, endpoint: Endpoint, ask: Callable[[Endpoint], Awaitable[Answer]]) -> Answer:
        self._pool()  # made here, so that no server's time is spent on it
        endpoint.in_flight += 1
        endpoint.requests += 1
        try:
            async with asyncio.timeout(self.config.total_seconds):
                answer = await ask(endpoint)
        except TimeoutError:
            raise _Mendable(f"no whole answer within {self.config.total_seconds:g} s") from None
        except httpx.TimeoutException as error:
            raise _Mendable(f"no answer in time ({type(error).__name__})") from None
        except httpx.InvalidURL as error:
            raise Refused(str(error)) from None
        except httpx.HTTPError as error:
            lost = isinstance(error, httpx.ConnectError)
            raise _Mendable(f"the connection failed ({type(error).__name__}: {error})", lost=lost) from None
        except BrokenStream as error:
            raise _Mendable(str(error)) from None
        finally:
            endpoint.in_flight -= 1
        usage = answer.get("usage") or {}
        self.traffic.prompt_tokens += int(usage.get("prompt_tokens") or 0)
        self.traffic.completion_tokens += int(usage.get("completion_tokens") or 0)
        return answer

    def _client(self) -> httpx.AsyncClient:
        """One of this event loop's clients, in turn."""
        clients = self._pool()
        return clients[next(self._turn) % len(clients)]

    def _pool(self) -> list[httpx.AsyncClient]:
        """This event loop's clients: connections belong to the loop that made them.

        A client looks through all its connections for each request and for each of them counts the idle ones, so
        that one client with hundreds spends its time on that. Many small ones do not.
        """
        loop = id(asyncio.get_running_loop())
        if loop not in self._clients:
            timeout = httpx.Timeout(self.config.read_seconds, connect=self.config.connect_seconds, pool=None)
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=2 * CONNECTIONS_A_CLIENT)
            trust = httpx.create_ssl_context()
            count = max(1, self.config.max_in_flight // CONNECTIONS_A_CLIENT)
            self._clients[loop] = [
                httpx.AsyncClient(timeout=timeout, limits=limits, verify=trust) for _ in range(count)
            ]
        return self._clients[loop]

    def _headers(self) -> dict[str, str]:
        key = os.environ.get(self.config.api_key_env, "")
        return {"Authorization": f"Bearer {key}"} if key else {}

    def _choose(self) -> Endpoint:
        """The endpoint with the least in flight among those that are awake; the one that rests least if none is."""
        awake = [endpoint for endpoint in self._endpoints if endpoint.awake]
        if awake:
            return min(awake, key=lambda endpoint: endpoint.in_flight)
        return min(self._endpoints, key=lambda endpoint: (endpoint.down is not None, endpoint.rests_until))

    def _pause(self, attempt: int) -> float:
        """Exponential backoff with full jitter; another endpoint that is awake is asked at once."""
        if any(endpoint.awake for endpoint in self._endpoints):
            return 0.0
        most = min(self.config.backoff_seconds * 2**attempt, self.config.max_backoff_seconds)
        return self._jitter.uniform(0, most)

    async def _await_held(self) -> None:
        """Wait while every server has said when to come back; every call waits, not only the one that was told."""
        while (wait := min(endpoint.held_until for endpoint in self._endpoints) - time.monotonic()) > 0:
            if wait > self.config.total_seconds:
                raise BackendUnavailable(
                    f"{self.urls[0]} wants to be left alone for {wait:.0f} s, more than backend.total_seconds"
                )
            await asyncio.sleep(wait)


def _with_version(url: str) -> str:
    """An address; a bare host gets the path under which OpenAI-style servers answer."""
    scheme, _, rest = url.rstrip("/").partition("://")
    return url.rstrip("/") if "/" in rest or not rest else f"{scheme}://{rest}/v1"


def _answer(response: httpx.Response, need: str | None) -> dict[str, Any]:
    """The JSON object in a response, or the fault that it is."""
    mendable = response.status_code in (408, 425, 429) or response.status_code >= 500
    if mendable and "insufficient_quota" not in response.text:
        raise _Mendable(_said(response), _retry_after(response))
    if response.status_code >= 400:
        raise Refused(_said(response))
    try:
        answer = response.json()
    except ValueError:
        raise _Mendable("the answer is no JSON") from None
    if not isinstance(answer, dict):
        raise _Mendable("the answer is no JSON object")
    if need is not None and not (isinstance(answer.get(need), list) and answer[need]):
        raise _Mendable(f"the answer holds no {need}: {shorten(str(answer), 200)}")
    return answer


def _said(response: httpx.Response) -> str:
    """The status and the server's own words, on one line."""
    words = " ".join(response.text.split())[:ERROR_CHARS]
    return f"HTTP {response.status_code}" + (f": {words}" if words else "")


def _retry_after(response: httpx.Response) -> float | None:
    text = response.headers.get("retry-after", "")
    try:
        return max(float(text), 0.0)
    except ValueError:
        pass
    try:
        return max(parsedate_to_datetime(text).timestamp() - time.time(), 0.0)
    except (TypeError, ValueError):
        return None
