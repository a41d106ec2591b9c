"""`genprm search` as a user meets it, with the deterministic fake, and once with the embedded model."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import genprm
from genprm.errors import InputError, UsageError
from genprm.search import Problem, SearchResult
from genprm.search.output import SearchFile

ROWS = [{"id": f"p{n}", "problem": f"What is {n} + 4 * 2 - 1 + 10?", "answer": str(n + 17)} for n in range(3, 9)]


def run(*words, stdin=None):
    return subprocess.run(
        [sys.executable, "-m", "genprm.cli", "search", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=240,
        input=stdin,
        env={**os.environ, "COLUMNS": "100"},
    )


@pytest.fixture
def problems(tmp_path):
    path = tmp_path / "problems.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def results(text):
    return [SearchResult.model_validate_json(line) for line in text.splitlines()]


def test_a_run_gives_a_result_a_problem_in_order_traces_and_accuracies_with_intervals(problems, tmp_path):
    done = run("beam", problems, "--config", "scripted", "-o", tmp_path / "out.jsonl", "--trace", tmp_path / "trace")
    assert done.returncode == 0, done.stderr
    found = results(done.stdout)
    assert [result.id for result in found] == [row["id"] for row in ROWS]
    assert sorted(results((tmp_path / "out.jsonl").read_text()), key=lambda one: one.id) == found
    assert {path.name for path in (tmp_path / "trace").iterdir()} == {
        f"{row['id']}.{kind}" for row in ROWS for kind in ("jsonl", "html")
    }
    summary = json.loads((tmp_path / "out.jsonl.summary.json").read_text())
    assert (summary["problems"], summary["with_reference"], summary["pick_unfinished"]) == (6, 6, 0)
    for way in ("pick", "majority", "weighted_majority", "random", "oracle"):
        values = [float(getattr(result.correct, way)) for result in found]
        entry = summary["accuracy"][way]
        assert entry["accuracy"] == pytest.approx(sum(values) / 6)
        assert entry["ci"][0] <= entry["accuracy"] <= entry["ci"][1]
    # The judge sees every mistake, and the samples differ: picking beats chance.
    assert summary["accuracy"]["pick"]["accuracy"] > summary["accuracy"]["random"]["accuracy"]
    assert f"genprm: pick: {summary['accuracy']['pick']['accuracy']:.3f} [" in done.stderr


def test_a_run_goes_on_where_it_was_killed_and_repeats_nothing(problems, tmp_path):
    out = tmp_path / "out.jsonl"
    whole = run("best-of-n", problems, "--config", "scripted", "--n", 2, "-o", out)
    lines = out.read_text().splitlines(keepends=True)
    out.write_text("".join(lines[:2]) + lines[2][:50])
    again = run("best-of-n", problems, "--config", "scripted", "--n", 2, "-o", out)
    assert again.returncode == 0, again.stderr
    assert len(results(again.stdout)) == 4
    assert out.read_text().splitlines(keepends=True)[:2] == lines[:2]
    assert {one.id for one in results(out.read_text())} == {row["id"] for row in ROWS}
    # The accuracies cover what was done before, too.
    assert again.stderr == whole.stderr


def test_a_file_of_other_settings_is_refused_and_left_alone(problems, tmp_path):
    out = tmp_path / "out.jsonl"
    run("beam", problems, "--config", "scripted", "--limit", 1, "-o", out)
    held = out.read_text()
    other = run("dvts", problems, "--config", "scripted", "-o", out)
    assert (other.returncode, other.stdout) == (2, "")
    assert "another method or other settings" in other.stderr
    assert out.read_text() == held


def test_a_file_is_of_one_method_and_one_set_of_settings_and_holds_one_problem_an_id(tmp_path):
    def digest(*overrides, method="beam"):
        with genprm.load_search("scripted", overrides=["sandbox.kind=off", *overrides]) as searcher:
            return searcher.digest(method)

    plain = digest()
    assert digest("search.in_flight=9", "policy.max_in_flight=3", "backend.max_batch=2") == plain
    for override in ("search.n=4", "policy.top_p=0.5", "verify.seed=5", "verify.votes=2"):
        assert digest(override) != plain
    assert digest(method="dvts") != plain
    out = tmp_path / "out.jsonl"
    off = ["sandbox.kind=off"]
    with genprm.load_search("scripted", overrides=off) as searcher, SearchFile(out, config_sha256=plain) as file:
        file.add(searcher.solve(Problem("a", "1 + 1?"), "beam"))
        with pytest.raises(UsageError, match="another process"):
            SearchFile(out, config_sha256=plain)
    with SearchFile(out, config_sha256=plain) as file:
        assert file.held(Problem("a", "1 + 1?")).id == "a"
        assert file.held(Problem("b", "1 + 1?")) is None
        with pytest.raises(InputError, match="another problem or answer"):
            file.held(Problem("a", "2 + 2?"))
    out.write_text('{"id": "x"}\n')
    with pytest.raises(UsageError, match="is not a result of `genprm search`"):
        SearchFile(out, config_sha256=plain)
    assert out.read_text() == '{"id": "x"}\n'


def test_a_text_on_the_command_line_is_solved_and_shown_with_its_rewards():
    done = run("dvts", "What is 12 + 30?", "--config", "scripted", "--table", "--n", 4, "--width", 2)
    assert done.returncode == 0, done.stderr
    assert "12 + 30 = 42." in done.stdout
    assert "answer 42 (reward 0." in done.stdout
    assert done.stderr == ""


def test_bad_rows_are_said_and_listed_and_the_others_solved(tmp_path):
    done = run("mcts", "-", "--config", "scripted", stdin='{"problem": "1 + 1?"}\n{"problem": 2}\n')
    assert done.returncode == 2
    assert len(results(done.stdout)) == 1
    assert done.stderr == "genprm: <stdin>:2: problem: must be text, found the number 2\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["astar", "1 + 1?"], "there is no search method 'astar'; there are best-of-n, beam, dvts, mcts, critic"),
        (["beam", "1 + 1?", "--n", "6"], "search.n = 6 is no multiple of search.width = 4"),
        (["beam", "rows.jsonl"], "rows.jsonl: cannot be read: No such file or directory"),
        (["beam", "1 + 1?", "--set", "search.widht=2"], "unknown setting 'search.widht'; did you mean 'width'?"),
    ],
)
def test_wrong_use_is_one_line(words, said):
    done = run(*words, "--config", "scripted")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"genprm: {said}\n")


def test_bounds_are_options_and_the_result_says_that_they_were_reached(problems):
    done = run("best-of-n", problems, "--config", "scripted", "--limit", 2, "--budget-judgements", 4)
    for result in results(done.stdout):
        assert result.counts.judged == 4
        assert "search.budget_judgements = 4 is used up" in result.ended


def test_verdicts_are_shared_through_the_verdict_cache_by_searches_in_other_processes(problems, tmp_path):
    words = ["--config", "scripted", "--limit", 2, "--set", "cache.enabled=true", "--set", f"cache.path={tmp_path}/c"]
    first = results(run("best-of-n", problems, *words).stdout)
    second = results(run("best-of-n", problems, *words).stdout)
    assert all(result.counts.judged > 0 for result in first)
    assert [result.counts.judged for result in second] == [0, 0]
    assert [result.pick for result in second] == [result.pick for result in first]


def test_the_python_interface_is_found_by_name_also_inside_a_running_loop():
    import asyncio

    async def inside():
        with genprm.load_search("scripted", overrides=["search.n=2"]) as searcher:
            return searcher.solve(genprm.search.Problem("a", "12 + 30", "42"), "best-of-n")

    assert asyncio.run(inside()).correct.oracle is not None


@pytest.mark.parametrize("judge", ["programs", "whole"])
def test_judges_that_need_all_steps_judge_a_solution_in_one_go(judge):
    """`programs` judges by rule; `critic` writes one critique for all steps."""
    protocol = {"programs": ["verify.protocol=programs", "evidence.programs=2"], "whole": ["verify.protocol=critic"]}
    with genprm.load_search("scripted", overrides=[*protocol[judge], "search.n=3"]) as searcher:
        result = searcher.solve(Problem("a", "What is 3 + 4 * 2 - 1?", "10"))
    assert result.counts.asked == 3
    assert result.counts.judged == len(result.candidates)


@pytest.mark.model
@pytest.mark.slow
def test_the_embedded_model_writes_and_judges_with_one_engine(embedded_folder):
    overrides = [
        *("search.n=2", "search.width=1", "policy.step_tokens=16", "policy.max_steps=1", "policy.temperature=0.6"),
        *("verify.mode=direct", "sandbox.kind=off"),
    ]
    with genprm.load_search("default", overrides=overrides) as searcher:
        assert searcher.policy.backend is searcher.verifier.backend
        result = searcher.solve("Tom has 3 apples and buys 5 more. How many apples has he?", "beam")
    assert result.counts.judged == result.counts.nodes > 0
    assert all(0 < reward < 1 for one in result.candidates for reward in one.step_rewards)
    assert result.pick.finished or result.pick.note
    assert result.usage.policy_completion_tokens > 0
