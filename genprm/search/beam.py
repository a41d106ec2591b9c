"""Beam search over steps: the best `search.width` partial solutions are kept, each extended by n / width samples.

A finished solution keeps its place for as long as its score is among the best; the search ends when all places are
held by finished ones. In search-and-learn's terms: n beams, whose `beam_width` is n / width here.
"""

from __future__ import annotations

import asyncio

from ..config import SearchConfig
from ..errors import ConfigError
from .scene import Scene
from .tree import Node, ranked


def samples_each(settings: SearchConfig) -> int:
    """How many samples extend one of the kept solutions.

    Raises:
        ConfigError: n is no multiple of the width.
    """
    if settings.n % settings.width:
        raise ConfigError(f"search.n = {settings.n} is no multiple of search.width = {settings.width}")
    return settings.n // settings.width


async def beam(scene: Scene) -> None:
    """Grow the tree a step a round."""
    each = samples_each(scene.settings)
    root = scene.tree.root
    kept: list[Node] = [root]
    while True:
        live = [node for node in kept if node.open]
        if not live:
            scene.end("the beam holds finished solutions only" if kept else "no partial solution can go on")
            return
        if (why := scene.spent()) is not None:
            scene.end(why)
            return
        grown = await asyncio.gather(*(scene.grow(node, scene.settings.n if node is root else each) for node in live))
        scene.rounds += 1
        fresh = [child for children in grown for child in children]
        await scene.judge_steps(fresh)
        pool = {node.id: node for node in [*kept, *fresh] if node.finished or (node.open and node not in live)}
        kept = ranked(list(pool.values()), scene.settings.aggregation)[: scene.settings.width]
