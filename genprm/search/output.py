"""A result file of searches: one JSON object a line, appended as results come, resumed by id.

As with `genprm verify -o`, a line is whole or it is not there, and one process writes a file at a time.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from filelock import FileLock, Timeout
from pydantic import ValidationError

from ..errors import InputError, UsageError
from .result import SearchResult
from .searcher import Problem


class SearchFile:
    """An append-only JSONL file of search results, opened to go on where it ended."""

    def __init__(self, path: Path, *, config_sha256: str):
        """Open or create the file and read which problems it holds.

        Args:
            path: the file.
            config_sha256: of method and settings; results of others are not mixed in.

        Raises:
            UsageError: it holds results of other settings, is no such file, or another process writes it.
        """
        self.path = path
        self._places: dict[str, tuple[int, int]] = {}
        self._lock = FileLock(f"{path}.lock", timeout=0)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
        except Timeout:
            raise UsageError(f"{path} is being written by another process") from None
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}") from None
        try:
            end = self._read(config_sha256)
            # Unbuffered: what cannot be written now must not be tried again when the file is closed.
            self._file = path.open("r+b" if path.exists() else "w+b", buffering=0)
            self._file.truncate(end)
        except OSError as error:
            self._unlock()
            raise UsageError(f"{path} cannot be written: {error.strerror}") from None
        except BaseException:
            self._unlock()
            raise

    def _read(self, config_sha256: str) -> int:
        """Take in whole lines; returns where the last one ends."""
        end = 0
        if not self.path.exists():
            return end
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    break
                if line.strip():
                    try:
                        row = json.loads(line)
                        identity, found, _ = str(row["id"]), row["config_sha256"], row["method"]
                    except (ValueError, KeyError, TypeError):
                        message = f"{self.path}:{number}: this is not a result of `genprm search`; nothing was changed"
                        raise UsageError(message) from None
                    if found != config_sha256:
                        raise UsageError(
                            f"{self.path} holds results of another method or other settings ({found[:12]}, now "
                            f"{config_sha256[:12]}): give another file, or the same settings"
                        )
                    self._places[identity] = end, len(line)
                end += len(line)
        return end

    def held(self, problem: Problem) -> SearchResult | None:
        """The result that the file held for a problem when it was opened.

        Raises:
            InputError: the file holds another problem, or another reference, under the same id.
            UsageError: its line has other fields than this version's results.
        """
        if problem.id not in self._places:
            return None
        start, length = self._places[problem.id]
        self._file.seek(start)
        try:
            result = SearchResult.model_validate_json(self._file.read(length))
        except ValidationError:
            raise UsageError(f"{self.path}: {problem.id!r} was written by another version of genprm") from None
        if (result.problem, result.answer) != (problem.problem, problem.answer):
            raise InputError(f"the id {problem.id!r} stands in {self.path} with another problem or answer", field="id")
        return result

    def add(self, result: SearchResult) -> None:
        """Append one result.

        Raises:
            UsageError: it cannot be written, as on a full disk; the file then ends with the result before it.
        """
        line = result.model_dump_json().encode("utf-8", "backslashreplace") + b"\n"
        end, written = self._file.seek(0, os.SEEK_END), 0
        try:
            while written < len(line):
                written += self._file.write(line[written:])
        except OSError as error:
            self._file.truncate(end)
            raise UsageError(f"{self.path} cannot be written: {error.strerror}; what is before is in it") from None

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
