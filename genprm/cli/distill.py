"""`genprm distill`: makes training rows for a verifier, trains one, and measures it; every stage resumes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .verify import progress_bar

if TYPE_CHECKING:
    from ..distill.config import StageName
    from ..distill.pipeline import Bar

app = typer.Typer(help="Distil a teacher's critiques into a small verifier: every stage resumes.", no_args_is_help=True)

ConfigOption = Annotated[str, typer.Option("--config", help="A shipped distillation config's name or a YAML file.")]
OutOption = Annotated[Path | None, typer.Option("--out", help="The run's folder; else the config's `out`.")]
SetOption = Annotated[list[str] | None, typer.Option("--set", help="Override a setting: a.b=value.")]
DryOption = Annotated[bool, typer.Option("--dry-run", help="Print estimated rows, tokens and time; run nothing.")]
RestartOption = Annotated[bool, typer.Option("--restart", help="Drop the rows that the stages have, and begin anew.")]


@app.command("run")
def run(
    config: ConfigOption,
    out: OutOption = None,
    set_: SetOption = None,
    first: Annotated[str | None, typer.Option("--from", metavar="STAGE", help="Begin with this stage.")] = None,
    last: Annotated[str | None, typer.Option("--to", metavar="STAGE", help="End with this stage.")] = None,
    dry_run: DryOption = False,
    restart: RestartOption = False,
) -> None:
    """Run all stages, or those from one to another: sample, label, critique, filter, format, train, evaluate."""
    _run(config, out, set_, first, last, dry_run, restart)


def _command(stage: str, does: str) -> None:
    def command(
        config: ConfigOption,
        out: OutOption = None,
        set_: SetOption = None,
        dry_run: DryOption = False,
        restart: RestartOption = False,
    ) -> None:
        _run(config, out, set_, stage, stage, dry_run, restart)

    app.command(stage, help=does)(command)


_command("sample", "Get solutions to judge: by a policy, by perturbing right ones, or from files.")
_command("label", "Find the steps that are wrong.")
_command("critique", "Let the teacher judge every step; its critiques are kept.")
_command("filter", "Keep the critiques that agree with the labels and whose code ran.")
_command("format", "Turn critiques into rows of token ids.")
_command("train", "Fine-tune the student.")
_command("evaluate", "Measure teacher, base, distilled student and the direct baseline.")


def _run(
    config: str,
    out: Path | None,
    overrides: list[str] | None,
    first: str | None,
    last: str | None,
    dry_run: bool,
    restart: bool,
) -> None:
    from ..distill.config import load_distill_config
    from ..distill.pipeline import chosen_stages, run_stages

    settings = load_distill_config(config, overrides or [])
    stages = chosen_stages(first, last)
    folder = Path(settings.out).expanduser() if out is None else out
    if dry_run:
        from ..distill.estimate import estimate, table

        print(table(estimate(settings, folder, stages)))
        return
    with ExitStack() as stack:
        progress, say = progress_bar(stack)

        @contextmanager
        def bar(stage: StageName) -> Iterator[Bar]:
            from ..distill.pipeline import Bar

            task = progress.add_task(stage, total=None)
            yield Bar(lambda total: progress.update(task, total=total), lambda: progress.advance(task))
            progress.remove_task(task)

        for line in run_stages(settings, folder, stages, restart=restart, say=say, bar=bar):
            print(json.dumps({**line, "folder": str(folder / str(line["stage"]))}, ensure_ascii=False), flush=True)


@app.command("export")
def export(
    kind: Annotated[str, typer.Argument(help="trl-stepwise or step-dpo.")],
    out: Annotated[Path, typer.Option("--out", help="The run's folder; its stage label is done.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Folder of KIND.jsonl; else OUT/format.")
    ] = None,
) -> None:
    """Write labelled solutions in another trainer's form: TRL's stepwise supervision, or Step-DPO pairs."""
    from ..distill.exports import write_export

    folder = out / "format" if output is None else output
    print(json.dumps({"export": kind, "rows": write_export(kind, out, folder), "file": str(folder / f"{kind}.jsonl")}))


@app.command("merge")
def merge(
    adapter: Annotated[str, typer.Option("--adapter", help="Folder or hub id of a LoRA adapter.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="A folder that is made.")],
    base: Annotated[
        str | None, typer.Option("--base", help="The adapter's base model; else as it says itself.")
    ] = None,
) -> None:
    """Write a model with an adapter in its weights, for engines that take no adapter."""
    from ..distill.merge import merge_adapter

    print(json.dumps({"model": str(merge_adapter(adapter, output, base=base))}))


@app.command("card")
def card(
    out: Annotated[Path, typer.Option("--out", help="The run's folder.")],
    licence: Annotated[str | None, typer.Option("--licence", help="Of the weights; else the base model's.")] = None,
) -> None:
    """Write the model card of a run's trained weights from its manifests."""
    from ..distill.card import write_card

    print(json.dumps({"card": str(write_card(out, licence=licence))}))


@app.command("push")
def push(
    folder: Annotated[Path, typer.Argument(help="A trained adapter or model, e.g. OUT/train/final.")],
    to: Annotated[str, typer.Option("--to", help="A folder (./NAME) or a hub id OWNER/NAME.")],
    public: Annotated[bool, typer.Option("--public", help="Make a new hub repository public.")] = False,
) -> None:
    """Copy trained weights with their model card to a folder or to the hub."""
    from ..distill.card import run_of, write_card
    from ..distill.merge import push as send

    run = run_of(folder)
    if run is not None and not (folder / "README.md").is_file():
        write_card(run)
    print(json.dumps({"pushed": str(folder), "to": send(folder, to, private=not public)}))
