"""The seam behind which a verifier model runs: write text, and read a label distribution at a forced position.

A backend gives out `Slot`s. A critique holds one slot while it is being written; a backend that batches in lock-step
waits until every open slot is asking for something, so that batches do not depend on timing. Prompts are
conversations as text: tokens are the backend's own business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from ..prompting import Prompt

Labels = Mapping[str, Sequence[str]]
Finish = Literal["stop", "eos", "length", "context"]


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How one stretch of text is sampled."""

    max_tokens: int
    stop: tuple[str, ...] = ()
    temperature: float = 0.0
    """0 = greedy."""
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Generation:
    """One stretch of text that the model wrote."""

    text: str
    """Without the stop string."""
    finish: Finish
    """`stop`: a stop string; `eos`: the model ended its turn; `length`: `max_tokens`; `context`: no room is left."""
    stop: str | None = None
    """The stop string that was met."""
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True)
class LabelReading:
    """A label distribution read at the end of a prompt."""

    probs: Mapping[str, float]
    """Label -> probability under the label constraint; sums to 1."""
    mass: float | None
    """Full-vocabulary probability of all tokens that may start a label."""
    prompt_tokens: int = 0
    source: Literal["full_vocabulary", "top_k", "constrained"] = "full_vocabulary"
    """`top_k`: from the likeliest tokens only; `probs` is then the bound nearest to the threshold and `mass` the part
    that was seen. `constrained`: read under the constraint, which leaves no `mass`."""
    slack: float = 0.0
    """How much further from the threshold the probability may lie than `probs` says; 0 where it is exact."""


@runtime_checkable
class Slot(Protocol):
    """A critique's seat in the engine."""

    async def generate(self, prompt: Prompt, params: SamplingParams) -> Generation:
        """Continue the assistant's turn.

        Raises:
            ContextOverflow: the prompt leaves no room for a token and the label.
        """
        ...

    async def read_label(self, prompt: Prompt, labels: Labels, boundary: str) -> LabelReading:
        """Read the label distribution right after the prompt.

        Args:
            prompt: ends at the forced position.
            labels: label -> spellings that count for it.
            boundary: the forced text at the prompt's end, used to check that it shares no token with a label.

        Raises:
            ContextOverflow: the prompt does not fit.
            ProtocolError: this tokenizer joins `boundary` and a label.
        """
        ...


@dataclass(frozen=True, slots=True)
class ServerState:
    """How one server behind a backend fares."""

    url: str
    up: bool
    """False = it did not answer, and is asked for nothing while another is up."""
    reason: str | None
    """Why it is not up."""
    in_flight: int
    requests: int
    """Attempts so far, failed ones included."""
    failures: int
    answered: float | None
    """`time.monotonic()` of its last good answer."""


@runtime_checkable
class Watched(Protocol):
    """A backend whose engine is servers elsewhere, which it can keep an eye on."""

    def watch(self) -> AbstractAsyncContextManager[None]:
        """While it is open, servers are checked at intervals and connections are kept."""
        ...

    def servers(self) -> Sequence[ServerState]:
        """How they fare."""
        ...


@runtime_checkable
class Backend(Protocol):
    """An engine with one model in it."""

    model: str
    """Name stored in every result."""

    def work(self) -> AbstractAsyncContextManager[None]:
        """One stretch of work; what the engine remembers from prompt to prompt lasts no longer than this."""
        ...

    def slot(self) -> AbstractAsyncContextManager[Slot]:
        """A seat, held for as long as one critique is being written."""
        ...

    def close(self) -> None:
        """Free the engine; safe to call twice."""
        ...
