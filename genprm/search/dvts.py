"""Diverse verifier tree search: `search.width` independent subtrees, in each of which the best of n / width samples is
taken, step by step, until it is finished.

Follows Beeching, Tunstall and Rush, "Scaling test-time compute with open models" (2024); a subtree that ends without
an answer is flagged, and never picked over a finished one.
"""

from __future__ import annotations

import asyncio

from .beam import samples_each
from .scene import Scene
from .tree import Node, ranked


async def dvts(scene: Scene) -> None:
    """Grow all subtrees side by side, a step a round."""
    each = samples_each(scene.settings)
    heads: list[Node] = [scene.tree.root] * scene.settings.width
    while True:
        live = [number for number, head in enumerate(heads) if head.open]
        if not live:
            scene.end("every subtree has ended")
            return
        if (why := scene.spent()) is not None:
            scene.end(why)
            return
        grown = await asyncio.gather(*(scene.grow(heads[number], each, draw=number) for number in live))
        scene.rounds += 1
        await scene.judge_steps([child for children in grown for child in children])
        for number, children in zip(live, grown, strict=True):
            if children:
                heads[number] = ranked(children, scene.settings.aggregation)[0]
