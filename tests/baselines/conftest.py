"""Checkpoints of two layers with random weights, in the shapes in which real ones are published."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from genprm.types import Solution

SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.3,
}
FLOAT32 = ("backend.dtype=float32", "backend.device=cpu")


@pytest.fixture(scope="session")
def solutions() -> list[Solution]:
    """Of very different lengths, so that a batch of them is mostly padding."""
    long = tuple(f"In line {n} we add {n} apples and {n + 1} pears, which makes {2 * n + 1} fruits." for n in range(6))
    return [
        Solution(id="short", problem="1 + 1?", steps=("1 + 1 = 2.",)),
        Solution(id="long", problem="How many fruits are there in all the lines?", steps=long),
        Solution(id="middle", problem="What is 3 * 4?", steps=("3 * 4 = 13.", "So it is \\boxed{13}."), answer="12"),
    ]


@pytest.fixture(scope="session")
def words(embedded_folder: Path):
    """The embedded model's tokenizer, with further tokens where they are asked for."""
    from transformers import AddedToken, AutoTokenizer

    def make(*added: str):
        tokenizer = AutoTokenizer.from_pretrained(embedded_folder)
        tokenizer.add_tokens([AddedToken(token, normalized=False, special=True) for token in added])
        return tokenizer

    return make


def sizes(tokenizer) -> dict:
    return {**SIZES, "vocab_size": len(tokenizer), "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}


@pytest.fixture(scope="session")
def qwen_state(words):
    """Weights under the names of the published checkpoint, an output layer that nobody needs included."""
    import torch
    from transformers import Qwen2Config, Qwen2Model

    torch.manual_seed(1)
    tokenizer = words("<extra_0>")
    config = Qwen2Config(**sizes(tokenizer), tie_word_embeddings=False)
    state = {f"model.{name}": value for name, value in Qwen2Model(config).state_dict().items()}
    state["lm_head.weight"] = torch.randn(len(tokenizer), 32)
    for layer, shape in (("score.0", (32, 32)), ("score.2", (2, 32))):
        state[f"{layer}.weight"] = torch.randn(shape) / 4
        state[f"{layer}.bias"] = torch.randn(shape[0])
    return config, state


@pytest.fixture(scope="session")
def save_qwen(words, tmp_path_factory):
    """Writes such weights as two files with an index; its config names code of its own, which is not there."""
    from safetensors.torch import save_file

    def save(config, state) -> Path:
        folder = tmp_path_factory.mktemp("qwen")
        config.save_pretrained(folder)
        raw = json.loads((folder / "config.json").read_text())
        raw["architectures"] = ["Qwen2ForProcessRewardModel"]
        raw["auto_map"] = {"AutoModel": "modeling_qwen2_rm.Qwen2ForProcessRewardModel"}
        (folder / "config.json").write_text(json.dumps(raw))
        files = {name: f"model-0000{1 + name.startswith(('score.', 'lm_head'))}-of-00002.safetensors" for name in state}
        for file in set(files.values()):
            part = {name: value.contiguous() for name, value in state.items() if files[name] == file}
            save_file(part, folder / file, metadata={"format": "pt"})
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
        words("<extra_0>").save_pretrained(folder)
        return folder

    return save


@pytest.fixture(scope="session")
def qwen_folder(save_qwen, qwen_state) -> Path:
    return save_qwen(*qwen_state)


@pytest.fixture(scope="session")
def classifier(words, tmp_path_factory):
    """Writes a token classifier as transformers saves it."""
    import torch
    from transformers import LlamaConfig, LlamaForTokenClassification

    def save(labels: int = 2) -> Path:
        torch.manual_seed(2)
        tokenizer = words()
        folder = tmp_path_factory.mktemp("trl")
        model = LlamaForTokenClassification(LlamaConfig(**sizes(tokenizer), num_labels=labels))
        model.score.bias.data = torch.randn(labels)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder

    return save


@pytest.fixture(scope="session")
def trl_folder(classifier) -> Path:
    return classifier()


@pytest.fixture(scope="session")
def causal(words, tmp_path_factory):
    """Writes a causal language model."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    def save(seed: int, tokenizer=None) -> Path:
        torch.manual_seed(seed)
        tokenizer = words() if tokenizer is None else tokenizer
        folder = tmp_path_factory.mktemp("causal")
        LlamaForCausalLM(LlamaConfig(**sizes(tokenizer))).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder

    return save


@pytest.fixture(scope="session")
def llama_tokenizer():
    """Of the kind of Llama and Mistral: a text begins with a space of its own, line breaks are bytes."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    core.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    core.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    trainer = trainers.BpeTrainer(
        vocab_size=450,
        special_tokens=["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))],
        show_progress=False,
    )
    core.train_from_iterator(
        ["Step 1: we add 2 + 3 - 4 = 5 and so on ки"] * 5 + ["How many is it? ки ки + -"] * 5, trainer
    )
    core.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
