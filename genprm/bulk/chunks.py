"""What travels between driver and workers: a chunk of solutions, and what came of it.

A chunk is one value, never split and never joined with another, so that a chunk that is judged again takes the place
of its first try as a whole. Knows neither Ray nor files.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from .. import errors
from ..errors import GenPRMError, InputError, SandboxUnavailable, Unscored
from ..types import Solution


@dataclass(frozen=True, slots=True)
class Failed:
    """A row that could not be judged: not a verdict on it, and not an error in the file."""

    id: str
    reason: str
    """One line: the last error, or that the process that judged it ended."""
    attempts: int

    def as_row(self) -> dict[str, str | int]:
        """What OUT.failed.jsonl holds."""
        return {"id": self.id, "reason": self.reason, "attempts": self.attempts}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a chunk: each of its rows is in `results` or in `failed`, unless `fatal` ends the run."""

    results: tuple[bytes, ...] = ()
    """JSON of result objects, in the order of the rows."""
    failed: tuple[Failed, ...] = ()
    fatal: tuple[str, str] | None = None
    """Name and message of an error that is no row's fault: wrong settings, or an engine that is gone."""

    def dump(self) -> bytes:
        """Bytes for the way to the driver."""
        return pickle.dumps((self.results, self.failed, self.fatal))

    @classmethod
    def load(cls, data: bytes) -> Outcome:
        """The outcome that `dump` wrote; only for bytes of one's own workers."""
        return cls(*pickle.loads(data))


def chunked(solutions: Iterable[Solution], size: int) -> Iterator[list[Solution]]:
    """Lists of `size` solutions, the last one shorter; where reading raises, what was read before comes first."""
    chunk: list[Solution] = []
    try:
        for solution in solutions:
            chunk.append(solution)
            if len(chunk) == size:
                yield chunk
                chunk = []
    except Exception:
        if chunk:
            yield chunk
        raise
    if chunk:
        yield chunk


def dump_rows(solutions: Sequence[Solution]) -> bytes:
    """JSON lines of a chunk."""
    lines = (json.dumps(solution.model_dump(mode="json", exclude_defaults=True)) for solution in solutions)
    return "\n".join(lines).encode()


def load_rows(data: bytes) -> list[Solution]:
    """The chunk that `dump_rows` wrote."""
    return [Solution.model_validate_json(line) for line in data.split(b"\n")]


def error_of(name: str, message: str) -> GenPRMError:
    """The error that ended a worker's run, with the same exit code."""
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, GenPRMError) and kind not in (InputError, SandboxUnavailable):
        return Unscored(message) if issubclass(kind, Unscored) else kind(message)
    return SandboxUnavailable(message) if kind is SandboxUnavailable else errors.UsageError(message)
