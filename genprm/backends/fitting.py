"""Prompts that fit the model's context, or a plain word that they do not. Nothing is ever cut."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..errors import ContextOverflow
from ..prompting import Prompt
from ..rendering import ChatRenderer
from .base import Generation, SamplingParams
from .kv import Ids

# Room kept behind a critique for the forced judgement and its label.
RESERVE = 48
# A token is rarely longer than this; text far over the limit is refused before it is tokenised.
TOKEN_CHARS = 64


def fit(renderer: ChatRenderer, prompt: Prompt, limit: int, reserve: int) -> Ids:
    """Token ids of a prompt.

    Raises:
        ContextOverflow: the prompt and `reserve` further tokens are more than `limit`.
    """
    text = renderer.text(prompt)
    if len(text) > TOKEN_CHARS * limit:
        raise ContextOverflow(f"the prompt has {len(text):,} characters; the model's context is {limit:,} tokens")
    ids = np.asarray(renderer.ids(text), dtype=np.int64)
    if len(ids) + reserve > limit:
        room = f" (with {reserve} kept for the judgement)" if reserve else ""
        raise ContextOverflow(f"the prompt has {len(ids):,} tokens{room}; the model's context is {limit:,}")
    return ids


def fit_writing(
    renderer: ChatRenderer, prompt: Prompt, params: SamplingParams, limit: int
) -> tuple[Ids, SamplingParams, bool]:
    """Token ids, parameters bounded by the room that is left, and whether they had to be.

    Raises:
        ContextOverflow: there is no room for a single token and the judgement.
    """
    ids = fit(renderer, prompt, limit, RESERVE + 1)
    room = limit - RESERVE - len(ids)
    if room < params.max_tokens:
        return ids, replace(params, max_tokens=room), True
    return ids, params, False


def said_by_context(generation: Generation, bounded: bool) -> Generation:
    """A generation that the context cut short says so."""
    cut = bounded and generation.finish == "length"
    return replace(generation, finish="context") if cut else generation
