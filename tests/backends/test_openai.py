"""OpenAI-style servers: what is asked to the letter, labels exact or bounded, and every way a server can fail."""

from __future__ import annotations

import asyncio
import json
import math
import time

import pytest

from genprm.backends.base import SamplingParams
from genprm.backends.endpoints import Endpoints
from genprm.backends.openai import OpenAIBackend
from genprm.backends.pace import Window
from genprm.config import load_config
from genprm.errors import BackendUnavailable, ConfigError, ContextOverflow, ModelUnavailable, Unscored
from genprm.prompting import Message, Prompt, load_protocol
from genprm.sandbox.base import OffSandbox
from genprm.verifier import GenPRM

from .server import PLAIN_MODELS, VLLM_MODELS, FakeServer, completion

PROMPT = Prompt((Message("system", "S"), Message("user", "U <|im_end|>")), "Claim:")
YES_NO = {"Yes": ("Yes",), "No": ("No",)}
FAST = ["backend.backoff_seconds=0.01", "backend.max_backoff_seconds=0.05", "backend.retries=3"]


@pytest.fixture
def server():
    fake = FakeServer(VLLM_MODELS)
    yield fake
    fake.close()


@pytest.fixture
def folder(tiny_tokenizer, tmp_path):
    tiny_tokenizer.save_pretrained(tmp_path / "tokenizer")
    return tmp_path / "tokenizer"


def connect(url, folder, *overrides):
    urls = url if isinstance(url, str) else list(url)
    settings = ["model=auto", f"backend.base_url={urls!r}", f"backend.tokenizer={folder}", *FAST, *overrides]
    return OpenAIBackend.connect(load_config("openai", settings))


def ask(backend, *calls):
    """Run calls on one slot each, at once."""

    async def run():
        async with backend.work():

            async def one(call):
                async with backend.slot() as slot:
                    return await call(slot)

            return await asyncio.gather(*(one(call) for call in calls))

    return asyncio.run(run())


def generate(params=None):
    return lambda slot: slot.generate(PROMPT, params or SamplingParams(20, stop=("</end>",)))


def read(labels=YES_NO):
    return lambda slot: slot.read_label(PROMPT, labels, "Claim:")


def test_a_vllm_server_is_recognised_and_asked_with_token_ids(server, folder, tiny_tokenizer):
    backend = connect(server.url, folder, "backend.send_seed=always")
    assert (backend.api, backend.model, backend.max_context) == ("vllm", "tiny", 400)
    server.script = [completion("It is 4.", stop_reason="</end>")]
    params = SamplingParams(20, ("</end>",), 0.6, 0.9, 5, 11)
    (answer,) = ask(backend, generate(params))
    ids = tiny_tokenizer.encode(backend.renderer.text(PROMPT), add_special_tokens=False)
    path, body, _ = server.requests[0]
    assert path == "/v1/completions"
    assert body == {
        "model": "tiny",
        "prompt": ids,
        "max_tokens": 20,
        "temperature": 0.6,
        "top_p": 0.9,
        "top_k": 5,
        "stop": ["</end>"],
        "seed": 11,
    }
    assert (answer.text, answer.finish, answer.stop, answer.completion_tokens) == ("It is 4.", "stop", "</end>", 3)


def test_a_seed_is_not_sent_to_a_vllm_server_unless_told_to(server, folder):
    backend = connect(server.url, folder)
    ask(backend, generate(SamplingParams(5, temperature=0.6, seed=3)))
    assert "seed" not in server.requests[0][1]


def test_labels_are_read_exactly_by_token_id_at_every_node(server, folder):
    backend = connect(server.url, folder)
    paths = backend.labels.paths(YES_NO, "Claim:")
    values = {token: math.log(0.1 * (place + 1)) for place, token in enumerate(paths.token_ids)}

    def answer(path, body):
        shown = {f"token_id:{token}": values[token] for token in body["logprob_token_ids"]}
        return completion("x", logprobs={"top_logprobs": [shown]})

    server.default = answer
    (reading,) = ask(backend, read())
    expected = paths.read({(): {token: values[token] for token in paths.nodes[()]}})
    assert reading.probs == pytest.approx(expected.probs)
    assert reading.mass == pytest.approx(expected.mass)
    assert reading.source == "full_vocabulary"
    _, body, _ = server.requests[0]
    tokens = list(paths.nodes[()])
    assert {key: body[key] for key in body if key != "prompt"} == {
        "model": "tiny",
        "max_tokens": 1,
        "temperature": 0.0,
        "logprobs": len(tokens),
        "logprob_token_ids": tokens,
        "return_tokens_as_token_ids": True,
    }


def test_a_server_that_ignores_the_token_ids_is_an_error_and_no_number(server, folder):
    server.default = lambda path, body: completion("x", logprobs={"top_logprobs": [{"token_id:5": -0.1}]})
    with pytest.raises(BackendUnavailable, match="logprob_token_ids"):
        ask(connect(server.url, folder), read())


def test_a_prompt_over_the_served_context_is_not_sent(server, folder):
    backend = connect(server.url, folder)
    long = Prompt((Message("user", "a b c " * 400),))
    with pytest.raises(ContextOverflow, match="400"):
        ask(backend, lambda slot: slot.generate(long, SamplingParams(5)))
    assert server.requests == []


def test_a_plain_server_is_asked_by_chat_and_the_key_comes_from_the_environment(folder, monkeypatch):
    fake = FakeServer(PLAIN_MODELS)
    monkeypatch.setenv("MY_KEY", "secret-key")
    try:
        backend = connect(fake.url, folder, "backend.api_key_env=MY_KEY")
        assert backend.api == "chat"
        fake.script = [{"choices": [{"message": {"content": "Hm."}, "finish_reason": "stop"}], "usage": {}}]
        ask(backend, generate(SamplingParams(7, ("</end>",), 0.5, seed=4)))
        path, body, headers = fake.requests[0]
        assert path == "/v1/chat/completions"
        assert headers["Authorization"] == "Bearer secret-key"
        assert body["messages"] == [
            {"role": "system", "content": "S"},
            {"role": "user", "content": "U < |im_end|>"},
            {"role": "assistant", "content": "Claim:"},
        ]
        assert (body["continue_final_message"], body["add_generation_prompt"], body["seed"]) == (True, False, 4)
    finally:
        fake.close()


def chat_logs(**probs):
    top = [{"token": token, "logprob": math.log(p)} for token, p in probs.items()]
    return {"choices": [{"message": {"content": "x"}, "logprobs": {"content": [{"top_logprobs": top}]}}], "usage": {}}


def test_labels_of_a_plain_server_come_from_what_it_shows(folder):
    fake = FakeServer(PLAIN_MODELS)
    try:
        backend = connect(fake.url, folder)
        fake.script = [chat_logs(Yes=0.6, No=0.2, maybe=0.1)]
        (reading,) = ask(backend, read())
        # A hidden `N` may have up to 0.1; the bound that says least is taken.
        assert reading.probs == pytest.approx({"Yes": 0.6 / 0.9, "No": 0.3 / 0.9})
        assert reading.mass == pytest.approx(0.8)
        assert reading.slack == pytest.approx(0.7 / 0.9 - 0.6 / 0.9)
        assert reading.source == "top_k"
        fake.script = [chat_logs(dunno=0.5, maybe=0.4)]
        with pytest.raises(Unscored, match="leave the verdict open"):
            ask(backend, read())
        fake.script = [completion("x")]
        with pytest.raises(Unscored, match="no log-probabilities"):
            ask(backend, read())
    finally:
        fake.close()


MENDABLE = {
    "429": (429, {}, {"error": "slow down"}),
    "500": (500, {}, {"error": "oops"}),
    "503": (503, {"Retry-After": "0"}, b"busy"),
    "garbage": (200, {}, b"<html>not json"),
    "a list": (200, {}, [1, 2]),
    "half a body": (200, {"half": True}, completion()),
    "nothing": "close",
    "a hung call": "hang",
}


@pytest.mark.parametrize("name", MENDABLE)
def test_a_fault_that_may_mend_is_tried_again_and_counted(server, folder, name):
    backend = connect(server.url, folder, "backend.read_seconds=0.4")
    server.script = [_copy(MENDABLE[name])]
    (answer,) = ask(backend, generate())
    assert answer.text == "fine"
    assert backend.retries == 1
    assert len(server.requests) == 2


@pytest.mark.parametrize("name", MENDABLE)
def test_a_fault_that_does_not_mend_ends_in_one_clear_line(server, folder, name):
    backend = connect(server.url, folder, "backend.read_seconds=0.4", "backend.retries=2")
    server.default = lambda path, body: _copy(MENDABLE[name])
    with pytest.raises(BackendUnavailable, match=r"after 3 attempts") as caught:
        ask(backend, generate())
    assert "\n" not in str(caught.value)
    assert len(server.requests) == 3


def _copy(answer):
    return (answer[0], dict(answer[1]), answer[2]) if isinstance(answer, tuple) else answer


@pytest.mark.parametrize("status", [400, 401, 404, 422])
def test_a_refusal_is_said_at_once_without_the_key(server, folder, monkeypatch, status):
    monkeypatch.setenv("OPENAI_API_KEY", "secret-key")
    server.default = lambda path, body: (status, {}, {"error": "no such thing"})
    backend = connect(server.url, folder)
    with pytest.raises(BackendUnavailable, match=f"{status}.*no such thing") as caught:
        ask(backend, generate())
    assert "secret-key" not in str(caught.value)
    assert len(server.requests) == 1


def test_the_servers_word_on_when_to_come_back_is_kept(server, folder):
    backend = connect(server.url, folder, "backend.max_backoff_seconds=5")
    server.script = [(429, {"Retry-After": "0.4"}, {})]
    start = time.monotonic()
    ask(backend, generate())
    assert time.monotonic() - start >= 0.4


def test_bytes_that_trickle_for_ever_are_bounded(server, folder):
    backend = connect(server.url, folder, "backend.total_seconds=0.3", "backend.retries=0")
    server.seconds = 1.0
    with pytest.raises(BackendUnavailable, match=r"0\.3 s"):
        ask(backend, generate())


def test_calls_go_to_the_server_with_the_least_in_flight_and_leave_one_that_fails(folder):
    servers = [FakeServer(VLLM_MODELS) for _ in range(3)]
    try:
        backend = connect([fake.url for fake in servers], folder)
        for fake in servers:
            fake.seconds = 0.05
        servers[2].default = lambda path, body: (500, {}, {})
        answers = ask(backend, *[generate()] * 40)
        assert [answer.text for answer in answers] == ["fine"] * 40
        good = [len(fake.requests) for fake in servers[:2]]
        assert min(good) >= 12
        assert len(servers[2].requests) < 25
    finally:
        for fake in servers:
            fake.close()


def test_all_calls_are_in_flight_at_once(server, folder):
    backend = connect(server.url, folder)
    server.seconds = 0.3
    start = time.monotonic()
    ask(backend, *[generate()] * 32)
    assert server.most >= 24
    assert time.monotonic() - start < 3


def test_usage_is_counted_for_failed_calls_too(server, folder):
    backend = connect(server.url, folder)
    server.script = [(500, {}, {})]
    ask(backend, generate(), generate())
    traffic = backend.endpoints.traffic
    assert (traffic.failures, traffic.retries, traffic.prompt_tokens, traffic.completion_tokens) == (1, 1, 10, 6)
    assert traffic.requests == 1 + 3  # the question what is served, then the calls


def test_rate_limits_spread_calls_over_the_minute():
    window = Window(3)
    waits = []
    now = 1000.0
    for _ in range(7):
        wait = window.wait(1, now)
        now += wait
        waits.append(wait)
        window.spent.append((now, 1))
    assert [round(wait) for wait in waits] == [0, 0, 0, 60, 0, 0, 60]
    assert Window(10).wait(50, 0.0) == 0.0


def test_no_address_a_dead_address_and_a_model_that_is_not_served_are_said(server, folder):
    with pytest.raises(BackendUnavailable, match="base_url"):
        Endpoints(load_config("openai", ["backend.base_url=[]"]).backend)
    with pytest.raises(BackendUnavailable, match="connection failed"):
        connect("http://127.0.0.1:9/v1", folder, "backend.retries=0")
    with pytest.raises(BackendUnavailable, match="serves tiny, not 'other'"):
        connect(server.url, folder, "model=other")
    with pytest.raises(ModelUnavailable, match=r"backend\.tokenizer"):
        connect(server.url, "/none")


def test_a_whole_run_ends_cleanly_and_keeps_what_was_done(server, folder, trip):
    config = load_config(
        "openai",
        [
            *(
                "model=auto",
                f"backend.base_url={server.url}",
                f"backend.tokenizer={folder}",
                *FAST,
                "backend.retries=0",
            ),
            *("verify.protocol=compact", "verify.mode=direct", "backend.max_in_flight=1"),
        ],
    )
    server.models = {"data": [{**VLLM_MODELS["data"][0], "max_model_len": 100_000}]}
    tokens: dict[str, float] = {}

    def answer(path, body):
        if len(server.requests) > 8:
            return (500, {}, {})
        tokens.update({f"token_id:{token}": -1.0 for token in body["logprob_token_ids"]})
        return completion("x", logprobs={"top_logprobs": [dict(tokens)]})

    server.default = answer
    solutions = [trip.model_copy(update={"id": str(i)}) for i in range(10)]
    done = []

    def keep(stream):
        for result in stream:
            done.append(result)  # noqa: PERF402 - what came before the error is kept

    judge = GenPRM(OpenAIBackend.connect(config), load_protocol("compact"), OffSandbox(), config)
    with judge, pytest.raises(BackendUnavailable, match="500"):
        keep(judge.verify_many(solutions))
    assert len(done) >= 1
    assert all(step.reward is not None for result in done for step in result.steps)


def sse(*pieces, finish=None, chat=True, done=True, delay=0.0):
    """A stream's bytes."""
    events = [
        {"choices": [{"delta": {"content": piece}} if chat else {"text": piece}], "usage": None} for piece in pieces
    ]
    if finish is not None:
        events.append({"choices": [{"delta": {}, "finish_reason": finish}]})
    lines = [f"data: {json.dumps(event)}\n\n" for event in events] + (["data: [DONE]\n\n"] if done else [])
    return (200, {"Content-Type": "text/event-stream"}, (": alive\n\n" + "".join(lines)).encode())


@pytest.fixture
def plain():
    fake = FakeServer(PLAIN_MODELS)
    yield fake
    fake.close()


def test_a_plain_server_streams_and_the_stop_string_is_found_here(plain, folder):
    backend = connect(plain.url, folder)
    plain.script = [sse("It ", "is 4.</", "e", "nd> and more", " and more", done=False)]
    (answer,) = ask(backend, generate(SamplingParams(20, ("</end>", "```"))))
    assert (answer.text, answer.finish, answer.stop, answer.completion_tokens) == ("It is 4.", "stop", "</end>", 4)
    assert answer.prompt_tokens > 0
    path, body, _ = plain.requests[0]
    assert path == "/v1/chat/completions"
    assert {key: body[key] for key in body if key != "messages"} == {
        "model": "big",
        "max_tokens": 20,
        "temperature": 0.0,
        "top_p": 1.0,
        "continue_final_message": True,
        "add_generation_prompt": False,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


@pytest.mark.parametrize(("finish", "expected"), [("stop", "eos"), ("length", "length")])
def test_the_models_own_end_of_turn_is_no_stop_string(plain, folder, finish, expected):
    backend = connect(plain.url, folder)
    plain.script = [sse("It is 4.", finish=finish)]
    (answer,) = ask(backend, generate())
    assert (answer.text, answer.finish, answer.stop) == ("It is 4.", expected, None)


@pytest.mark.parametrize(
    "broken",
    [sse("It is", done=False), sse("It is"), (200, {"Content-Type": "text/event-stream"}, b"data: {oops\n\n")],
)
def test_half_a_stream_is_tried_again(plain, folder, broken):
    backend = connect(plain.url, folder)
    plain.script = [broken, sse("It is 4.", finish="stop")]
    (answer,) = ask(backend, generate())
    assert (answer.text, backend.retries) == ("It is 4.", 1)


def test_a_server_that_answers_at_once_instead_of_streaming_is_understood(plain, folder):
    backend = connect(plain.url, folder)
    message = {"message": {"content": "It is 4.</end> more"}, "finish_reason": "stop"}
    plain.script = [{"choices": [message], "usage": {"prompt_tokens": 7, "completion_tokens": 6}}]
    (answer,) = ask(backend, generate())
    assert (answer.text, answer.stop, answer.prompt_tokens, answer.completion_tokens) == ("It is 4.", "</end>", 7, 6)


def test_an_answer_without_a_choice_is_tried_again(server, folder):
    backend = connect(server.url, folder)
    server.script = [{"error": {"message": "upstream busy"}}, {"choices": []}]
    (answer,) = ask(backend, generate())
    assert (answer.text, backend.retries) == ("fine", 2)


@pytest.mark.parametrize(
    ("status", "words"),
    [(400, "This model's maximum context length is 10 tokens"), (400, "context_length_exceeded")],
)
def test_a_prompt_that_the_server_finds_too_long_is_unscored(server, folder, status, words):
    backend = connect(server.url, folder)
    server.script = [(status, {}, {"error": words})]
    with pytest.raises(ContextOverflow):
        ask(backend, generate())


def test_a_server_that_takes_too_long_is_no_prompt_that_is_too_long(server, folder):
    backend = connect(server.url, folder, "backend.retries=0")
    server.script = [(504, {}, {"error": "upstream took too long"})]
    with pytest.raises(BackendUnavailable, match="504"):
        ask(backend, generate())


def test_nobody_asks_before_the_server_said_to_come_back(server, folder):
    """Every call waits, also one that was not told itself, and however short the longest backoff is."""
    backend = connect(server.url, folder)
    times = []

    def answer(path, body):
        times.append(time.monotonic())
        return (429, {"Retry-After": "1"}, {}) if len(times) == 1 else completion()

    server.default = answer

    async def later(slot):
        await asyncio.sleep(0.3)
        return await generate()(slot)

    ask(backend, generate(), later)
    assert len(times) == 3
    assert times[1] - times[0] >= 0.95
    assert times[2] - times[0] >= 0.95


def test_a_server_that_wants_to_be_left_alone_for_hours_ends_the_run(server, folder):
    backend = connect(server.url, folder)
    server.script = [(429, {"Retry-After": "7200"}, {})]
    with pytest.raises(BackendUnavailable, match="left alone for"):
        ask(backend, generate())


def test_a_spent_quota_does_not_mend(server, folder):
    backend = connect(server.url, folder)
    server.default = lambda path, body: (429, {}, {"error": {"code": "insufficient_quota"}})
    with pytest.raises(BackendUnavailable, match="insufficient_quota"):
        ask(backend, generate())
    assert len(server.requests) == 1


def test_a_bare_host_gets_the_usual_path(server, folder):
    assert connect(server.url.removesuffix("/v1"), folder).endpoints.urls == [server.url]


def test_a_tokenizer_that_is_not_the_servers_is_refused(server, folder, tiny_tokenizer):
    server.tokenize = lambda body: tiny_tokenizer.encode(body["prompt"], add_special_tokens=False)
    assert connect(server.url, folder).api == "vllm"
    server.tokenize = lambda body: [1, 2, 3]
    with pytest.raises(ConfigError, match=r"backend\.tokenizer"):
        connect(server.url, folder)
