"""The verdict cache: finished critiques by everything that they depend on, in one SQLite file.

Search asks for the same prefixes of steps again and again; a run that is repeated asks for everything again. Safe for
several processes (WAL). A cache that cannot be used never stops the work: it is said once, and the work goes on
without it. Knows keys and texts, not what they mean.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from .models import cache_folder

SCHEMA = """
CREATE TABLE IF NOT EXISTS verdicts (
    key TEXT PRIMARY KEY, value TEXT NOT NULL, created REAL NOT NULL
) WITHOUT ROWID
"""
BUSY_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class CacheStats:
    """What a cache file holds."""

    path: Path
    entries: int
    bytes: int
    oldest: float | None
    """Unix time of the oldest entry."""


def default_path() -> Path:
    """The cache file in genprm's cache folder."""
    return cache_folder() / "verdicts.sqlite"


class VerdictCache:
    """One open cache file; usable from several threads."""

    def __init__(self, path: Path | None = None, say: Callable[[str], None] = lambda _: None):
        """Open or create the file.

        Args:
            path: None = `verdicts.sqlite` in the cache folder.
            say: told once, in one line, if the cache cannot be used.
        """
        self.path = path or default_path()
        self.hits = 0
        self.misses = 0
        self.lost = 0
        """Entries that could not be written."""
        self._say = say
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._owner = os.getpid()
        try:
            self._connection = self._open()
        except (sqlite3.Error, OSError) as error:
            self._give_up(error)

    def get(self, key: str) -> str | None:
        """The value kept for a key."""
        with self._lock:
            row = None
            if (connection := self._usable()) is not None:
                try:
                    row = connection.execute("SELECT value FROM verdicts WHERE key = ?", (key,)).fetchone()
                except sqlite3.Error as error:
                    self._give_up(error)
            self.hits += row is not None
            self.misses += row is None
            return None if row is None else str(row[0])

    def put(self, key: str, value: str) -> None:
        """Keep a value; the first one kept for a key stays."""
        with self._lock:
            connection = self._usable()
            if connection is None:
                self.lost += 1
                return
            try:
                with connection:
                    connection.execute("INSERT OR IGNORE INTO verdicts VALUES (?, ?, ?)", (key, value, time.time()))
            except sqlite3.Error as error:
                self.lost += 1
                self._give_up(error)

    def stats(self) -> CacheStats:
        """Entries and size of the file."""
        with self._lock:
            connection = self._usable()
            entries, oldest = 0, None
            if connection is not None:
                entries, oldest = connection.execute("SELECT COUNT(*), MIN(created) FROM verdicts").fetchone()
            files = (Path(f"{self.path}{suffix}") for suffix in ("", "-wal", "-shm"))
            size = sum(file.stat().st_size for file in files if file.exists())
            return CacheStats(self.path, entries, size, oldest)

    def clear(self) -> int:
        """Forget everything; returns how many entries there were."""
        with self._lock:
            connection = self._usable()
            if connection is None:
                return 0
            with connection:
                gone = connection.execute("DELETE FROM verdicts").rowcount
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return int(gone)

    def close(self) -> None:
        """Close the file; safe to call twice."""
        with self._lock:
            if self._connection is not None and self._owner == os.getpid():
                self._connection.close()
            self._connection = None

    def _usable(self) -> sqlite3.Connection | None:
        """This process's connection: one inherited through fork would corrupt the file."""
        if self._connection is not None and self._owner != os.getpid():
            self._owner = os.getpid()
            self._connection = self._open()
        return self._connection

    def _open(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return self._connect()
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise  # locked, full or not writable: the file itself may be sound
        # Not a database any more: set it aside, so that nothing is destroyed, and begin anew.
        aside = self.path.with_name(f"{self.path.name}.damaged-{int(time.time())}")
        self.path.rename(aside)
        self._say(f"the verdict cache {self.path} was damaged; it now lies in {aside.name}")
        return self._connect()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute(SCHEMA)
            connection.commit()
            with closing(connection.execute("SELECT key FROM verdicts LIMIT 1")) as cursor:
                cursor.fetchone()
        except BaseException:
            connection.close()
            raise
        return connection

    def _give_up(self, error: Exception) -> None:
        self._say(f"the verdict cache {self.path} cannot be used and is left out: {error}")
        if self._connection is not None:
            self._connection.close()
        self._connection = None
