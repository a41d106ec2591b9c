"""The policy: steps, markers, ends, limits, seeds, and whose engine it runs on."""

from __future__ import annotations

import asyncio

import pytest

import genprm
from genprm.backends.base import Generation, SamplingParams
from genprm.backends.scripted import ScriptedBackend, ScriptedSlot
from genprm.config import PolicyConfig, load_config
from genprm.errors import ConfigError
from genprm.policy import Policy
from genprm.prompting import Prompt, load_protocol


class Recited(ScriptedBackend):
    """Writes what it is told to, one piece a call, and remembers what it was asked."""

    def __init__(self, *pieces: Generation):
        super().__init__()
        self.pieces = list(pieces)
        self.asked: list[tuple[Prompt, SamplingParams]] = []

    def slot(self):
        return _Seat(self)


class _Seat(ScriptedSlot):
    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        return None

    async def generate(self, prompt, params):
        self._backend.asked.append((prompt, params))
        return self._backend.pieces.pop(0)


def step(text, stop="\n\n", tokens=5):
    return Generation(text, "stop", stop, 7, tokens)


def write(*pieces, steps=(), whole=True, **settings):
    backend = Recited(*pieces)
    policy = Policy(backend, load_protocol("policy"), PolicyConfig(**settings))
    ask = policy.complete if whole else policy.next_steps
    (draft,) = asyncio.run(ask("How many?", steps, n=1, seed=1))
    return draft, backend


def test_the_host_forces_each_marker_and_stops_at_the_separator_or_the_next_marker():
    draft, backend = write(step(" 1 + 1 = 2."), step(" 2 + 2 = 4.", "\nStep 3"), step(" The answer is \\boxed{4}."))
    assert draft.steps == ("1 + 1 = 2.", "2 + 2 = 4.", "The answer is \\boxed{4}.")
    assert (draft.finished, draft.note, draft.completion_tokens, draft.prompt_tokens) == (True, None, 15, 21)
    assert [prompt.prefix for prompt, _ in backend.asked] == [
        "Step 1:",
        "Step 1: 1 + 1 = 2.\n\nStep 2:",
        "Step 1: 1 + 1 = 2.\n\nStep 2: 2 + 2 = 4.\n\nStep 3:",
    ]
    assert [params.stop for _, params in backend.asked] == [("\n\n", f"\nStep {k}") for k in (2, 3, 4)]


def test_a_given_beginning_is_kept_as_it_is_and_laid_out_with_markers():
    given = ("Two pens cost 4.\n", "Step 2: so one costs 2.")
    draft, backend = write(step(" The answer is 2."), steps=given)
    assert draft.steps == (*given, "The answer is 2.")
    assert backend.asked[0][0].prefix == "Step 1: Two pens cost 4.\n\nStep 2: so one costs 2.\n\nStep 3:"
    assert draft.completion_tokens == 5


@pytest.mark.parametrize("text", ["So \\boxed{7}.", "#### 7", "The final answer is 7."])
def test_a_stated_answer_ends_the_solution_although_the_model_would_go_on(text):
    assert write(step(f" {text}"))[0].finished


def test_the_models_own_end_finishes_a_solution_whose_last_step_leaves_no_choice():
    assert write(Generation(" 3 + 4 = 7.", "eos"))[0].finished
    draft, _ = write(Generation(" That is all of it.", "eos"))
    assert (draft.finished, draft.note) == (False, "the model ended without a final answer")
    assert not write(step(" 3 + 4 = 7."), Generation(" Well.", "eos"))[0].finished


@pytest.mark.parametrize(
    ("pieces", "settings", "note"),
    [
        ([Generation(" cut", "length", None, 7, 9)], {"step_tokens": 9}, "step 1 was cut at policy.step_tokens = 9"),
        (
            [step(" a", tokens=6), Generation(" b", "length", None, 7, 4)],
            {"max_tokens": 10},
            "step 2 was cut at policy.max_tokens = 10",
        ),
        ([step(" a"), step(" b")], {"max_steps": 2}, "reached policy.max_steps = 2"),
        ([Generation(" a", "context", None, 7, 4)], {}, "step 1 was cut at the end of the model's context"),
        ([Generation("", "eos")], {}, "the model wrote nothing as step 1"),
        ([step("")] * 3, {}, "the model wrote nothing as step 1"),
    ],
)
def test_what_is_unfinished_says_why(pieces, settings, note):
    draft, _ = write(*pieces, **settings)
    assert (draft.finished, draft.note) == (False, note)


def test_a_step_that_begins_with_a_blank_line_is_written_on():
    draft, backend = write(step(""), step(" The answer is 5."))
    assert draft.steps == ("The answer is 5.",)
    assert backend.asked[1][0].prefix == "Step 1:\n\n"


def test_one_further_step_can_be_asked_for_again():
    draft, _ = write(step(" 1 + 1 = 2."), whole=False)
    assert (draft.steps, draft.finished, draft.note) == (("1 + 1 = 2.",), False, None)


def test_a_context_that_is_full_is_a_note_and_no_error():
    policy = Policy(ScriptedBackend(max_context=5), load_protocol("policy"), PolicyConfig())
    (draft,) = asyncio.run(policy.complete("1 + 1?", n=1, seed=0))
    assert (draft.finished, draft.steps) == (False, ())
    assert "context is 5" in draft.note


def test_samples_differ_by_number_and_repeat_by_seed():
    policy = genprm.load_policy("scripted")
    drafts = asyncio.run(policy.complete("1 + 2 + 3 + 4 + 5?", n=8, seed=0))
    assert drafts == asyncio.run(policy.complete("1 + 2 + 3 + 4 + 5?", n=8, seed=0))
    assert len({draft.steps for draft in drafts}) > 1
    assert drafts != asyncio.run(policy.complete("1 + 2 + 3 + 4 + 5?", n=8, seed=1))
    # The first samples do not depend on how many there are.
    assert drafts[:3] == asyncio.run(policy.complete("1 + 2 + 3 + 4 + 5?", n=3, seed=0))


def test_the_policys_own_delimiters_and_the_critique_reach_the_rewrite():
    backend = Recited(step(" The answer is 5."))
    policy = Policy(backend, load_protocol("policy"), PolicyConfig())
    draft = asyncio.run(policy.rewrite("2 + 3?", ("2 + 3 = 6.", "The answer is 6."), 0, "2 + 3 is 5", seed=0))
    *_, answer, asked = backend.asked[0][0].messages
    assert (answer.role, answer.content) == ("assistant", "Step 1: 2 + 3 = 6.\n\nStep 2: The answer is 6.")
    assert asked.role == "user"
    assert "Step 1 of your solution is wrong:\n2 + 3 = 6." in asked.content
    assert "2 + 3 is 5" in asked.content
    assert draft.steps == ("The answer is 5.",)


def test_a_protocol_that_judges_is_refused():
    with pytest.raises(ConfigError, match="'compact' judges"):
        Policy(ScriptedBackend(), load_protocol("compact"), PolicyConfig())


def test_one_engine_is_shared_where_model_and_backend_are_the_judges():
    judge = ScriptedBackend()
    assert genprm.load_policy("scripted", judge).backend is judge
    config = load_config("scripted", ["policy.backend.kind=scripted", "policy.backend.max_context=500"])
    other = genprm.load_policy(config, judge)
    assert other.backend is not judge
    assert other.backend.max_context == 500


def test_an_unknown_setting_of_the_policys_backend_is_named_with_its_neighbour():
    with pytest.raises(ConfigError, match=r"'policy.backend.max_contex'; did you mean 'max_context'"):
        load_config("scripted", ["policy.backend.max_contex=500"])


def test_policy_and_search_settings_do_not_change_what_a_judge_is():
    plain = load_config("scripted").digest()
    assert load_config("scripted", ["policy.temperature=0.3", "search.n=64"]).digest() == plain
