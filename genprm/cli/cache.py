"""`genprm cache`: what the verdict cache holds, and emptying it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Show or empty the verdict cache.", no_args_is_help=True)

_PATH = typer.Option("--path", help="The cache file; default the one in the cache folder.")


@app.command()
def stats(
    path: Annotated[Path | None, _PATH] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Entries, size and age of the verdict cache."""
    import time

    from ..cache import VerdictCache, default_path

    place = path or default_path()
    if not place.exists():
        typer.echo(json.dumps({"path": str(place), "entries": 0, "bytes": 0}) if as_json else f"{place}: no cache yet")
        return
    cache = VerdictCache(place, _say)
    found = cache.stats()
    cache.close()
    if as_json:
        typer.echo(json.dumps({"path": str(place), "entries": found.entries, "bytes": found.bytes}))
        return
    age = "" if found.oldest is None else f", the oldest {(time.time() - found.oldest) / 3600:.1f} hours old"
    typer.echo(f"{place}: {found.entries} verdicts, {found.bytes / 2**20:.1f} MiB{age}")


@app.command()
def clear(path: Annotated[Path | None, _PATH] = None) -> None:
    """Forget all verdicts."""
    from ..cache import VerdictCache, default_path

    place = path or default_path()
    gone = 0
    if place.exists():
        cache = VerdictCache(place, _say)
        gone = cache.clear()
        cache.close()
    typer.echo(f"{place}: {gone} verdicts removed")


def _say(text: str) -> None:
    print(f"genprm: {text}", file=sys.stderr)
