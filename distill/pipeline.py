"""Runs stages into one folder: what is done is skipped, what was killed goes on, what has changed is refused.

Knows the stages by name only; each is a function `run_STAGE(job)` in the module of its name, imported when it runs.
Whether a stage's rows are still those of the run's settings hangs on two things in its manifest: the settings that can
change them, and the sha256 of everything that it read.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module, metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..errors import UsageError
from .config import STAGES, DistillConfig, StageName
from .inputs import input_digest
from .job import Job, Say
from .store import MANIFEST, ROWS, Store, lock_run, read_manifest, sha256_file

Manifest = dict[str, Any]
READS: dict[StageName, StageName | None] = {
    stage: None if place == 0 else STAGES[place - 1] for place, stage in enumerate(STAGES)
}
"""The stage whose rows each one reads."""
FILES: dict[StageName, str] = {"sample": "inputs", "filter": "against", "evaluate": "files"}
"""The setting that names what a stage reads from outside."""
LIBRARIES = ("genprm", "torch", "transformers", "datasets", "trl", "peft", "vllm")


@dataclass(frozen=True)
class Bar:
    """A progress bar, for whoever shows one."""

    expect: Callable[[int], None]
    advance: Callable[[], None]


MakeBar = Callable[[StageName], AbstractContextManager[Bar]]


def no_bar(_: StageName) -> AbstractContextManager[Bar]:
    """Shows nothing."""
    return nullcontext(Bar(lambda _: None, lambda: None))


def chosen_stages(first: str | None = None, last: str | None = None) -> list[StageName]:
    """The stages from one to another, both with; None = from the first, to the last.

    Raises:
        UsageError: there is no such stage, or the last stands before the first.
    """
    for name in (first, last):
        if name is not None and name not in STAGES:
            raise UsageError(f"there is no stage {name!r}: the stages are {', '.join(STAGES)}")
    names = [str(stage) for stage in STAGES]
    start = 0 if first is None else names.index(first)
    end = len(STAGES) if last is None else names.index(last) + 1
    if start >= end:
        raise UsageError(f"the stage {last!r} comes before {first!r}: the order is {', '.join(STAGES)}")
    return list(STAGES[start:end])


def run_stages(
    config: DistillConfig,
    out: Path,
    stages: Sequence[StageName],
    *,
    restart: bool = False,
    say: Say = lambda _: None,
    bar: MakeBar = no_bar,
) -> Iterator[Manifest]:
    """Run stages one after another, and give each one's summary when it is done.

    Args:
        config: the run's settings.
        out: its folder.
        stages: in their order.
        restart: drop these stages' rows first.
        say: told in a few words what takes long.
        bar: makes a progress bar for a stage.

    Raises:
        UsageError: another process writes the folder, a stage before these is not done, or a stage's rows were made
            with other settings or from other rows.
    """
    if _follows():
        yield from _follow(config, out, stages, restart, say)
        return
    with lock_run(out):
        if restart:
            for stage in stages:
                shutil.rmtree(out / stage, ignore_errors=True)
        for stage in stages:
            yield _run_stage(config, out, stage, say, bar)


def _run_stage(config: DistillConfig, out: Path, stage: StageName, say: Say, bar: MakeBar) -> Manifest:
    folder = out / stage
    made_of = {"settings": config.result_settings(stage), "inputs": inputs_of(config, out, stage)}
    held = read_manifest(folder)
    if held is not None:
        _refuse_other(folder, held, made_of)
        if held.get("status") == "done":
            _refuse_touched(folder, held)
            return {**summary(held), "skipped": True}
    versions = _versions()
    fresh: Manifest = {"stage": stage, "started": datetime.now(UTC).isoformat(timespec="seconds"), **made_of}
    fresh |= {"seed": config.seed, "versions": versions}
    with Store(folder, fresh) as store, bar(stage) as shown:
        if store.manifest.get("versions") != versions:
            store.note(versions_later=versions)

        def expect(total: int) -> None:
            store.manifest.setdefault("counts", {})["in"] = total
            shown.expect(total)

        function = getattr(import_module(f".{stage}", __package__), f"run_{stage}")
        function(Job(config, stage, out, store, say=say, expect=expect, advance=shown.advance))
        store.finish()
        return summary(store.manifest)


def _follows() -> bool:
    """True in a process that a launcher (torchrun, accelerate) started beside the main one."""
    return os.environ.get("RANK", "0") not in ("", "0")


def _follow(
    config: DistillConfig, out: Path, stages: Sequence[StageName], restart: bool, say: Say
) -> Iterator[Manifest]:
    """Take part in training beside the main process, which alone writes the folder."""
    if list(stages) != ["train"]:
        raise UsageError(f"several processes can run the stage train only, not {', '.join(stages)}")
    held = read_manifest(out / "train")
    if held is not None and held.get("status") == "done" and not restart:
        return
    inputs_of(config, out, "train")
    with TemporaryDirectory() as scratch, Store(Path(scratch)) as store:
        import_module(".train", __package__).run_train(Job(config, "train", out, store, say=say))
    yield from ()


def inputs_of(config: DistillConfig, out: Path, stage: StageName) -> dict[str, str]:
    """The sha256 of everything that a stage reads.

    Raises:
        UsageError: the stage before is not done, its rows were changed since, or a file cannot be read.
    """
    found: dict[str, str] = {}
    before = READS[stage]
    if before is not None:
        manifest = read_manifest(out / before)
        if manifest is None or manifest.get("status") != "done":
            state = "has not been run" if manifest is None else "is not finished"
            raise UsageError(f"{stage} reads {out / before}, which {state}: run `genprm distill {before}` first")
        _refuse_touched(out / before, manifest)
        if before == "train":
            # What it makes is weights; whoever trains again has other ones.
            made = [manifest.get(key) for key in ("settings", "inputs", "started")]
            found[before] = hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()
        else:
            found[f"{before}/{ROWS}"] = str(manifest["rows_sha256"])
    names: tuple[str, ...] = getattr(config.stage(stage), FILES[stage]) if stage in FILES else ()
    split = config.sample.split
    for name in names:
        found[name] = input_digest(name, split)
    return found


def summary(manifest: Manifest) -> Manifest:
    """What is said of a stage in one line: everything in its manifest but what it was made of."""
    counts = manifest.get("counts", {})
    given = counts.get("in")
    line: Manifest = {"stage": manifest.get("stage"), "status": manifest.get("status"), **counts}
    line["kept_share"] = manifest.get("kept_share", round(counts.get("out", 0) / given, 4) if given else None)
    left_out = {"stage", "status", "counts", "kept_share", "settings", "inputs", "versions", "versions_later"}
    left_out |= {"rows_sha256", "started", "seed"}
    return line | {key: value for key, value in manifest.items() if key not in left_out}


def _refuse_other(folder: Path, held: Manifest, made_of: Manifest) -> None:
    for kind, what in (("settings", "setting"), ("inputs", "input")):
        difference = _difference(held.get(kind, {}), made_of[kind])
        if difference is not None:
            name, old, new = difference
            raise UsageError(
                f"{folder} was made with another {what} {name} ({_shown(old)}, now {_shown(new)}): "
                "give another --out, or --restart to drop its rows"
            )


def _refuse_touched(folder: Path, manifest: Manifest) -> None:
    if sha256_file(folder / ROWS) != manifest.get("rows_sha256"):
        raise UsageError(
            f"{folder / ROWS} was changed since its stage was done: its sha256 is not that in {MANIFEST}; "
            "--restart makes it anew"
        )


_MISSING = object()


def _difference(old: Any, new: Any, name: str = "") -> tuple[str, Any, Any] | None:
    """The first setting that differs: its dotted name and both values."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*old, *new]):
            found = _difference(old.get(key, _MISSING), new.get(key, _MISSING), f"{name}.{key}" if name else key)
            if found is not None:
                return found
        return None
    return None if old == new else (name, old, new)


def _shown(value: Any) -> str:
    if value is _MISSING:
        return "absent"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
