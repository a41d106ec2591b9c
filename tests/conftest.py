"""Shared pieces: a tiny model with random weights, and the embedded model for real."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from genprm.types import Solution

TINY_WORDS = ["Yes", "No", "{", "}", "?", "$", "\\boxed", "correct", "Is", "the", "step", "is", "a", "b", "c", "1", "2"]


@pytest.fixture(scope="session")
def tiny_tokenizer():
    """A byte-level BPE tokenizer with a vocabulary of about 330 tokens, trained on a few sentences of ours."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        special_tokens=["<|im_start|>", "<|im_end|>", "<pad>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(
        [" ".join(TINY_WORDS), "Yes No Yes No Yes No", "the step is correct? Yes No"] * 20, trainer
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|im_end|>", pad_token="<pad>")
    tokenizer.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    return tokenizer


@pytest.fixture(scope="session")
def tiny_model(tiny_tokenizer):
    """A two-layer Llama with random weights in float32; its numbers mean nothing and are exact."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tiny_tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=0.3,
        bos_token_id=None,
        eos_token_id=tiny_tokenizer.eos_token_id,
        pad_token_id=tiny_tokenizer.pad_token_id,
    )
    return LlamaForCausalLM(config).eval()


@pytest.fixture(scope="session")
def embedded_folder() -> Path:
    """The embedded model's folder, fetched at first use."""
    from genprm.models import pull

    return pull("smollm2-135m")


@pytest.fixture(scope="session")
def embedded_backend(embedded_folder: Path) -> Iterator[object]:
    """The embedded model in float32, for comparisons to the last digits."""
    from genprm.backends.transformers import TransformersBackend
    from genprm.config import BackendConfig

    backend = TransformersBackend.load(embedded_folder, name="smollm2-135m", config=BackendConfig(dtype="float32"))
    yield backend
    backend.close()


@pytest.fixture
def trip() -> Solution:
    """A small solution whose second step is wrong."""
    return Solution(
        id="trip",
        problem="A class of 24 pupils pays 5 dollars each. How much is that?",
        steps=("There are 24 pupils.", "24 * 5 = 110, so they pay 110 dollars.", "The answer is \\boxed{110}."),
    )
