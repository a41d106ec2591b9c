"""Log lines as JSON objects on standard error, one event a line.

Knows the shape of a line. Texts of solutions are in no line unless the caller puts them there.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from typing import Any

LOGGER = logging.getLogger("genprm.serve")


def say(event: str, *, level: int = logging.INFO, **fields: Any) -> None:
    """Write one line.

    Args:
        event: what happened, in a word or two.
        level: of Python's logging.
        fields: JSON values; None = left out.
    """
    LOGGER.log(level, event, extra={"fields": fields})


def where(error: BaseException) -> list[str]:
    """Where an error came from: places only, since its text may hold a solution's."""
    frames = traceback.extract_tb(error.__traceback__)
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, "fields", {})
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
        line = {"time": stamp, "level": record.levelname.lower(), "event": record.getMessage()}
        if record.exc_info and record.exc_info[1] is not None:
            line |= {"error": type(record.exc_info[1]).__name__, "where": where(record.exc_info[1])}  # type: ignore[dict-item]
        known = {key: value for key, value in fields.items() if value is not None}
        return json.dumps({**line, **known}, ensure_ascii=True, default=str)


def to_stderr() -> None:
    """Send the service's lines, and the web server's warnings, to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    for name, level in (("genprm.serve", logging.INFO), ("uvicorn", logging.WARNING), ("asyncio", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)
