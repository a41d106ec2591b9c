"""Run a command with some of the kernel's calls taken away: `python deny.py landlock|namespaces|seccomp -- COMMAND`.

A seccomp profile around the command, as a container runtime or another kernel would have it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

_NAMES = ("clone", "prctl", "mount", "unshare", "setns", "seccomp", "pidfd_open")
_TABLES = {"x86_64": (56, 157, 165, 272, 308, 317, 434), "aarch64": (220, 167, 40, 97, 268, 277, 434)}
NUMBERS = dict(zip(_NAMES, _TABLES[platform.machine()], strict=True))
NEW_NAMESPACES = 0x7E020000
ALLOW, FAIL = 0x7FFF0000, 0x00050000


def step(code: int, true: int, false: int, operand: int) -> bytes:
    return struct.pack("=HBBI", code, true, false, operand)


def refuse(number: int, error: int) -> bytes:
    return step(0x15, 0, 1, number) + step(0x06, 0, 0, FAIL | error)


def refuse_argument(number: int, index: int, jump: int, value: int, error: int) -> bytes:
    """Refuse a call whose argument equals (0x15) or shares a bit with (0x45) a value."""
    body = step(0x20, 0, 0, 16 + 8 * index) + step(jump, 0, 1, value) + step(0x06, 0, 0, FAIL | error)
    return step(0x15, 0, 4, number) + body + step(0x20, 0, 0, 0)


PROFILES = {
    "landlock": b"".join(refuse(number, errno.ENOSYS) for number in (444, 445, 446)),
    "namespaces": refuse(NUMBERS["unshare"], errno.EPERM)
    + refuse(NUMBERS["setns"], errno.EPERM)
    + refuse(NUMBERS["mount"], errno.EPERM)
    + refuse(435, errno.ENOSYS)
    + refuse_argument(NUMBERS["clone"], 0, 0x45, NEW_NAMESPACES, errno.EPERM),
    "seccomp": refuse(NUMBERS["seccomp"], errno.ENOSYS) + refuse_argument(NUMBERS["prctl"], 0, 0x15, 22, errno.EINVAL),
    "pidfd": refuse(NUMBERS["pidfd_open"], errno.ENOSYS),
}


def deny(names: list[str]) -> None:
    program = step(0x20, 0, 0, 0) + b"".join(PROFILES[name] for name in names) + step(0x06, 0, 0, ALLOW)
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer))
    if libc.prctl(38, 1, 0, 0, 0) != 0 or libc.syscall(NUMBERS["seccomp"], 1, 0, header) != 0:
        raise OSError(ctypes.get_errno(), "the profile cannot be installed")


if __name__ == "__main__":
    split = sys.argv.index("--")
    if sys.argv[1:split]:
        deny(sys.argv[1:split])
    os.execv(sys.argv[split + 1], sys.argv[split + 1 :])
