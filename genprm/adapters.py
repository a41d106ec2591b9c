"""LoRA adapters: added to the weights of the model that they were trained on.

A plain adapter is added here, W + (alpha / r) B A (Hu et al. 2021, arXiv 2106.09685, section 4.1; alpha / sqrt(r) for
rank-stabilised ones), without PEFT, so that judging with one needs nothing that judging does not need. Any other kind
is left to PEFT. Knows adapter folders and weights, nothing of what a model is used for.
"""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import ModelUnavailable, UnavailableError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SETTINGS, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
# Settings under which an adapter is more than B A on top of a weight.
_MORE = (
    "use_dora",
    "use_qalora",
    "modules_to_save",
    "fan_in_fan_out",
    "trainable_token_indices",
    "megatron_config",
    "target_parameters",
    "alora_invocation_tokens",
    "arrow_config",
    "lora_bias",
    "rank_pattern",
    "alpha_pattern",
)


def adapter_folder(name: str | Path) -> Path:
    """The folder of an adapter: a path, or a hub id, which is fetched.

    Raises:
        ModelUnavailable: there is no adapter.
    """
    from .models import offline

    folder = Path(name).expanduser()
    if not folder.is_dir() and str(name).count("/") == 1 and not str(name).startswith((".", "~", "/")):
        from huggingface_hub import snapshot_download

        try:
            folder = Path(snapshot_download(str(name), local_files_only=offline()))
        except (OSError, ValueError) as error:
            first = str(error).strip().split("\n", 1)[0]
            raise ModelUnavailable(f"the adapter {str(name)!r} cannot be fetched: {first}") from error
    if not (folder / SETTINGS).is_file():
        raise ModelUnavailable(f"{str(name)!r} is no adapter: there is no {SETTINGS} in it")
    return folder


def apply_adapter(model: PreTrainedModel, name: str | Path) -> PreTrainedModel:
    """Add an adapter to a model's weights, in place where it is a plain one.

    Args:
        model: the one that it was trained on.
        name: a folder or hub id.

    Raises:
        ModelUnavailable: there is no adapter, it cannot be read, or it was made for another model.
        UnavailableError: it is not a plain one, and PEFT is not installed.
    """
    folder = adapter_folder(name)
    try:
        settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    except ValueError:
        raise ModelUnavailable(f"the adapter {str(name)!r} has a broken {SETTINGS}") from None
    if settings.get("peft_type") != "LORA" or any(settings.get(key) for key in _MORE):
        return _by_peft(model, folder, str(name))
    rank, alpha = settings["r"], settings["lora_alpha"]
    _add(model, folder, alpha / (math.sqrt(rank) if settings.get("use_rslora") else rank), str(name))
    return model


def _add(model: PreTrainedModel, folder: Path, scale: float, name: str) -> None:
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors = load_file(folder / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise ModelUnavailable(f"the adapter {name!r} cannot be read: {error}") from error
    pairs: dict[str, dict[str, Any]] = {}
    for key, tensor in tensors.items():
        module, found, side = key.removeprefix("base_model.model.").rpartition(".lora_")
        if not found or side not in ("A.weight", "B.weight"):
            raise ModelUnavailable(f"the adapter {name!r} holds {key!r}, which is no part of a plain LoRA adapter")
        pairs.setdefault(module, {})[side[0]] = tensor
    modules = dict(model.named_modules())
    with torch.no_grad():
        for path, sides in pairs.items():
            weight = getattr(modules.get(path), "weight", None)
            if weight is None or sides.keys() != {"A", "B"}:
                raise ModelUnavailable(f"the adapter {name!r} is not one for this model, which has no layer {path!r}")
            added = scale * (sides["B"].float() @ sides["A"].float())
            if added.shape != weight.shape:
                raise ModelUnavailable(
                    f"the adapter {name!r} is not one for this model: {path!r} is {tuple(weight.shape)}, not "
                    f"{tuple(added.shape)}"
                )
            weight.copy_((weight.float() + added.to(weight.device)).to(weight.dtype))


def _by_peft(model: PreTrainedModel, folder: Path, name: str) -> PreTrainedModel:
    try:
        from peft import PeftModel
    except ImportError:
        raise UnavailableError(
            f"the adapter {name!r} is more than a plain LoRA and needs PEFT: pip install 'genprm[train]'"
        ) from None
    try:
        with warnings.catch_warnings():
            # PEFT asks transformers for things by their old names.
            warnings.simplefilter("ignore", FutureWarning)
            merged: PreTrainedModel = PeftModel.from_pretrained(model, str(folder)).merge_and_unload()
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        first = str(error).strip().split("\n", 1)[0]
        raise ModelUnavailable(f"the adapter {name!r} cannot be used with this model: {first}") from error
    return merged
