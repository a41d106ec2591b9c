"""Writes docs/cli.md from the command line's own help. Run it after a change of commands or options.

`python scripts/docs_cli.py` writes the page; with `--check` it only says whether the page is up to date.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent.parent / "docs" / "cli.md"
HEAD = """# Command line

Written by `scripts/docs_cli.py` from the commands' own help.

Results go to standard output, all else to standard error. Exit codes: 0 done; 1 an error was found, or a goal missed,
where that was asked for; 2 wrong usage or input; 3 the model, engine or sandbox is not to be had. `genprm --debug`
before a command shows tracebacks. Every option is also an environment variable: `--votes` of `genprm verify` is
`GENPRM_VERIFY_VOTES`.
"""


def page() -> str:
    """The whole page."""
    from genprm.cli.main import app

    return "\n".join([HEAD, *_group("genprm", app, 2)])


def _group(path: str, app: Any, depth: int) -> Iterator[str]:
    found: dict[str, Iterator[str]] = {}
    for command in app.registered_commands:
        name = command.name or command.callback.__name__.strip("_").replace("_", "-")
        found[name] = _command(f"{path} {name}", command, depth)
    for group in app.registered_groups:
        found[group.name] = _heading(f"{path} {group.name}", group.typer_instance, depth)
    for name in sorted(found):
        yield from found[name]


def _heading(path: str, app: Any, depth: int) -> Iterator[str]:
    yield f"{'#' * depth} {path}\n"
    yield _plain(app.info.help) + "\n"
    yield from _group(path, app, depth + 1)


def _command(path: str, command: Any, depth: int) -> Iterator[str]:
    yield f"{'#' * depth} {path}\n"
    text = inspect.cleandoc(command.help or command.callback.__doc__ or "").split("\f")[0]
    yield "\n\n".join(_plain(" ".join(block.split())) for block in re.split(r"\n\s*\n", text)) + "\n"
    arguments, options = [], []
    # By way of the function's own signature, which does not change with typer's releases.
    for parameter in inspect.signature(command.callback, eval_str=True).parameters.values():
        kind, info = parameter.annotation.__origin__, parameter.annotation.__metadata__[0]
        if type(info).__name__ == "ArgumentInfo":
            arguments.append((info.metavar or parameter.name.strip("_").upper(), info.help or ""))
        elif not info.hidden:
            options.append(_option(parameter, kind, info))
    shown = " ".join(["`", path, "[OPTIONS]", *(name for name, _ in arguments), "`"])
    yield shown.replace("` ", "`").replace(" `", "`") + "\n"
    lines = [f"- `{name}` {_plain(text)}".rstrip() for name, text in arguments] + options
    if lines:
        yield "\n".join(lines) + "\n"


def _option(parameter: inspect.Parameter, kind: Any, info: Any) -> str:
    plain = "--" + parameter.name.strip("_").replace("_", "-")
    # Within Annotated the first name stands where the default would be.
    given = [name for name in (info.default, *(info.param_decls or ())) if isinstance(name, str)]
    names = given or [f"{plain}/--no{plain[1:]}" if kind is bool else plain]
    kinds = [item for item in getattr(kind, "__args__", [kind]) if item is not type(None)]
    repeated = getattr(kinds[0], "__origin__", kinds[0]) is list or str(kind).startswith("list[")
    one = kinds[0].__args__[0] if getattr(kinds[0], "__origin__", None) is list else kinds[0]
    value = "" if one is bool else f" {info.metavar or _kind(one, kinds, info)}"
    notes = []
    if parameter.default not in (None, False, (), inspect.Parameter.empty) and one is not bool:
        notes.append(f"default `{getattr(parameter.default, 'value', parameter.default)}`")
    if repeated:
        notes.append("may be repeated")
    text = " ".join((info.help or "").split())
    ends = f" ({', '.join(notes)})" if notes else ""
    return f"- `{', '.join(names)}{value}`{' ' + _plain(text) if text else ''}{ends}"


def _kind(one: Any, kinds: list[Any], info: Any) -> str:
    if all(isinstance(item, str) for item in kinds):
        return "|".join(kinds)  # a Literal
    values = [str(item.value) for item in one] if isinstance(one, type) and issubclass(one, Enum) else []
    if values:
        return "|".join(values)
    if getattr(one, "__args__", None):
        return "|".join(str(item) for item in one.__args__)
    bounds = f" from {info.min}" if info.min is not None else ""
    bounds += f" to {info.max}" if info.max is not None else ""
    return {str: "TEXT", int: "INTEGER", float: "FLOAT"}.get(one, one.__name__.upper()) + bounds


def _plain(text: str) -> str:
    """Help text as Markdown that shows it as it is."""
    pieces = text.split("`")
    for place in range(0, len(pieces), 2):
        pieces[place] = re.sub(r"([*_<\[\]])", r"\\\1", pieces[place])
    return "`".join(pieces)


if __name__ == "__main__":
    text = page()
    if "--check" in sys.argv[1:]:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
            sys.exit(f"{PAGE} is out of date: run python scripts/docs_cli.py")
    else:
        PAGE.write_text(text, encoding="utf-8")
