"""Adaptive voting: stop as soon as the verdict of the full number of votes can hardly change.

After k of N votes with sum S of P(Yes), the full verdict is decided by whether the other N - k votes bring the mean to
the threshold. They are treated as yes-or-no draws with an unknown rate whose posterior after the k votes is
Beta(1/2 + S, 1/2 + k - S): Jeffreys' prior, since rates lie mostly near 0 and 1, and yes-or-no draws, the most
scattered that values in [0, 1] with that mean can be. The number of yes among N - k draws is then beta-binomial, and
its tail on the far side of the threshold is the chance that the full verdict differs from the one so far. Voting
stops when that chance is at most the bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

FIRST_WAVE = 2
PRIOR = 0.5


def flip_chance(values: Sequence[float], total: int, threshold: float) -> float:
    """Chance that the mean of all `total` votes falls on the other side of the threshold than the mean so far.

    Args:
        values: P(Yes) of the votes so far, at least one.
        total: how many votes the full run takes.
        threshold: a mean of at least this is a Yes.
    """
    done, rest = len(values), total - len(values)
    if rest <= 0:
        return 0.0
    so_far = math.fsum(values)
    yes_now = so_far / done >= threshold
    # The mean of all is a Yes where the rest brings at least this many.
    needed = math.ceil(threshold * total - so_far - 1e-9)
    chance_yes = math.fsum(
        _beta_binomial(k, rest, PRIOR + so_far, PRIOR + done - so_far) for k in range(max(needed, 0), rest + 1)
    )
    return min(max(1.0 - chance_yes if yes_now else chance_yes, 0.0), 1.0)


def next_wave(done: int, total: int) -> range:
    """Numbers of the votes to take next."""
    return range(done, min(done + (FIRST_WAVE if done == 0 else 1), total))


def _beta_binomial(k: int, n: int, a: float, b: float) -> float:
    """P(k successes in n draws) with a Beta(a, b) rate."""
    log_choose = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return math.exp(log_choose + _log_beta(k + a, n - k + b) - _log_beta(a, b))


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
