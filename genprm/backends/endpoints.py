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
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from ..config import BackendConfig
from ..errors import BackendUnavailable

# An endpoint that failed is left alone for as long as it has failed in a row, up to this.
MAX_REST_SECONDS = 30.0
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


@dataclass(slots=True)
class _Endpoint:
    url: str
    in_flight: int = 0
    failed_in_a_row: int = 0
    rests_until: float = 0.0


@dataclass(slots=True)
class _Window:
    """At most `limit` units in any 60 seconds."""

    limit: int
    spent: deque[tuple[float, int]] = field(default_factory=deque)

    def wait(self, units: int, now: float) -> float:
        """Seconds until so many units may be spent; a single request over the limit waits for an empty window."""
        while self.spent and self.spent[0][0] <= now - 60:
            self.spent.popleft()
        total = sum(amount for _, amount in self.spent)
        if not self.spent or total + units <= self.limit:
            return 0.0
        for moment, amount in self.spent:
            total -= amount
            if total + units <= self.limit or total == 0:
                return max(moment + 60 - now, 0.001)
        return 0.001


class _Refused(Exception):
    """An answer that will not get better by asking again."""


class _Mendable(Exception):
    """A fault that may mend; `after` is the server's own word on when."""

    def __init__(self, message: str, after: float | None = None):
        super().__init__(message)
        self.after = after


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
        self._endpoints = [_Endpoint(url.rstrip("/")) for url in given]
        self._limits = [
            (_Window(limit), by_tokens)
            for limit, by_tokens in ((config.requests_per_minute, False), (config.tokens_per_minute, True))
            if limit is not None
        ]
        self._clients: dict[int, list[httpx.AsyncClient]] = {}
        self._turn = itertools.count()
        self._jitter = random.Random()

    @property
    def urls(self) -> list[str]:
        """The addresses."""
        return [endpoint.url for endpoint in self._endpoints]

    async def post(self, path: str, body: Mapping[str, Any], *, tokens: int = 0) -> dict[str, Any]:
        """Post JSON and return the JSON object that comes back.

        Args:
            path: behind an address, e.g. `/completions`.
            body: what is asked.
            tokens: about how many tokens it will use, for the rate limit.

        Raises:
            BackendUnavailable: refused for good, or no attempt succeeded.
        """
        return await self._persist("POST", path, body, tokens)

    async def get(self, path: str) -> dict[str, Any]:
        """Get a JSON object; see `post`."""
        return await self._persist("GET", path, None, 0)

    async def close(self) -> None:
        """Close this event loop's connections."""
        for client in self._clients.pop(id(asyncio.get_running_loop()), []):
            await client.aclose()

    async def _persist(self, method: str, path: str, body: Mapping[str, Any] | None, tokens: int) -> dict[str, Any]:
        for attempt in range(self.config.retries + 1):
            await self._await_limits(tokens)
            endpoint = self._choose()
            self.traffic.requests += 1
            self.traffic.retries += attempt > 0
            try:
                answer = await self._once(endpoint, method, path, body)
            except _Refused as error:
                self.traffic.failures += 1
                raise BackendUnavailable(f"{endpoint.url}{path}: {error}") from None
            except _Mendable as error:
                self.traffic.failures += 1
                self._rest(endpoint, error.after)
                if attempt == self.config.retries:
                    tried = f"{attempt + 1} attempts" if attempt else "1 attempt"
                    raise BackendUnavailable(f"{endpoint.url}{path}: {error} (after {tried})") from None
                await asyncio.sleep(self._pause(attempt, error.after))
            else:
                endpoint.failed_in_a_row = 0
                return answer
        raise AssertionError("the last attempt returns or raises")

    async def _once(
        self, endpoint: _Endpoint, method: str, path: str, body: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        endpoint.in_flight += 1
        try:
            async with asyncio.timeout(self.config.total_seconds):
                response = await self._client().request(method, endpoint.url + path, json=body, headers=self._headers())
        except TimeoutError:
            raise _Mendable(f"no whole answer within {self.config.total_seconds:g} s") from None
        except httpx.TimeoutException as error:
            raise _Mendable(f"no answer in time ({type(error).__name__})") from None
        except httpx.HTTPError as error:
            raise _Mendable(f"the connection failed ({type(error).__name__}: {error})") from None
        except (ValueError, RuntimeError) as error:  # an address that is none
            raise _Refused(str(error)) from None
        finally:
            endpoint.in_flight -= 1
        if response.status_code == 429 or response.status_code >= 500 or response.status_code == 408:
            raise _Mendable(_said(response), _retry_after(response))
        if response.status_code >= 400:
            raise _Refused(_said(response))
        try:
            answer = response.json()
        except ValueError:
            raise _Mendable("the answer is no JSON") from None
        if not isinstance(answer, dict):
            raise _Mendable("the answer is no JSON object")
        usage = answer.get("usage") or {}
        self.traffic.prompt_tokens += int(usage.get("prompt_tokens") or 0)
        self.traffic.completion_tokens += int(usage.get("completion_tokens") or 0)
        return answer

    def _client(self) -> httpx.AsyncClient:
        """One of this event loop's clients, in turn: connections belong to the loop that made them.

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
        clients = self._clients[loop]
        return clients[next(self._turn) % len(clients)]

    def _headers(self) -> dict[str, str]:
        key = os.environ.get(self.config.api_key_env, "")
        return {"Authorization": f"Bearer {key}"} if key else {}

    def _choose(self) -> _Endpoint:
        """The endpoint with the least in flight among those that do not rest; the one that rests least if all do."""
        now = time.monotonic()
        awake = [endpoint for endpoint in self._endpoints if endpoint.rests_until <= now]
        if awake:
            return min(awake, key=lambda endpoint: endpoint.in_flight)
        return min(self._endpoints, key=lambda endpoint: endpoint.rests_until)

    def _rest(self, endpoint: _Endpoint, after: float | None) -> None:
        endpoint.failed_in_a_row += 1
        rest = after if after is not None else self.config.backoff_seconds * 2 ** (endpoint.failed_in_a_row - 1)
        endpoint.rests_until = time.monotonic() + min(rest, MAX_REST_SECONDS)

    def _pause(self, attempt: int, after: float | None) -> float:
        """Exponential backoff with full jitter; another endpoint that is awake is asked at once."""
        now = time.monotonic()
        if any(endpoint.rests_until <= now for endpoint in self._endpoints):
            return 0.0
        most = min(self.config.backoff_seconds * 2**attempt, self.config.max_backoff_seconds)
        return max(self._jitter.uniform(0, most), min(after or 0.0, self.config.max_backoff_seconds))

    async def _await_limits(self, tokens: int) -> None:
        while self._limits:
            now = time.monotonic()
            wait = max(window.wait(tokens if by_tokens else 1, now) for window, by_tokens in self._limits)
            if wait <= 0:
                break
            await asyncio.sleep(wait)
        for window, by_tokens in self._limits:
            window.spent.append((time.monotonic(), tokens if by_tokens else 1))


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
