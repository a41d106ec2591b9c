"""Just enough HTTP for the ends of a load test, whose own work must not be what is measured."""

from __future__ import annotations


def message(data: bytes) -> tuple[bytes, bytes, bytes] | None:
    """Head, body and what follows, of bytes that begin with a message; None where it is not all there yet."""
    head, found, rest = data.partition(b"\r\n\r\n")
    if not found:
        return None
    lines = head.lower().split(b"\r\n")
    length = next((int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:")), 0)
    return None if len(rest) < length else (head, rest[:length], rest[length:])
