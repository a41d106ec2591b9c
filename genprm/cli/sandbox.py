"""`genprm sandbox`: is code confined on this machine, run a file in it, serve it to others."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ConfigError, InputError, SandboxUnavailable

if TYPE_CHECKING:
    from ..sandbox.limits import Limits

app = typer.Typer(help="Where model-written code runs: check it, run a file in it, serve it.", no_args_is_help=True)

_KIND = typer.Option(help="embedded, http, off, or unsafe-subprocess (no protection at all).")
_URL = typer.Option(help="Address of a SandboxFusion-style service, for --kind http.")
_LEVEL = typer.Option(help="Accept this level only: L3, L2, L1 or L1'. Default: the best that works here.")
_CPU = typer.Option(help="Processor seconds a block.", min=0.01)
_WALL = typer.Option(help="Seconds on the clock a block.", min=0.01)
_MEMORY = typer.Option(help="Megabytes a session.", min=16)


def _limits(cpu_seconds: float, wall_seconds: float, memory_mb: int) -> Limits:
    from ..sandbox.limits import Limits

    return Limits(cpu_seconds=cpu_seconds, wall_seconds=wall_seconds, memory_mb=memory_mb)


def _embedded_report(level: str | None) -> dict[str, Any]:
    from ..sandbox.embedded import EmbeddedSandbox
    from ..sandbox.launch import LEVELS

    with EmbeddedSandbox(level=level, workers=1) as sandbox:
        check = sandbox.open().run_sync("import sympy\nsympy.solve(sympy.Symbol('x') ** 2 - 4)")
        if check.output != "[-2, 2]":
            raise SandboxUnavailable(f"the sandbox started but a first run failed: {check.status}: {check.output}")
        return {
            "available": True,
            "level": sandbox.level,
            "layers": list(sandbox.layers),
            "canaries": {canary.name: canary.detail for canary in sandbox.canaries},
            "missing": {
                name: sandbox.passed_over[name] for name in [lv.name for lv in LEVELS] if name in sandbox.passed_over
            },
            "versions": sandbox.versions,
        }


def _http_report(url: str | None) -> dict[str, Any]:
    from ..sandbox.remote import HttpSandbox

    if not url:
        raise ConfigError("--kind http needs --url: give the service's address")
    with HttpSandbox(url) as sandbox:
        canaries = {canary.name: canary.detail for canary in sandbox.canaries}
    return {"available": True, "level": sandbox.level, "layers": [url], "canaries": canaries, "missing": {}}


@app.command()
def check(
    kind: Annotated[str, _KIND] = "embedded",
    url: Annotated[str | None, _URL] = None,
    level: Annotated[str | None, _LEVEL] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Start the sandbox, let the canaries loose in it, and say what confines code here.

    Exit code 0 if code can be run confined, 3 if not.
    """
    if kind not in ("embedded", "http"):
        raise ConfigError(f"--kind {kind} confines nothing, so there is nothing to check; kinds are embedded and http")
    try:
        report = _http_report(url) if kind == "http" else _embedded_report(level)
    except SandboxUnavailable as error:
        if not as_json:
            raise
        typer.echo(json.dumps({"available": False, "level": None, "missing": list(error.missing), "error": str(error)}))
        raise typer.Exit(error.exit_code) from None
    if as_json:
        typer.echo(json.dumps(report, ensure_ascii=False))
        return
    typer.echo(f"level     {report['level']}")
    typer.echo(f"layers    {', '.join(report['layers'])}")
    for name, detail in report["canaries"].items():
        typer.echo(f"canary    {name:12} {detail}")
    for name, reason in report["missing"].items():
        typer.echo(f"missing   {name:12} {reason}")


@app.command()
def run(
    path: Annotated[Path, typer.Argument(help="A Python file; - reads standard input.")],
    kind: Annotated[str, _KIND] = "embedded",
    url: Annotated[str | None, _URL] = None,
    level: Annotated[str | None, _LEVEL] = None,
    cpu_seconds: Annotated[float, _CPU] = 5.0,
    wall_seconds: Annotated[float, _WALL] = 10.0,
    memory_mb: Annotated[int, _MEMORY] = 512,
    as_json: Annotated[bool, typer.Option("--json", help="The whole result as one JSON object.")] = False,
) -> None:
    """Run a file as a model's block would run, and print what the model would see.

    Exit code 0 if it ended well, 1 if it failed or was stopped, 3 if it could not be run.
    """
    from ..sandbox import KINDS, open_sandbox

    try:
        source = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise InputError(f"cannot be read: {reason}", file=str(path)) from error
    chosen = next((name for name in KINDS if name == kind), None)
    if chosen is None:
        raise ConfigError(f"--kind {kind!r} does not exist; kinds are {', '.join(KINDS)}")
    sandbox = open_sandbox(chosen, _limits(cpu_seconds, wall_seconds, memory_mb), url=url, workers=1, level=level)
    try:
        result = sandbox.open().run_sync(source)
    finally:
        sandbox.close()
    if as_json:
        typer.echo(json.dumps({**result.model_dump(), "level": sandbox.level}, ensure_ascii=False))
    else:
        typer.echo(result.output)
        typer.echo(f"{result.status}, {result.seconds:.3f} s, {sandbox.level}", err=True)
    if result.status != "ok":
        raise typer.Exit(3 if result.status == "unavailable" else 1)


@app.command()
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.", min=0, max=65535)] = 8080,
    level: Annotated[str | None, _LEVEL] = None,
    workers: Annotated[int | None, typer.Option(help="Programs at the same time. Default: one a core.", min=1)] = None,
    cpu_seconds: Annotated[float, _CPU] = 5.0,
    wall_seconds: Annotated[float, _WALL] = 10.0,
    memory_mb: Annotated[int, _MEMORY] = 512,
) -> None:
    """Serve this machine's sandbox in the SandboxFusion shape: POST /run_code.

    No authentication: for private networks. The limits given here are the most that a request gets.
    """
    try:
        import uvicorn

        from ..sandbox.service import create_app
    except ImportError as error:
        raise ConfigError(f"`genprm sandbox serve` needs {error.name}: pip install 'genprm[serve]'") from error
    from ..sandbox.embedded import EmbeddedSandbox

    limits = _limits(cpu_seconds, wall_seconds, memory_mb)
    with EmbeddedSandbox(limits, workers=workers, level=level, cache_size=0) as sandbox:
        typer.echo(f"level {sandbox.level}: {', '.join(sandbox.layers)}; http://{host}:{port}/run_code", err=True)
        uvicorn.run(create_app(sandbox), host=host, port=port, log_level="warning")
