"""Result files that survive being killed: one JSON object a line, appended as results come, resumed by id.

How lines are written and cut is appending.py's; this file knows what a result must have in common with the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import ValidationError

from .appending import AppendFile
from .digests import DigestMap, digest64
from .errors import InputError, UsageError
from .types import Solution, VerificationResult


class ResultFile:
    """An append-only JSONL file of results, opened to go on where it ended."""

    def __init__(self, path: Path, *, model: str | None, protocol_sha256: str | None, config_sha256: str):
        """Open or create the file and read which records it holds.

        Args:
            path: the file.
            model: name stored in results; results of another one are not mixed in. None = that of the first result,
                for callers that learn it only from what is judged elsewhere.
            protocol_sha256: likewise.
            config_sha256: likewise; always known.

        Raises:
            UsageError: it holds results of other settings, is no result file, or another process writes it.
        """
        self.path = path
        self._done = DigestMap()  # id -> digest of its problem: a long file's texts would fill the memory
        self.errors = 0
        """Results in the file that have a wrong step."""
        self._wanted: dict[str, str | None] = {
            "model": model,
            "protocol.sha256": protocol_sha256,
            "config_sha256": config_sha256,
        }
        self._learns = None in self._wanted.values()
        self._file = AppendFile(path, self._take)

    def _take(self, line: bytes, number: int, _: int) -> None:
        try:
            row = json.loads(line)
            found = {
                "model": row["model"],
                "protocol.sha256": row["protocol"]["sha256"],
                "config_sha256": row["config_sha256"],
            }
            identity, problem, first_error = row["id"], row["problem"], row["first_error"]
        except (ValueError, KeyError, TypeError):
            raise UsageError(
                f"{self.path}:{number}: this is not a result of `genprm verify`; nothing was changed"
            ) from None
        self._check(found)
        self._note(identity, problem, first_error)

    def _check(self, found: dict[str, str]) -> None:
        for key, wanted in self._wanted.items():
            if wanted is None:
                self._wanted[key] = found[key]
            elif found[key] != wanted:
                raise UsageError(
                    f"{self.path} holds results with another {key} ({found[key]}, now {wanted}): "
                    "give another file, or the same settings"
                )

    def holds(self, solution: Solution) -> bool:
        """True where this solution's result is in the file.

        Raises:
            InputError: the file holds another problem under the same id.
        """
        held = self._done.get(solution.id)
        if held is None:
            return False
        if held != digest64(solution.problem):
            raise InputError(f"the id {solution.id!r} stands in {self.path} with another problem", field="id")
        return True

    def add(self, result: VerificationResult) -> None:
        """Append one result and make sure that it is on its way to the disk.

        Raises:
            UnavailableError: it cannot be written, as on a full disk; the file then ends with the result before it.
            UsageError: it was made with another model or protocol than the results in the file.
        """
        if self._learns:
            self._check(
                {
                    "model": result.model,
                    "protocol.sha256": result.protocol.sha256,
                    "config_sha256": result.config_sha256,
                }
            )
        self._file.append(result.model_dump_json())
        self._note(result.id, result.problem, result.first_error)

    def _note(self, identity: str, problem: str, first_error: int | None) -> None:
        self._done[identity] = digest64(problem)
        self.errors += first_error is not None and first_error >= 0

    def results(self) -> Iterator[VerificationResult]:
        """What the file held when it was opened, in its order.

        Raises:
            UsageError: a line has other fields than this version's results.
        """
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if file.tell() > self._file.end:
                    break
                if line.strip():
                    try:
                        yield VerificationResult.model_validate_json(line)
                    except ValidationError:
                        raise UsageError(
                            f"{self.path}:{number}: this result was written by another version of genprm"
                        ) from None

    def close(self) -> None:
        """Sync, close and unlock; safe to call twice."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
