"""A result file of searches: one JSON object a line, appended as results come, resumed by id.

As with `genprm verify -o`, a line is whole or it is not there, and one process writes a file at a time.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import ValidationError

from ..appending import AppendFile
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
        self._config_sha256 = config_sha256
        self._places: dict[str, int] = {}
        self._file = AppendFile(path, self._take)

    def _take(self, line: bytes, number: int, start: int) -> None:
        try:
            row = json.loads(line)
            identity, found, _ = str(row["id"]), row["config_sha256"], row["method"]
        except (ValueError, KeyError, TypeError):
            message = f"{self.path}:{number}: this is not a result of `genprm search`; nothing was changed"
            raise UsageError(message) from None
        if found != self._config_sha256:
            raise UsageError(
                f"{self.path} holds results of another method or other settings ({found[:12]}, now "
                f"{self._config_sha256[:12]}): give another file, or the same settings"
            )
        self._places[identity] = start

    def held(self, problem: Problem) -> SearchResult | None:
        """The result that the file held for a problem when it was opened.

        Raises:
            InputError: the file holds another problem, or another reference, under the same id.
            UsageError: its line has other fields than this version's results.
        """
        if problem.id not in self._places:
            return None
        try:
            result = SearchResult.model_validate_json(self._file.line_at(self._places[problem.id]))
        except ValidationError:
            raise UsageError(f"{self.path}: {problem.id!r} was written by another version of genprm") from None
        if (result.problem, result.answer) != (problem.problem, problem.answer):
            raise InputError(f"the id {problem.id!r} stands in {self.path} with another problem or answer", field="id")
        return result

    def add(self, result: SearchResult) -> None:
        """Append one result.

        Raises:
            UnavailableError: it cannot be written, as on a full disk; the file then ends with the result before it.
        """
        self._file.append(result.model_dump_json())

    def close(self) -> None:
        """Sync, close and unlock; safe to call twice."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
