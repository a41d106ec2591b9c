"""Giving up rights for good, through the kernel's own calls: Landlock, seccomp, capabilities, limits.

What this does not stop: holes in the kernel itself, timing and cache side channels, learning by `stat` that a
file exists (Landlock does not cover it; a mount namespace does), and use of the processor and memory that the
limits grant. Every call's result is checked: a process that could not give up a right must not run foreign code.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import resource
import signal
import struct
from collections.abc import Sequence

from .syscalls import MACHINES, build_filter

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP = 1, 4, 24
_PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 38, 47, 4
_SYS_CAPSET = {"x86_64": 126, "aarch64": 91}
_SYS_SECCOMP = {"x86_64": 317, "aarch64": 277}
# These have the same number everywhere.
_SYS_LANDLOCK_CREATE, _SYS_LANDLOCK_ADD, _SYS_LANDLOCK_RESTRICT = 444, 445, 446
_SYS_CLOSE_RANGE = 436
_LANDLOCK_VERSION, _LANDLOCK_PATH_BENEATH = 1, 1
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_SECCOMP_FILTER = 1
_CAPABILITY_VERSION = 0x20080522
MIB = 1024 * 1024


class ConfinementError(Exception):
    """A right could not be given up; `layer` names what is missing."""

    def __init__(self, layer: str, error: int):
        self.layer = layer
        super().__init__(f"{layer}: {os.strerror(error)}")


def _call(layer: str, number: int, *arguments: object) -> int:
    result = int(_libc.syscall(ctypes.c_long(number), *arguments))
    if result < 0:
        raise ConfinementError(layer, ctypes.get_errno())
    return result


def _prctl(option: int, *arguments: int) -> int:
    padded = [ctypes.c_ulong(value) for value in (*arguments, 0, 0, 0, 0)[:4]]
    return int(_libc.prctl(ctypes.c_int(option), *padded))


def landlock_abi() -> int:
    """The kernel's Landlock version; 0 where there is none."""
    return max(0, int(_libc.syscall(ctypes.c_long(_SYS_LANDLOCK_CREATE), None, ctypes.c_size_t(0), _LANDLOCK_VERSION)))


def seccomp_known() -> bool:
    """Whether this machine has a syscall table here; whether a filter can be installed, the self-test shows."""
    return platform.machine() in MACHINES


def make_ruleset(readable: Sequence[str], abi: int) -> int:
    """A Landlock ruleset: nothing may be written, only `readable` read, no TCP, no signal or socket out of it.

    Returns its file descriptor; `restrict` applies it.
    """
    files = (1 << (13 + (abi >= 2) + (abi >= 3))) - 1
    if abi >= 5:
        files |= 1 << 15  # ioctl on devices
    network = 0b11 if abi >= 4 else 0
    scoped = 0b11 if abi >= 6 else 0
    size = 8 if abi < 4 else 16 if abi < 6 else 24
    attributes = struct.pack("=QQQ", files, network, scoped)[:size]
    ruleset = _call("Landlock", _SYS_LANDLOCK_CREATE, attributes, ctypes.c_size_t(size), 0)
    for path in readable:
        try:
            target = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue  # a path that is not there needs no right
        try:
            access = _READ_FILE | _READ_DIR if os.path.isdir(path) else _READ_FILE  # noqa: PTH112
            rule = struct.pack("=Qi", access, target)
            _call("Landlock", _SYS_LANDLOCK_ADD, ruleset, _LANDLOCK_PATH_BENEATH, rule, 0)
        finally:
            os.close(target)
    return ruleset


def give_up_privileges() -> None:
    """For the server, and so for all its children: no capability, no way to regain one, memory not readable."""
    if _prctl(_PR_SET_NO_NEW_PRIVS, 1) != 0:
        raise ConfinementError("no_new_privs", ctypes.get_errno())
    for capability in range(64):
        if _prctl(_PR_CAPBSET_DROP, capability) != 0:
            break  # past the last one, or not ours to drop: no_new_privs keeps the rest out of reach
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    _call("capabilities", _SYS_CAPSET[platform.machine()], header, bytes(24))
    if _prctl(_PR_SET_DUMPABLE, 0) != 0:
        raise ConfinementError("PR_SET_DUMPABLE", ctypes.get_errno())
    for limit, value in (
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_STACK, 64 * MIB),
    ):
        hard = resource.getrlimit(limit)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (value, value))


def die_with(parent: int) -> None:
    """Ask to be killed when the parent ends, which may already have happened."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def close_from(first: int) -> None:
    """Close all descriptors from `first` on."""
    if _libc.syscall(ctypes.c_long(_SYS_CLOSE_RANGE), ctypes.c_uint(first), ctypes.c_uint(0xFFFFFFFF), 0) != 0:
        os.closerange(first, resource.getrlimit(resource.RLIMIT_NOFILE)[1])


def restrict(ruleset: int | None, address_space: int, cpu_seconds: int) -> None:
    """For a child, right before it runs foreign code. There is no way back.

    Args:
        ruleset: from `make_ruleset`; None where a mount namespace takes Landlock's place.
        address_space: bytes, of the whole process. Without fork this bounds its total memory.
        cpu_seconds: backstop for the whole life of the process; the server's watchdog is finer.
    """
    for limit, value in (
        (resource.RLIMIT_AS, address_space),
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_NPROC, 0),
    ):
        hard = resource.getrlimit(limit)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (value, value))
    if ruleset is not None:
        _call("Landlock", _SYS_LANDLOCK_RESTRICT, ruleset, 0)
        os.close(ruleset)
    program = build_filter(platform.machine(), os.getpid())
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer))
    _call("seccomp", _SYS_SECCOMP[platform.machine()], _SECCOMP_FILTER, 0, header)


def address_space_bytes() -> int:
    """Size of this process' address space.

    Where /proc is not mounted it is found by trying: the smallest limit under which one more page can be mapped.
    """
    try:
        with open("/proc/self/statm") as file:  # noqa: PTH123 (pathlib is not loaded in the server)
            return int(file.read().split()[0]) * mmap.PAGESIZE
    except OSError:
        pass
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    low, high = 0, 1 << 47
    try:
        while high - low > MIB:
            middle = (low + high) // 2
            resource.setrlimit(resource.RLIMIT_AS, (middle, hard))
            try:
                mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
            except (OSError, MemoryError):
                low = middle
            else:
                high = middle
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    return high
