"""The system calls that hosted code may make, and the seccomp filter built from them.

An allowlist: whatever is not named here fails with EPERM, which Python shows as a readable PermissionError. There
is no socket, fork, execve, kill, ptrace, mount, chmod, link, rename, mkdir, memfd, io_uring or bpf in it. Opening
is read-only whatever the file's mode says.

The aarch64 numbers come from the kernel's generic table and are compared with its headers by a test where these
are installed; the filter has been run on x86_64 only.
"""

from __future__ import annotations

import errno
import struct
from typing import NamedTuple

# name: (x86_64, aarch64); None where the architecture has no such call.
ALLOWED: dict[str, tuple[int | None, int | None]] = {
    # data in and out of descriptors that exist
    "read": (0, 63),
    "write": (1, 64),
    "readv": (19, 65),
    "writev": (20, 66),
    "pread64": (17, 67),
    "close": (3, 57),
    "lseek": (8, 62),
    "dup": (32, 23),
    "dup2": (33, None),
    "dup3": (292, 24),
    "pipe": (22, None),
    "pipe2": (293, 59),
    "poll": (7, None),
    "ppoll": (271, 73),
    "select": (23, None),
    "pselect6": (270, 72),
    "fadvise64": (221, 223),
    # looking at files; reading them is Landlock's matter
    "fstat": (5, 80),
    "stat": (4, None),
    "lstat": (6, None),
    "newfstatat": (262, 79),
    "statx": (332, 291),
    "access": (21, None),
    "faccessat": (269, 48),
    "faccessat2": (439, 439),
    "getdents64": (217, 61),
    "getcwd": (79, 17),
    # own memory
    "mmap": (9, 222),
    "munmap": (11, 215),
    "mprotect": (10, 226),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "brk": (12, 214),
    "membarrier": (324, 283),
    # own signals and timers
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "rt_sigpending": (127, 136),
    "rt_sigtimedwait": (128, 137),
    "sigaltstack": (131, 132),
    "alarm": (37, None),
    "setitimer": (38, 103),
    "getitimer": (36, 102),
    "pause": (34, None),
    "restart_syscall": (219, 128),
    # time
    "nanosleep": (35, 101),
    "clock_nanosleep": (230, 115),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "gettimeofday": (96, 169),
    "time": (201, None),
    "times": (100, 153),
    "getrusage": (98, 165),
    # who am I
    "getpid": (39, 172),
    "gettid": (186, 178),
    "getppid": (110, 173),
    "getpgrp": (111, None),
    "getuid": (102, 174),
    "geteuid": (107, 175),
    "getgid": (104, 176),
    "getegid": (108, 177),
    "getgroups": (115, 158),
    "getrlimit": (97, 163),
    "uname": (63, 160),
    "sysinfo": (99, 179),
    "getcpu": (309, 168),
    "sched_getaffinity": (204, 123),
    "sched_yield": (24, 124),
    # the C library's housekeeping
    "futex": (202, 98),
    "set_robust_list": (273, 99),
    "rseq": (334, 293),
    "getrandom": (318, 278),
    "wait4": (61, 260),
    "exit": (60, 93),
    "exit_group": (231, 94),
}

# Allowed for some arguments only; the rules are in `build_filter`.
GUARDED: dict[str, tuple[int | None, int | None]] = {
    "open": (2, None),
    "openat": (257, 56),
    "ioctl": (16, 29),
    "fcntl": (72, 25),
    "tgkill": (234, 131),
    "prlimit64": (302, 261),
    "clone3": (435, 435),
}

# Reading only. O_PATH too is refused: Landlock does not see it.
_O_ACCMODE, _O_CREAT, _O_TRUNC, _O_APPEND, _O_PATH, _O_TMPFILE = 3, 0o100, 0o1000, 0o2000, 0o10000000, 0o20000000
OPEN_REFUSED = _O_ACCMODE | _O_CREAT | _O_TRUNC | _O_APPEND | _O_PATH | _O_TMPFILE
# TCGETS, TIOCGWINSZ, FIOCLEX, FIONCLEX
IOCTL_ALLOWED = (0x5401, 0x5413, 0x5451, 0x5450)
# F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC. Not F_SETOWN with F_SETSIG: together they send any
# signal to any process of the same user.
FCNTL_ALLOWED = (0, 1, 2, 3, 4, 1030)

# machine: (column in the tables, AUDIT_ARCH value)
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

_RET_KILL, _RET_ERRNO, _RET_ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
_LOAD, _JUMP_EQ, _JUMP_GE, _JUMP_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _ARGS = 0, 4, 16
_X32_BIT = 0x40000000


class Instruction(NamedTuple):
    """One classic-BPF instruction: operation, jumps if true and if false, operand."""

    code: int
    true: int
    false: int
    operand: int

    def pack(self) -> bytes:
        """As `struct sock_filter`."""
        return struct.pack("=HBBI", *self)


def _load(offset: int) -> Instruction:
    return Instruction(_LOAD, 0, 0, offset)


def _return(action: int) -> Instruction:
    return Instruction(_RETURN, 0, 0, action)


_ALLOW = _return(_RET_ALLOW)
_DENY = _return(_RET_ERRNO | errno.EPERM)


def _argument(index: int, *, high: bool = False) -> Instruction:
    return _load(_ARGS + 8 * index + (4 if high else 0))


def _one_of(values: tuple[int, ...]) -> list[Instruction]:
    rules: list[Instruction] = []
    for value in values:
        rules += [Instruction(_JUMP_EQ, 0, 1, value), _ALLOW]
    return [*rules, _DENY]


def _guard(name: str, pid: int) -> list[Instruction]:
    """The rules of one guarded call. Each argument looked at is a C int, of which the kernel uses the low half."""
    if name in ("open", "openat"):
        return [_argument(1 if name == "open" else 2), Instruction(_JUMP_SET, 0, 1, OPEN_REFUSED), _DENY, _ALLOW]
    if name == "ioctl":
        return [_argument(1), *_one_of(IOCTL_ALLOWED)]
    if name == "fcntl":
        return [_argument(1), *_one_of(FCNTL_ALLOWED)]
    if name == "tgkill":
        return [_argument(0), *_one_of((pid,))]
    if name == "prlimit64":  # of oneself, and reading only: the pointer to new limits is null
        rules = []
        for argument in (_argument(0), _argument(2), _argument(2, high=True)):
            rules += [argument, Instruction(_JUMP_EQ, 1, 0, 0), _DENY]
        return [*rules, _ALLOW]
    assert name == "clone3"  # the C library falls back to clone, which is refused with a readable error
    return [_return(_RET_ERRNO | errno.ENOSYS)]


def build_filter(machine: str, pid: int) -> bytes:
    """The seccomp program for one process: an array of `struct sock_filter`.

    Raises:
        KeyError: the machine has no table.
    """
    column, arch = MACHINES[machine]
    program = [_load(_ARCH), Instruction(_JUMP_EQ, 1, 0, arch), _return(_RET_KILL), _load(_NUMBER)]
    if machine == "x86_64":  # x32 calls pass the architecture check under other numbers
        program += [Instruction(_JUMP_GE, 0, 1, _X32_BIT), _return(_RET_KILL)]
    for numbers in ALLOWED.values():
        if (number := numbers[column]) is not None:
            program += [Instruction(_JUMP_EQ, 0, 1, number), _ALLOW]
    for name, numbers in GUARDED.items():
        if (number := numbers[column]) is not None:
            body = _guard(name, pid)
            program += [Instruction(_JUMP_EQ, 0, len(body), number), *body]
    program.append(_DENY)
    return b"".join(instruction.pack() for instruction in program)
