"""How the fork server is started: which files it may see, in which wrapper, with which environment.

Levels, strongest first. Whatever wraps the server, the child that runs code confines itself:

    L3    bwrap (own mount, process, network, user namespaces) + Landlock + seccomp
    L2    unshare (the same namespaces, but the machine's own file tree) + Landlock + seccomp
    L1    Landlock + seccomp
    L1'   bwrap + seccomp, where the kernel has no Landlock
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

INSIDE = Path(__file__).resolve().parent / "inside"

ENVIRONMENT = {
    "HOME": "/nonexistent",
    "LC_ALL": "C.UTF-8",
    "MKL_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "TZ": "UTC",
}
"""All that the server's environment holds; nothing of the client's own is passed on."""

PACKAGES = ("sympy", "mpmath", "numpy")
MODULES = (
    *("sympy", "sympy.abc", "sympy.parsing.sympy_parser", "mpmath"),
    *("numpy", "numpy.fft", "numpy.linalg", "numpy.polynomial", "numpy.random"),
    *("bisect", "calendar", "cmath", "collections", "copy", "dataclasses", "datetime", "decimal", "enum", "fractions"),
    *(
        "functools",
        "heapq",
        "itertools",
        "json",
        "math",
        "operator",
        "random",
        "re",
        "statistics",
        "string",
        "textwrap",
    ),
    *("time", "typing", "warnings"),
)
"""Loaded before the first fork: what is missing here costs every run its import."""

WARM_UP = """
import sympy
_x, _y = sympy.symbols("x y")
sympy.solve(_x**2 - 3 * _x + 1)
sympy.solve([_x + _y - 3, _x - _y - 1], [_x, _y])
sympy.simplify((_x**2 - 1) / (_x - 1))
sympy.integrate(_x * sympy.sin(_x), (_x, 0, 1))
sympy.diff(_x**3, _x), sympy.factor(_x**2 - 1), sympy.expand((_x + 1) ** 3), sympy.limit(sympy.sin(_x) / _x, _x, 0)
sympy.Matrix([[1, 2], [3, 4]]).det(), sympy.factorint(84), sympy.N(sympy.pi), sympy.sympify("1/3"), sympy.latex(_x)
"""

TOUCH = """
import sympy
sympy.solve(sympy.Symbol("x") ** 2 - 3 * sympy.Symbol("x") + 2)
"""
"""Run in a child that waits for code; see `inside/child.py`."""

_SYSTEM_FILES = ("/dev/null", "/dev/urandom", "/etc/ld.so.cache")
_SYSTEM_FOLDERS = ("/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/local/lib", "/nix/store")
_ZONES = "/usr/share/zoneinfo"


@dataclass(frozen=True)
class Level:
    """One way to confine code."""

    name: str
    wrapper: str | None
    landlock: bool

    @property
    def layers(self) -> tuple[str, ...]:
        """What confines the code, outermost first."""
        names = (self.wrapper, "Landlock" if self.landlock else None, "seccomp", "capabilities", "rlimits")
        return tuple(name for name in names if name is not None)


LEVELS = (
    Level("L3", "bwrap", True),
    Level("L2", "unshare", True),
    Level("L1", None, True),
    Level("L1'", "bwrap", False),
)


def _package_folders() -> list[str]:
    """Where sympy and numpy are imported from, wherever the user has put them."""
    folders = []
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            folders.append(str(Path(spec.origin).resolve().parent.parent))
    return folders


def import_path() -> list[str]:
    """The server's `sys.path`: the standard library, installed packages, and nothing of the working directory."""
    installed = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    library = tuple(f"{Path(path).resolve()}{os.sep}" for path in map(sysconfig.get_path, ("stdlib", "platstdlib")))
    kept: list[str] = []
    for entry in [*sys.path, *_package_folders()]:
        real = str(Path(entry).resolve()) if entry else ""
        known = entry in installed or real.startswith(library) or real in _package_folders()
        if entry and (known or Path(entry).name in ("site-packages", "dist-packages") or real.endswith(".zip")):
            kept.append(real)
    return list(dict.fromkeys(path for path in kept if Path(path).exists()))


def readable_paths() -> list[str]:
    """What hosted code may read: Python's own files, installed packages, system libraries, time zones."""
    prefixes = {Path(path).resolve() for path in (sys.prefix, sys.base_prefix, sys.exec_prefix)}
    libraries = [str(prefix / "lib") for prefix in prefixes if prefix != Path("/")]
    return [*import_path(), *libraries, *_SYSTEM_FOLDERS, *_SYSTEM_FILES, _ZONES]


def interpreter() -> str:
    """The real file of this Python: a link may lead through folders that the wrapper does not show.

    Outside of a virtual environment: one made of copies finds its library through a file that is not shown either.
    """
    return str(Path(getattr(sys, "_base_executable", None) or sys.executable).resolve())


def server_command(control: int, *, landlock: bool) -> list[str]:
    """The fork server without its wrapper. `-I` would ignore PYTHONHASHSEED; `-S` keeps `.pth` files out."""
    options = {
        "control": control,
        "sys_path": import_path(),
        "readable": readable_paths(),
        "landlock": landlock,
        "modules": MODULES,
        "warm_up": WARM_UP,
        "touch": TOUCH,
    }
    return [interpreter(), "-s", "-S", "-P", "-B", "-X", "utf8", str(INSIDE), json.dumps(options)]


def _bwrap_binds() -> list[str]:
    arguments: list[str] = []
    for folder in _SYSTEM_FOLDERS:
        if Path(folder).is_symlink():
            arguments += ["--symlink", str(Path(folder).readlink()), folder]
        elif Path(folder).is_dir():
            arguments += ["--ro-bind", folder, folder]
    for device in ("/dev/null", "/dev/urandom"):
        arguments += ["--dev-bind", device, device]
    python = interpreter()
    for path in dict.fromkeys([*readable_paths(), "/etc/ld.so.cache", _ZONES, python, str(INSIDE)]):
        if path not in _SYSTEM_FOLDERS and not path.startswith("/dev/"):
            arguments += ["--ro-bind-try", path, path]
    return arguments


def wrap(level: Level, command: Sequence[str]) -> list[str] | None:
    """The command inside the level's wrapper; None where the wrapper is not installed.

    bwrap's --die-with-parent is not used: it fires when the thread that started it ends. The server ends when the
    client closes its socket, which the kernel does for a client that dies.
    """
    if level.wrapper is None:
        return list(command)
    program = shutil.which(level.wrapper)
    if program is None:
        return None
    if level.wrapper == "unshare":
        return [program, "-Urnpi", "--fork", "--kill-child", "--mount-proc", *command]
    flags = ["--unshare-all", "--new-session", "--cap-drop", "ALL", "--chdir", "/"]
    return [program, *flags, *_bwrap_binds(), "--remount-ro", "/", "--", *command]
