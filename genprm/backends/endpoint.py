"""One server among several that serve the same model: how it fares, and whether it should be asked now.

Knows times and counts, no HTTP. Two things take a server out for a while: calls that failed, after which it rests, and
an active check that it did not answer, after which it is down until it answers one.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from .base import ServerState

# A server that failed is left alone for as long as it has failed in a row, up to this.
MAX_REST_SECONDS = 30.0


@dataclass(slots=True)
class Endpoint:
    """A server's address and state."""

    url: str
    in_flight: int = 0
    requests: int = 0
    """Attempts so far."""
    failures: int = 0
    """Attempts that failed."""
    failed_in_a_row: int = 0
    rests_until: float = 0.0
    """Not asked until then while another can be; it failed."""
    held_until: float = 0.0
    """Not asked until then at all: the server said so."""
    down: str | None = None
    """Why it is taken out until it answers a check; None = it is not."""
    answered: float | None = None
    """`time.monotonic()` of its last good answer."""

    @property
    def awake(self) -> bool:
        """Neither down nor resting."""
        return self.down is None and self.rests_until <= time.monotonic()

    def rest(self, seconds: float, after: float | None) -> None:
        """Note a failed call.

        Args:
            seconds: the first rest; doubles with each failure in a row.
            after: the server's own word on when to come back.
        """
        self.failures += 1
        self.failed_in_a_row += 1
        now = time.monotonic()
        if after is not None:
            self.held_until = max(self.held_until, now + after)
        rest = min(seconds * 2 ** (self.failed_in_a_row - 1), MAX_REST_SECONDS)
        self.rests_until = max(now + rest, self.held_until)

    def answers(self) -> None:
        """Note a good answer to a call."""
        self.failed_in_a_row = 0
        self.answered = time.monotonic()

    def passed(self) -> None:
        """Note a good answer to a check; a server that was down may be asked again at once."""
        if self.down is not None:
            self.down, self.failed_in_a_row, self.rests_until = None, 0, self.held_until
        self.answered = time.monotonic()

    def state(self) -> ServerState:
        """What others may know of it; a name and password in the address are left out."""
        return ServerState(
            url=re.sub(r"//[^/@]*@", "//", self.url),
            up=self.down is None,
            reason=self.down,
            in_flight=self.in_flight,
            requests=self.requests,
            failures=self.failures,
            answered=self.answered,
        )
