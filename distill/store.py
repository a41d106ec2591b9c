"""One stage's folder: rows that survive being killed, rejected rows, and the manifest that says how they were made.

`rows.jsonl` and `rejected.jsonl` grow by whole lines, one JSON object each, ids unique over both. A half-written last
line of a killed run is cut off before going on; a broken line anywhere else is refused, for then something else has
written there. When a stage is done its rows are put in canonical order, so that a run that was killed ends with the
same bytes as one that was not. `manifest.json` is replaced as a whole.

Knows files and ids; knows nothing of what a row means. One process writes a run's folder at a time: see `lock_run`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from filelock import FileLock, Timeout

from ..errors import UnavailableError, UsageError

ROWS, REJECTED, MANIFEST = "rows.jsonl", "rejected.jsonl", "manifest.json"
SYNC_ROWS = 64
"""So many rows, or `SYNC_SECONDS`, may be lost to a power cut (none to a kill)."""
SYNC_SECONDS = 2.0
Row = dict[str, Any]
_PART = re.compile(r"[/#][^/#]*$")


class Store:
    """A stage's rows, opened to go on where they ended.

    Attributes:
        folder: where everything lies.
        manifest: as it was when opened, and as it will be written.
    """

    def __init__(self, folder: Path, manifest: dict[str, Any] | None = None):
        """Open or create the folder and read which rows it holds.

        Args:
            folder: the stage's.
            manifest: what to write into a new manifest beside the counts: settings, inputs, versions.

        Raises:
            UsageError: a file in it cannot be used; nothing was changed.
        """
        self.folder = folder
        self.reasons: Counter[str] = Counter()
        self._expected: dict[str, int] = {}
        self._rejected: set[str] = set()
        self._started, self._synced, self._unsynced = time.monotonic(), time.monotonic(), 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{folder} cannot be made: {error.strerror}") from None
        rows, row_end = _read(folder / ROWS)
        rejected, rejected_end = _read(folder / REJECTED)
        self._ids: dict[str, None] = {}
        for identity, _ in rows:
            self._claim(identity)
            self._ids[identity] = None
        for identity, reason in rejected:
            self._claim(identity)
            self._take_rejection(identity, reason)
        held = read_manifest(folder)
        self._before = float(held.get("seconds", 0.0)) if held else 0.0
        self.manifest: dict[str, Any] = held or {"status": "running", **(manifest or {})}
        self._rows = _open(folder / ROWS, row_end)
        self._rejections = _open(folder / REJECTED, rejected_end)
        self.write_manifest()

    def _claim(self, identity: str) -> None:
        if identity in self._ids or identity in self._rejected:
            raise UsageError(f"{self.folder} holds the id {identity!r} twice")

    def _take_rejection(self, identity: str, reason: str) -> None:
        self._rejected.add(identity)
        self.reasons[reason] += 1

    @property
    def ids(self) -> tuple[str, ...]:
        """Of the rows that it holds, in the order in which they came."""
        return tuple(self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, identity: object) -> bool:
        return identity in self._ids or identity in self._rejected

    def wants(self, identity: str) -> bool:
        """Name the next row in canonical order; True where it is neither held nor rejected yet.

        A stage asks this for every row it will make, in the order of its input, also when it goes on after a kill.
        Where it makes several rows `PROBLEM/k` of one, it may ask for `PROBLEM`.
        """
        self._expected.setdefault(identity, len(self._expected))
        return identity not in self

    def add(self, row: Row) -> None:
        """Append one row; a kill right after loses nothing.

        Raises:
            UsageError: the row's id is there already.
            UnavailableError: the disk takes no more; the file ends with the row before it.
        """
        identity = row["id"]
        self._claim(identity)
        self._append(self._rows, row)
        self._ids[identity] = None

    def reject(self, identity: str, reason: str, **more: Any) -> None:
        """Append one rejected row with its reason, a short fixed phrase that is counted; details go into `more`.

        Raises:
            UsageError: the id is there already.
            UnavailableError: the disk takes no more; the file ends with the row before it.
        """
        self._claim(identity)
        self._append(self._rejections, {"id": identity, "reason": reason, **more})
        self._take_rejection(identity, reason)

    def _append(self, file: FileIO, row: Row) -> None:
        line, end, written = encode(row), file.tell(), 0
        try:
            while written < len(line):
                written += file.write(line[written:]) or 0
        except OSError as error:
            file.truncate(end)
            raise UnavailableError(
                f"{self.folder} cannot be written: {error.strerror}; all rows before are there, and the same command "
                "goes on from there"
            ) from None
        self._unsynced += 1
        if self._unsynced >= SYNC_ROWS or time.monotonic() - self._synced > SYNC_SECONDS:
            self.sync()

    def sync(self) -> None:
        """Bring everything to the disk, the manifest's counts too."""
        for file in (self._rows, self._rejections):
            os.fsync(file.fileno())
        self._unsynced, self._synced = 0, time.monotonic()
        self.write_manifest()

    def rows(self) -> Iterator[Row]:
        """The rows that it holds now, in the order of the file."""
        return read_rows(self.folder)

    def reset(self) -> None:
        """Drop all rows and rejections: for a stage that needs its whole input at once and is quick."""
        for file in (self._rows, self._rejections):
            file.seek(0)
            file.truncate()
        self._ids.clear()
        self._rejected.clear()
        self._expected.clear()
        self.reasons.clear()

    def note(self, **facts: Any) -> None:
        """Put facts into the manifest, such as `tokens`."""
        self.manifest.update(facts)

    def write_manifest(self) -> None:
        """Replace `manifest.json`; a reader sees the old one or the new one."""
        self.manifest["counts"] = {
            **self.manifest.get("counts", {}),
            "out": len(self._ids),
            "rejected": len(self._rejected),
        }
        self.manifest["reasons"] = dict(sorted(self.reasons.items()))
        self.manifest["seconds"] = round(self._before + time.monotonic() - self._started, 3)
        replace_file(self.folder / MANIFEST, json.dumps(self.manifest, indent=2, ensure_ascii=False).encode() + b"\n")

    def finish(self) -> None:
        """Put the rows in canonical order and mark the stage as done.

        The order is that of `wants`; rows named by no call of it stand behind the longest beginning of their id, up to
        a `/` or `#`, that was, and else at the end, by id with numbers in it as numbers.
        """
        for name, file in ((ROWS, self._rows), (REJECTED, self._rejections)):
            file.close()
            _reorder(self.folder / name, self._place)
        self._rows, self._rejections = (_open(self.folder / name, None) for name in (ROWS, REJECTED))
        self.manifest["status"] = "done"
        self.manifest["rows_sha256"] = sha256_file(self.folder / ROWS)
        self.sync()

    def _place(self, identity: str) -> tuple[int, list[tuple[int, int, str]]]:
        name = identity
        while name not in self._expected and (inside := _PART.search(name)):
            name = name[: inside.start()]
        return self._expected.get(name, len(self._expected)), natural(identity)

    def close(self) -> None:
        """Sync and close; safe to call twice."""
        if not self._rows.closed:
            self.sync()
            self._rows.close()
            self._rejections.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def encode(row: Row) -> bytes:
    """One line: the same row gives the same bytes."""
    return json.dumps(row, ensure_ascii=False, allow_nan=False).encode("utf-8", "backslashreplace") + b"\n"


def natural(identity: str) -> list[tuple[int, int, str]]:
    """A sort key in which `p10` follows `p9`."""
    return [(0, int(part), part) if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", identity) if part]


def read_rows(folder: Path, name: str = ROWS) -> Iterator[Row]:
    """The rows of a stage's folder, one after another; `name` = `REJECTED` for the rejected ones.

    Raises:
        UsageError: there are none, or a line is broken.
    """
    path = folder / name
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    row = json.loads(line)
                except ValueError:
                    raise UsageError(f"{path}:{number}: this line is not JSON") from None
                yield row
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """A stage's manifest; None where there is none.

    Raises:
        UsageError: it is not JSON.
    """
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError:
        manifest = None
    if not isinstance(manifest, dict):
        raise UsageError(f"{path} is no manifest of a stage")
    return manifest


def replace_file(path: Path, data: bytes | Iterable[bytes]) -> None:
    """Write a file, given whole or in pieces, so that a reader, or a kill, finds the old one or the new one.

    Raises:
        UnavailableError: it cannot be written.
    """
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            file.writelines([data] if isinstance(data, bytes) else data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise UnavailableError(f"{path} cannot be written: {error.strerror}") from None


def sha256_file(path: Path) -> str:
    """Of a file's bytes.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None


def row_seed(seed: int, *parts: object) -> int:
    """A seed for one draw, from the run's seed and what names the draw (a row's id, a number), never from an order.

    Returns:
        A number from 0 to 2**31 - 1.
    """
    text = json.dumps([seed, *map(str, parts)])
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:4], "big") >> 1


@contextmanager
def lock_run(out: Path) -> Iterator[None]:
    """Hold a run's folder for this process; the system lets go of it when the process dies.

    Raises:
        UsageError: another process holds it, or it cannot be made.
    """
    lock = FileLock(out / ".lock", timeout=0)
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise UsageError(f"{out} is being written by another `genprm distill`") from None
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error.strerror}") from None
    try:
        yield
    finally:
        lock.release()


def _read(path: Path) -> tuple[list[tuple[str, str]], int]:
    """Ids and reasons of a file's whole lines, and where the last of them ends."""
    found, end = [], 0
    for identity, reason, line in _whole(path):
        found.append((identity, reason))
        end += len(line)
    return found, end


def _reorder(path: Path, place: Callable[[str], Any]) -> None:
    """Sort a file's lines by their ids; only places are held in memory."""
    lines, start = [], 0
    for identity, _, line in _whole(path):
        lines.append((identity, start, len(line)))
        start += len(line)
    ordered = sorted(lines, key=lambda item: place(item[0]))
    if ordered == lines:
        return
    with path.open("rb") as file:

        def pieces() -> Iterator[bytes]:
            for _, begin, length in ordered:
                file.seek(begin)
                yield file.read(length)

        replace_file(path, pieces())


def _whole(path: Path) -> Iterator[tuple[str, str, bytes]]:
    if not path.exists():
        return
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        end = 0
        for number, line in enumerate(file, 1):
            end += len(line)
            row: Any = None
            if line.endswith(b"\n"):
                try:
                    row = json.loads(line)
                except ValueError:
                    row = None
            if isinstance(row, dict) and isinstance(row.get("id"), str):
                yield row["id"], str(row.get("reason", "")), line
            elif end < size:
                raise UsageError(f"{path}:{number}: this is no row of a distillation stage; nothing was changed")


def _open(path: Path, end: int | None) -> FileIO:
    try:
        # Unbuffered: what cannot be written now must not be tried again when the file is closed.
        file = path.open("r+b" if path.exists() else "w+b", buffering=0)
        if end is not None:
            file.truncate(end)
        file.seek(0, os.SEEK_END)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
    return file
