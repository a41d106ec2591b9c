"""A solution as token ids, with the places at which its steps are read, and a plain word where it does not fit.

Pieces are joined as tokens and never as text: a tokenizer that sees a step and its separator as one string may join
their edges to other tokens than the model was trained on, which moves scores without a trace. Knows no models.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..backends.fitting import TOKEN_CHARS
from ..errors import ConfigError, ContextOverflow
from ..labels import encode

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Ids = list[int]


@dataclass(frozen=True, slots=True)
class Layout:
    """The part of a solution that fits the model's context."""

    ids: Ids
    """Tokens up to the last place; what comes behind it cannot change what a causal model says there."""
    start: int
    """Where the first step begins in `ids`."""
    places: list[int]
    """Index in `ids` of the last token of step t with its separator, for as many steps as fit."""
    overflow: ContextOverflow | None
    """Why the other steps do not."""


def lay_out(head: Iterable[int], pieces: Iterable[Sequence[int]], limit: int) -> Layout:
    """Put a solution together, as far as it fits.

    Args:
        head: tokens before the first step.
        pieces: tokens of each step with its separator; made one by one, and none after the first that does not fit.
        limit: tokens that the model's context holds.
    """
    ids = list(head)
    start = len(ids)
    places: list[int] = []
    try:
        for number, piece in enumerate(pieces):
            size = len(ids) + len(piece)
            if size > limit:
                raise ContextOverflow(
                    f"the prompt up to step {number} has {size:,} tokens; the model's context is {limit:,}"
                )
            ids += piece
            places.append(size - 1)
    except ContextOverflow as overflow:
        return Layout(ids, start, places, overflow)
    return Layout(ids, start, places, None)


def encode_within(tokenizer: PreTrainedTokenizerBase, text: str, limit: int) -> Ids:
    """Token ids of a text, unless it is far too long to be worth tokenising.

    Raises:
        ContextOverflow: it cannot fit `limit` tokens.
    """
    if len(text) > TOKEN_CHARS * limit:
        raise ContextOverflow(f"a text of {len(text):,} characters; the model's context is {limit:,} tokens")
    return encode(tokenizer, text)


def single_token(tokenizer: PreTrainedTokenizerBase, text: str, what: str) -> int:
    """The one token that spells a text.

    Raises:
        ConfigError: it takes several, or the tokenizer does not know it.
    """
    ids = encode(tokenizer, text)
    if len(ids) != 1 or ids[0] == tokenizer.unk_token_id:
        count = f"{len(ids)} tokens" if len(ids) != 1 else "an unknown token"
        raise ConfigError(
            f"{what} {text!r} is {count} for the tokenizer of {tokenizer.name_or_path!r}, where one is needed: "
            "the model is of another form, or baseline.separator is wrong"
        )
    return ids[0]


def opening(tokenizer: PreTrainedTokenizerBase) -> Ids:
    """Tokens that the tokenizer puts before every text by itself, such as a begin-of-text token."""
    bare = encode(tokenizer, "a")
    whole: Ids = tokenizer.encode("a")
    return whole[: whole.index(bare[0])]
