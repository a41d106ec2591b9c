"""What the model sees: nothing that acts on a terminal or a prompt, head and tail of what is long."""

from __future__ import annotations

import pytest

from genprm.sandbox import Limits
from genprm.sandbox.output import DELIMITERS, clean, death_note, limit_note, present, shorten


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"plain\ttext\n", "plain\ttext\n"),
        (b"a\x1b[31mred\x1b[0m b\x1b[2J\x1b[1;1H", "ared b"),
        (b"\x1b]0;title\x07x\x1b]8;;http://e\x1b\\y", "xy"),
        (b"a\x00b\x08c\x7fd\x1be", "abcd"),
        (b"one\r\ntwo\rthree\x0cfour", "one\ntwo\nthree\nfour"),
        (b"\xff\xfe ok", "\ufffd\ufffd ok"),
        ("\u202ereversed\u200b\u2066 \ufeff\U000e0041".encode(), "reversed "),
        ("naïve – π ≤ 4 日本".encode(), "naïve – π ≤ 4 日本"),
        (b"<object object at 0x7f3a2b1c4d50>", "<object object at 0x…>"),
        (b"0xff 0x7f3a2b1c4d50", "0xff 0x7f3a2b1c4d50"),
    ],
)
def test_bytes_become_harmless_text(raw, text):
    assert clean(raw) == text


def test_paths_of_this_installation_are_not_shown():
    import sys

    assert sys.prefix not in clean(f'File "{sys.prefix}/lib/x.py", line 1'.encode())


@pytest.mark.parametrize("delimiter", DELIMITERS)
def test_delimiters_are_broken_even_when_split_by_what_is_removed(delimiter):
    limits = Limits()
    assert delimiter not in present(f"a {delimiter} b".encode(), limits)
    torn = "\x00".join(delimiter).encode()
    assert delimiter not in present(torn, limits)
    assert delimiter not in present(delimiter.encode() * 3, limits)


def test_short_output_is_whole_and_long_output_keeps_head_and_tail():
    assert shorten("x" * 100, 100) == "x" * 100
    text = shorten("a" * 600 + "b" * 600, 100)
    assert text == "a" * 50 + "\n[… 1,100 characters left out …]\n" + "b" * 50


def test_the_hosts_note_comes_last_and_is_not_cut():
    text = present(b"x" * 10_000, Limits(output_chars=100), note="[stopped: reason]")
    assert text.endswith("x\n[stopped: reason]")
    assert present(b"", Limits(), note="[note]") == "[note]"
    assert present(b"\n\n", Limits()) == ""


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (0, "[the program ended its own process with exit code 0]"),
        (3 << 8, "[the program ended its own process with exit code 3]"),
        (9, "[the interpreter died: SIGKILL]"),
        (11 | 128, "[the interpreter died: SIGSEGV]"),
        (40, "[the interpreter died: signal 40]"),
    ],
)
def test_a_death_is_told_in_words(status, text):
    assert death_note(status) == text


def test_limits_are_told_in_words():
    limits = Limits(cpu_seconds=0.5, wall_seconds=2, memory_mb=64, output_bytes=1_000_000)
    assert limit_note("timeout", limits, clock="cpu") == "[stopped: more than 0.5 s of processor time]"
    assert limit_note("timeout", limits, clock="wall") == "[stopped: not done after 2 s]"
    assert limit_note("memory", limits) == "[stopped: more than 64 MB of memory]"
    assert limit_note("output_limit", limits) == "[stopped: more than 1,000,000 bytes of output]"
