"""Loading models and tokenizers of Hugging Face transformers, with one-line errors.

Knows folders and hub ids, devices and number formats; knows nothing of what a model is used for. Code that comes with
a checkpoint is never run.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..config import BackendConfig
from ..errors import BackendUnavailable, ModelUnavailable
from ..models import offline

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def load_tokenizer(source: str | Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a folder or hub id.

    Raises:
        ModelUnavailable: its files cannot be found or read.
    """
    from transformers import AutoTokenizer

    with reading(source):
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(source, **from_where())
    return tokenizer


def load_model(
    kind: Any, source: str | Path, config: BackendConfig, *, needed: tuple[str, ...] | None = None
) -> PreTrainedModel:
    """A model in evaluation mode, on the device and in the number format that the config asks for.

    Args:
        kind: one of transformers' classes with `from_pretrained`, e.g. `AutoModelForCausalLM`.
        source: a folder or hub id.
        config: device and number format.
        needed: beginnings of weights' names that the checkpoint must hold; `("",)` = all. transformers fills what is
            missing with random numbers and goes on. None = no check.

    Raises:
        ModelUnavailable: the files cannot be found or read, or lack a needed weight.
        BackendUnavailable: the device is not there.
    """
    device = pick_device(config.device)
    dtype = pick_dtype(config.dtype, device)
    with reading(source):
        model, info = kind.from_pretrained(source, dtype=dtype, output_loading_info=True, **from_where())
    lacking = sorted(name for name in info["missing_keys"] if needed and name.startswith(needed))
    if lacking:
        more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        raise ModelUnavailable(f"the model {str(source)!r} has no weight {lacking[0]!r}{more}")
    placed: PreTrainedModel = model.to(device).eval()
    return placed


@contextmanager
def reading(source: str | Path) -> Iterator[None]:
    """What goes wrong while files are read becomes one line, and transformers' own reports are not printed.

    Raises:
        ModelUnavailable: the files cannot be found or read.
    """
    from safetensors import SafetensorError
    from transformers.utils import logging as hf_logging

    hf_logging.disable_progress_bar()
    before = hf_logging.get_verbosity()
    hf_logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        first = str(error).strip().split("\n", 1)[0]
        raise ModelUnavailable(f"the model {str(source)!r} cannot be loaded: {first}") from error
    finally:
        hf_logging.set_verbosity(before)


def from_where() -> dict[str, Any]:
    """Arguments for every `from_pretrained`: no code of the checkpoint's own, and no network where it is forbidden."""
    return {"trust_remote_code": False, **({"local_files_only": True} if offline() else {})}


def pick_device(name: str) -> torch.device:
    """The device of a setting; `auto` = a GPU where there is one.

    Raises:
        BackendUnavailable: it cannot be used.
    """
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        first = str(error).split("\n", 1)[0]
        raise BackendUnavailable(f"the device {name!r} cannot be used: {first}") from None
    return device


def pick_dtype(name: str, device: torch.device) -> torch.dtype:
    """The number format of a setting; `auto` = half precision where the device computes in it natively."""
    import torch

    if name != "auto":
        dtype: torch.dtype = getattr(torch, name)
        return dtype
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    native = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return torch.bfloat16 if native else torch.float32


def context_size(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int:
    """How many tokens a model was made for."""
    made_for = getattr(model.config, "max_position_embeddings", None)
    # Tokenizers without a limit say 1e30.
    sizes = [size for size in (made_for, tokenizer.model_max_length) if size and size < 10**9]
    return min(sizes, default=4096)
