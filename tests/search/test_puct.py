"""The PUCT rule against numbers worked out by hand."""

from __future__ import annotations

import asyncio

import pytest

from genprm.search.mcts import puct, select
from genprm.search.tree import Node

from .tables import searcher


def node(id: int, *, visits: int = 0, total: float = 0.0, prior: float = 1.0, parent: Node | None = None) -> Node:
    made = Node(id, parent, f"s{id}", visits=visits, total=total, prior=prior)
    if parent is not None:
        parent.children.append(made)
    return made


@pytest.mark.parametrize(
    ("visits", "total", "prior", "expected"),
    [
        # Q + c * P * sqrt(9) / (1 + n) with c = 2; the parent's mean is 5.4 / 9 = 0.6.
        (2, 1.0, 0.25, 0.5 + 2 * 0.25 * 3 / 3),
        (5, 4.0, 0.5, 0.8 + 2 * 0.5 * 3 / 6),
        (0, 0.0, 0.25, 0.6 + 2 * 0.25 * 3 / 1),
        (8, 0.0, 0.0, 0.0),
    ],
)
def test_puct_is_value_plus_prior_times_root_of_visits(visits, total, prior, expected):
    parent = node(0, visits=9, total=5.4)
    assert puct(node(1, visits=visits, total=total, prior=prior, parent=parent), parent, 2.0) == pytest.approx(expected)


def test_without_visits_the_prior_decides_and_then_the_order():
    root = node(0)
    node(1, prior=0.3, parent=root)
    likely = node(2, prior=0.4, parent=root)
    node(3, prior=0.3, parent=root)
    assert select(root, 1.0) is likely
    likely.closed = True
    assert select(root, 1.0).id == 1


def test_curiosity_takes_over_when_its_weight_grows():
    root = node(0, visits=4, total=2.0)
    best = node(1, visits=3, total=2.1, prior=0.5, parent=root)  # Q 0.7
    rare = node(2, visits=1, total=0.3, prior=0.5, parent=root)  # Q 0.3
    # c = 0.1: 0.7 + 0.025 against 0.3 + 0.05; c = 4: 0.7 + 1 against 0.3 + 2.
    assert select(root, 0.1) is best
    assert select(root, 4.0) is rare


def test_visits_and_values_follow_the_rule_step_by_step():
    writes = {"": ["A", "B"], "A": ["C", "D"], "B": ["E", "F"]}
    rewards = {"A": 0.5, "B": 0.9, "C": 0.4, "D": 0.4, "E": 0.8, "F": 0.1}
    found = searcher(writes, rewards, simulations=4, expansions=2, c_puct=1.0, policy={"max_steps": 2})
    _, scene = asyncio.run(found.asolve("q", "mcts"))
    by_step = {one.step: one for one in scene.tree.nodes}
    # 1: no visits, so A, the first: value 0.5. 2: A 0.5 + .5*1/2 = 0.75, B 0.5 + .5*1/1 = 1.0: B, value 0.9.
    # 3: A 0.5 + .5*1.414/2 = 0.85, B 0.9 + 0.35 = 1.25: B, which is expanded: E first, value min(.9, .8) = 0.8.
    # 4: A 0.5 + .5*1.732/2 = 0.93, B 0.85 + .5*1.732/3 = 1.14: B; E 0.8 + .5*1.414/2 = 1.15,
    #    F 0.85 + .5*1.414/1 = 1.56: F, value 0.1.
    seen = {step: (by_step[step].visits, round(by_step[step].total, 9)) for step in ("A", "B", "E", "F")}
    assert seen == {"A": (1, 0.5), "B": (3, 1.8), "E": (1, 0.8), "F": (1, 0.1)}
    assert (scene.tree.root.visits, round(scene.tree.root.total, 9)) == (4, 2.3)
    assert "C" not in by_step


def test_a_prior_by_the_policy_is_the_share_of_samples():
    found = searcher({"": ["A", "B", "B", "B"]}, {"A": 0.9, "B": 0.1}, simulations=1, expansions=4, prior="policy")
    _, scene = asyncio.run(found.asolve("q", "mcts"))
    by_step = {one.step: one for one in scene.tree.nodes}
    assert (by_step["A"].prior, by_step["B"].prior) == (0.25, 0.75)
    assert (by_step["A"].visits, by_step["B"].visits) == (0, 1)
