"""A folder of Parquet files of results, on disk or in object storage, that a killed run goes on filling.

Each file holds a batch of results and appears whole: on disk under another name first, in object storage by the end of
its upload. What a killed run had not written is judged again. Knows nothing of who judged.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from filelock import FileLock, Timeout
from pydantic import ValidationError

from ..digests import DigestMap, digest64
from ..errors import InputError, UnavailableError, UsageError
from ..places import PARQUET, is_remote
from ..types import Solution, VerificationResult

_KEYS = ("model", "protocol_sha256", "config_sha256")


def is_folder_of_parquet(name: str) -> bool:
    """True where an output is to be a folder of Parquet files."""
    return name.rstrip("/").lower().endswith(PARQUET)


class ParquetFolder:
    """Results by the batch; `result` holds the whole result object as JSON, other columns what is asked for most."""

    def __init__(self, place: str, *, rows: int, config_sha256: str):
        """Open or create the folder and read which records it holds.

        Args:
            place: a folder's path or address.
            rows: results in a file.
            config_sha256: of the settings; results of others are not mixed in.

        Raises:
            UsageError: it holds results of other settings, or cannot be written.
        """
        import fsspec

        self.place, self._rows = place.rstrip("/"), rows
        self.errors = 0
        """Results in the folder that have a wrong step."""
        self._done = DigestMap()
        self._waiting: list[VerificationResult] = []
        self._wanted: dict[str, str | None] = {"model": None, "protocol_sha256": None, "config_sha256": config_sha256}
        self._closing = ExitStack()
        try:
            self._files, self._root = fsspec.core.url_to_fs(self.place)
            self._files.makedirs(self._root, exist_ok=True)
            if not is_remote(self.place):
                self._closing.enter_context(FileLock(f"{self._root}/.lock", timeout=0))
        except Timeout:
            raise UsageError(f"{self.place} is being written by another process") from None
        except (OSError, ValueError, ImportError) as error:
            raise UsageError(f"{self.place} cannot be written: {' '.join(str(error).split())}") from None
        try:
            self._held = sorted(self._files.glob(f"{self._root}/*{PARQUET}"))
            for name in self._held:
                self._take(name)
        except BaseException:
            self._closing.close()
            raise

    def _take(self, name: str) -> None:
        columns = ["id", "problem", "first_error", *_KEYS]
        for row in self._read(name, columns):
            self._check(row)
            self._note(row["id"], row["problem"], row["first_error"])

    def _read(self, name: str, columns: list[str]) -> Iterator[dict[str, Any]]:
        import pyarrow
        import pyarrow.parquet

        try:
            with self._files.open(name, "rb") as file:
                for batch in pyarrow.parquet.ParquetFile(file).iter_batches(batch_size=256, columns=columns):
                    if set(batch.schema.names) != set(columns):
                        raise UsageError(f"{name}: this is not a file of `genprm verify`; nothing was changed")
                    yield from batch.to_pylist()
        except (pyarrow.ArrowInvalid, OSError) as error:
            raise UsageError(f"{name} cannot be read: {' '.join(str(error).split())[:200]}") from None

    def _check(self, found: dict[str, Any]) -> None:
        for key in _KEYS:
            wanted = self._wanted[key]
            if wanted is None:
                self._wanted[key] = found[key]
            elif found[key] != wanted:
                raise UsageError(
                    f"{self.place} holds results with another {key} ({found[key]}, now {wanted}): "
                    "give another folder, or the same settings"
                )

    def holds(self, solution: Solution) -> bool:
        """True where this solution's result is there.

        Raises:
            InputError: another problem is there under the same id.
        """
        held = self._done.get(solution.id)
        if held is not None and held != digest64(solution.problem):
            raise InputError(f"the id {solution.id!r} stands in {self.place} with another problem", field="id")
        return held is not None

    def add(self, result: VerificationResult) -> None:
        """Take a result; every so many of them become a file.

        Raises:
            UnavailableError: the file cannot be written; nothing of it is left then.
            UsageError: it was made with another model or protocol than the results that are there.
        """
        self._check(
            {
                "model": result.model,
                "protocol_sha256": result.protocol.sha256,
                "config_sha256": result.config_sha256,
            }
        )
        self._waiting.append(result)
        self._note(result.id, result.problem, result.first_error)
        if len(self._waiting) >= self._rows:
            self._write()

    def _note(self, identity: str, problem: str, first_error: int | None) -> None:
        self._done[identity] = digest64(problem)
        self.errors += first_error is not None and first_error >= 0

    def _write(self) -> None:
        import pyarrow
        import pyarrow.parquet

        rows, self._waiting = self._waiting, []
        if not rows:
            return
        table = pyarrow.Table.from_pylist([_row(result) for result in rows], schema=_schema())
        name = f"part-{uuid.uuid4().hex}{PARQUET}"
        target = f"{self._root}/{name}"
        part = target if is_remote(self.place) else f"{self._root}/.{name}.part"
        try:
            with self._files.open(part, "wb") as file:
                pyarrow.parquet.write_table(table, file)
            if part != target:
                Path(part).replace(target)
        except OSError as error:
            with suppress(OSError):
                self._files.rm(part)
            raise UnavailableError(
                f"{self.place} cannot be written: {error.strerror or error}; all files before are whole, and the same "
                "command goes on from there"
            ) from None

    def results(self) -> Iterator[VerificationResult]:
        """What the folder held when it was opened.

        Raises:
            UsageError: a row has other fields than this version's results.
        """
        for name in self._held:
            for row in self._read(name, ["result"]):
                try:
                    yield VerificationResult.model_validate_json(row["result"])
                except ValidationError:
                    raise UsageError(f"{name}: this result was written by another version of genprm") from None

    def close(self) -> None:
        """Write what waits, and unlock; safe to call twice."""
        try:
            self._write()
        finally:
            self._closing.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        if kind is None:
            self.close()
            return
        with suppress(UnavailableError):  # the error that ended the run is the one to be seen
            self.close()


def _row(result: VerificationResult) -> dict[str, Any]:
    return {
        "id": result.id,
        "problem": result.problem,
        "first_error": result.first_error,
        "reward": result.reward,
        "step_rewards": [step.reward for step in result.steps],
        "stopped_early": result.stopped_early,
        "label": result.label,
        "model": result.model,
        "protocol_sha256": result.protocol.sha256,
        "config_sha256": result.config_sha256,
        "result": json.dumps(result.model_dump(mode="json")),
    }


def _schema() -> Any:
    """The same columns in every file, also where a file has nothing in one."""
    import pyarrow

    text, whole = pyarrow.large_string(), pyarrow.int64()
    return pyarrow.schema(
        [
            ("id", text),
            ("problem", text),
            ("first_error", whole),
            ("reward", pyarrow.float64()),
            ("step_rewards", pyarrow.list_(pyarrow.float64())),
            ("stopped_early", pyarrow.bool_()),
            ("label", whole),
            ("model", text),
            ("protocol_sha256", text),
            ("config_sha256", text),
            ("result", text),
        ]
    )
