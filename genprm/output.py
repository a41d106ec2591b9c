"""Result files that survive being killed: one JSON object a line, appended as results come, resumed by id.

A line is whole or it is not there: a half-written last line of a killed run is removed before going on. One process
writes a file at a time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from filelock import FileLock, Timeout
from pydantic import ValidationError

from .digests import DigestMap, digest64
from .errors import InputError, UnavailableError, UsageError
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
        self._lock = FileLock(f"{path}.lock", timeout=0)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
        except Timeout:
            raise UsageError(f"{path} is being written by another process") from None
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}") from None
        try:
            self._end = self._read()
            # Unbuffered: what cannot be written now must not be tried again when the file is closed.
            self._file = path.open("r+b" if path.exists() else "w+b", buffering=0)
            self._file.truncate(self._end)
            self._file.seek(self._end)
        except OSError as error:
            self._unlock()
            raise UsageError(f"{path} cannot be written: {error.strerror}") from None
        except BaseException:
            self._unlock()
            raise

    def _read(self) -> int:
        """Take in whole lines; returns where the last one ends."""
        end = 0
        if not self.path.exists():
            return end
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    break
                end += len(line)
                if line.strip():
                    self._take(line, number)
        return end

    def _take(self, line: bytes, number: int) -> None:
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
        line = result.model_dump_json().encode("utf-8", "backslashreplace") + b"\n"
        end, written = self._file.tell(), 0
        try:
            while written < len(line):
                written += self._file.write(line[written:])
        except OSError as error:
            self._file.truncate(end)
            raise UnavailableError(
                f"{self.path} cannot be written: {error.strerror}; all results before are in it, and the same command "
                "goes on from there"
            ) from None
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
                if file.tell() > self._end:
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
        if not self._file.closed:
            os.fsync(self._file.fileno())
            self._file.close()
        self._unlock()

    def _unlock(self) -> None:
        # Removed while still held: removed after, it could be another process's lock by then.
        Path(f"{self.path}.lock").unlink(missing_ok=True)
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
