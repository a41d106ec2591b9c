"""The docs hold: links lead somewhere, options exist, shell blocks run, snippets print what their comments say.

A shell block of `docs/` is run here with the scripted judge in place of the model that it names. One that cannot be
says why in a comment in front of it: `<!-- not run: WHY -->`.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from pages import DOCS, PAGES, ROOT, SHELL, Block, anchors, blocks, links

BLOCKS = [block for page in PAGES for block in blocks(page)]
IN_DOCS = [block for block in BLOCKS if block.page in DOCS]
SHELLS = [block for block in IN_DOCS if block.language in SHELL]
# Run by tests of their own: curl against a real service, snippets of other projects' shapes.
CURL = ROOT / "docs" / "serving.md"
OWN_SNIPPETS = {"integrations.md"}


def place(block: Block) -> str:
    return block.place


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file_and_a_heading(page):
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue  # no test asks the network
        target, _, anchor = link.partition("#")
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), f"{page.name}: {link}"
        if anchor:
            assert anchor in anchors(file), f"{page.name}: {link}"


def test_every_page_is_in_the_sites_menu():
    menu = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    assert sorted(name for entry in menu for name in entry.values()) == [page.name for page in DOCS]


def test_the_command_lines_page_is_up_to_date():
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "docs_cli.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def options() -> dict[str, set[str]]:
    """Options of each command, from its page."""
    found: dict[str, set[str]] = {}
    for line in (ROOT / "docs" / "cli.md").read_text(encoding="utf-8").splitlines():
        if heading := re.match(r"#+ (genprm .*)", line):
            known = found.setdefault(heading[1], set())
        elif named := re.match(r"- `(-[^ `,]+(?:, -[^ `,]+)*)", line):
            known |= set(re.split(r", |/", named[1]))
    return found


OPTIONS = options()
SHOWN = [
    (block, words)
    for block in BLOCKS
    if block.language in SHELL and block.page.name != "cli.md"
    for words in block.commands()
    if words[0] == "genprm"
]


@pytest.mark.parametrize(("block", "words"), SHOWN, ids=[f"{block.place} {words[1]}" for block, words in SHOWN])
def test_every_command_has_the_options_that_it_is_shown_with(block, words):
    name = next((name for size in (3, 2) if (name := " ".join(words[:size])) in OPTIONS), None)
    assert name is not None, f"{block.place}: {' '.join(words[:3])} is no command"
    known = OPTIONS[name] | {"--help", "-h"}
    assert {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)} <= known, block.place


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with the files that the docs name."""
    at = tmp_path_factory.mktemp("docs")
    shutil.copytree(ROOT / "examples", at / "examples")
    rows = [
        {"id": f"r-{n}", "generator": "g", "problem": f"{n} + 1?", "steps": [f"{n} + 1 = {n + 1}.", f"{n} + 2 = {n}."],
         "final_answer_correct": False, "label": 1 if n % 3 else 0}
        for n in range(12)
    ]  # fmt: skip
    prmbench = {
        "idx": "one", "classification": "confidence", "question": "12 * 2?", "modified_question": "12 * 2?",
        "original_process": ["12 * 2 = 24.", "So 24."], "modified_process": ["12 * 2 = 25.", "So 25."],
        "error_steps": [1], "reason": "", "modified_steps": [1],
    }  # fmt: skip
    pool = [
        {"id": f"p{n}/{k}", "problem": f"{n} + 1?", "steps": [f"{n} + 1 = {n + 1 + k % 2}."], "answer": str(n + 1),
         "final_answer_correct": k % 2 == 0}
        for n in range(3) for k in range(4)
    ]  # fmt: skip
    for name in ("solutions", "gsm8k", "math", "train"):
        _write(at / f"{name}.jsonl", [{**row, "id": f"{name}-{row['id']}"} for row in rows])
    _write(at / "problems.jsonl", [{"id": f"q-{n}", "problem": f"{n} + 1?", "answer": str(n + 1)} for n in range(2)])
    _write(at / "FILE", rows)
    _write(at / "prmbench.jsonl", [{**prmbench, "idx": f"row-{n}"} for n in range(3)])
    _write(at / "pool.jsonl", pool)
    from datasets import Dataset

    for name in ("a", "b"):
        table = [{"id": f"{name}-{row['id']}", "problem": row["problem"], "steps": row["steps"]} for row in rows]
        Dataset.from_list(table).to_parquet(at / f"{name}.parquet")
    return at


def _write(file: Path, rows: list[dict]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def scripted(words: list[str]) -> list[str]:
    """The same command with the judge that needs no model."""
    kept: list[str] = []
    for word in words:
        if kept and kept[-1] in ("--config", "--model", "--policy"):
            kept.pop()  # this is its value
        elif kept and kept[-1] == "--set" and word.startswith(("sandbox.", "policy.")):
            kept.pop()
        else:
            kept.append(word)
    if "--config" in words or any(OPTIONS.get(" ".join(words[:size]), set()) & {"--config"} for size in (2, 3)):
        kept += ["--config", "scripted"]
        # Where nothing hangs on code, starting a sandbox for each command takes most of the time.
        kept += [] if words[1] == "calibrate" else ["--set", "sandbox.kind=off"]
    return kept[1:]


@pytest.mark.parametrize("block", [block for block in SHELLS if block.not_run is None], ids=place)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_shell_block_runs_or_says_why_not(block, folder, monkeypatch):
    from typer.testing import CliRunner

    from genprm.cli.main import app

    monkeypatch.chdir(folder)
    commands = block.commands()
    assert commands, f"{block.place}: no line begins with `$ `"
    for words in commands:
        if words[0] == "curl" and block.page == CURL:
            continue  # tests/serve/test_routes.py asks each of them
        assert words[0] == "genprm", f"{block.place}: {words[0]} is not run here: say why in <!-- not run: WHY -->"
        assert words[1] != "serve", f"{block.place}: a service does not end: <!-- not run: WHY -->"
        done = CliRunner().invoke(app, scripted(words))
        assert done.exit_code == 0, f"{block.place}: {' '.join(words)}: {done.exception!r} {done.output[-500:]}"


def said(block: Block) -> str:
    """What a snippet's comments say that it prints: its last lines, or the end of a print's line."""
    lines = [line[2:] for line in block.text.splitlines() if line.startswith("# ")]
    return "\n".join(lines) or "".join(re.findall(r"print\(.*\)  # (.*)", block.text)[-1:])


SNIPPETS = [
    block for block in IN_DOCS
    if block.language == "python" and said(block) and block.page.name not in OWN_SNIPPETS
]  # fmt: skip


@pytest.mark.parametrize("block", SNIPPETS, ids=place)
def test_every_snippet_prints_what_its_comments_say(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(block.text, block.place, "exec"), {"__name__": "__main__"})
    assert out.getvalue().strip() == said(block)


@pytest.mark.parametrize(
    "block", [block for block in BLOCKS if block.language in ("json", "yaml", "python")], ids=place
)
def test_every_json_yaml_and_python_block_can_be_read(block):
    if block.language == "json":
        json.loads(block.text)
    elif block.language == "yaml":
        yaml.safe_load(block.text)
    else:
        # A block may await, as in a notebook.
        indented = "".join(f"    {line}\n" for line in block.text.splitlines())
        compile(f"async def snippet():\n{indented}", block.place, "exec")
