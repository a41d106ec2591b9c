"""`genprm config`: the shipped configs and the effective config."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(help="List the shipped configs, show the effective one.", no_args_is_help=True)


@app.command("list")
def list_() -> None:
    """List the shipped configs with their models."""
    from ..config import load_config, shipped_configs

    for name in shipped_configs():
        config = load_config(name)
        card = ", ".join(text for text in (config.card.size, config.card.licence) if text)
        typer.echo(f"{name:16} {config.model:16} {config.verify.protocol:10} {card}")


@app.command()
def show(
    config: Annotated[str, typer.Option(help="A shipped config's name or a YAML file.")] = "default",
    set_: Annotated[list[str] | None, typer.Option("--set", help="Override a setting: a.b=value.")] = None,
) -> None:
    """Print the effective config as YAML."""
    import yaml

    from ..config import load_config

    tree = load_config(config, set_ or []).model_dump(mode="json")
    typer.echo(yaml.safe_dump(tree, sort_keys=False), nl=False)
