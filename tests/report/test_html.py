"""The report's file: complete or absent, closed to the outside, and as safe as its texts are not."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re

import pytest

from genprm.errors import UsageError
from genprm.report.html import CHUNK_ROWS, ReportWriter
from genprm.report.parts import Table
from genprm.report.rows import full_row, list_entry, to_json
from genprm.types import Vote

from .samples import judged


def parts(page: str) -> tuple[list[dict], list[list[dict]]]:
    """The list's entries and the unpacked chunks."""
    (index,) = re.findall(r'<script type="application/json" id="index">(.*?)</script>', page)
    packed = re.findall(r'<script type="application/octet-stream;base64" id="chunk-\d+">(.*?)</script>', page)
    return json.loads(index), [json.loads(gzip.decompress(base64.b64decode(chunk))) for chunk in packed]


def write(path, results, **keywords) -> str:
    with ReportWriter(path, title="T") as report:
        for result in results:
            report.add(result, **keywords)
    return path.read_text(encoding="utf-8")


def test_every_solution_is_in_the_chunk_that_its_entry_names(tmp_path):
    results = [judged(f"id-{n}") for n in range(2 * CHUNK_ROWS + 3)]
    entries, chunks = parts(write(tmp_path / "r.html", results))
    assert [len(chunk) for chunk in chunks] == [CHUNK_ROWS, CHUNK_ROWS, 3]
    assert [entry["id"] for entry in entries] == [result.id for result in results]
    for entry in entries:
        chunk, place = entry["at"]
        assert chunks[chunk][place]["id"] == entry["id"]


def test_large_solutions_close_a_chunk_early(tmp_path):
    results = [judged(str(n), critique="x" * 200_000) for n in range(4)]
    _, chunks = parts(write(tmp_path / "r.html", results))
    assert [len(chunk) for chunk in chunks] == [1, 1, 1, 1]


def test_an_opened_solution_holds_the_whole_result(tmp_path):
    result = judged(label=2, evidence={"answers": [{"answer": "110", "share": 0.5}]})
    _, ((row,),) = parts(write(tmp_path / "r.html", [result], extra={"category": "c"}))
    assert row.pop("extra") == {"category": "c"}
    for step in row["steps"]:
        for vote in step["votes"]:
            vote["critique"] = "".join(text for text, _ in vote["critique"])
    assert row == json.loads(result.model_dump_json())


def test_the_entry_says_whether_the_verdict_agrees_with_the_label():
    assert list_entry(judged())["match"] is None
    assert list_entry(judged(label=1))["match"] is True
    assert list_entry(judged(label=2))["match"] is False
    assert list_entry(judged(rewards=(0.9, None), label=1))["match"] is False


def test_a_critique_is_split_into_what_the_model_wrote_and_what_was_inserted():
    vote = Vote(p_yes=1, mass=1, critique="[a]b[c]😀d[e]", written=((3, 4), (7, 9)))
    result = judged(rewards=(0.9,))
    step = result.steps[0].model_copy(update={"votes": (vote,)})
    row = full_row(result.model_copy(update={"steps": (step,)}))
    pieces = [("[a]", True), ("b", False), ("[c]", True), ("😀d", False), ("[e]", True)]
    assert row["steps"][0]["votes"][0]["critique"] == pieces


@pytest.mark.parametrize("text", ["</script>", "<!--<script>", "]]>", "\u2028\u2029", "\ud800", "é😀\x00", "&lt;"])
def test_json_in_the_page_is_ascii_without_markup_and_reads_back_the_same(text):
    made = to_json({"a": [text], text: 1})
    assert made.isascii()
    assert not set("<>&") & set(made)
    assert json.loads(made) == {"a": [text], text: 1}


def test_numbers_that_a_browser_cannot_hold_become_text():
    made = json.loads(to_json([float("nan"), float("inf"), 2**53, 2**53 + 1, -(2**70), True, 0.1, {1}]))
    assert made == ["nan", "inf", 2**53, str(2**53 + 1), str(-(2**70)), True, 0.1, "{1}"]


def test_the_policy_allows_the_page_its_own_script_and_style_only(tmp_path):
    page = write(tmp_path / "r.html", [judged()])
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="(.*?)"', page)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.replace("&#39;", "'").split(";"))
    assert rules["default-src"] == "'none'"
    for tag, rule in (("script", "script-src"), ("style", "style-src")):
        (inline,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()
        assert rules[rule] == f"'sha256-{digest}'"
    assert rules["img-src"] == "data:"
    assert " style=" not in page
    assert re.findall(r"(?:src|href)=[\"']?(?!#)[^\"'> ]+", page.split("<script>")[0]) == []


def test_the_same_results_make_the_same_bytes(tmp_path):
    assert write(tmp_path / "a.html", [judged(label=1)]) == write(tmp_path / "b.html", [judged(label=1)])


def test_the_head_names_where_the_results_come_from(tmp_path):
    page = write(tmp_path / "r.html", [judged(), judged("b", model="other & co")])
    for text in ("smollm2-135m, other &amp; co", "compact abababababab", "cdcdcdcdcdcd", "<dd><bdi>2</bdi></dd>", "L1"):
        assert text in page


def test_cells_of_a_table_are_text_numbers_or_a_dash(tmp_path):
    with ReportWriter(tmp_path / "r.html", title="T") as report:
        report.finish([Table("t", ["a", "b", "c", "d"], [["x<y", 0.12345, 12345, None]], "note")])
    page = (tmp_path / "r.html").read_text()
    for cell in ("<bdi>x&lt;y</bdi>", "<td>0.123</td>", "<td>12,345</td>", "<td>–</td>"):
        assert cell in page


def test_an_empty_report_is_a_page_too(tmp_path):
    assert parts(write(tmp_path / "r.html", [])) == ([], [])


def broken_run(path, *, finish: bool) -> None:
    with ReportWriter(path, title="T") as report:
        report.add(judged())
        if finish:
            report.finish()
        raise RuntimeError


def test_nothing_is_written_after_an_exception_and_an_older_report_stays(tmp_path):
    path = tmp_path / "r.html"
    path.write_text("older")
    with pytest.raises(RuntimeError):
        broken_run(path, finish=False)
    assert path.read_text() == "older"
    assert list(tmp_path.iterdir()) == [path]


def test_finishing_inside_the_block_keeps_what_was_added_before_an_exception(tmp_path):
    path = tmp_path / "new" / "r.html"
    with pytest.raises(RuntimeError):
        broken_run(path, finish=True)
    assert len(parts(path.read_text())[0]) == 1
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("name", ["", "file/r.html"])
def test_a_path_that_cannot_be_written_is_said_before_any_work(tmp_path, name):
    (tmp_path / "file").write_text("")
    path = tmp_path / name
    with pytest.raises(UsageError, match=re.escape(str(path))), ReportWriter(path, title="T"):
        pytest.fail("the block is not entered")


def test_memory_does_not_grow_with_the_critiques(tmp_path):
    import tracemalloc

    text = "".join(map(str, range(20_000)))
    with ReportWriter(tmp_path / "r.html", title="T") as report:
        report.add(judged("warm", critique=text))
        tracemalloc.start()
        for n in range(100):
            report.add(judged(str(n), critique=text))
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert held < 20 * 3 * len(text)
