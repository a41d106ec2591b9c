"""`genprm`: the command line's entry. Loads no model library until a command needs one.

Results go to stdout, all else to stderr. Expected errors are one line; `--debug` shows the traceback.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from ..errors import GenPRMError
from . import bench, cache, calibrate, config, distill, eval, filter, models, sandbox, search, serve, verify

# Every option is also an environment variable: GENPRM_<COMMAND>_<OPTION>.
app = typer.Typer(
    name="genprm",
    help="Judge each step of a reasoning solution with a verifier model that writes a critique and runs code.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"auto_envvar_prefix": "GENPRM", "help_option_names": ["-h", "--help"]},
)
app.command("verify")(verify.verify)
app.add_typer(eval.app, name="eval")
app.add_typer(distill.app, name="distill")
app.command("serve")(serve.serve)
app.command("search")(search.search)
app.command("filter")(filter.filter_)
app.command("calibrate")(calibrate.calibrate)
app.add_typer(config.app, name="config")
app.add_typer(models.app, name="models")
app.add_typer(sandbox.app, name="sandbox")
app.add_typer(bench.app, name="bench")
app.add_typer(cache.app, name="cache")


def _version(wanted: bool) -> None:
    if wanted:
        from .. import __version__

        typer.echo(f"genprm {__version__}")
        raise typer.Exit


@app.callback()
def main(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Judge each step of a reasoning solution with a verifier model that writes a critique and runs code."""


def run() -> None:
    """Run the command line; exit codes are 0 done, 1 an error was found, 2 usage or input, 3 something is missing."""
    debug = "--debug" in sys.argv[1:] or os.environ.get("GENPRM_DEBUG", "") not in ("", "0")
    # `--debug` is understood in every place, though it belongs to the main command.
    arguments = [*(["--debug"] if debug else []), *(word for word in sys.argv[1:] if word != "--debug")]
    try:
        app(args=arguments)
    except GenPRMError as error:
        if debug:
            raise
        print(f"genprm: {_one_line(error)}", file=sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader of stdout has gone, as in `genprm … | head`; nothing more can be said there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except KeyboardInterrupt:
        print("genprm: interrupted", file=sys.stderr)
        sys.exit(130)
    except Exception as error:
        if debug:
            raise
        kind = type(error).__name__
        print(f"genprm: unexpected {kind}: {_one_line(error)} (--debug shows where)", file=sys.stderr)
        sys.exit(3)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
