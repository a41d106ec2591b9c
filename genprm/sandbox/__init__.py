"""Running model-written code. Every run is treated as hostile native code.

`open_sandbox` makes one of four kinds: `embedded` (confined by this machine's kernel), `http` (a service
elsewhere), `off` (no code runs, and the model is told so), `unsafe-subprocess` (no protection, by its explicit
name only).
"""

from __future__ import annotations

from typing import Literal, get_args

from ..errors import ConfigError
from .base import OffSandbox, Sandbox, ScriptedSandbox, Session
from .limits import Limits

Kind = Literal["embedded", "http", "off", "unsafe-subprocess"]
KINDS: tuple[Kind, ...] = get_args(Kind)

__all__ = ["KINDS", "Kind", "Limits", "OffSandbox", "Sandbox", "ScriptedSandbox", "Session", "open_sandbox"]


def open_sandbox(
    kind: Kind = "embedded",
    limits: Limits | None = None,
    *,
    url: str | None = None,
    workers: int | None = None,
    level: str | None = None,
    cache_size: int = 1_024,
    trust: bool = False,
) -> Sandbox:
    """Make a sandbox and settle, before any code runs, that it holds.

    Args:
        kind: where code runs.
        limits: of each block.
        url: of the service, for `http`.
        workers: blocks that run at the same time; default one for each processor (`http`: 16).
        level: for `embedded`, the one level to accept (`L3`, `L2`, `L1`, `L1'`); default the best.
        cache_size: for `embedded`, results kept by code; 0 = none.
        trust: for `http`, go on although the service did not pass the canaries.

    Raises:
        SandboxUnavailable: code cannot be confined in this way here. There is no silent fall-back.
        ConfigError: an unknown kind, or `http` without a url.
    """
    if kind == "embedded":
        from .embedded import EmbeddedSandbox

        return EmbeddedSandbox(limits, workers=workers, level=level, cache_size=cache_size)
    if kind == "http":
        if not url:
            raise ConfigError("sandbox.kind is http but sandbox.url is not set: give the service's address")
        from .remote import HttpSandbox

        return HttpSandbox(url, limits, workers=workers, trust=trust)
    if kind == "off":
        return OffSandbox()
    if kind == "unsafe-subprocess":
        from .unsafe import UnsafeSubprocessSandbox

        return UnsafeSubprocessSandbox(limits, workers=workers)
    raise ConfigError(f"sandbox.kind {kind!r} does not exist; kinds are {', '.join(KINDS)}")
