"""Settling, before any model's code runs, at which level this machine confines it.

A level is in force when its server has come up and every canary in a child of it was refused. There is no
fall-back below the levels: then `SandboxUnavailable` names what is missing.
"""

from __future__ import annotations

from ..errors import SandboxUnavailable
from .channel import NotConfinedError, ServerLostError
from .launch import ENVIRONMENT, LEVELS, Level
from .limits import Limits
from .process import ServerProcess, StartError
from .selftest import Canary, canary_source, read_canaries

CHOICES = "use `sandbox.kind: http` with a sandbox elsewhere, `off`, or `unsafe-subprocess` (no protection at all)"
_CANARY_LIMITS = Limits(memory_mb=256, cpu_seconds=10, wall_seconds=30)


class LayerError(Exception):
    """A level does not work here; names the layer and the reason."""

    def __init__(self, layer: str, reason: str):
        self.layer, self.reason = layer, reason
        super().__init__(f"{layer}: {reason}")


def start_server(level: Level) -> tuple[ServerProcess, list[Canary]]:
    """A server at `level` that has passed the self-test.

    Raises:
        LayerError: it has not.
    """
    try:
        server = ServerProcess(level)
    except StartError as error:
        raise LayerError(level.wrapper or "fork server", str(error)) from error
    try:
        if not server.hello["seccomp"]:
            raise LayerError("seccomp", "no syscall table for this machine")
        if level.landlock and not server.hello["landlock"]:
            raise LayerError("Landlock", "the kernel does not have it, or does not allow it here")
        canaries = _send_canaries(server)
    except BaseException:
        server.close()
        raise
    return server, canaries


def _send_canaries(server: ServerProcess) -> list[Canary]:
    source, marker = canary_source()
    try:
        channel = server.open_channel(_CANARY_LIMITS)
        try:
            raw = channel.run(source, echo=False)
        finally:
            channel.close()
    except NotConfinedError as error:
        layer, _, reason = str(error).partition(": ")
        raise LayerError(layer, reason or layer) from error
    except ServerLostError as error:
        raise LayerError("fork server", str(error)) from error
    # bwrap sets PWD.
    canaries = read_canaries(raw.output.decode("utf-8", "replace"), marker, frozenset(ENVIRONMENT) | {"PWD"})
    if escaped := [canary for canary in canaries if not canary.contained]:
        raise LayerError("self-test", "; ".join(f"{canary.name} {canary.detail}" for canary in escaped))
    return canaries


def choose(wanted: str | None) -> tuple[ServerProcess, list[Canary], dict[str, str]]:
    """The first level that works here, or `wanted` alone; with the reasons why stronger ones do not.

    Raises:
        SandboxUnavailable: none does.
    """
    if wanted is not None and wanted not in {level.name for level in LEVELS}:
        raise SandboxUnavailable(f"sandbox level {wanted!r} does not exist; levels are L3, L2, L1 and L1'")
    passed_over: dict[str, str] = {}
    missing: dict[str, str] = {}
    for level in LEVELS:
        if wanted not in (None, level.name):
            continue
        try:
            return *start_server(level), passed_over
        except LayerError as error:
            passed_over[level.name] = str(error)
            missing.setdefault(error.layer, error.reason)
    reasons = "; ".join(f"{layer}: {reason}" for layer, reason in missing.items())
    what = "code cannot be confined on this machine" if wanted is None else f"sandbox level {wanted} does not work here"
    raise SandboxUnavailable(f"{what} ({reasons}); {CHOICES}", missing=list(missing))
