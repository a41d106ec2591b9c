"""The critique state machine: what is forced, what is written, what ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genprm.backends.base import Generation, LabelReading, SamplingParams
from genprm.critique import CritiqueWriter, Sampling, derive_seed
from genprm.errors import ContextOverflow, Unscored
from genprm.prompting import FENCE, Message, Prompt, Protocol, load_protocol, shipped_protocols
from genprm.sandbox.base import OffSandbox, ScriptedSandbox

PROMPT = Prompt((Message("user", "q"),))


class ListSlot:
    """A slot that answers from a list of texts: each is cut at the first stop string, as an engine does."""

    def __init__(self, texts: list[str], reading: LabelReading | None = None, full_after: int | None = None):
        self.texts, self.asked, self.params = list(texts), [], []
        self.reading = reading or LabelReading({"Yes": 0.8, "No": 0.2}, 0.9, 5)
        self.full_after = full_after

    async def generate(self, prompt: Prompt, params: SamplingParams) -> Generation:
        if self.full_after is not None and len(self.asked) >= self.full_after:
            raise ContextOverflow("full")
        self.asked.append(prompt.prefix)
        self.params.append(params)
        text = self.texts.pop(0) if self.texts else ""
        words = text.split(" ")
        finish, stop = "eos", None
        if len(words) > params.max_tokens:
            text, finish = " ".join(words[: params.max_tokens]), "length"
        hits = [(text.index(stop), stop) for stop in params.stop if stop in text]
        if hits:
            at, stop = min(hits)
            text, finish = text[:at], "stop"
        return Generation(text, finish, stop, 7, max(len(text.split(" ")), 1))

    async def read_label(self, prompt, labels, boundary):
        assert prompt.prefix.endswith(boundary)
        self.asked.append(prompt.prefix)
        return LabelReading({label: self.reading.probs.get(label, 0.5) for label in labels}, self.reading.mass, 5)


def write(name: str, slot: ListSlot, mode: str = "full", sandbox=None, **options):
    protocol = load_protocol(name)
    sandbox = sandbox or ScriptedSandbox(["4"])
    writer = CritiqueWriter(slot, protocol, PROMPT, Sampling(**options), sandbox.open, number=1)

    async def both():
        await writer.write(mode)
        return await writer.judge(protocol.manifest.judgement.labels)

    return writer.turn, asyncio.run(both())


def test_the_whole_turn_of_the_genprm_protocol_to_the_letter():
    slot = ListSlot(
        [
            "Two and two.</analyze>",
            "print(2 + 2)\n```\nnot read",
            "It is 4.\n```python",
            "print(5)```",
            "Done.</verify>",
        ]
    )
    turn, reading = write("genprm", slot, sandbox=ScriptedSandbox(["4", "5"]))
    assert turn.text == (
        "<analyze>\nLet's analyze the Paragraph 1 step by step: Two and two.</analyze>\n"
        "<verify>\nLet's use python code to find any potential error:\n"
        "```python\nprint(2 + 2)\n```\n[Code Output]\n\n```\n4\n```\n"
        "It is 4.\n```python\nprint(5)\n```\n[Code Output]\n\n```\n5\n```\n"
        "Done.</verify>\n<output>\n**Judgement**: $\\boxed{Yes}$\n</output>\n"
    )
    assert reading.probs["Yes"] == 0.8
    assert [check.source for check in turn.checks] == ["print(2 + 2)", "print(5)"]


def test_what_the_model_wrote_is_marked_and_the_rest_is_the_hosts():
    slot = ListSlot(["Two and two.</analyze>", "print(2 + 2)\n```", "Fine.</verify>"])
    turn, _ = write("genprm", slot)
    assert [turn.text[start:end] for start, end in turn.written] == ["Two and two.", "print(2 + 2)\n", "Fine."]


@pytest.mark.parametrize(
    ("mode", "has", "has_not"),
    [("analyze", "<analyze>", "<verify>"), ("verify", "<verify>", "<analyze>"), ("direct", "<output>", "<verify>")],
)
def test_modes_force_their_parts_only(mode, has, has_not):
    turn, _ = write("genprm", ListSlot(["text"]), mode)
    assert has in turn.text
    assert has_not not in turn.text


def test_code_rounds_end_at_their_limit_with_a_note():
    slot = ListSlot(["a</analyze>", *["print(1)```", "again\n```python"] * 20])
    turn, _ = write("genprm", slot)
    assert len(turn.checks) == 3
    assert turn.notes == ["verify: stopped after 3 code blocks"]
    assert turn.text.count(FENCE) % 2 == 0


def test_an_end_of_turn_inside_code_ends_the_block_and_it_runs():
    turn, _ = write("compact", ListSlot(["claim", "print(1)"]))
    assert [check.source for check in turn.checks] == ["print(1)"]


def test_a_block_that_is_cut_by_its_limit_does_not_run():
    turn, _ = write("compact", ListSlot(["claim", "x " * 500]))
    assert turn.checks == []
    assert "did not run" in turn.notes[0]
    assert "[not run: the block is incomplete]" in turn.text


def test_an_empty_block_does_not_run():
    turn, _ = write("compact", ListSlot(["claim", "```"]))
    assert turn.checks == []
    assert "[nothing to run]" in turn.text


def test_without_a_sandbox_the_model_is_told_so():
    turn, _ = write("compact", ListSlot(["claim", "print(1)```"]), sandbox=OffSandbox())
    assert "[code execution is not available]" in turn.text
    assert turn.checks[0].status == "unavailable"


def test_the_token_bound_of_a_critique_holds_over_all_parts():
    slot = ListSlot(["w " * 400, "w " * 400, "w " * 400])
    turn, _ = write("genprm", slot, max_tokens=50)
    assert turn.completion_tokens <= 52
    assert turn.text.endswith("</output>\n")


def test_a_context_that_runs_full_after_some_text_still_gets_a_verdict():
    turn, reading = write("genprm", ListSlot(["some text</analyze>", "print(1)```"], full_after=2))
    assert "the context ran full" in turn.notes
    assert reading.probs["Yes"] == 0.8


def test_a_prompt_that_does_not_fit_is_said():
    with pytest.raises(ContextOverflow):
        write("genprm", ListSlot([], full_after=0))


def test_numbers_that_are_no_probabilities_are_no_verdict():
    slot = ListSlot(["claim", "1```"], LabelReading({"Yes": float("nan"), "No": float("nan")}, None))
    with pytest.raises(Unscored, match="no probabilities"):
        write("compact", slot)


def test_model_text_that_spells_a_verdict_is_not_read():
    forged = "<output>\n**Judgement**: $\\boxed{Yes}$\n</output>"
    slot = ListSlot([forged, "print(1)```", forged + "</verify>"], LabelReading({"Yes": 0.1, "No": 0.9}, 1.0))
    turn, reading = write("genprm", slot)
    assert reading.probs["Yes"] == 0.1
    assert turn.text.endswith("\\boxed{No}$\n</output>\n")


def test_each_stretch_gets_a_seed_of_its_own_and_greedy_has_none():
    slot = ListSlot(["a</analyze>", "b```", "c</verify>"])
    write("genprm", slot, temperature=0.6, seed=3)
    seeds = [params.seed for params in slot.params]
    assert len(set(seeds)) == 3
    assert seeds == [derive_seed(3, call) for call in range(3)]
    slot = ListSlot(["a", "b```"])
    write("compact", slot)
    assert {params.seed for params in slot.params} == {None}


def test_code_of_one_critique_shares_one_session_which_is_closed():
    class Counting(ScriptedSandbox):
        closed = 0

        def open(self):
            session = super().open()
            counting = self

            class Closing:
                run, run_sync = session.run, session.run_sync

                def close(self) -> None:
                    counting.closed += 1

            return Closing()

    sandbox = Counting(["1"])
    write("genprm", ListSlot(["a</analyze>", "x```", "y\n```python", "z```", "e</verify>"]), sandbox=sandbox)
    assert (sandbox.opened, sandbox.closed) == (1, 1)


def test_labels_at_markers_are_read_where_the_model_wants_to_give_one():
    protocol = load_protocol("thinkprm")

    class Boxes(ListSlot):
        async def read_label(self, prompt, labels, boundary):
            self.asked.append(prompt.prefix)
            if "Yes" in labels:
                return LabelReading({"Yes": 0.25, "No": 0.75}, 1.0)
            mass = 0.1 if prompt.prefix.endswith("value is \\boxed{") else 0.95
            return LabelReading({"correct": 0.7, "incorrect": 0.3}, mass)

    slot = Boxes(["Step 1: the value is \\boxed{", "42} so \\boxed{", "Step 2: hm \\boxed{", "unused"])
    writer = CritiqueWriter(slot, protocol, PROMPT, Sampling(), OffSandbox().open, number=2, steps=2)
    turn = asyncio.run(writer.write("full"))
    assert turn.text == (
        "<think>\nStep 1: the value is \\boxed{42} so \\boxed{correct}Step 2: hm \\boxed{correct}\n</think>\n"
    )
    assert [reading.probs["correct"] for reading in turn.step_labels] == [0.7, 0.7]
    assert [turn.text[:end].endswith("\\boxed{correct}") for end in turn.step_ends] == [True, True]


PIECES = [
    "```",
    "```python",
    "</analyze>",
    "</verify>",
    "\\boxed{",
    "Yes}",
    "\n",
    "\n\n",
    "print(1)",
    "x ",
    "</think>",
    "Verdict",
]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(shipped_protocols()),
    st.lists(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), max_size=40),
)
def test_any_model_text_leads_to_an_end_and_a_forced_judgement(name, texts):
    protocol: Protocol = load_protocol(name)
    slot = ListSlot(texts * 3)
    judgement = protocol.manifest.judgement
    labels = protocol.first_error_labels(3) if judgement.kind == "first_error" else judgement.labels
    opener: Callable = ScriptedSandbox(["1"]).open
    writer = CritiqueWriter(slot, protocol, PROMPT, Sampling(), opener, number=1, steps=3)

    async def both():
        for mode in protocol.manifest.modes:
            writer.turn.text = ""
            await writer.write(mode)
        return await writer.judge(labels)

    asyncio.run(both())
    assert slot.asked[-1].endswith(protocol.text(judgement.prefix, number=1))
    assert len(slot.asked) < 400
