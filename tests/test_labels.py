"""Label probabilities: outlines' constraint, every token path, checked against brute force and masked sampling."""

from __future__ import annotations

import itertools
import math

import pytest

from genprm.errors import ProtocolError
from genprm.labels import LabelPaths, LabelReader, encode

YES_NO = {"Yes": ("Yes",), "No": ("No",)}


def plain_log_probs(model, ids):
    """Full-vocabulary log-probabilities after `ids` by one plain forward pass without cache or padding."""
    import torch

    with torch.inference_mode():
        return torch.log_softmax(model(torch.tensor([ids])).logits[0, -1].double(), dim=-1)


def brute_force(model, tokenizer, ids, labels):
    """Every token path that spells a label, weighted by the masked distribution at each position."""
    texts = {token: tokenizer.decode([token]) for token in range(len(tokenizer))}
    spellings = [(label, text) for label, options in labels.items() for text in options]
    probs = dict.fromkeys(labels, 0.0)

    def allowed(written):
        return [t for t, s in texts.items() if s and any(text.startswith(written + s) for _, text in spellings)]

    def walk(path, written, weight):
        for label, text in spellings:
            if written == text:
                probs[label] += weight
                return
        logs = plain_log_probs(model, ids + path)
        here = {token: math.exp(logs[token]) for token in allowed(written)}
        for token, p in here.items():
            walk([*path, token], written + texts[token], weight * p / sum(here.values()))

    walk([], "", 1.0)
    root = plain_log_probs(model, ids)
    return probs, sum(math.exp(root[token]) for token in allowed(""))


def read_with(backend_engine, paths, ids):
    import numpy as np

    (logs,) = backend_engine.read_nodes([np.asarray(ids, dtype=np.int64)], [paths.nodes])
    return paths.read(logs)


@pytest.fixture(scope="module")
def tiny_engine(tiny_model, tiny_tokenizer):
    from genprm.backends.engine import Engine

    return Engine(
        tiny_model, tiny_tokenizer, prefix_bytes=2**24, prefill_tokens=512, end_tokens=[tiny_tokenizer.eos_token_id]
    )


@pytest.mark.parametrize(
    "labels",
    [
        YES_NO,
        {"correct": ("correct}", "\\text{correct}"), "incorrect": ("incorrect}", "\\text{incorrect}")},
        {str(index): (f"{index}}}",) for index in range(-1, 25)},
    ],
    ids=["yes-no", "boxed-words", "first-error-of-25"],
)
@pytest.mark.parametrize("text", ["the step is correct?", "Is the step {", "a b c $\\boxed{"])
def test_label_probabilities_equal_brute_force_over_all_token_paths(
    tiny_model, tiny_tokenizer, tiny_engine, labels, text
):
    ids = encode(tiny_tokenizer, text)
    reading = read_with(tiny_engine, LabelReader(tiny_tokenizer).paths(labels, "{"), ids)
    expected, mass = brute_force(tiny_model, tiny_tokenizer, ids, labels)
    assert reading.probs == pytest.approx(expected, abs=1e-5)
    assert sum(reading.probs.values()) == pytest.approx(1, abs=1e-9)
    assert reading.mass == pytest.approx(mass, abs=1e-5)


def test_label_probabilities_equal_what_outlines_masked_sampling_draws_from(tiny_model, tiny_tokenizer, tiny_engine):
    """The first token's distribution after outlines' own logits processor has masked the logits."""
    from typing import Literal

    import outlines
    import torch

    ids = encode(tiny_tokenizer, "the step is correct?{")
    model = outlines.from_transformers(tiny_model, tiny_tokenizer)
    processor = outlines.Generator(model, Literal["Yes", "No"]).logits_processor
    with torch.inference_mode():
        logits = tiny_model(torch.tensor([ids])).logits[:, -1].clone()
        masked = processor(torch.tensor([ids]), logits)
    drawn = torch.softmax(masked[0].double(), dim=-1)
    expected = {"Yes": 0.0, "No": 0.0}
    for token in torch.nonzero(drawn)[:, 0].tolist():
        expected["Yes" if "Yes".startswith(tiny_tokenizer.decode([token])) else "No"] += float(drawn[token])
    reading = read_with(tiny_engine, LabelReader(tiny_tokenizer).paths(YES_NO, "{"), ids)
    assert reading.probs == pytest.approx(expected, abs=1e-5)


def test_prefix_tokens_of_a_label_are_summed(tiny_tokenizer):
    paths = LabelReader(tiny_tokenizer).paths(YES_NO, "{")
    first = {tiny_tokenizer.decode([token]): label for token, label in paths.nodes[()].items()}
    assert first["Y"] == first["Yes"] == "Yes"
    assert first["N"] == first["No"] == "No"
    assert set(first) <= {"Y", "Ye", "Yes", "N", "No"}


def test_numbers_that_begin_alike_are_told_apart_by_what_ends_them(tiny_tokenizer):
    paths = LabelReader(tiny_tokenizer).paths({str(i): (f"{i}}}",) for i in range(-1, 12)}, "{")
    after_one = next(choices for path, choices in paths.nodes.items() if path and tiny_tokenizer.decode(path) == "1")
    assert {"1", "10", "11"} <= set(after_one.values())


def test_labels_one_of_which_begins_another_are_refused(tiny_tokenizer):
    with pytest.raises(ProtocolError, match="beginning"):
        LabelReader(tiny_tokenizer).paths({"a": ("1",), "b": ("10",)}, "{")


def test_a_boundary_that_joins_with_the_label_is_a_loud_error_that_names_the_tokens():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocab = {token: number for number, token in enumerate(["<s>", "?", "Ġ", "Y", "e", "s", "N", "o", "ĠY"])}
    core = Tokenizer(models.BPE(vocab=vocab, merges=[("Ġ", "Y")]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<s>")
    with pytest.raises(ProtocolError, match=r"'Ġ'.*'ĠY'"):
        LabelReader(tokenizer).paths(YES_NO, "? ")
    assert LabelReader(tokenizer).paths(YES_NO, "?").labels == ("Yes", "No")


def test_special_tokens_spelled_like_a_label_do_not_count(tiny_tokenizer):
    import copy

    tokenizer = copy.deepcopy(tiny_tokenizer)
    tokenizer.add_special_tokens({"additional_special_tokens": ["Ye"]})
    forged = tokenizer.convert_tokens_to_ids("Ye")
    assert forged not in LabelReader(tokenizer).paths(YES_NO, "{").token_ids


def test_reading_survives_logits_that_vanish_in_double_precision():
    paths = LabelPaths(("Yes", "No"), {(): {1: "Yes", 2: "No"}})
    reading = paths.read({(): {1: -1000.0, 2: -1001.0}})
    assert reading.probs["Yes"] == pytest.approx(1 / (1 + math.exp(-1)))
    assert reading.mass == 0.0


@pytest.mark.model
def test_label_probabilities_of_the_embedded_model_equal_a_plain_forward_pass(embedded_backend):
    engine, tokenizer = embedded_backend.engine, embedded_backend.renderer.tokenizer
    texts = ["2 + 2 = 4. Is the step correct?", "2 + 2 = 5. Is the step correct?", "The sky is a kind of soup. True?"]
    labels = {"Yes": (" Yes",), "No": (" No",)}
    paths = LabelReader(tokenizer).paths(labels, "correct?")
    pieces = {
        token: tokenizer.decode([token]) for token in range(len(tokenizer)) if token not in tokenizer.all_special_ids
    }
    starts = {token: piece for token, piece in pieces.items() if piece.strip() and " Yes No".find(piece) in (0, 4)}
    for text, other in itertools.pairwise([*texts, texts[0]]):
        ids = encode(tokenizer, text)
        read_with(engine, paths, encode(tokenizer, other))  # what is remembered must not change the numbers
        reading = read_with(engine, paths, ids)
        logs = plain_log_probs(engine.model, ids)
        by_label = {"Yes": 0.0, "No": 0.0}
        for token, piece in starts.items():
            for label in by_label:
                if f" {label}".startswith(piece):
                    by_label[label] += math.exp(logs[token])
        # A lone space begins both labels, so it decides nothing and is read one token further on.
        space = tokenizer.convert_tokens_to_ids("Ġ")
        total = sum(by_label.values()) + math.exp(logs[space])
        further = plain_log_probs(engine.model, [*ids, space])
        split = dict.fromkeys(by_label, 0.0)
        for token in paths.nodes[(space,)]:
            split["Yes" if tokenizer.decode([token]).startswith("Y") else "No"] += math.exp(further[token])
        for label, p in by_label.items():
            expected = (p + math.exp(logs[space]) * split[label] / sum(split.values())) / total
            assert reading.probs[label] == pytest.approx(expected, abs=1e-5)
        assert reading.mass == pytest.approx(total, abs=1e-5)
