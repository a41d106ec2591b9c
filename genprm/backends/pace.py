"""How often servers may be asked: requests and tokens in any 60 seconds."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field


@dataclass(slots=True)
class Window:
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


class Pace:
    """Lets calls through as fast as the limits allow, whoever makes them."""

    def __init__(self, requests: int | None, tokens: int | None):
        """Prepare; None = no limit."""
        self._limits = [
            (Window(limit), by_tokens) for limit, by_tokens in ((requests, False), (tokens, True)) if limit is not None
        ]

    async def wait(self, tokens: int) -> None:
        """Wait until one request of so many tokens may go, and count it."""
        while self._limits:
            now = time.monotonic()
            wait = max(window.wait(tokens if by_tokens else 1, now) for window, by_tokens in self._limits)
            if wait <= 0:
                break
            await asyncio.sleep(wait)
        for window, by_tokens in self._limits:
            window.spent.append((time.monotonic(), tokens if by_tokens else 1))
