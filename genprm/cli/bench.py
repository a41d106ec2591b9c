"""`genprm bench`: the speed figures, each a ratio of two things measured side by side in one run."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

app = typer.Typer(help="Measure speed figures as ratios, side by side in one run.", no_args_is_help=True)

_JSON = typer.Option("--json", help="One JSON line a figure on stdout.")


@app.callback()
def main() -> None:
    """Measure speed figures as ratios, side by side in one run."""


def show(figures: list[dict[str, Any]], *, as_json: bool) -> None:
    """Print figures; exit code 1 if one misses its goal."""
    for figure in figures:
        typer.echo(json.dumps(figure) if as_json else _line(figure))
    if not all(figure["ok"] for figure in figures):
        raise typer.Exit(1)


def _line(figure: dict[str, Any]) -> str:
    known = ("name", "ratio", "goal", "goal_kind", "ok", "ours_seconds", "other_seconds", "runs", "unit")
    more = "".join(f", {key} {value}" for key, value in figure.items() if key not in known)
    unit = figure.get("unit", "x")
    return (
        f"{figure['name']:12} {figure['ratio']:8.2f} {unit}  (goal: {figure.get('goal_kind', 'at least')} "
        f"{figure['goal']:g}; {'ok' if figure['ok'] else 'MISSED'})  {figure['ours_seconds']:.4g} s beside "
        f"{figure['other_seconds']:.4g} s, {figure['runs']} runs{more}"
    )


@app.command()
def sandbox(
    as_json: Annotated[bool, _JSON] = False,
    rounds: Annotated[int, typer.Option(help="Cold interpreters to measure.", min=1)] = 12,
    level: Annotated[str | None, typer.Option(help="Of the sandbox; default the best that works here.")] = None,
) -> None:
    """A confined run of sympy.solve beside a cold `python -c` that does the same."""
    from ..bench_sandbox import bench_sandbox

    show(bench_sandbox(rounds=rounds, level=level), as_json=as_json)


@app.command()
def votes(as_json: Annotated[bool, _JSON] = False, count: Annotated[int, typer.Option(min=1)] = 200) -> None:
    """Adaptive votes beside always eight, and early stop beside all steps: tokens and verdicts (fake engine)."""
    from ..bench.work import bench_early_stop, bench_votes

    show([*bench_votes(count), *bench_early_stop(count)], as_json=as_json)


@app.command()
def cache(as_json: Annotated[bool, _JSON] = False) -> None:
    """Steps judged in a beam search beside its distinct prefixes, an exact count (fake engine)."""
    from ..bench.work import bench_cache

    show(bench_cache(), as_json=as_json)


@app.command()
def evidence(as_json: Annotated[bool, _JSON] = False) -> None:
    """Tokens of programs a candidate: eight candidates of a problem beside one (fake engine, an exact count)."""
    from ..bench.work import bench_evidence

    show(bench_evidence(), as_json=as_json)


@app.command()
def memory(
    as_json: Annotated[bool, _JSON] = False,
    count: Annotated[int, typer.Option(help="Records of the long run.", min=1)] = 100_000,
) -> None:
    """Peak memory of a long run beside a short one (fake engine)."""
    from ..bench.work import bench_memory

    show(bench_memory(count), as_json=as_json)


@app.command()
def throughput(
    as_json: Annotated[bool, _JSON] = False,
    config: Annotated[str, typer.Option(help="The engine's config.")] = "default",
    model: Annotated[str | None, typer.Option(help="A named model, a folder or a hub id.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Override a setting: a.b=value.")] = None,
    count: Annotated[int, typer.Option(help="Solutions judged.", min=1)] = 32,
    plain: Annotated[int, typer.Option(help="Of these, judged by the plain loop too.", min=1)] = 1,
) -> None:
    """Critiques a second beside a plain loop on the same engine, and the time beside the engine's alone."""
    from ..bench.engines import bench_throughput
    from .verify import effective_config

    overrides = ["verify.protocol=genprm", "verify.votes=4", *(set_ or [])]
    settings = effective_config(config, model=model, votes=None, seed=None, overrides=overrides)
    show(bench_throughput(settings, count=count, plain=plain), as_json=as_json)


@app.command()
def overhead(
    as_json: Annotated[bool, _JSON] = False,
    config: Annotated[str, typer.Option(help="The engine's config.")] = "default",
    model: Annotated[str | None, typer.Option(help="A named model, a folder or a hub id.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Override a setting: a.b=value.")] = None,
    count: Annotated[int, typer.Option(help="Solutions judged.", min=1)] = 32,
) -> None:
    """A whole run beside its own prompts given to the engine all at once."""
    from ..bench.engines import bench_overhead
    from .verify import effective_config

    overrides = ["verify.protocol=genprm", "verify.votes=4", *(set_ or [])]
    settings = effective_config(config, model=model, votes=None, seed=None, overrides=overrides)
    show(bench_overhead(settings, count=count), as_json=as_json)


@app.command()
def label(
    as_json: Annotated[bool, _JSON] = False,
    config: Annotated[str, typer.Option(help="The engine's config.")] = "default",
    model: Annotated[str | None, typer.Option(help="A named model, a folder or a hub id.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Override a setting: a.b=value.")] = None,
) -> None:
    """One label read beside one token generated after the same prompt."""
    from ..bench.engines import bench_label
    from .verify import effective_config

    settings = effective_config(config, model=model, votes=None, seed=None, overrides=set_ or [])
    show(bench_label(settings), as_json=as_json)


@app.command()
def remote(as_json: Annotated[bool, _JSON] = False) -> None:
    """A run against a local server of 50 ms a call beside the least that it can take at 256 in flight."""
    from ..bench.remote import bench_remote

    show(bench_remote(), as_json=as_json)


@app.command()
def serve(
    as_json: Annotated[bool, _JSON] = False,
    seconds: Annotated[float, typer.Option(help="How long the service is kept full.", min=1)] = 10.0,
    soak: Annotated[
        float | None, typer.Option(help="Seconds at half load after that, for its memory.", min=5, show_default=False)
    ] = None,
) -> None:
    """500 callers at once of `genprm serve` beside the most that its seats allow (fake engine, 20 ms a call)."""
    from ..bench.serve import bench_serve, bench_soak

    show([*bench_serve(seconds=seconds), *(bench_soak(soak) if soak is not None else [])], as_json=as_json)


@app.command("ray")
def ray_(
    as_json: Annotated[bool, _JSON] = False,
    count: Annotated[int, typer.Option(help="Records of each run.", min=100)] = 2_000,
) -> None:
    """Records a second with two workers beside one, on a Ray cluster of two nodes on this machine (fake engine)."""
    from ..bench.scale import bench_ray

    show(bench_ray(count), as_json=as_json)


@app.command("long")
def long_(
    as_json: Annotated[bool, _JSON] = False,
    count: Annotated[int, typer.Option(help="Records of the run.", min=10)] = 1_000_000,
    engine: Annotated[str, typer.Option(help="local or ray.")] = "local",
) -> None:
    """The driver's memory over a long bulk run, at ten points on stderr (fake engine)."""
    from ..bench.scale import bench_long
    from .verify import engine_named

    def say(point: dict[str, Any]) -> None:
        typer.echo(json.dumps(point), err=True)

    show(bench_long(count, engine_named(engine), say), as_json=as_json)


@app.command()
def cost(
    as_json: Annotated[bool, _JSON] = False,
    solutions: Annotated[
        list[int] | None, typer.Option(help="Solutions to judge; default a million, a billion.")
    ] = None,
    steps: Annotated[float, typer.Option(help="Steps judged in a solution.")] = 8.0,
    votes: Annotated[float, typer.Option(help="Critiques a step.")] = 1.0,
    critique_tokens: Annotated[float, typer.Option(help="Generated tokens of a critique.")] = 400.0,
    prompt_tokens: Annotated[
        float, typer.Option(help="Its prompt tokens outside the engine's prefix cache.")
    ] = 1_000.0,
    cached: Annotated[float, typer.Option(help="Share of critiques in the verdict cache.", min=0, max=1)] = 0.0,
    result_bytes: Annotated[float, typer.Option(help="Bytes of one result.")] = 20_000.0,
    generated_per_second: Annotated[float, typer.Option(help="Tokens a worker generates in a second.")] = 2_500.0,
    prompt_per_second: Annotated[float, typer.Option(help="Prompt tokens a worker reads in a second.")] = 25_000.0,
    gpus: Annotated[float, typer.Option(help="GPUs of a worker.")] = 1.0,
    workers: Annotated[int, typer.Option(help="Workers.", min=1)] = 8,
    drivers: Annotated[int, typer.Option(help="Drivers, by --shard.", min=1)] = 1,
) -> None:
    """GPU hours and days that a bulk run will take, and what bounds it: arithmetic on your numbers, no measurement."""
    from dataclasses import asdict

    from ..bulk.cost import Engine, Limits, Work, estimate

    work = Work(steps, votes, critique_tokens, prompt_tokens, cached, result_bytes)
    engine, limits = Engine(generated_per_second, prompt_per_second, gpus), Limits(drivers=drivers)
    for count in solutions or [10**6, 10**9]:
        found = estimate(count, work, engine, workers=workers, limits=limits)
        if as_json:
            typer.echo(json.dumps(asdict(found)))
            continue
        typer.echo(
            f"{count:,} solutions: {found.gpu_hours:,.0f} GPU hours, {found.days:,.1f} days on {workers} workers, "
            f"bound by {found.bottleneck}; {found.generated_tokens:.3g} tokens generated, "
            f"{found.output_bytes / 1e9:,.0f} GB of results, {found.workers_useful:,} workers of use"
        )


@app.command("all")
def everything(as_json: Annotated[bool, _JSON] = False) -> None:
    """All figures that need no engine of their own: one after another, for half an hour at most."""
    from ..bench.engines import bench_label
    from ..bench.remote import bench_remote
    from ..bench.serve import bench_serve
    from ..bench.work import bench_cache, bench_early_stop, bench_evidence, bench_memory, bench_votes
    from ..bench_sandbox import bench_sandbox
    from ..config import load_config

    figures = [
        *bench_sandbox(),
        *bench_label(load_config("default")),
        *bench_votes(),
        *bench_early_stop(),
        *bench_cache(),
        *bench_evidence(),
        *bench_memory(),
        *bench_remote(),
        *bench_serve(),
    ]
    show(figures, as_json=as_json)
