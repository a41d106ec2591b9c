"""Monte Carlo tree search with PUCT: a simulation walks down by value and curiosity and judges one new node.

The value of a node is its step rewards as one (`search.aggregation`), there are no rollouts. A child is chosen by
Q + c * P * sqrt(N) / (1 + n): Q its mean value, that of its parent where it was never visited; P its prior; N and n the
visits of parent and child (Silver et al. 2017, "Mastering the game of Go without human knowledge", Methods). What is
finished, a dead end or unscored is closed once it is judged, and so is a node with nothing else below it: simulations
are spent where something new can be found.
"""

from __future__ import annotations

import math

from .scene import Scene
from .tree import Node, ranked


def puct(child: Node, parent: Node, c_puct: float) -> float:
    """How promising a child is."""
    known = child.value if child.visits else parent.value
    return (known or 0.0) + c_puct * child.prior * math.sqrt(parent.visits) / (1 + child.visits)


def select(parent: Node, c_puct: float) -> Node:
    """The most promising child that is not closed; of equals the one with the higher prior, then the first."""
    options = [child for child in parent.children if not child.closed]
    return max(options, key=lambda child: (puct(child, parent, c_puct), child.prior, -child.id))


async def mcts(scene: Scene) -> None:
    """Run `search.simulations` simulations, and finish the best solution if none is finished by then."""
    root, wanted = scene.tree.root, scene.settings.simulations
    while scene.rounds < wanted:
        if root.closed:
            scene.end("the tree holds nothing that could still be extended")
            break
        if (why := scene.spent()) is not None:
            scene.end(why)
            return
        await _simulate(scene)
        scene.rounds += 1
    else:
        scene.end(f"{wanted} simulations are done")
    await _finish_best(scene)


async def _simulate(scene: Scene) -> None:
    node = scene.tree.root
    while True:
        if not node.children:
            await _expand(scene, node)
            if not node.children:
                _close(node)
                return
        child = select(node, scene.settings.c_puct)
        if child.judgment is None:
            await scene.judge_steps([child])
            score = scene.score(child)
            if score is None or not child.open:
                _close(child)
            if score is not None:
                _back_up(child, score)
            return
        node = child


async def _expand(scene: Scene, node: Node) -> None:
    await scene.grow(node, scene.settings.expansions)
    copies = sum(child.copies for child in node.children)
    for child in node.children:
        uniform = scene.settings.prior == "uniform"
        child.prior = 1 / len(node.children) if uniform else child.copies / copies


def _back_up(node: Node, score: float) -> None:
    above: Node | None = node
    while above is not None:
        above.visits += 1
        above.total += score
        above = above.parent


def _close(node: Node) -> None:
    """Close a node, and every node above it that has nothing else open."""
    node.closed = True
    above = node.parent
    while above is not None and all(child.closed for child in above.children):
        above.closed = True
        above = above.parent


async def _finish_best(scene: Scene) -> None:
    """Let the policy write the best partial solution to its end: one that is cut off answers nothing."""
    nodes = scene.tree.nodes[1:]
    if any(node.finished for node in nodes) or scene.spent() is not None:
        return
    partial = [node for node in nodes if node.open and scene.score(node) is not None]
    if not partial:
        return
    best = ranked(partial, scene.settings.aggregation)
    # Of equally good ones the longest: with `min` a prefix is never worse than what comes of it.
    top = scene.score(best[0])
    node = max((one for one in best if scene.score(one) == top), key=lambda one: len(one.path))
    leaves = await scene.complete(node, [0])
    await scene.judge_solutions(leaves)
    scene.end(f"{scene.ended}; none was finished, so the best one was completed")
