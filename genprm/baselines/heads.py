"""Loading discriminative PRMs without running the code that comes with a checkpoint.

Knows weights' names. The published `Qwen2ForProcessRewardModel` is a plain decoder and a head of two layers,
`score.0`, ReLU, `score.2`; other checkpoints have one linear layer. A head that the checkpoint does not hold is an
error: transformers would fill it with random numbers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..backends.loading import from_where, load_model, reading
from ..config import BackendConfig
from ..errors import ConfigError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

CLASSES = 2


def architectures(source: str) -> list[str]:
    """The classes that a checkpoint's config names.

    Raises:
        ModelUnavailable: there is no config to read.
    """
    from transformers import PretrainedConfig

    with reading(source):
        raw, _ = PretrainedConfig.get_config_dict(source, **from_where())
    return list(raw.get("architectures") or [])


def load_classifier(
    source: str, kinds: Sequence[str], config: BackendConfig, name: str
) -> tuple[PreTrainedModel, torch.nn.Module]:
    """A model that gives hidden states, and its head from a hidden state to two logits.

    Args:
        source: a folder or hub id.
        kinds: what its config names as its classes.
        config: device and number format.
        name: what to call the model in errors.

    Raises:
        ModelUnavailable: the files cannot be read, or lack weights.
        ConfigError: there is no head, or it has another number of classes.
    """
    from transformers import AutoModel, AutoModelForTokenClassification

    if any(kind.endswith("ForTokenClassification") for kind in kinds):
        model: Any = load_model(AutoModelForTokenClassification, source, config, needed=("score.", "classifier."))
        _check_classes(model.config.num_labels, name)
        head = model.score if hasattr(model, "score") else model.classifier
        return model.base_model, head
    head = _head(_score_tensors(source), name, kinds)
    return load_model(AutoModel, source, config, needed=("",)), head


def _check_classes(found: int, name: str) -> None:
    if found != CLASSES:
        raise ConfigError(f"the model {name!r} has a head of {found} classes; a step is judged by one of {CLASSES}")


def _head(weights: dict[str, torch.Tensor], name: str, kinds: Sequence[str]) -> torch.nn.Module:
    """One or two linear layers with the weights of that name."""
    import torch

    two = "score.2.weight" in weights
    names = ["score.0", "score.2"] if two else ["score"]
    if any(f"{layer}.weight" not in weights for layer in names):
        what = ", ".join(kinds) or "no architecture"
        raise ConfigError(f"the model {name!r} ({what}) has no head that judges steps: there are no weights 'score.*'")
    layers = []
    for layer in names:
        weight, bias = weights[f"{layer}.weight"], weights.get(f"{layer}.bias")
        linear = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
        linear.load_state_dict({"weight": weight, **({} if bias is None else {"bias": bias})})
        layers.append(linear)
    _check_classes(layers[-1].out_features, name)
    return torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1]) if two else layers[0]


def _score_tensors(source: str) -> dict[str, torch.Tensor]:
    """The tensors of a checkpoint whose names begin with `score.`."""
    from safetensors import safe_open
    from transformers.utils import cached_file

    single, many = "model.safetensors", "model.safetensors.index.json"
    found = {}
    with reading(source):
        index = cached_file(source, many, _raise_exceptions_for_missing_entries=False, **_local())
        files = {single}
        if index is not None:
            by_name = json.loads(Path(index).read_text(encoding="utf-8"))["weight_map"]
            files = {file for tensor, file in by_name.items() if tensor.startswith("score.")}
        for file in sorted(files):
            with safe_open(cached_file(source, file, **_local()), "pt") as tensors:
                names = [name for name in list(tensors.keys()) if name.startswith("score.")]
                found.update({name: tensors.get_tensor(name) for name in names})
    return found


def _local() -> dict[str, Any]:
    return {key: value for key, value in from_where().items() if key == "local_files_only"}
