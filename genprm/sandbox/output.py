"""What the model sees of a run. The bytes come from hostile code: nothing in them may act on a prompt or a terminal.

Runs on the trusted side, so that a monkeypatch in the child cannot switch it off.
"""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path

from ..text import neutralise
from .limits import Limits

DELIMITERS = (
    *("<|", "|>", "<｜", "｜>", "```", "~~~", "[Code Output]", "\\boxed{", "<extra_0>", "[INST]", "[/INST]"),
    *("<<SYS>>", "<</SYS>>", "<start_of_turn>", "<end_of_turn>", "<bos>", "<eos>", "<pad>", "<unk>", "<s>", "</s>"),
    *(f"{mark}{name}>" for mark in ("<", "</") for name in ("analyze", "verify", "output", "think", "tool_response")),
)
"""Spellings that end a turn, open a fence or state a verdict in some protocol or chat template."""

_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[ -/]*[0-~])?"
)
_LINE_ENDS = re.compile("\r\n?|[\v\f\x85\u2028\u2029]")
# Control characters, and the invisible ones that reorder or hide text.
_CONTROLS = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)
_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]{6,}")


def _install_paths() -> list[str]:
    paths = {str(path) for name in (sys.prefix, sys.base_prefix) for path in (Path(name), Path(name).resolve())}
    return sorted((path for path in paths if path not in ("/", "/usr")), key=len, reverse=True)


_INSTALL_PATHS = _install_paths()


def clean(raw: bytes) -> str:
    """Text without escapes, control characters, machine addresses and the paths of this installation."""
    text = _ESCAPES.sub("", raw.decode("utf-8", "replace"))
    text = _CONTROLS.sub("", _LINE_ENDS.sub("\n", text))
    text = _ADDRESS.sub("at 0x…", text)
    for path in _INSTALL_PATHS:
        text = text.replace(path, "<python>")
    return text


def shorten(text: str, limit: int) -> str:
    """Head and tail of a long text, with a line between that says how much is left out."""
    if len(text) <= limit:
        return text
    head = limit // 2
    tail = limit - head
    return f"{text[:head]}\n[… {len(text) - limit:,} characters left out …]\n{text[-tail:]}"


def present(raw: bytes, limits: Limits, *, note: str = "") -> str:
    """The block's output as the model is shown it; `note` is the host's own bracketed line after it."""
    text = neutralise(shorten(clean(raw).rstrip(), limits.output_chars), DELIMITERS)
    return "\n".join(part for part in (text, note) if part)


def death_note(wait_status: int) -> str:
    """How a child ended that should still be there."""
    number = wait_status & 0x7F
    if number == 0:
        return f"[the program ended its own process with exit code {wait_status >> 8}]"
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    return f"[the interpreter died: {name}]"


def limit_note(status: str, limits: Limits, *, clock: str = "") -> str:
    """The bracketed line for a block that was stopped."""
    notes = {
        "timeout": f"[stopped: more than {limits.cpu_seconds:g} s of processor time]"
        if clock == "cpu"
        else f"[stopped: not done after {limits.wall_seconds:g} s]",
        "memory": f"[stopped: more than {limits.memory_mb} MB of memory]",
        "output_limit": f"[stopped: more than {limits.output_bytes:,} bytes of output]",
    }
    return notes[status]
