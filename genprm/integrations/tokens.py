"""Step rewards on the tokens of a completion: at the last token of each step, zero elsewhere.

Knows tokens by a tokenizer's `decode` alone, so it works on the ids that a policy sampled, which are not always those
that the tokenizer would make of the text. Knows no trainer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from ..errors import InputError
from .core import SharedVerifier
from .rewards import NO_STEPS, Asked, UnscoredPolicy, all_decided, decided
from .texts import Splitter, cut

Decode = Callable[[Sequence[int]], str]


def decoder(tokenizer: Any) -> Decode:
    """How a tokenizer reads ids: without special tokens, and with the white space as it stands."""

    def decode(ids: Sequence[int]) -> str:
        return str(tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))

    return decode


def token_ends(ids: Sequence[int], ends: Sequence[int], decode: Decode) -> list[int]:
    """The token in which each step ends.

    Args:
        ids: of the whole completion; special tokens may be among them.
        ends: offsets in `decode(ids)` behind each step, ascending.
        decode: reads ids; a longer list must go on where a shorter one's text ends.

    Returns:
        For each end the 0-based position of the first token by which the text up to there is complete.

    Raises:
        InputError: an offset lies behind the text, or the decoder does not read ids from left to right.
    """
    text = decode(ids)
    positions: list[int] = []
    low = 0
    for end in ends:
        wanted = text[:end]
        if len(wanted) < end:
            raise InputError(f"a step ends at character {end}, behind the {len(text)} that the tokens spell")
        high = len(ids)
        if not decode(ids[:high]).startswith(wanted):
            raise InputError("the tokenizer does not read its tokens from left to right")
        # Complete from some prefix on, since a half character at a prefix's end is not yet the wanted one.
        while low + 1 < high:
            middle = (low + high) // 2
            if decode(ids[:middle]).startswith(wanted):
                high = middle
            else:
                low = middle
        positions.append(high - 1)
    return positions


def place(rewards: Sequence[float], positions: Sequence[int], length: int) -> list[float]:
    """Rewards on the tokens where their steps end, 0.0 elsewhere.

    Steps so short that they end in one token have their rewards added there, so that the sum stays.

    Args:
        rewards: one a step.
        positions: the token in which each step ends.
        length: tokens of the completion, padding included.

    Raises:
        InputError: there are not as many positions as rewards, or one lies outside.
    """
    if len(rewards) != len(positions):
        raise InputError(f"{len(rewards)} step rewards have {len(positions)} positions")
    row = [0.0] * length
    for reward, position in zip(rewards, positions, strict=True):
        if not 0 <= position < length:
            raise InputError(f"a step ends in token {position}, outside of the {length} tokens")
        row[position] += reward
    return row


class Placed(NamedTuple):
    """The step rewards of one completion and where they belong."""

    rewards: list[float]
    """One a step."""
    positions: list[int]
    """The token in which each step ends."""
    length: int
    """Tokens of the completion."""

    def row(self) -> list[float]:
        """A number for each token."""
        return place(self.rewards, self.positions, self.length)


def place_steps(
    judge: SharedVerifier,
    problems: Sequence[str],
    completions: Sequence[Sequence[int]],
    decode: Decode,
    *,
    splitter: Splitter = None,
    unscored: UnscoredPolicy = None,
) -> list[Placed | None]:
    """Judge completions given as token ids and find the tokens of their steps.

    Args:
        judge: gives the rewards.
        problems: one a completion.
        completions: token ids without padding.
        decode: reads ids.
        splitter: how a completion is cut into steps.
        unscored: what stands for an unscored step; with None the whole completion is None. A completion without
            steps counts as one unscored step that ends in its last token.

    Returns:
        One entry a completion, in order; None where nothing can be said.

    Raises:
        Unscored: a step is, and the policy is `raise`.
        InputError: there are not as many problems as completions, or a problem is blank.
    """
    if len(problems) != len(completions):
        raise InputError(f"there are {len(problems)} problems for {len(completions)} completions")
    cuts = [cut(decode(ids), splitter) for ids in completions]
    asked = [Asked(problem, pieces.steps) for problem, pieces in zip(problems, cuts, strict=True)]
    placed: list[Placed | None] = []
    for index, (ids, pieces, found) in enumerate(zip(completions, cuts, judge.judge(asked), strict=True)):
        where = f"completion {index}"
        values = all_decided(found, unscored, where) or [decided(None, unscored, where, NO_STEPS)]
        known = [value for value in values if value is not None]
        if len(known) < len(values) or not ids:
            placed.append(None)
        else:
            ends = token_ends(ids, pieces.step_ends, decode) or [len(ids) - 1]
            placed.append(Placed(known, ends, len(ids)))
    return placed


def process_advantages(placed: Sequence[Placed | None], group: int, width: int) -> list[list[float]]:
    """Advantages of every token by process supervision, as GRPO defines it (Shao et al. 2024, arXiv 2402.03300, 4.1.3).

    Step rewards are normalised by mean and standard deviation over all steps of a group; a token's advantage is the
    sum over the steps that end at it or later.

    Args:
        placed: completions, those of one problem side by side; None takes no part and has the advantage 0.
        group: completions of one problem.
        width: length of the padded completions.

    Returns:
        A row of `width` numbers for each completion.

    Raises:
        InputError: the completions are no whole groups, or one is longer than `width`.
    """
    if len(placed) % group:
        raise InputError(f"{len(placed)} completions are no whole groups of {group}")
    rows: list[list[float]] = []
    for start in range(0, len(placed), group):
        inside = placed[start : start + group]
        rewards = [reward for item in inside if item is not None for reward in item.rewards]
        mean = math.fsum(rewards) / len(rewards) if rewards else 0.0
        spread = math.sqrt(math.fsum((reward - mean) ** 2 for reward in rewards) / len(rewards)) if rewards else 0.0
        for item in inside:
            row = [0.0] * width
            if item is not None:
                normed = [(reward - mean) / (spread + 1e-4) for reward in item.rewards]
                row = place(normed, item.positions, width)
                row = [*accumulate(reversed(row))][::-1]
            rows.append(row)
    return rows
