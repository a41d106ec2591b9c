"""`genprm serve`: the judge as a service."""

from __future__ import annotations

import ipaddress
import os
from typing import Annotated

import typer

from ..errors import ConfigError


def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes any free one.", min=0, max=65535)] = 8000,
    config: Annotated[str, typer.Option(help="A shipped config's name or a YAML file.")] = "default",
    model: Annotated[str | None, typer.Option(help="A named model, a local folder or a hub id.")] = None,
    votes: Annotated[int | None, typer.Option(help="Critiques sampled for each step.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all sampling.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Override a setting: a.b=value.")] = None,
) -> None:
    """Serve the judge over HTTP: its own routes, and those of scalar PRMs that it can stand in for.

    Callers need the bearer token in GENPRM_API_KEY, if that is set. SIGTERM lets work under way finish.
    """
    from .verify import effective_config

    settings = effective_config(config, model=model, votes=votes, seed=seed, overrides=set_ or [])
    try:
        from ..serve.logs import say, to_stderr
        from ..serve.run import serve as run
        from ..serve.run import take_socket
    except ImportError as error:
        raise ConfigError(f"`genprm serve` needs {error.name}: pip install 'genprm[serve]'") from error
    from ..build import load

    key = os.environ.get(settings.serve.api_key_env, "").strip() or None
    to_stderr()
    listener = take_socket(host, port)
    with listener:
        if key is None and not _loopback(host):
            say("anyone who reaches this address may use the judge", host=host, token=settings.serve.api_key_env)
        with load(settings, say=lambda text: say("loading", text=text)) as verifier:
            run(verifier, listener, key=key)


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
