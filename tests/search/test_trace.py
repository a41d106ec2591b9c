"""The trace: every node for programs, and a page that a person opens from disk, also with hostile text."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from genprm.search import Problem
from genprm.search.trace import TraceWriter, file_name

from .tables import searcher
from .test_methods import REWARDS, WRITES

CONTRAST = (Path(__file__).parents[1] / "report" / "contrast.js").read_text(encoding="utf-8")
HOSTILE = '<b>bold</b></p><script>window.hacked=1</script><img src=x onerror="window.hacked=1">{{ 7*7 }}&amp;\u202e'


def traced(folder, found, method, problem="q"):
    result, scene = asyncio.run(found.asolve(problem, method))
    lines, page = TraceWriter(folder).write(result, scene)
    return result, [json.loads(line) for line in lines.read_text().splitlines()], page


def test_every_node_is_a_row_with_its_parent_reward_visits_and_whether_it_was_chosen(tmp_path):
    found = searcher(WRITES, REWARDS, simulations=6, expansions=2, c_puct=0.1)
    result, rows, _ = traced(tmp_path / "new", found, "mcts")
    assert [row["id"] for row in rows] == list(range(result.counts.nodes + 1))
    assert all(row["parent"] < row["id"] for row in rows[1:])
    chosen = [row["step"] for row in rows if row["chosen"]]
    assert chosen == ["", *result.pick.steps]
    by_step = {row["step"]: row for row in rows}
    assert (by_step["B"]["reward"], by_step["B"]["verdict"]) == (0.8, "correct")
    assert by_step["E"]["score"] == 0.7
    assert by_step[""]["visits"] == 6
    assert sum(row["visits"] for row in rows if row["parent"] == 0) == 6
    unseen = [row for row in rows[1:] if row["reward"] is None]
    assert unseen
    assert all((row["verdict"], row["unscored_reason"]) == ("unscored", "it was not judged") for row in unseen)


def test_the_page_escapes_every_text(tmp_path):
    writes = {"": [HOSTILE], f"{HOSTILE}": ["=1"]}
    found = searcher(writes, {HOSTILE: 0.9, "=1": 0.9}, n=1)
    _, rows, page = traced(tmp_path, found, "best-of-n", Problem(HOSTILE, HOSTILE, "1"))
    text = page.read_text()
    assert page.parent == tmp_path
    assert rows[1]["step"] == HOSTILE
    assert "<script" not in text
    assert "<img" not in text
    assert "<b>" not in text
    assert text.count("&lt;script&gt;") >= 2
    assert "{{ 7*7 }}" in text
    assert re.search(r"default-src 'none'; style-src 'sha256-", text.replace("&#39;", "'"))


@pytest.mark.parametrize("id", ["../../etc/passwd", "a/b", "", "x" * 300, "..", "ü"])
def test_a_problems_id_cannot_leave_the_folder_and_two_ids_never_share_a_file(id):
    name = file_name(id)
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,80}", name)
    assert name != file_name(id + "!")


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    from genprm.errors import UsageError

    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="file"):
        TraceWriter(tmp_path / "file" / "trace")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_opens_in_a_browser_unfolds_and_can_be_read(browser, tmp_path, scheme):
    from selenium.webdriver.common.by import By

    writes = {"": ["A", HOSTILE], "A": ["=1"], HOSTILE: ["B"]}
    found = searcher(writes, {"A": 0.9, "=1": 0.8, HOSTILE: 0.1}, n=2, mode="full")
    _, _, page = traced(tmp_path, found, "best-of-n")
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    browser.get(page.as_uri())
    assert browser.execute_script("return window.hacked") is None
    shown = browser.find_element(By.ID, "tree").text
    for words in ("correct 0.900", "incorrect 0.100", "picked", "The answer is \\boxed{1}.", "{{ 7*7 }}", "Unscored:"):
        assert words in shown
    fold = browser.find_element(By.CSS_SELECTOR, "#n1 > details:not([open]) > summary")
    assert fold.text == "Critique"
    fold.click()
    assert "Looked at." in browser.find_element(By.ID, "n1").text
    assert browser.execute_script(CONTRAST) == []
    browser.set_window_size(360, 800)
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
