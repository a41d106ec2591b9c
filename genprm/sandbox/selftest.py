"""Canaries: harmless attempts that a sandbox must refuse, made from inside it before any model's code runs there.

A sandbox in which one of them gets through is not used. They tell that the layers are in force, not that they
have no holes; the attack battery of the tests goes further.
"""

from __future__ import annotations

import json
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

_SOURCE = r"""
import json, os

def attempt(function):
    try:
        return "ALLOWED: %.60r" % (function(),)
    except BaseException as error:
        return "refused: %s" % (error if isinstance(error, OSError) else type(error).__name__)

def read():
    with open("/etc/passwd") as file:
        return file.readline()

def write():
    with open(MARKER, "w") as file:
        return file.write("x")

def network():
    import socket
    socket.socket(socket.AF_INET, socket.SOCK_STREAM).close()

def fork():
    if os.fork() == 0:
        os._exit(0)
    os.wait()

def execute():
    import subprocess
    return subprocess.run(["/bin/sh", "-c", "echo ran"], capture_output=True).stdout

print("CANARIES" + json.dumps({
    "read_file": attempt(read),
    "write_file": attempt(write),
    "network": attempt(network),
    "fork": attempt(fork),
    "execute": attempt(execute),
    "chmod": attempt(lambda: os.chmod("/", os.stat("/").st_mode & 0o7777)),
    "signal": attempt(lambda: os.kill(os.getppid(), 0)),
    "environment": sorted(os.environ),
}))
"""
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)


@dataclass(frozen=True)
class Canary:
    """One attempt and what came of it."""

    name: str
    contained: bool
    detail: str


def canary_source() -> tuple[str, Path]:
    """The program to run, and the file that it tries to write."""
    marker = Path(f"/tmp/genprm-canary-{secrets.token_hex(8)}")
    return f"MARKER = {str(marker)!r}\n{_SOURCE}", marker


def read_canaries(printed: str, marker: Path, environment: frozenset[str] | None = None) -> list[Canary]:
    """Judge the canaries' output.

    Args:
        printed: the program's whole output.
        marker: the file that must not be there; removed if it is.
        environment: the names of variables that may be set; None = any but those that look like a secret.
    """
    found = [line for line in printed.splitlines() if line.startswith("CANARIES")]
    try:
        results = json.loads(found[-1].removeprefix("CANARIES"))
        names = results.pop("environment")
    except (IndexError, ValueError, KeyError):
        return [Canary("self-test", False, f"the canaries did not report: {printed[-200:]!r}")]
    canaries = [Canary(name, str(text).startswith("refused"), str(text)) for name, text in results.items()]
    if marker.exists():
        marker.unlink()
        canaries = [Canary("write_file", False, f"wrote {marker}") if c.name == "write_file" else c for c in canaries]
    bad = [name for name in names if (_SECRET_NAME.search(name) if environment is None else name not in environment)]
    return [*canaries, Canary("environment", not bad, f"exposed: {', '.join(bad)}" if bad else "refused: clean")]
