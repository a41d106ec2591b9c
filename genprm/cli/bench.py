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
        if as_json:
            typer.echo(json.dumps(figure))
            continue
        extra = f", {figure['runs_per_second']} runs/s" if "runs_per_second" in figure else ""
        typer.echo(
            f"{figure['name']:16} {figure['ratio']:8.1f} x  (goal {figure['goal']:g} x, "
            f"{'ok' if figure['ok'] else 'MISSED'})  {figure['ours_seconds'] * 1e3:.2f} ms beside "
            f"{figure['other_seconds'] * 1e3:.1f} ms, {figure['runs']} runs{extra}"
        )
    if not all(figure["ok"] for figure in figures):
        raise typer.Exit(1)


@app.command()
def sandbox(
    as_json: Annotated[bool, _JSON] = False,
    rounds: Annotated[int, typer.Option(help="Cold interpreters to measure.", min=1)] = 12,
    level: Annotated[str | None, typer.Option(help="Of the sandbox; default the best that works here.")] = None,
) -> None:
    """A confined run of sympy.solve beside a cold `python -c` that does the same."""
    from ..bench_sandbox import bench_sandbox

    show(bench_sandbox(rounds=rounds, level=level), as_json=as_json)
