"""A worker of a bulk run: an engine and a sandbox that live as long as the process, and the chunks that it is given.

Rows of a chunk are judged together, as many as the engine takes. Where that fails, or where an earlier worker ended
over the chunk, the rows that are left are judged one by one with nothing else in the process, and each attempt is
written down before it begins: a row that ends process after process is then known and given up.

Knows the ledger by its methods only; `call` says how they are reached.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..config import Config
from ..errors import GenPRMError, UnavailableError, UsageError
from ..types import Solution
from ..verifier import Verifier
from .chunks import Failed, Outcome
from .gate import Gate
from .ledger import Start

Load = Callable[[Config], Verifier]
Call = Callable[..., Any]
"""`call(name, *arguments)` runs a method of the ledger and gives its answer."""

ENDED = "the process that judged it ended"
_HOPELESS = 3  # rows in succession over which the engine fails: then it is the engine, not the rows


class ChunkJudge:
    """Judges chunks, several at once from several threads."""

    def __init__(self, config: Config, load: Load, call: Call):
        """Load the engine.

        Raises:
            GenPRMError: a part cannot be had.
        """
        self._config, self._load, self._call = config, load, call
        self._verifier = load(config)
        self._gate = Gate()
        self._lost = 0

    def judge(self, number: int, rows: Sequence[Solution]) -> Outcome:
        """What comes of a chunk; an error that no row is to blame for is in `fatal`."""
        start: Start | None = self._call("begin", number)
        if start is None:
            return Outcome()  # a lost copy was asked for again; the driver has it
        results, failed = dict(start.kept), dict[int, Failed]()
        try:
            if start.tries == 1:
                with self._gate.shared():
                    self._together(number, rows, results)
            for place, row in enumerate(rows):
                if place not in results:
                    with self._gate.alone():
                        found = self._alone(number, place, row, start.charges.get(place, 0))
                    if isinstance(found, Failed):
                        failed[place] = found
                    else:
                        results[place] = found
        except GenPRMError as error:
            return Outcome(fatal=(type(error).__name__, str(error)))
        return Outcome(
            tuple(results[place] for place in sorted(results)), tuple(failed[place] for place in sorted(failed))
        )

    def _together(self, number: int, rows: Sequence[Solution], results: dict[int, bytes]) -> None:
        """Judge what is not judged yet; an error ends it and leaves the rest for one-by-one judging."""
        places = {row.id: place for place, row in enumerate(rows) if place not in results}
        try:
            for result in self._verifier.verify_many([rows[place] for place in places.values()]):
                place = places[result.id]
                results[place] = result.model_dump_json().encode("utf-8", "backslashreplace")
                self._call("keep", number, place, results[place])
                self._lost = 0
        except UsageError:
            raise
        except Exception:
            return  # each row is tried alone, where the error shows again if it is the row's

    def _alone(self, number: int, place: int, row: Solution, attempts: int) -> bytes | Failed:
        reason = ENDED
        while attempts < self._config.ray.max_attempts:
            attempts += 1
            self._call("charge", number, place)
            try:
                result = self._verifier.verify(row).model_dump_json().encode("utf-8", "backslashreplace")
            except UsageError:
                raise
            except UnavailableError as error:
                reason = f"{type(error).__name__}: {_one_line(error)}"
                self._renew()
                if attempts == self._config.ray.max_attempts:
                    self._lost += 1
                    if self._lost >= _HOPELESS:
                        raise
            except Exception as error:
                reason = f"{type(error).__name__}: {_one_line(error)}"
            else:
                self._lost = 0
                self._call("keep", number, place, result)
                return result
        return Failed(row.id, reason, attempts)

    def _renew(self) -> None:
        """A new engine in place of one that failed."""
        self._verifier.close()
        self._verifier = self._load(self._config)

    def close(self) -> None:
        """Free the engine."""
        self._verifier.close()


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:500]
