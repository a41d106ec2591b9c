"""The decoding engine against plain Hugging Face generation: padding, stop strings, seeds, reused keys."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
import torch

from genprm.backends.base import SamplingParams
from genprm.backends.engine import Engine
from genprm.backends.kv import PrefixStore, RowState, common_prefix
from genprm.backends.sampling import sample

GREEDY = SamplingParams(max_tokens=24)


@pytest.fixture
def engine(tiny_model, tiny_tokenizer):
    return Engine(tiny_model, tiny_tokenizer, prefix_bytes=2**26, prefill_tokens=512, end_tokens=[1])


def prompts_of(tokenizer, texts):
    return [np.asarray(tokenizer.encode(text, add_special_tokens=False), dtype=np.int64) for text in texts]


TEXTS = [
    "Is the step correct?",
    "a",
    "the step is a b c 1 2 the step is correct and then some more words follow here",
    "No 1",
]


def hf_greedy(model, tokenizer, ids, count, end):
    with torch.inference_mode():
        out = model.generate(
            torch.tensor([ids.tolist()]),
            attention_mask=torch.ones(1, len(ids), dtype=torch.long),
            max_new_tokens=count,
            do_sample=False,
            eos_token_id=end,
            pad_token_id=tokenizer.pad_token_id,
        )[0, len(ids) :].tolist()
    return tokenizer.decode(out[: out.index(end)] if end in out else out)


def test_a_padded_batch_writes_what_each_prompt_writes_alone(engine, tiny_model, tiny_tokenizer):
    prompts = prompts_of(tiny_tokenizer, TEXTS)
    written = engine.generate(prompts, [GREEDY] * len(prompts))
    for ids, row in zip(prompts, written, strict=True):
        assert row.text == hf_greedy(tiny_model, tiny_tokenizer, ids, 24, 1).rstrip("\ufffd")


@pytest.mark.parametrize("max_batch", [None, 1, 2, 3, 5, 8])
def test_rows_leave_and_enter_the_batch_without_disturbing_the_others(engine, tiny_tokenizer, max_batch):
    prompts = prompts_of(tiny_tokenizer, TEXTS * 2)
    limits = [3, 40, 7, 1, 25, 40, 2, 11]
    together = engine.generate(prompts, [replace(GREEDY, max_tokens=limit) for limit in limits], max_batch)
    for ids, limit, row in zip(prompts, limits, together, strict=True):
        engine.store.clear()
        (alone,) = engine.generate([ids], [replace(GREEDY, max_tokens=limit)])
        assert (row.text, row.tokens, row.finish) == (alone.text, alone.tokens, alone.finish)


def test_continuing_from_remembered_keys_gives_the_logits_of_a_fresh_pass(engine, tiny_model, tiny_tokenizer):
    first = prompts_of(tiny_tokenizer, TEXTS)
    written = engine.generate(first, [GREEDY] * len(first))
    grown = [text + row.text + " the step is correct?" for text, row in zip(TEXTS, written, strict=True)]
    prompts = prompts_of(tiny_tokenizer, grown)
    before = engine.computed_tokens
    with torch.inference_mode():
        states = engine.prefill(prompts)
        for ids, (state, logits) in zip(prompts, states, strict=True):
            plain = tiny_model(torch.tensor([ids.tolist()])).logits[0, -1]
            assert torch.allclose(logits[-1], plain, atol=1e-4)
            assert state.ids.tolist() == ids.tolist()
    reused = sum(len(ids) for ids in prompts) - (engine.computed_tokens - before)
    assert reused > sum(len(ids) for ids in first) * 0.8, "most of each prompt was computed again"


def test_a_long_shared_beginning_is_computed_once(engine, tiny_tokenizer):
    shared = "the step is correct and the step is a b c " * 8
    prompts = prompts_of(tiny_tokenizer, [shared + ending for ending in ("a", "b 1", "c 2 2")])
    with torch.inference_mode():
        engine.prefill(prompts)
    assert engine.computed_tokens < 1.5 * max(len(ids) for ids in prompts)


def test_identical_prompts_are_computed_once_and_sampled_apart(engine, tiny_tokenizer):
    (ids,) = prompts_of(tiny_tokenizer, [TEXTS[2]])
    seeds = [replace(GREEDY, temperature=1.5, seed=seed) for seed in range(6)]
    written = engine.generate([ids] * 6, seeds)
    assert len({row.text for row in written}) > 1


def test_a_seed_gives_the_same_text_in_any_company(engine, tiny_tokenizer):
    prompts = prompts_of(tiny_tokenizer, TEXTS)
    params = [replace(GREEDY, temperature=1.0, top_p=0.9, top_k=30, seed=seed) for seed in range(4)]
    together = engine.generate(prompts, params)
    engine.store.clear()
    backwards = engine.generate(prompts[::-1], params[::-1])[::-1]
    assert [row.text for row in together] == [row.text for row in backwards]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_a_stop_string_ends_the_text_before_it_wherever_tokens_fall(engine, tiny_tokenizer, size):
    prompts = prompts_of(tiny_tokenizer, TEXTS)
    free = engine.generate(prompts, [GREEDY] * len(prompts))
    for ids, row in zip(prompts, free, strict=True):
        for start in range(0, max(len(row.text) - size, 1), 3):
            stop = row.text[start : start + size]
            if not stop or "\ufffd" in stop:
                continue
            (stopped,) = engine.generate([ids], [replace(GREEDY, stop=(stop, "never written"))])
            assert stopped.finish == "stop"
            assert stopped.stop == stop
            assert stopped.text == row.text[: row.text.index(stop)]


def test_the_length_limit_is_said(engine, tiny_tokenizer):
    (row,) = engine.generate(prompts_of(tiny_tokenizer, ["a b c"]), [replace(GREEDY, max_tokens=5)])
    assert (row.finish, row.tokens) in (("length", 5), ("eos", row.tokens))


@pytest.mark.parametrize(
    ("top_k", "top_p", "expected"), [(0, 1.0, {0, 1, 2, 3}), (2, 1.0, {0, 1}), (0, 0.55, {0, 1}), (1, 1.0, {0})]
)
def test_sampling_keeps_to_top_k_and_top_p_and_follows_the_distribution(top_k, top_p, expected):
    logits = torch.log(torch.tensor([0.4, 0.3, 0.2, 0.1]))
    params = SamplingParams(1, temperature=1.0, top_k=top_k, top_p=top_p)
    draw = random.Random(3)
    drawn = [sample(logits, params, draw) for _ in range(4000)]
    assert set(drawn) == expected
    weights = np.array([0.4, 0.3, 0.2, 0.1])[sorted(expected)]
    shares = np.array([drawn.count(token) for token in sorted(expected)]) / len(drawn)
    assert np.abs(shares - weights / weights.sum()).max() < 0.03


def test_temperature_zero_takes_the_likeliest_token():
    assert sample(torch.tensor([0.1, 3.0, 2.9]), SamplingParams(1), random.Random(0)) == 1


def test_the_prefix_store_keeps_to_its_budget_and_forgets_the_oldest():
    def state(*ids):
        keys = [torch.zeros(1, len(ids), 4)]
        return RowState(np.asarray(ids), keys, [tensor.clone() for tensor in keys])

    one = state(1, 2, 3).nbytes
    store = PrefixStore(2 * one)
    for first in (1, 4, 7):
        store.add(state(first, 2, 3))
    assert store.used == 2 * one
    assert store.longest(np.asarray([1, 2, 3, 9])) is None
    found = store.longest(np.asarray([7, 2, 3, 9]))
    assert found is not None
    assert found.ids.tolist() == [7, 2, 3]


def test_the_last_token_of_a_prompt_is_always_computed():
    ids = np.asarray([1, 2, 3])
    store = PrefixStore(10**6)
    store.add(RowState(ids, [torch.zeros(1, 3, 2)], [torch.zeros(1, 3, 2)]))
    found = store.longest(ids)
    assert found is not None
    assert len(found.ids) == 2


def test_common_prefix_counts_equal_leading_ids():
    assert common_prefix(np.asarray([1, 2, 3]), np.asarray([1, 2, 4, 5])) == 2
    assert common_prefix(np.asarray([1, 2]), np.asarray([1, 2, 4])) == 2


@pytest.mark.model
def test_the_embedded_model_writes_in_a_batch_what_plain_generation_writes(embedded_backend):
    engine, renderer = embedded_backend.engine, embedded_backend.renderer
    tokenizer = renderer.tokenizer
    texts = ["The capital of France is", "def add(a, b):\n    return", "One, two, three, four,", "Q: 7 * 8 = ?\nA:"]
    prompts = prompts_of(tokenizer, texts)
    written = engine.generate(prompts, [replace(GREEDY, max_tokens=12)] * len(prompts))
    for ids, row in zip(prompts, written, strict=True):
        assert row.text == hf_greedy(engine.model, tokenizer, ids, 12, tokenizer.eos_token_id)


def test_all_nodes_of_a_label_tree_are_read_in_a_batch_as_one_by_one(engine, tiny_model, tiny_tokenizer):
    prompts = prompts_of(tiny_tokenizer, TEXTS)
    trees = [{(): [5, 6]}, {(): [5], (7,): [8, 9], (7, 8): [1]}, {(): [3], (4,): [1], (5,): [2]}, {(): [9], (3,): [4]}]
    for _ in range(2):  # the second time from remembered keys
        found = engine.read_nodes(prompts, trees)
        for ids, tree, nodes in zip(prompts, trees, found, strict=True):
            assert set(nodes) == set(tree)
            for node, tokens in tree.items():
                with torch.inference_mode():
                    plain = torch.log_softmax(tiny_model(torch.tensor([[*ids.tolist(), *node]])).logits[0, -1], dim=-1)
                assert nodes[node] == pytest.approx({token: float(plain[token]) for token in tokens}, abs=1e-4)


@pytest.mark.model
def test_half_precision_label_reads_recompute_the_output_layer_exactly(embedded_folder):
    """With bfloat16 weights, the label's log-probabilities equal float64 arithmetic on the same hidden state."""
    from genprm.backends.transformers import TransformersBackend
    from genprm.config import BackendConfig

    backend = TransformersBackend.load(embedded_folder, config=BackendConfig(dtype="bfloat16", device="cpu"))
    engine, tokenizer = backend.engine, backend.renderer.tokenizer
    (ids,) = prompts_of(tokenizer, ["2 + 2 = 4. Is the step correct?"])
    tokens = tokenizer.convert_tokens_to_ids(["ĠYes", "ĠNo"])
    logs = engine.read_nodes([ids], [{(): tokens}])[0][()]
    with torch.inference_mode():
        hidden = engine.model.model(torch.tensor([ids.tolist()])).last_hidden_state[0, -1].double()
        exact = torch.log_softmax(engine.model.lm_head.weight.double() @ hidden, dim=-1)
        rounded = torch.log_softmax(engine.model(torch.tensor([ids.tolist()])).logits[0, -1].double(), dim=-1)
    assert logs == pytest.approx({token: float(exact[token]) for token in tokens}, abs=1e-3)
    assert max(abs(float(rounded[token]) - logs[token]) for token in tokens) > 1e-3, "rounding would not be seen here"
    backend.close()
