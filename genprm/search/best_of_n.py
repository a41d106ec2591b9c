"""Best-of-N: whole solutions are sampled, every step is judged, and the best score is picked."""

from __future__ import annotations

from .scene import Scene


async def best_of_n(scene: Scene) -> None:
    """Sample and judge `search.n` solutions; with a bound on tokens in waves of `search.width`."""
    count = scene.settings.n
    wave = count if scene.settings.budget_tokens is None else min(scene.settings.width, count)
    for start in range(0, count, wave):
        if (why := scene.spent()) is not None:
            scene.end(why)
            return
        leaves = await scene.complete(scene.tree.root, range(start, min(start + wave, count)))
        scene.rounds += 1
        await scene.judge_solutions(leaves)
    why = scene.spent()
    scene.end(f"{count} solutions are sampled" + (f"; {why}" if why else ""))
