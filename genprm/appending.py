"""Files of JSON lines that survive being killed: appended as rows come, and opened to go on where they ended.

A line is whole or it is not there: a half-written last line of a killed run is removed before going on. One process
writes a file at a time. Knows lines; what is in them is the caller's.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock, Timeout

from .errors import UnavailableError, UsageError

Take = Callable[[bytes, int, int], None]
"""Told each line that is there: its bytes, its number from 1, and where it begins."""


class AppendFile:
    """An append-only file, locked while it is open."""

    def __init__(self, path: Path, take: Take):
        """Open or create the file.

        Args:
            path: the file.
            take: told every line that it holds; what it raises leaves the file as it is.

        Raises:
            UsageError: it cannot be written, or another process writes it.
        """
        self.path = path
        self._lock = FileLock(f"{path}.lock", timeout=0)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
        except Timeout:
            raise UsageError(f"{path} is being written by another process") from None
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}") from None
        try:
            self.end = self._read(take)
            """Where the last whole line ended when the file was opened."""
            # Unbuffered: what cannot be written now must not be tried again when the file is closed.
            self._file = path.open("r+b" if path.exists() else "w+b", buffering=0)
            self._file.truncate(self.end)
        except OSError as error:
            self._unlock()
            raise UsageError(f"{path} cannot be written: {error.strerror}") from None
        except BaseException:
            self._unlock()
            raise

    def _read(self, take: Take) -> int:
        end = 0
        if not self.path.exists():
            return end
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    break
                if line.strip():
                    take(line, number, end)
                end += len(line)
        return end

    def line_at(self, start: int) -> bytes:
        """The line that begins at a place."""
        self._file.seek(start)
        return self._file.readline()

    def append(self, text: str) -> None:
        """Append one line.

        Raises:
            UnavailableError: it cannot be written, as on a full disk; the file then ends with the line before it.
        """
        line = text.encode("utf-8", "backslashreplace") + b"\n"
        end, written = self._file.seek(0, os.SEEK_END), 0
        try:
            while written < len(line):
                written += self._file.write(line[written:])
        except OSError as error:
            self._file.truncate(end)
            raise UnavailableError(
                f"{self.path} cannot be written: {error.strerror}; all results before are in it, and the same command "
                "goes on from there"
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
