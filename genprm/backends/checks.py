"""Active checks of servers: each is asked now and then whether it is well and still serves the model.

Knows what is asked and what an answer means; who is asked afterwards is decided elsewhere. A server is down where it
does not answer in time, says 5xx, or lists other models only; other refusals, such as of the path or the key, come
from a server that is up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import httpx

from .endpoint import Endpoint

MAX_SECONDS = 10.0
"""How long a check may take, if the time between two checks is not shorter."""
MIN_SECONDS = 1.0


class Checks:
    """Asks every server, again and again."""

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        get: Callable[[str], Awaitable[httpx.Response]],
        model: str,
        seconds: float,
    ):
        """Prepare.

        Args:
            endpoints: noted in them is what comes of it.
            get: GET of an address.
            model: what the servers are to serve.
            seconds: between two checks of one server.
        """
        self._endpoints, self._get, self._model, self._seconds = endpoints, get, model, seconds

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            await asyncio.gather(*(self._check(endpoint) for endpoint in self._endpoints))
            await asyncio.sleep(self._seconds)

    async def _check(self, endpoint: Endpoint) -> None:
        try:
            async with asyncio.timeout(min(max(self._seconds, MIN_SECONDS), MAX_SECONDS)):
                down = await self._trouble(endpoint.url)
        except (TimeoutError, httpx.TimeoutException):
            down = "no answer in time"
        except httpx.HTTPError as error:
            down = f"the connection failed ({type(error).__name__})"
        if down is None:
            endpoint.passed()
        else:
            endpoint.down = down

    async def _trouble(self, url: str) -> str | None:
        # Where there is a page for health, as in vLLM and llama.cpp, it knows of the engine; the list may not.
        for address in (url.removesuffix("/v1") + "/health", url + "/models"):
            answer = await self._get(address)
            if answer.status_code >= 500:
                return f"HTTP {answer.status_code}"
        served = _models(answer)
        if served and self._model not in served:
            return f"it serves {', '.join(sorted(served))}, not {self._model!r}"
        return None


def _models(answer: httpx.Response) -> set[str]:
    """Names in a list of models; empty where it is no such list, since not every service has one."""
    try:
        entries = answer.json()["data"] if answer.status_code == 200 else []
        return {str(entry["id"]) for entry in entries}
    except (ValueError, KeyError, TypeError):
        return set()
