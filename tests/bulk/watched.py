"""A verifier for chaos: it logs what it judges, and ends its process or fails over rows that are named so."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from genprm.build import load
from genprm.config import Config
from genprm.errors import BackendUnavailable
from genprm.types import Solution, VerificationResult


class Watched:
    """The config's own verifier behind a log and a few traps."""

    def __init__(self, config: Config, folder: str):
        self.folder = Path(folder)
        self.inner = load(config)
        self._log("loads", str(os.getpid()))

    def _log(self, name: str, line: str) -> None:
        with (self.folder / name).open("a") as file:
            file.write(line + "\n")

    def _meet(self, row: Solution) -> None:
        if row.id.startswith("poison"):
            os._exit(1)
        if row.id.startswith("raises"):
            raise ValueError("cannot take this one")
        if row.id.startswith("breaks"):
            raise BackendUnavailable("the engine is dead")

    def verify(self, row: Solution) -> VerificationResult:
        self._meet(row)
        self._log("judged", row.id)
        return self.inner.verify(row)

    def verify_many(self, rows: Iterable[Solution]) -> Iterator[VerificationResult]:
        rows = list(rows)
        for row in rows:
            self._meet(row)
        for result in self.inner.verify_many(rows):
            self._log("judged", result.id)
            yield result
            if result.id.startswith("once"):
                try:
                    (self.folder / f"{result.id}.met").touch(exist_ok=False)
                except FileExistsError:
                    continue
                time.sleep(1)  # what was handed over is on its way
                os._exit(1)

    def close(self) -> None:
        self.inner.close()


def watched_load(folder: Path):
    """A `load` for workers: takes its folder along."""
    place = str(folder)
    return lambda config: Watched(config, place)


def bare(result: VerificationResult) -> dict:
    """A result without its times."""
    row = result.model_dump(mode="json")
    row["usage"].pop("seconds")
    for step in row["steps"]:
        for vote in step["votes"]:
            for check in vote["checks"]:
                check.pop("seconds")
    return row


def solutions(count: int, steps: int = 3) -> list[Solution]:
    """Solutions that are all different; every third has a wrong step."""
    return [
        Solution(
            id=str(n),
            problem=f"problem {n}",
            steps=tuple(f"{n} + {k} = {n + k + (n % 3 == 0 and k == 1)}" for k in range(steps)),
            label=1 if n % 3 == 0 and steps > 1 else -1,
        )
        for n in range(count)
    ]
