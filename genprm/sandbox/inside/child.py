"""A confined child: reads blocks from descriptor 3, runs them, answers two bytes each, until the other end closes.

Nothing it sends is trusted: the client accepts three letters with an exit code, and learns from
the server that the process has ended.
"""

from __future__ import annotations

import io
import os
import random
import select
import struct
import sys
from types import CodeType

from .blocks import Blocks

CHANNEL = 3
HEADER = struct.Struct("!BI")
ECHO, SILENT = 1, 2
_PATIENCE_MILLISECONDS = 30


def _seed() -> None:
    """The same start for every run: `fork` reseeds `random`, and numpy asks the kernel for entropy."""
    random.seed(0)
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        numpy_random.seed(0)
        # What numpy.random.default_rng() takes its seed from.
        sys.modules["numpy.random.bit_generator"].randbits = random.Random(0).getrandbits  # type: ignore[attr-defined]
    if (sympy_random := sys.modules.get("sympy.core.random")) is not None:
        sympy_random.seed(0)


def _read(count: int) -> bytes:
    parts = []
    while count > 0:
        part = os.read(CHANNEL, min(count, 1 << 16))
        if not part:
            os._exit(0)
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _touch(program: CodeType) -> None:
    """Write to the pages that a first equation writes to, if no code comes at once.

    After a fork the first write to each page copies it, which takes longer than solving the equation. Nothing that
    code can see is changed by it but what sympy keeps to be faster: dummies are numbered as if it had not been.
    """
    poll = select.poll()
    poll.register(CHANNEL, select.POLLIN)
    if not poll.poll(_PATIENCE_MILLISECONDS):
        dummy = sys.modules["sympy.core.symbol"].Dummy
        count = getattr(dummy, "_count", None)
        exec(program, {})
        if count is not None:
            dummy._count = count


def serve(touch: CodeType) -> None:
    """Run blocks until the client closes the channel.

    Args:
        touch: a fixed program of the client's own, to be run while nobody waits.
    """
    # Lines go out as they are made, so that they are not lost when the process is killed.
    out = io.TextIOWrapper(
        io.FileIO(1, "w", closefd=False), encoding="utf-8", errors="backslashreplace", line_buffering=True
    )
    _touch(touch)
    _seed()
    blocks = Blocks(out)
    while True:
        flags, size = HEADER.unpack(_read(HEADER.size))
        source = _read(size).decode("utf-8", "replace")
        status = blocks.run(source, echo=bool(flags & ECHO), silent=bool(flags & SILENT))
        os.write(CHANNEL, status.encode() + bytes([blocks.exit_code]))
