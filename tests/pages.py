"""Markdown pages taken apart: code blocks, shell commands, links and anchors. Nothing is fetched."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [*DOCS, *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))]
SHELL = {"console", "bash", "sh", "shell"}


class Block(NamedTuple):
    """A fenced block."""

    page: Path
    line: int
    language: str
    text: str
    not_run: str | None
    """Why no test runs it, as an HTML comment in front of it says."""

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    def commands(self) -> list[list[str]]:
        """Shell commands as words, without comments and without what they are piped into."""
        found = []
        for line in re.sub(r"\\\n\s*", " ", self.text).splitlines():
            if line.startswith("$ "):
                words = shlex.split(line[2:], comments=True)
                found.append(words[: words.index("|")] if "|" in words else words)
        return found


def blocks(page: Path) -> list[Block]:
    found, inside, before = [], None, ""
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        fence = re.match(r"\s*(`{3,})(\w*)", line)
        if inside is None and fence:
            why = re.fullmatch(r"<!-- not run: (.+) -->", before.strip())
            inside = (fence[1], number, fence[2], [], why[1] if why else None)
        elif inside is not None and line.strip() == inside[0]:
            found.append(Block(page, inside[1], inside[2], "\n".join(inside[3]) + "\n", inside[4]))
            inside = None
        elif inside is not None:
            inside[3].append(line)
        if line.strip():
            before = line
    assert inside is None, f"{page}: a block does not end"
    return found


def prose(page: Path) -> str:
    """The text without code."""
    text = re.sub(r"^\s*(`{3,}).*?^\s*\1\s*$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]*`", "`code`", text)


def links(page: Path) -> list[str]:
    return re.findall(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)", prose(page))


def anchors(page: Path) -> set[str]:
    """Anchors of headings, as both GitHub and Python-Markdown make them."""
    text = re.sub(r"^\s*(`{3,}).*?^\s*\1\s*$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    made: dict[str, int] = {}
    for heading in re.findall(r"^#{1,6}\s+(.+?)\s*$", text, re.MULTILINE):
        plain = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())
        made[slug] = made.get(slug, 0) + 1
    return set(made)
