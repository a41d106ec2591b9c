"""The shapes of scalar PRMs, to the letter: vLLM's pooling route and OpenR's worker and controller."""

from __future__ import annotations

import pytest

from genprm.config import ServeConfig, load_config
from genprm.errors import ConfigError, InputError
from genprm.serve.openr import EXPIRES_SECONDS, Workers
from genprm.serve.pieces import solution_of_text

PROBLEM = "What is 2 + 2, doubled?"
STEPS = ["2 + 2 = 4", "4 * 2 = 9"]
CHATML = (
    "<|im_start|>system\nReason step by step.<|im_end|>\n<|im_start|>user\n{p}<|im_end|>\n<|im_start|>assistant\n"
    "{a}<extra_0>{b}<extra_0><|im_end|><|endoftext|>"
)
LLAMA = (
    "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n{p}<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n{a}<extra_0>{b}<extra_0><|eot_id|>"
)
FORMS = {
    "chatml": CHATML,
    "llama": LLAMA,
    "inst": "<s>[INST] {p} [/INST] {a}<extra_0>{b}<extra_0></s>",
    "blank line": "{p}\n\n{a}<extra_0>\n{b}<extra_0>\n",
    "leading blank lines": "\n\n{p}\n \n{a}<extra_0>{b}<extra_0>",
    "step marker": "{p} Step 1: {a} <extra_0>\nStep 2: {b} <extra_0>",
}


def split(text: str, *overrides: str, separators=("<extra_0>",)):
    settings = load_config("scripted", overrides).serve
    return solution_of_text(text, separators, settings, "input")


@pytest.mark.parametrize("form", FORMS)
def test_problem_and_steps_are_told_apart_in_every_form_that_callers_send(form):
    solution = split(FORMS[form].format(p=PROBLEM, a=STEPS[0], b=STEPS[1]))
    marked = [f"Step {n}: {step}" for n, step in enumerate(STEPS, 1)] if form == "step marker" else STEPS
    assert (solution.problem, list(solution.steps)) == (PROBLEM, marked)


def test_a_problem_of_several_paragraphs_needs_turns_or_a_pattern_of_its_own():
    text = "Given x = 1.\n\nWhat is x + 1?\n###\n1 + 1 = 2<extra_0>"
    assert split(text).problem == "Given x = 1."
    solution = split(text, r"serve.problem_pattern='(?P<problem>.*?)\n###\n'")
    assert (solution.problem, solution.steps) == ("Given x = 1.\n\nWhat is x + 1?", ("1 + 1 = 2",))
    with pytest.raises(InputError, match="problem_pattern"):
        split("no marker<extra_0>", r"serve.problem_pattern='(?P<problem>.*?)\n###\n'")


def test_the_last_step_1_ahead_of_the_first_separator_begins_the_steps():
    text = "Compare with Step 1: of the manual. What now? Step 1: a ки Step 1: b ки"
    solution = split(text, separators=("ки",))
    assert solution.problem == "Compare with Step 1: of the manual. What now?"
    assert solution.steps == ("Step 1: a", "Step 1: b")


def test_a_separator_is_the_first_listed_one_that_the_text_holds():
    solution = split("p\n\na \n\n\n\n\nb \n\n\n\n\n", separators=("ки", "\n\n\n\n\n"))
    assert (solution.problem, solution.steps) == ("p", ("a", "b"))


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("serve.problem_pattern='('", "regular expression"),
        ("serve.problem_pattern='x'", "group named problem"),
        ("serve.openr_separators=[]", "separator"),
        ("serve.separator=''", "serve.separator"),
        ("serve.queue=0", "serve.queue"),
        ("serve.quue=1", "did you mean 'queue'"),
    ],
)
def test_a_wrong_setting_is_one_line(override, said):
    with pytest.raises(ConfigError, match=said):
        load_config("scripted", [override])


def test_the_digest_does_not_see_how_the_judge_is_served():
    assert load_config("scripted").digest() == load_config("scripted", ["serve.queue=3"]).digest()


def test_pooling_answers_as_a_vllm_pooling_prm_does(service):
    texts = [CHATML.format(p=PROBLEM, a=a, b=b) for a, b in (STEPS, reversed(STEPS))]
    answer = service.post("/pooling", {"model": "Qwen/Qwen2.5-Math-PRM-7B", "input": texts}).json()
    assert set(answer) == {"id", "object", "created", "model", "data", "usage"}
    assert (answer["object"], answer["model"]) == ("list", "scripted")
    assert [(row["index"], row["object"]) for row in answer["data"]] == [(0, "pooling"), (1, "pooling")]
    scores = service.post("/v1/score", [{"problem": PROBLEM, "steps": s} for s in (STEPS, STEPS[::-1])]).json()
    for row, score in zip(answer["data"], scores, strict=True):
        assert row["data"] == [[1 - reward, reward] for reward in score["rewards"]]
    assert answer["usage"]["total_tokens"] == sum(
        answer["usage"][f"{kind}_tokens"] for kind in ("prompt", "completion")
    )
    (one,) = service.post("/pooling", {"input": texts[0]}).json()["data"]
    assert one == answer["data"][0]


def test_pooling_takes_messages_and_message_parts(service):
    plain = {"role": "assistant", "content": "".join(f"{step}<extra_0>" for step in STEPS)}
    parts = {"role": "assistant", "content": [{"type": "text", "text": plain["content"]}]}
    asked = [{"role": "system", "content": "s"}, {"role": "user", "content": PROBLEM}]
    answers = [service.post("/pooling", {"messages": [*asked, said]}).json()["data"] for said in (plain, parts)]
    rewards = service.post("/v1/score", {"problem": PROBLEM, "steps": STEPS}).json()["rewards"]
    assert answers[0] == answers[1]
    assert answers[0][0]["data"] == [[1 - reward, reward] for reward in rewards]


def test_the_worker_answers_a_list_for_a_text_and_lists_for_texts(service):
    text = f"{PROBLEM} Step 1: {STEPS[0]} ки\nStep 2: {STEPS[1]} ки"
    one = service.post("/worker_value_inference", {"input_str": text}).json()
    many = service.post("/worker_value_inference", {"input_str": [text, text, text]}).json()
    assert one["input"] == text
    assert len(one["value"]) == 2
    assert all(0 <= value <= 1 for value in one["value"])
    assert one["value"][1] < 0.5 < one["value"][0]
    assert many == {"input": [text] * 3, "value": [one["value"]] * 3}


def test_steps_after_an_early_stop_are_an_error_where_null_has_no_place(start):
    service = start("verify.early_stop=true")
    error = service.post("/pooling", {"input": "p\n\n1 + 1 = 3<extra_0>2 + 2 = 4<extra_0>"}).json()["error"]
    assert (error["type"], error["step"]) == ("unscored", 1)
    assert "early_stop" in error["reason"]
    score = service.post("/v1/score", {"problem": "p", "steps": ["1 + 1 = 3", "2 + 2 = 4"]}).json()
    assert (len(score["rewards"]), score["stopped_early"]) == (1, True)


def test_the_controller_gives_its_own_address_and_those_of_workers_that_registered(start):
    service = start("sandbox.kind=off")
    ask = {"model": "policy"}
    assert service.post("/get_worker_address", ask).json() == {"address": service.url}
    worker = {"worker_name": "http://10.0.0.5:30010", "worker_status": {"model_names": ["policy"]}}
    assert service.post("/receive_heart_beat", {"worker_name": worker["worker_name"]}).json() == {"exist": False}
    assert service.post("/register_worker", worker).json() is None
    assert service.post("/receive_heart_beat", {"worker_name": worker["worker_name"]}).json() == {"exist": True}
    assert service.post("/get_worker_address", ask).json() == {"address": worker["worker_name"]}
    assert service.post("/get_worker_address", {"model": "other"}).json() == {"address": service.url}
    assert service.post("/worker_get_status", {}).json() == {"model_names": ["scripted"], "speed": 1, "queue_length": 0}


def test_no_worker_can_take_the_judges_own_name(start):
    service = start("sandbox.kind=off")
    service.post("/register_worker", {"worker_name": "http://x:1", "worker_status": {"model_names": ["scripted"]}})
    assert service.post("/get_worker_address", {"model": "scripted"}).json() == {"address": service.url}


def test_a_silent_worker_is_forgotten_and_one_without_heart_beat_is_not(monkeypatch):
    now = 100.0
    monkeypatch.setattr("genprm.serve.openr.time.monotonic", lambda: now)
    workers = Workers()
    workers.register("http://a", ("m",), True)
    workers.register("http://b", ("n",), False)
    now += EXPIRES_SECONDS - 1
    assert workers.beat("http://a")
    now += EXPIRES_SECONDS + 1
    assert (workers.address("m"), workers.address("n")) == (None, "http://b")
    assert not workers.beat("http://a")


def test_defaults_are_the_separators_of_the_scalar_prms():
    assert (ServeConfig().separator, ServeConfig().openr_separators[:2]) == ("<extra_0>", ("ки", "\n\n\n\n\n"))
