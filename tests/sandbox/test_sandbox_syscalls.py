"""The syscall tables beside the kernel's headers, and the filter's decisions, by a simulator of classic BPF."""

from __future__ import annotations

import errno
import re
import struct
from pathlib import Path

import pytest

from genprm.sandbox import channel
from genprm.sandbox.inside import child, server, syscalls
from genprm.sandbox.inside.syscalls import ALLOWED, GUARDED, MACHINES, build_filter

HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
PID = 4242


@pytest.mark.parametrize("machine", HEADERS)
def test_numbers_are_those_of_the_kernels_headers(machine):
    header = HEADERS[machine]
    if not header.exists():
        pytest.skip(f"{header} is not installed (linux-libc-dev)")
    text = header.read_text()
    known = {name: int(number) for name, number in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", text)}
    # In the generic table some names are made from others.
    known |= {"newfstatat": known.get("newfstatat", known.get("fstatat", 0))}
    column = MACHINES[machine][0]
    for name, numbers in {**ALLOWED, **GUARDED}.items():
        number = numbers[column]
        if number is None:
            assert name not in known, f"{machine} has {name}"
        elif name in known:  # headers may be older than the newest calls
            assert number == known[name], name


def decide(machine: str, number: int, *arguments: int, arch: int | None = None) -> int | str:
    """What the filter says: "allow", "kill", or an errno."""
    padded = [value & (2**64 - 1) for value in (*arguments, 0, 0, 0, 0, 0, 0)[:6]]
    data = struct.pack("=IIQ6Q", number, MACHINES[machine][1] if arch is None else arch, 0, *padded)
    program = build_filter(machine, PID)
    steps = [struct.unpack_from("=HBBI", program, offset) for offset in range(0, len(program), 8)]
    assert len(steps) < 4096
    accumulator, position = 0, 0
    while True:
        code, true, false, operand = steps[position]
        position += 1
        if code == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, operand)
        elif code in (0x15, 0x35, 0x45):
            met = {0x15: accumulator == operand, 0x35: accumulator >= operand, 0x45: bool(accumulator & operand)}[code]
            position += true if met else false
        else:
            assert code == 0x06
            if operand == 0x7FFF0000:
                return "allow"
            return "kill" if operand == 0x80000000 else operand & 0xFFFF


def number(machine: str, name: str) -> int:
    found = {**ALLOWED, **GUARDED}[name][MACHINES[machine][0]]
    if found is None:
        pytest.skip(f"{machine} has no {name}")
    return found


@pytest.mark.parametrize("machine", MACHINES)
def test_exactly_the_listed_calls_pass(machine):
    column = MACHINES[machine][0]
    listed = {numbers[column] for numbers in ALLOWED.values()}
    guarded = {numbers[column] for numbers in GUARDED.values()}
    for call in set(range(600)) - guarded:
        assert decide(machine, call) == ("allow" if call in listed else errno.EPERM), call


@pytest.mark.parametrize("machine", MACHINES)
def test_another_architecture_is_killed(machine):
    assert decide(machine, 0, arch=0x40000003) == "kill"
    if machine == "x86_64":
        assert decide(machine, 0x40000000 + 1) == "kill"


READ, CLOEXEC, DIRECTORY, WRITE, BOTH = 0, 0o2000000, 0o200000, 1, 2
CREATE, TRUNCATE, APPEND, PATH, TEMPORARY = 0o100, 0o1000, 0o2000, 0o10000000, 0o20000000


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("name", "before"), [("open", (0,)), ("openat", (-100, 0))])
def test_files_open_for_reading_only(machine, name, before):
    call = number(machine, name)
    for flags in (READ, CLOEXEC, DIRECTORY | CLOEXEC):
        assert decide(machine, call, *before, flags) == "allow"
    for flags in (WRITE, BOTH, 3, CREATE, TRUNCATE, APPEND, PATH, TEMPORARY | BOTH, WRITE | CREATE | TRUNCATE):
        assert decide(machine, call, *before, flags | CLOEXEC) == errno.EPERM


@pytest.mark.parametrize("machine", MACHINES)
def test_guarded_calls_pass_for_harmless_arguments_only(machine):
    assert decide(machine, number(machine, "tgkill"), PID, PID, 6) == "allow"
    assert decide(machine, number(machine, "tgkill"), PID + 1, PID + 1, 9) == errno.EPERM
    assert decide(machine, number(machine, "prlimit64"), 0, 7, 0, 4096) == "allow"
    assert decide(machine, number(machine, "prlimit64"), 0, 7, 4096, 0) == errno.EPERM
    assert decide(machine, number(machine, "prlimit64"), 0, 7, 1 << 40, 0) == errno.EPERM
    assert decide(machine, number(machine, "prlimit64"), PID, 7, 0, 0) == errno.EPERM
    assert decide(machine, number(machine, "clone3"), 0, 0) == errno.ENOSYS
    assert decide(machine, number(machine, "ioctl"), 1, 0x5401) == "allow"
    assert decide(machine, number(machine, "ioctl"), 1, 0x5412) == errno.EPERM  # TIOCSTI types into a terminal
    assert decide(machine, number(machine, "fcntl"), 1, 3) == "allow"
    for command in (8, 10, 15, 1024, 1026, 1031, 1033):
        assert decide(machine, number(machine, "fcntl"), 1, command) == errno.EPERM


def test_client_and_server_speak_the_same_wire():
    assert channel.REQUEST.format == server.REQUEST.format
    assert channel.RUN.format == server.RUN.format
    assert channel.ENDED.format == server.ENDED.format
    assert channel.HEADER.format == child.HEADER.format
    assert (channel.ECHO, channel.SILENT) == (child.ECHO, child.SILENT)
    assert (server.RUN_LETTER, server.IDLE, server.KILL) == (b"R", b"I", b"K")
    assert set(channel._STATUSES) == {b"o", b"e", b"m"}


def test_the_program_is_small_enough_for_the_kernel():
    assert all(len(build_filter(machine, PID)) // 8 < 1000 for machine in MACHINES)
    with pytest.raises(KeyError):
        build_filter("riscv64", PID)
    assert syscalls.OPEN_REFUSED & 3 == 3
