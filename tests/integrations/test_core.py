"""What all adapters share: one verifier, many threads, order, policies, texts cut into steps."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

import genprm
from genprm.client import AsyncClient
from genprm.errors import BackendUnavailable, ConfigError, InputError, Unscored
from genprm.integrations.core import Asked, SharedVerifier, shared
from genprm.integrations.rewards import (
    STOPPED,
    Rewards,
    all_decided,
    blended,
    check_aggregation,
    check_policy,
    decided,
)
from genprm.integrations.texts import completion_text, cut, problem_text
from genprm.segment import segment

from .conftest import RIGHT, WRONG, Counting


def test_rewards_come_in_the_order_of_what_was_asked(scripted):
    judge = SharedVerifier(scripted)
    asked = [Asked("p", (RIGHT,)), Asked("p", (RIGHT, WRONG)), Asked("p", (WRONG,))] * 3
    found = judge.judge(asked)
    assert [rewards.first_error for rewards in found] == [-1, 1, 0] * 3
    assert [len(rewards.steps) for rewards in found] == [1, 2, 1] * 3
    assert found[1].steps[0] > 0.5 > found[1].steps[1]


def test_equal_solutions_are_judged_once():
    counting = Counting()
    found = SharedVerifier(counting).judge([Asked("p", ("a", "b")), Asked("p", ("a",)), Asked("p", ("a", "b"))])
    assert len(counting.asked) == 2
    assert found[0] == found[2] != found[1]


def test_nothing_to_judge_opens_nothing():
    assert SharedVerifier("no-such-config").judge([]) == []
    assert SharedVerifier("no-such-config").judge([Asked("p", ())]) == [Rewards(())]


def test_a_blank_problem_is_refused_before_anything_is_judged():
    with pytest.raises(InputError, match="solution 1 is empty"):
        SharedVerifier("no-such-config").judge([Asked("p", ("a",)), Asked(" ", ("a",))])


def test_many_threads_open_one_verifier(monkeypatch):
    opened = []

    def load(name):
        opened.append(genprm.load(name))
        return opened[-1]

    monkeypatch.setattr("genprm.integrations.core.load", load)
    with SharedVerifier("scripted") as judge, ThreadPoolExecutor(16) as pool:
        gate = threading.Barrier(16)

        def work(n):
            gate.wait()
            return judge.judge([Asked(f"p {n}", (f"{n} + 1 = {n + 1 + n % 2}.",))])[0].first_error

        assert list(pool.map(work, range(16))) == [0 if n % 2 else -1 for n in range(16)]
    assert len(opened) == 1
    names = [thread.name for thread in threading.enumerate()]
    assert "genprm-loop" not in names or opened[0]._loop is None


def test_judging_works_inside_a_running_event_loop(scripted):
    async def main():
        judge = SharedVerifier(scripted)
        return await asyncio.gather(*(judge.ajudge([Asked("p", (step,))]) for step in (RIGHT, WRONG)))

    right, wrong = asyncio.run(main())
    assert (right[0].first_error, wrong[0].first_error) == (-1, 0)


def test_steps_behind_an_early_stop_are_unscored_with_that_reason():
    with SharedVerifier(genprm.load_config("scripted", ["verify.early_stop=true"])) as judge:
        (found,) = judge.judge([Asked("p", (WRONG, RIGHT, RIGHT))])
    assert found.steps[1:] == (None, None)
    assert found.reasons == {1: STOPPED, 2: STOPPED}
    assert found.total("mean") == found.total(None) == found.steps[0]
    with pytest.raises(Unscored, match="x, step 1 is unscored: judging stopped at the first error"):
        all_decided(found, "raise", "x")


def test_a_verifier_that_does_not_answer_for_all_is_an_error():
    class Lazy(Counting):
        def verify_many(self, solutions):
            yield from list(super().verify_many(solutions))[1:]

    with pytest.raises(BackendUnavailable, match="1 of 2"):
        SharedVerifier(Lazy()).judge([Asked("p", ("a",)), Asked("p", ("b",))])


@pytest.mark.parametrize("source", [3, object(), AsyncClient("http://127.0.0.1:9")])
def test_what_cannot_judge_is_refused(source):
    with pytest.raises(ConfigError, match="cannot judge here"):
        SharedVerifier(source)


def test_an_address_is_a_service():
    judge = SharedVerifier("http://127.0.0.1:9")
    with judge:
        assert type(judge.open()).__name__ == "Client"


def test_a_copy_made_by_pickle_opens_its_own_verifier():
    with SharedVerifier("scripted") as judge:
        judge.open()
        with pickle.loads(pickle.dumps(judge)) as copy:
            assert copy.judge([Asked("p", (WRONG,))]) == judge.judge([Asked("p", (WRONG,))])
            assert copy.open() is not judge.open()


def test_an_object_cannot_be_pickled_and_says_so(scripted):
    with pytest.raises(TypeError, match="give the name of a config"):
        pickle.dumps(SharedVerifier(scripted))


def test_a_forked_child_judges_with_a_verifier_of_its_own():
    code = """
import os, sys
from genprm.integrations.core import Asked, SharedVerifier, shared
from genprm.errors import ConfigError
import genprm
if __name__ == "__main__":
    asked = [Asked("p", ("1 + 1 = 3.",))]
    named, own = shared("scripted"), SharedVerifier(genprm.load("scripted"))
    first = named.judge(asked), own.judge(asked)
    child = os.fork()
    if child == 0:
        assert named.judge(asked) == first[0]
        try:
            own.judge(asked)
        except ConfigError as error:
            assert "fork" in str(error)
            sys.exit(7)
    _, status = os.waitpid(child, 0)
    assert named.judge(asked) == first[0] and own.judge(asked) == first[1]
    print(os.waitstatus_to_exitcode(status))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout.strip(), done.returncode) == ("7", 0), done.stderr


def test_the_environment_names_the_shared_verifier(monkeypatch):
    monkeypatch.setenv("GENPRM_CONFIG", "scripted")
    assert shared() is shared("scripted") is not shared("default")


@pytest.mark.parametrize(("policy", "value"), [(None, None), (0.25, 0.25), (0, 0)])
def test_a_policy_stands_for_what_is_unscored_and_for_nothing_else(policy, value):
    assert decided(None, policy, "x", "lost") == value
    assert decided(0.75, policy, "x", "lost") == 0.75


def test_raise_names_the_place_and_the_reason():
    with pytest.raises(Unscored, match="output 3 is unscored: the model was lost"):
        decided(None, "raise", "output 3", "the model was lost")


@pytest.mark.parametrize("policy", ["zero", True, [0]])
def test_an_unknown_policy_is_refused(policy):
    with pytest.raises(ConfigError, match="unscored="):
        check_policy(policy)


def test_an_unknown_aggregation_is_refused():
    with pytest.raises(ConfigError, match="'max'"):
        check_aggregation("max")


@pytest.mark.parametrize(
    ("process", "outcome", "weight", "expected"),
    [
        (0.8, True, 0.0, 0.8),
        (0.8, None, 0.0, 0.8),
        (0.8, True, 0.25, 0.85),
        (0.8, False, 0.25, 0.6),
        (None, True, 0.25, None),
        (0.8, None, 0.25, None),
        (None, True, 1.0, 1.0),
    ],
)
def test_process_and_outcome_are_blended_where_both_are_known(process, outcome, weight, expected):
    rewards = Rewards((process,), {}, process, None, outcome, 1)
    assert blended(rewards, None, weight) == (None if expected is None else pytest.approx(expected))


@given(st.text(alphabet="ab \n", max_size=40))
def test_a_separators_pieces_end_where_they_stand(text):
    pieces = cut(text, "\n\n")
    assert list(pieces.pieces) == text.split("\n\n")
    for piece, end in zip(pieces.pieces, pieces.ends, strict=True):
        assert text[:end].endswith(piece.rstrip())
    assert list(pieces.ends) == sorted(pieces.ends)


@given(st.text(alphabet="Step 12:.\n`", max_size=60))
def test_the_segmenters_pieces_end_where_they_stand(text):
    pieces = cut(text)
    assert list(pieces.pieces) == segment(text)
    ends = iter(pieces.ends)
    done = ""
    for piece in pieces.pieces:
        done += piece
        assert next(ends) == len(done.rstrip()) or not piece.strip()


def test_a_splitter_of_ones_own_must_give_pieces_of_the_text():
    assert cut("ab cd", str.split).ends == (2, 5)
    with pytest.raises(InputError, match="piece 1 does not stand"):
        cut("ab cd", lambda _: ["cd", "ab"])


class Message:
    def __init__(self, role, content):
        self.role, self.content = role, content


CHAT = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]


@pytest.mark.parametrize(
    "prompt",
    ["u", CHAT, [Message("user", "u")], [{"role": "user", "content": [{"type": "text", "text": "u"}]}], CHAT[1]],
)
def test_a_prompt_is_a_text_or_its_last_user_message(prompt):
    assert problem_text(prompt) == "u"


@pytest.mark.parametrize("prompt", [3, [], [{"role": "system", "content": "s"}], ["u"], None])
def test_what_is_no_prompt_is_refused(prompt):
    with pytest.raises(InputError, match="prompt"):
        problem_text(prompt)


def test_a_completion_is_what_the_assistant_says():
    said = [Message("assistant", "a"), Message("tool", "t"), Message("assistant", None), Message("assistant", "b")]
    assert completion_text(said) == "a\n\nb"
    with pytest.raises(InputError, match="a part that is no text"):
        completion_text([{"role": "assistant", "content": [{"type": "image"}]}])
