"""`genprm verify --html`: the page beside the other outputs, for resumed and for broken runs."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from .test_html import parts

GOOD = {"id": "a", "problem": "p", "steps": ["1 + 1 = 2.", "2 + 2 = 5."]}


def verify(folder, *words):
    command = [sys.executable, "-m", "genprm.cli", "verify", *words]
    return subprocess.run(
        [*command, "--config", "scripted"],
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=120,
        check=False,
    )


def rows(folder, *ids):
    (folder / "in.jsonl").write_text("".join(json.dumps({**GOOD, "id": name}) + "\n" for name in ids))
    return "in.jsonl"


def shown(path) -> list[str]:
    return [entry["id"] for entry in parts(path.read_text())[0]]


def test_the_page_stands_beside_json_and_a_result_file(tmp_path):
    done = verify(tmp_path, rows(tmp_path, "a", "b"), "--json", "-o", "out.jsonl", "--html", "r.html")
    assert (done.returncode, done.stderr) == (0, "")
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == ["a", "b"]
    assert sorted(shown(tmp_path / "r.html")) == ["a", "b"]
    page = (tmp_path / "r.html").read_text()
    assert 'role="img"' in page
    assert "genprm verify: in.jsonl" in page
    _, (chunk,) = parts(page)
    assert chunk[0]["steps"][1]["votes"][0]["checks"][0]["status"] == "ok"


def test_a_resumed_run_shows_what_was_judged_before(tmp_path):
    verify(tmp_path, rows(tmp_path, "a", "b"), "-o", "out.jsonl")
    done = verify(tmp_path, rows(tmp_path, "a", "b", "c"), "-o", "out.jsonl", "--html", "r.html")
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == ["c"]
    assert shown(tmp_path / "r.html")[-1] == "c"
    assert sorted(shown(tmp_path / "r.html")) == ["a", "b", "c"]


def test_the_page_is_written_where_an_error_ends_the_run(tmp_path):
    """The result file holds another problem under the second id, which is found after the first row was judged."""
    verify(tmp_path, rows(tmp_path, "b"), "-o", "out.jsonl")
    other = json.dumps({**GOOD, "id": "b", "problem": "another"})
    (tmp_path / "in.jsonl").write_text(json.dumps(GOOD) + "\n" + other + "\n")
    done = verify(tmp_path, "in.jsonl", "-o", "out.jsonl", "--html", "r.html")
    assert done.returncode == 2
    assert "'b'" in done.stderr
    assert "b" in shown(tmp_path / "r.html")


def test_a_run_without_any_result_leaves_an_older_page_alone(tmp_path):
    (tmp_path / "r.html").write_text("older")
    done = verify(tmp_path, rows(tmp_path, "a"), "--html", "r.html", "--set", "verify.protocol=./none")
    assert done.returncode == 2
    assert (tmp_path / "r.html").read_text() == "older"


@pytest.mark.parametrize("name", ["in.jsonl", "out.jsonl"])
def test_the_page_never_replaces_another_file_of_the_run(tmp_path, name):
    file = rows(tmp_path, "a")
    done = verify(tmp_path, file, "-o", "out.jsonl", "--html", name)
    assert done.returncode == 2
    assert done.stderr.startswith(f"genprm: --html {name} ")
    assert json.loads((tmp_path / file).read_text())["id"] == "a"


def test_a_result_of_another_version_is_refused_by_name(tmp_path):
    verify(tmp_path, rows(tmp_path, "a"), "-o", "out.jsonl")
    row = json.loads((tmp_path / "out.jsonl").read_text())
    (tmp_path / "out.jsonl").write_text(json.dumps({**row, "novel": 1}) + "\n")
    done = verify(tmp_path, rows(tmp_path, "a", "b"), "-o", "out.jsonl", "--html", "r.html")
    assert done.returncode == 2
    assert "out.jsonl:1" in done.stderr
