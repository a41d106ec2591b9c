"""Drawing one token: the same on every device, and in any company."""

from __future__ import annotations

import random

import torch

from .base import SamplingParams


def sample(logits: torch.Tensor, params: SamplingParams, draw: random.Random) -> int:
    """Draw one token id; the same logits, parameters and random state give the same token on every device.

    Args:
        logits: float32, shape (vocabulary,).
        params: temperature 0 is greedy; top-k before top-p, as in vLLM and transformers.
        draw: the row's own random numbers.
    """
    if params.temperature <= 0:
        return int(logits.argmax())
    count = params.top_k if 0 < params.top_k < logits.shape[-1] else logits.shape[-1]
    values, indices = torch.topk(logits, count)
    probs = torch.softmax(values.double() / params.temperature, dim=-1)
    total = probs.cumsum(dim=-1)
    # A token stays while the probability before it is under top_p, so the first always stays.
    kept = int(((total - probs) < params.top_p).sum())
    total = total[:kept]
    target = draw.random() * float(total[-1])
    place = int(torch.searchsorted(total, target, right=True).clamp(max=kept - 1))
    return int(indices[place])
