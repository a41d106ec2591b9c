"""The outcome reward: which answer a solution states, when two answers are equal, and what cannot hang the caller."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genprm import outcome
from genprm.answer_worker import clean
from genprm.errors import UnavailableError
from genprm.outcome import compare, extract_answer, judge_outcome, judge_outcome_async
from genprm.types import Outcome

ENDLESS = r"\prod_{n=1}^{10^{8}} (1+\frac{1}{n^2})"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"So \(\boxed{18}\).", "18"),
        (r"$\boxed{\frac{1}{2}}$ and not 7", r"\frac{1}{2}"),
        (r"First \boxed{1}, then \boxed{2}.", "2"),
        (r"\boxed{\boxed{5}}", "5"),
        (r"\boxed {\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\left\{ 1 \right.}", r"\left\{ 1 \right."),
        (r"\boxed{3} and a truncated \boxed{\frac{1}{", "3"),
        (r"\boxed{} but \fbox{4}", "4"),
        ("She makes 18.\n#### 18", "18"),
        ("Step 3: #### $1,000.", "$1,000"),
        ("#### 1. Setup\nWe know.\n#### Step 2\nIt ends.", None),
        ("One.\n\n# Answer\n\n29", "29"),
        ("## Final Answer:\nThe profit is \\(\\$10,000\\) in all of it.", "$10,000"),
        ("The answer is 42.", "42"),
        ("The answer is: 13520", "13520"),
        ("The final answer is **$1,234.50**.", "$1,234.50"),
        ("The answer is not 5. The answer is 6.", "6"),
        ("Answer: 3/4 of the cake", "3/4"),
        ("the answer is 25%.", "25%"),
        (r"The answer is $x = \frac{3}{4}$.", r"x = \frac{3}{4}"),
        (r"The answer to the first question is \(2\sqrt{3}\).", r"2\sqrt{3}"),
        ("The answer is 5x + 3.", "5x + 3"),
        ("The answer is Monday.", "Monday"),
        ("The answer is (B).", "(B)"),
        ("The answer is -7", "-7"),
        ("The answer is 3 million.", "3 million"),
        ("The answer is obtained by adding all of these up.", None),
        ("2 + 3 = 5. So the total is 5.", "5"),
        ("Therefore, she has 18 dollars left.", "18"),
        ("Therefore she earns \\$18.", "$18"),
        (r"So there are \( 400 \) bees.", "400"),
        ("In all: 3 + 4 = 7", "7"),
        ("<<3+4=7>>7 apples are left.", "7"),
        ("Thus x = 11.", "11"),
        ("Thus 3x = 15.", None),
        ("In 10 years he is 109.", None),
        ("This is 2x.", None),
        ("This is 1,234x.", None),
        ("This is x^2.", None),
        ("This is 2 + y.", None),
        ("They sold 3 million.", None),
        ("So the claim holds.", None),
        ("", None),
    ],
)
def test_the_stated_answer_is_found_and_nothing_is_guessed(text: str, answer: str | None) -> None:
    assert extract_answer(text) == answer


@given(st.text(st.sampled_from(list("\\boxed{}$#= .1,answeri:\n*("))) | st.text())
def test_extraction_never_fails_and_gives_part_of_the_text(text: str) -> None:
    answer = extract_answer(text)
    assert answer is None or answer.strip() == answer != ""


@pytest.mark.parametrize(
    "unit", [r"\boxed{", "answer is ", "#### ", "$", "1", "1,000", "= ", "\\(", "**", "{", "# answer\n"]
)
def test_extraction_from_half_a_megabyte_takes_seconds_at_most(unit: str) -> None:
    start = time.perf_counter()
    extract_answer(unit * (500_000 // len(unit)))
    assert time.perf_counter() - start < 15


@pytest.mark.parametrize(
    ("answer", "reference"),
    [
        ("1,000", "1000"),
        ("1{,}000", "1000"),
        (r"1\,000", "1,000"),
        ("$18.00", "18"),
        (r"\$18", "18"),
        ("18 dollars", "18"),
        ("18", "18 dollars"),
        (r"5\text{ cm}", "5"),
        ("5 hours", "5 hour"),
        ("007", "7"),
        ("1.0", "1"),
        ("\u22125", "-5"),
        ("5.", "5"),
        (r"\frac{1}{2}", "0.5"),
        ("1/2", r"\frac12"),
        (r"\dfrac{3}{4}", "0.75"),
        ("0.333333", "1/3"),
        ("3 1/2", "7/2"),
        (r"3\frac{1}{2}", "3.5"),
        ("50%", "0.5"),
        (r"50\%", "50"),
        ("15 percent", "15%"),
        ("3e5", "300,000"),
        (r"3 \times 10^5", "300000"),
        (r"2\sqrt{3}", r"\sqrt{12}"),
        ("2*sqrt(3)", r"2\sqrt{3}"),
        ("2 pi", r"2\pi"),
        ("sin(30)", r"\sin(30)"),
        ("x^2+2x+1", "(x+1)^2"),
        ("x=5", "5"),
        (r"(3, \frac{\pi}{2})", r"\left( 3, \frac{\pi}{2} \right)"),
        (r"\{1,2\}", "{2,1}"),
        ("1 and 2", "2, 1"),
        (r"90^\circ", "90"),
        ("A", "(A)"),
        (r"\text{(B)}", "B"),
        (r"\text{Monday}", "monday"),
        (r"10^{10^{10}}", r"10^{10^{10}}"),
        ("72", "Half of 48 is 24.\n#### 72"),
        ("72", r"It is $\boxed{72}$."),
    ],
)
def test_equal_answers_are_equal_however_they_are_written(answer: str, reference: str) -> None:
    assert compare(answer, reference) is True


@pytest.mark.parametrize(
    ("answer", "reference"),
    [
        ("19", "18"),
        ("-7", "7"),
        ("17.99", "18"),
        ("0.33", "1/3"),
        ("[1,2)", "[1,2]"),
        ("Monday", "Tuesday"),
        ("B", "(A)"),
        (r"2^{1000}", r"2^{1000}+1"),
        ("1" * 1999, "1" * 1998 + "2"),
        ("5 x", "5"),
    ],
)
def test_different_answers_are_different(answer: str, reference: str) -> None:
    assert compare(answer, reference) is False


@pytest.mark.parametrize(
    ("answer", "reference"),
    [
        ("", "5"),
        ("5", " "),
        ("???", "5"),
        (r"\frac{", "5"),
        ("eighteen", "18"),
        ("the total is 5", "5"),
        ("12 apples and 3 pears", "12"),
        ("3 million", "3"),
        ("18 or more", "18"),
        ("5 cm", "5 m"),
        ("700 cm", "7 m"),
        ("no", "on"),
        ("\ud800", "5"),
        ("9**9**9**9", "7"),
        ("9^{9^{9^9}}", "7"),
        ("10^(10^10)", "5"),
        ("1000000!", "7"),
        ("1+" * 5_000 + "1", "5001"),
        ("x" * 3_000_000, "5"),
    ],
)
def test_what_cannot_be_decided_is_neither_right_nor_wrong(answer: str, reference: str) -> None:
    start = time.perf_counter()
    assert compare(answer, reference) is None
    assert time.perf_counter() - start < 15


def test_a_comparison_without_end_is_killed_and_the_next_one_works() -> None:
    assert compare("1", "1") is True
    start = time.perf_counter()
    assert compare(ENDLESS, "3", time_limit=0.5) is None
    assert time.perf_counter() - start < 5
    assert compare("1", "1.0") is True


def test_a_dead_process_is_replaced() -> None:
    assert compare("1", "1") is True
    process = outcome._worker._process
    assert process is not None
    process.kill()
    process.wait()
    assert compare("2", "2.0") is True


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (["2 + 3 = 5.", r"So \boxed{5}."], Outcome(answer="5", correct=True)),
        (["2 + 3 = 6.", "The answer is 6."], Outcome(answer="6", correct=False)),
        (["We add 2 and 3.", "That ends it."], Outcome(answer=None, correct=None)),
        ([r"\boxed{five of them}"], Outcome(answer="five of them", correct=None)),
        ([], Outcome(answer=None, correct=None)),
    ],
)
def test_the_outcome_of_a_solution(steps: list[str], expected: Outcome) -> None:
    assert judge_outcome(steps, "5") == expected


def test_threads_share_the_process_and_get_their_own_answers() -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: compare(str(n), str(n - n % 2)), range(60)))
    assert found == [n % 2 == 0 for n in range(60)]


def test_the_event_loop_is_not_blocked_while_comparing() -> None:
    async def run() -> int:
        task = asyncio.create_task(judge_outcome_async([rf"\boxed{{{ENDLESS}}}"], "3", time_limit=0.5))
        ticks = 0
        while not task.done():
            await asyncio.sleep(0.01)
            ticks += 1
        assert (await task).correct is None
        return ticks

    assert asyncio.run(run()) > 10


def test_a_forked_child_compares_with_a_process_of_its_own() -> None:
    code = """
import os, sys, threading
from genprm import outcome
assert outcome.compare("1", "1.0") is True
pid = outcome._worker._process.pid
child = os.fork()
if child == 0:
    ok = outcome.compare("2", "2.0") is True and outcome._worker._process.pid != pid
    outcome._close()
    os._exit(0 if ok else 1)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0
assert outcome.compare("3", "3.0") is True and outcome._worker._process.pid == pid
print(pid)
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)


def test_importing_and_extracting_load_no_algebra() -> None:
    code = (
        "import sys; from genprm.outcome import extract_answer; extract_answer('The answer is 5.');"
        "assert not {'sympy', 'math_verify', 'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_users_own_sympy_is_not_imported_in_place_of_the_real_one(tmp_path: Path) -> None:
    (tmp_path / "sympy.py").write_text("raise SystemExit(1)")
    code = "import sys; sys.path.remove(''); from genprm.outcome import compare; assert compare('1/2', '0.5')"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


def test_a_process_that_does_not_start_is_an_error_of_its_own_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = outcome._Worker()
    monkeypatch.setattr(outcome.sys, "executable", "/bin/false")
    with pytest.raises(UnavailableError, match="does not start: it ended with status 1"):
        worker.ask("1", "1", 5)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$$ 5 $$", "5"),
        (r"\(x\)", "x"),
        ("**7**.", "7"),
        (r"\text{ cm }", "cm"),
        ("$1$ and $2$", "$1$ and $2$"),
        ("", ""),
    ],
)
def test_cleaning_strips_what_surrounds_an_answer(text: str, expected: str) -> None:
    assert clean(text) == expected


@given(st.text(st.sampled_from(list("$*\\()[]{}. ,;tex5")), max_size=30))
def test_cleaning_twice_changes_nothing_more(text: str) -> None:
    assert clean(clean(text)) == clean(text)
