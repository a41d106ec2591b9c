"""What the README promises is there: its Python runs, its commands and files exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_python_example_prints_what_its_comment_says(tmp_path):
    (code,) = blocks("python")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == code.rsplit("# ", 1)[1].strip()


def commands() -> list[str]:
    lines = [line for block in blocks("console") for line in block.splitlines() if line.startswith("$ genprm")]
    return [re.split(r"\s{2,}#|\s\|", line[2:])[0] for line in lines]


@pytest.mark.parametrize("command", commands())
def test_every_command_has_the_options_it_is_shown_with(command):
    words = shlex.split(command)
    depth = 2 if words[1] in ("verify", "calibrate", "serve", "filter") else 3
    help_text = subprocess.run(
        [sys.executable, "-m", "genprm.cli", *words[1:depth], "--help"], capture_output=True, text=True, check=True
    ).stdout
    for word in words[depth:]:
        if word.startswith("-"):
            assert word in help_text, f"{word} is no option of {' '.join(words[:depth])}"


def test_every_linked_file_is_there():
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target


def test_make_targets_that_are_named_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"`?make ([a-z-]+)", README)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
