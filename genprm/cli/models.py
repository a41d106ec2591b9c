"""`genprm models`: where each named model comes from, and fetching the embedded one."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(help="List the named models, fetch one.", no_args_is_help=True)


@app.command("list")
def list_() -> None:
    """List the named models: origin, size, licence, and whether the embedded one is in the cache."""
    from ..models import MODELS, cached_folder, is_whole

    for model in MODELS.values():
        if model.base is not None:
            origin = f"an adapter of {model.base}, shipped with genprm"
        else:
            origin = f"hub: {model.hub_id}" if model.wheel is None else f"package: {model.wheel.requirement}"
        there = model.embedded and is_whole(cached_folder(model))
        typer.echo(f"{model.name:14} {origin}{' (in the cache)' if there else ''}")
        typer.echo(f"{'':14} {model.size}; {model.licence}; {model.note}")


@app.command()
def pull(name: Annotated[str, typer.Argument(help="A model's name.")] = "smollm2-135m") -> None:
    """Fetch a model into the cache and print its folder."""
    from ..models import pull as fetch

    typer.echo(str(fetch(name, lambda text: typer.echo(text, err=True))))
