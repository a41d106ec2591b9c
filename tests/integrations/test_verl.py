"""verl's custom reward function: any thread, any process, one verifier in each."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from genprm.errors import ConfigError, InputError, Unscored
from genprm.integrations import core
from genprm.integrations.verl import acompute_score, compute_score, compute_scores, problem_of, step_rewards

from .conftest import RIGHT, WRONG, Counting

INFO = {"question": "12 + 30?"}


@pytest.fixture(autouse=True)
def scripted_config(monkeypatch):
    monkeypatch.setenv("GENPRM_CONFIG", "scripted")


def test_the_answer_is_a_dict_with_score_and_the_same_keys_always():
    right = compute_score("gsm8k", RIGHT, "42", INFO, step=3)
    wrong = compute_score(data_source="m", solution_str=f"{RIGHT}\n\n{WRONG}", ground_truth=["42"], extra_info=INFO)
    assert right["score"] > 0.5 > wrong["score"]
    assert isinstance(right["score"], float)
    assert (json.loads(right["genprm_first_error"]), json.loads(wrong["genprm_first_error"])) == (-1, 1)
    assert len(json.loads(wrong["genprm_step_rewards"])) == 2
    nothing = compute_score("m", "", "42", INFO, unscored=0.0)
    assert set(right) == set(wrong) == set(nothing)
    assert (nothing["score"], nothing["genprm_scored"], nothing["genprm_first_error"]) == (0.0, 0.0, "null")


def test_no_signal_is_needed_so_that_any_number_of_threads_may_call(monkeypatch):
    def forbidden(*_):
        raise AssertionError("a signal was set")

    for name in ("signal", "alarm", "setitimer"):
        monkeypatch.setattr(f"signal.{name}", forbidden)
    monkeypatch.setattr(core, "_NAMED", {})
    gate = threading.Barrier(12)

    def work(n):
        gate.wait()
        found = compute_score("m", f"{n} + 1 = {n + 1 + n % 2}.", None, INFO)
        return json.loads(found["genprm_first_error"])

    with ThreadPoolExecutor(12) as pool:
        assert list(pool.map(work, range(12))) == [0 if n % 2 else -1 for n in range(12)]
    assert len(core._NAMED) == 1
    core._NAMED["scripted"].close()


POOL = """
import multiprocessing, os, sys
from concurrent.futures import ProcessPoolExecutor
from genprm.integrations.verl import compute_score

def work(n):
    found = compute_score("m", f"{n} + 1 = {n + 1 + n % 2}.", None, {"question": "q"})
    return os.getpid(), found["genprm_first_error"]

if __name__ == "__main__":
    parent = work(1)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(sys.argv[1])) as pool:
        found = list(pool.map(work, range(8)))
    assert [error for _, error in found] == ["-1", "0"] * 4, found
    assert parent[0] not in {process for process, _ in found}
    assert work(1) == parent
    print("done")
"""


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_each_process_of_a_pool_has_a_verifier_of_its_own(method, tmp_path):
    script = tmp_path / "pool_script.py"
    script.write_text(POOL)
    done = subprocess.run(
        [sys.executable, str(script), method], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr


def test_a_batch_is_judged_together_and_the_asynchronous_form_is_equal():
    batch = compute_scores(["m", "m"], [RIGHT, WRONG], [None, None], [INFO, INFO])
    assert batch == [compute_score("m", RIGHT, None, INFO), asyncio.run(acompute_score("m", WRONG, None, INFO))]


def test_the_answer_counts_where_it_is_given_weight():
    text = f"{RIGHT}\n\nThe answer is \\boxed{{42}}."
    right, wrong = (compute_score("m", text, truth, INFO, outcome_weight=0.5)["score"] for truth in ("42", 43))
    assert right - wrong == pytest.approx(0.5)
    with pytest.raises(InputError, match="ground_truth of response 0"):
        compute_score("m", text, None, INFO, outcome_weight=0.5)


def test_unscored_is_an_error_unless_the_caller_gives_a_number():
    with pytest.raises(Unscored, match="response 0 is unscored: the text has no steps"):
        compute_score("m", "  ", None, INFO)
    with pytest.raises(ConfigError, match="unscored=None"):
        compute_score("m", RIGHT, None, INFO, unscored=None)


class Array:
    """As numpy gives messages that were read from Parquet."""

    def tolist(self):
        return [{"role": "user", "content": "q"}]


@pytest.mark.parametrize("info", [{"question": "q"}, {"prompt": Array()}, {"problem": "q", "index": 3}])
def test_the_problem_is_found_in_extra_info(info):
    assert problem_of(info) == "q"


@pytest.mark.parametrize("info", [None, {}, {"index": 1}, {"question": None}])
def test_a_missing_problem_is_an_error_that_says_where_to_put_it(info):
    with pytest.raises(InputError, match="question, problem, prompt"):
        compute_score("m", RIGHT, None, info)


def test_the_function_can_be_loaded_by_its_file_as_verl_does():
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location("custom_module", sys.modules["genprm.integrations.verl"].__file__)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.compute_score("m", WRONG, None, INFO) == compute_score("m", WRONG, None, INFO)


class Letters:
    def decode(self, ids, **_):
        return "".join(map(chr, ids))


def test_step_rewards_fill_the_rows_of_a_padded_tensor(monkeypatch):
    judge = core.SharedVerifier(Counting(lambda text: None if "?" in text else float(text) / 10))
    monkeypatch.setattr(core, "_NAMED", {"scripted": judge})
    ids = [[ord(letter) for letter in text] for text in ("1\n\n2", "3")]
    assert step_rewards(ids, ["p", "p"], Letters(), width=6) == [[0.1, 0, 0, 0.2, 0, 0], [0.3, 0, 0, 0, 0, 0]]
    with pytest.raises(InputError, match="4 tokens, more than the 3"):
        step_rewards(ids, ["p", "p"], Letters(), width=3)
    with pytest.raises(Unscored, match="completion 0, step 0"):
        step_rewards([[ord("?")]], ["p"], Letters(), width=3)
