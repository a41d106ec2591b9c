"""Rows for training: what is learnt, what is masked, and that prompts are those of inference to the token."""

from __future__ import annotations

import pytest
from genprm.distill.format import tokens_of
from genprm.distill.masks import IGNORED, Ask, Tokens, build_rows
from genprm.distill.turns import Kept, Teaching, conversations

from genprm.config import load_config
from genprm.prompting import load_protocol
from genprm.rendering import ChatRenderer

from .recorded import GOOD, WRONG, filtered, judge

PROTOCOLS = ("student", "compact", "judge", "genprm", "critic")


@pytest.fixture(scope="session")
def renderer(embedded_folder):
    from transformers import AutoTokenizer

    return ChatRenderer(AutoTokenizer.from_pretrained(embedded_folder))


def taught(solution, renderer, teacher, student, *, mode="full", keep=None, pack=True, extra=()):
    """Conversations of a student under one protocol, from a teacher under another."""
    result, backend = judge(solution, f"verify.protocol={teacher}", f"verify.mode={mode}", *extra)
    row = filtered(solution, result, keep=keep)
    teaching = Teaching.of(
        load_config("scripted", [f"verify.protocol={teacher}", f"verify.mode={mode}"]),
        load_config("default", [f"verify.protocol={student}", f"verify.mode={mode}", *extra]),
        load_protocol,
    )
    kept = [Kept(item["step"], item["vote"], item["label"]) for item in row["keep"]]
    return list(conversations(teaching, solution, result, kept, renderer, pack=pack)), result, backend


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("mode", "solution"), [("full", GOOD), ("full", WRONG), ("direct", GOOD)])
def test_every_learnt_stretch_stands_behind_the_ids_that_inference_was_given(protocol, mode, solution, renderer):
    made, _, backend = taught(solution, renderer, protocol, protocol, mode=mode)
    tokens = tokens_of(renderer.tokenizer)
    asked = {tuple(renderer.encode(prompt)) for prompt, _ in backend.asked}
    learnt = 0
    for conversation in made:
        assert not conversation.refused
        rows, refused = build_rows(conversation.asks, tokens, 8192)
        assert not refused
        for row in rows:
            for start in stretches(row.labels):
                assert tuple(row.input_ids[:start]) in asked
                learnt += 1
    assert learnt == sum(len(conversation.asks) for conversation in made)
    assert learnt > 0


def stretches(labels):
    """Where learnt stretches begin."""
    return [at for at, label in enumerate(labels) if label != IGNORED and (at == 0 or labels[at - 1] == IGNORED)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_is_learnt_is_what_the_model_writes_with_its_ends_and_the_label(protocol, renderer):
    made, result, _ = taught(GOOD, renderer, protocol, protocol)
    tokens = tokens_of(renderer.tokenizer)
    for conversation in made:
        for ask in conversation.asks:
            assert not any(word in ask.learn for word in ("Output", "correct?", "Claim", "<output>", "Judgement"))
    rows = [row for item in made for row in build_rows(item.asks, tokens, 8192)[0]]
    written = "".join(
        vote.critique[start:end] for step in result.steps for vote in step.votes[:1] for start, end in vote.written
    )
    learnt = "".join(ask.learn for item in made for ask in item.asks)
    for piece in ("The values are recomputed.", "print(abs((60 - 8) - 52) < 1e-6)"):
        assert (piece in learnt) == (piece in written)
    for row in rows:
        assert len(row.input_ids) == len(row.labels)
        assert all(label in (IGNORED, token) for label, token in zip(row.labels, row.input_ids, strict=True))


def test_a_student_row_reads_as_expected_to_the_letter(renderer):
    made, _, _ = taught(WRONG, renderer, "compact", "student")
    (conversation,) = made
    (row,), _ = build_rows(conversation.asks, tokens_of(renderer.tokenizer), 8192)
    text = renderer.tokenizer.decode(row.input_ids)
    shown = "".join(text_of(renderer, part, learnt) for part, learnt in runs(row))
    assert text == row.text
    assert shown == (
        "<|im_start|>system\nCheck each step of the solution.<|im_end|>\n<|im_start|>user\n"
        f"Problem: {WRONG.problem}\n\nStep 1: {WRONG.steps[0]}<|im_end|>\n<|im_start|>assistant\n"
        "Claim:[[ The values are recomputed.\n]]```python\n[[print(abs((5 * 12) - 60) < 1e-6)\n```]]\n"
        "Output: True\nIs the step correct?[[ Yes]]\n<|im_end|>\n<|im_start|>user\n"
        f"Step 2: {WRONG.steps[1]}<|im_end|>\n<|im_start|>assistant\n"
        "Claim:[[ The values are recomputed.\n]]```python\n[[print(abs((60 - 8) - 54) < 1e-6)\n```]]\n"
        "Output: False\nIs the step correct?[[ No]]"
    )
    assert [label for *_, label in row.verdicts] == ["Yes", "No"]
    for start, end, label in row.verdicts:
        assert renderer.tokenizer.decode(row.labels[start:end]) == f" {label}"


def runs(row):
    """Stretches of ids that are all learnt or all masked."""
    part, learnt = [], row.labels[0] != IGNORED
    for token, label in zip(row.input_ids, row.labels, strict=True):
        if (label != IGNORED) != learnt:
            yield part, learnt
            part, learnt = [], not learnt
        part.append(token)
    yield part, learnt


def text_of(renderer, part, learnt):
    text = renderer.tokenizer.decode(part)
    return f"[[{text}]]" if learnt else text


def test_a_turn_that_is_not_kept_stands_masked_before_the_later_ones(renderer):
    keep = [{"step": 1, "vote": 0, "label": True}]
    made, _, _ = taught(GOOD, renderer, "student", "student", keep=keep)
    (conversation,) = made
    (row,), _ = build_rows(conversation.asks, tokens_of(renderer.tokenizer), 8192)
    assert row.steps == [1]
    assert "Is the step correct? Yes\n<|im_end|>" in row.text
    assert len(row.verdicts) == 1


def test_the_gold_label_is_learnt_though_the_teacher_said_another(renderer):
    keep = [{"step": 1, "vote": 0, "label": False}]
    made, _, _ = taught(GOOD, renderer, "student", "student", keep=keep)
    assert made[0].asks[-1].learn == " No"


def test_turns_that_are_not_packed_are_rows_of_their_own(renderer):
    made, _, _ = taught(GOOD, renderer, "student", "student", pack=False)
    tokens = tokens_of(renderer.tokenizer)
    rows = [build_rows(item.asks, tokens, 8192)[0] for item in made]
    assert [len(inside) for inside in rows] == [1, 1]
    assert [inside[0].steps for inside in rows] == [[0], [1]]


def test_each_kept_critique_of_several_votes_is_learnt_once(renderer):
    made, result, _ = taught(GOOD, renderer, "compact", "student", extra=("verify.votes=3",))
    assert [len(step.votes) for step in result.steps] == [3, 3]
    assert len(made) == 3
    assert sum(ask.label is not None for item in made for ask in item.asks) == 6


def test_a_critique_longer_than_max_length_is_refused_whole_and_never_cut(renderer):
    made, _, _ = taught(GOOD, renderer, "student", "student")
    tokens = tokens_of(renderer.tokenizer)
    (whole,), _ = build_rows(made[0].asks, tokens, 8192)
    limit = len(whole.input_ids) - 1
    (row,), refused = build_rows(made[0].asks, tokens, limit)
    assert [(item.step, item.reason) for item in refused] == [(1, "longer than max_length")]
    assert row.input_ids == whole.input_ids[: len(row.input_ids)]
    assert row.steps == [0]
    assert row.verdicts == whole.verdicts[:1]


def test_a_row_in_which_nothing_would_be_learnt_is_refused(renderer):
    tokens = tokens_of(renderer.tokenizer)
    rows, refused = build_rows([Ask("all of it is the host's", "", 0)], tokens, 100)
    assert rows == []
    assert [(item.step, item.reason) for item in refused] == [(0, "nothing in it is learnt")]


def test_a_token_that_joins_a_stretch_and_the_host_text_behind_it_is_learnt():
    """With a tokenizer that has one token for a fence and its line break, as Qwen's have."""
    words = ["```\n", "```", "\n", "a", "b", "o", "Y"]

    def encode(text):
        ids = []
        while text:
            word = next(item for item in words if text.startswith(item))
            ids.append(words.index(word))
            text = text[len(word) :]
        return ids

    tokens = Tokens(encode, lambda ids: "".join(words[token] for token in ids))
    asks = [Ask("a", "b```"), Ask("ab```\no", "Y", 0, "Yes")]
    (row,), refused = build_rows(asks, tokens, 100)
    assert not refused
    assert row.input_ids == encode("ab```\noY")
    assert row.labels == [IGNORED, *encode("b```\n"), IGNORED, *encode("Y")]


def test_a_context_that_begins_in_the_middle_of_a_token_gets_a_row_of_its_own(renderer):
    """`Claim: ` ends in a token of its own, which is joined with the next word once that is written."""
    tokens = tokens_of(renderer.tokenizer)
    asks = [Ask("Claim: ", "She has\n"), Ask("Claim: She has\nIs it?", " Yes", 0, "Yes")]
    rows, refused = build_rows(asks, tokens, 100)
    assert not refused
    assert [tuple(row.input_ids[: stretches(row.labels)[0]]) for row in rows] == [
        tuple(tokens.encode(ask.context)) for ask in asks
    ]


@pytest.mark.parametrize(("teacher", "student"), [("critic", "student"), ("student", "critic")])
def test_critiques_of_wholes_and_of_steps_are_not_turned_into_each_other(teacher, student):
    from genprm.errors import ConfigError

    with pytest.raises(ConfigError, match="cannot be turned into each other"):
        Teaching.of(
            load_config("scripted", [f"verify.protocol={teacher}"]),
            load_config("scripted", [f"verify.protocol={student}"]),
            load_protocol,
        )


def run_stage(tmp_path, rows, **settings):
    """Stage `format` over filtered rows, in a run's folder."""
    from genprm.distill.config import DistillConfig
    from genprm.distill.format import run_format
    from genprm.distill.job import Job
    from genprm.distill.store import Store

    for stage in ("label", "filter"):
        with Store(tmp_path / stage) as store:
            for row in rows:
                store.add(row if stage == "filter" else row["row"])
            store.finish()
    config = DistillConfig.model_validate(
        {
            "verify_config": {"config": "scripted", "overrides": {"verify.protocol": "compact"}},
            "student": {"config": "default", "overrides": {"verify.protocol": "student"}},
            "format": settings,
        }
    )
    with Store(tmp_path / "format") as store:
        run_format(Job(config, "format", tmp_path, store))
        store.finish()
        return list(store.rows()), store.manifest


def test_the_stage_counts_what_it_makes_and_what_it_refuses(tmp_path, embedded_folder):
    rows = [filtered(item, judge(item, "verify.protocol=compact")[0]) for item in (GOOD, WRONG)]
    endless = GOOD.model_copy(update={"id": "long/0", "problem": GOOD.problem + " Pens are blue." * 300})
    nothing = {**rows[0], "id": "none/0", "row": {**rows[0]["row"], "id": "none/0"}, "keep": []}
    rows += [filtered(endless, judge(endless, "verify.protocol=compact")[0]), nothing]
    made, manifest = run_stage(tmp_path, rows, max_length=512)
    assert [row["id"] for row in made] == ["pens/0/c0/r0", "pens/1/c0/r0"]
    assert manifest["reasons"] == {"longer than max_length": 2, "nothing of it is kept": 1}
    assert manifest["verdicts"] == {"No": 1, "Yes": 3}
    assert manifest["tokens"] == sum(len(row["input_ids"]) for row in made)
    assert manifest["learnt_tokens"] == sum(label != IGNORED for row in made for label in row["labels"])


def test_programs_that_reached_the_reference_answer_become_rows_behind_the_solver_prompt(
    tmp_path, embedded_folder, renderer
):
    row = filtered(GOOD, judge(GOOD, "verify.protocol=compact")[0])
    sources = {"answer = 5 * 12 - 8\nprint(answer)": "52", "answer = 5 * 12\nprint(answer)": "60"}
    row["result"]["evidence"] = {
        "programs": [
            {"source": source, "status": "ok", "answer": answer, "values": {"answer": answer}}
            for source, answer in sources.items()
        ]
    }
    made, manifest = run_stage(tmp_path, [row], programs=True)
    (program,) = [item for item in made if "program" in item["id"]]
    assert manifest["programs"] == 1
    learnt = [token for token in program["labels"] if token != IGNORED]
    assert renderer.tokenizer.decode(learnt) == f"{next(iter(sources))}\n```"
    prompt = load_protocol("solver").conversation(GOOD, 0).extended("```python\n")
    assert program["input_ids"][: -len(learnt)] == renderer.encode(prompt)


def test_the_students_evidence_block_is_the_one_that_inference_would_show(renderer):
    extra = ("evidence.programs=2", "evidence.first=2")
    made, result, backend = taught(GOOD, renderer, "compact", "compact", extra=extra)
    contexts = {ask.context for item in made for ask in item.asks}
    assert result.evidence["programs"]
    assert contexts <= {renderer.text(prompt) for prompt, _ in backend.asked}
    assert all("Programs: " in context.rsplit("assistant", 1)[1] for context in contexts)
