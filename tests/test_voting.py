"""Adaptive voting: the rule's arithmetic, and its promise over many simulated and scripted votes."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genprm.voting import flip_chance, next_wave


def exact_by_enumeration(values, total, threshold):
    """The same chance by integrating over the rate on a fine grid."""
    from math import comb, pi, sin

    done, rest, total_yes = len(values), total - len(values), sum(values)
    a, b = 0.5 + total_yes, 0.5 + done - total_yes
    # With x = sin(t)^2 the prior is flat in t, so that an even grid is exact enough at both ends.
    angles = [(i + 0.5) / 4000 * pi / 2 for i in range(4000)]
    grid = [sin(t) ** 2 for t in angles]
    density = [x ** (a - 0.5) * (1 - x) ** (b - 0.5) for x in grid]
    norm = sum(density)
    now = total_yes / done >= threshold
    chance = 0.0
    for k in range(rest + 1):
        p = sum(d * comb(rest, k) * x**k * (1 - x) ** (rest - k) for x, d in zip(grid, density, strict=True)) / norm
        if ((total_yes + k) / total >= threshold - 1e-12) != now:
            chance += p
    return chance


@pytest.mark.parametrize("values", [[0.97], [0.97, 0.9], [0.1, 0.2, 0.05], [0.6, 0.4], [0.5], [1.0, 1.0, 0.0]])
@pytest.mark.parametrize("threshold", [0.5, 0.8])
def test_the_chance_equals_numerical_integration(values, threshold):
    assert flip_chance(values, 8, threshold) == pytest.approx(exact_by_enumeration(values, 8, threshold), abs=2e-3)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_it_is_a_probability_and_zero_when_all_votes_are_in(values):
    assert 0 <= flip_chance(values, 8, 0.5) <= 1
    assert flip_chance(values, len(values), 0.5) == 0


@settings(max_examples=40)
@given(st.integers(1, 7))
def test_agreement_of_more_votes_makes_a_change_less_likely(done):
    assert flip_chance([0.95] * (done + 1), 9, 0.5) <= flip_chance([0.95] * done, 9, 0.5) + 1e-12


def test_waves_take_every_vote_once():
    taken, done = [], 0
    while done < 8:
        taken += list(next_wave(done, 8))
        done = len(taken)
    assert taken == list(range(8))


@pytest.mark.parametrize("bound", [0.02, 0.05, 0.1])
def test_over_many_steps_fewer_verdicts_change_than_the_bound_allows(bound):
    """Steps whose rate of Yes is spread evenly, as the rule assumes: the hardest case in which it must hold."""
    draw = random.Random(1)
    changed = used = 0
    runs = 4000
    for _ in range(runs):
        rate = draw.random()
        votes = [min(max(draw.gauss(0.93 if draw.random() < rate else 0.07, 0.04), 0), 1) for _ in range(8)]
        done = 0
        while done < 8:
            done = next_wave(done, 8).stop
            if flip_chance(votes[:done], 8, 0.5) <= bound:
                break
        used += done
        changed += (sum(votes[:done]) / done >= 0.5) != (sum(votes) / 8 >= 0.5)
    assert changed / runs <= bound
    assert used / runs < 8 * 0.75
