"""A stage at work: its settings, its store, the rows of the stage before it, and a way to tell how far it is.

Every stage is a function `run_STAGE(job: Job) -> None` in `distill/STAGE.py`. It makes rows and nothing else: whether a
stage must run at all, its lock, its manifest and its end are the pipeline's. Such a function

- names each row it will make with `job.store.wants(id)`, in the order of its input, and makes it only if wanted;
- adds rows with `job.store.add` or refuses them with `job.store.reject`, as they come;
- draws with seeds of `row_seed(job.config.seed, id, …)`, so that a run that was killed makes the same rows;
- puts facts for the manifest into `job.store.note(tokens=…, …)`, counted over all rows, not over this process's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .config import DistillConfig, StageName
from .store import Row, Store, read_manifest, read_rows

Say = Callable[[str], None]


def _nothing(*_: object) -> None:
    return None


@dataclass(frozen=True)
class Job:
    """What a stage is given."""

    config: DistillConfig
    stage: StageName
    out: Path
    """The run's folder."""
    store: Store
    """This stage's."""
    say: Say = field(default=_nothing)
    """Told in a few words what takes long."""
    expect: Callable[[int], None] = field(default=_nothing)
    """Told how many units of work there are in all."""
    advance: Callable[[], None] = field(default=_nothing)
    """Told that one unit is done, or was done before."""

    @property
    def folder(self) -> Path:
        """This stage's folder, for files beside the rows."""
        return self.out / self.stage

    def rows(self, stage: StageName) -> Iterator[Row]:
        """The rows of an earlier stage, which is done."""
        return read_rows(self.out / stage)

    def count(self, stage: StageName) -> int:
        """How many rows an earlier stage has."""
        manifest = read_manifest(self.out / stage) or {}
        return int(manifest.get("counts", {}).get("out", 0))
