"""Critic mode: the critique of the first wrong step goes back to the policy, which writes the solution again.

At most `search.rounds` rewrites; a solution in which no step is found wrong is kept. Nothing is rewritten on a step
that could not be judged.
"""

from __future__ import annotations

from ..critique import derive_seed
from ..types import StepJudgment
from .scene import Scene
from .tree import Node


async def critic(scene: Scene) -> None:
    """Write, judge up to the first wrong step, rewrite."""
    (leaf,) = await scene.complete(scene.tree.root, [0])
    _mark(leaf, 0)
    while True:
        if leaf.finished or scene.answer is None:
            scene.answer = leaf
        wrong = await _first_wrong(scene, leaf)
        if isinstance(wrong, str):
            scene.end(wrong)
            return
        if scene.rounds == scene.settings.rounds:
            scene.end(f"the step at index {wrong.index} is still wrong after {scene.rounds} rewrites")
            return
        if (why := scene.spent()) is not None:
            scene.end(why)
            return
        scene.rounds += 1
        draft = await scene.policy.rewrite(
            scene.problem,
            leaf.steps,
            wrong.index,
            critique_of(wrong),
            seed=derive_seed(scene.seed, "rewrite", scene.rounds),
        )
        leaf = scene.place(scene.tree.root, draft)
        _mark(leaf, scene.rounds)


def critique_of(step: StepJudgment) -> str:
    """The critique that found the step most wrong; a plain sentence where the judge writes none."""
    votes = sorted(step.votes, key=lambda vote: vote.p_yes)
    written = next((vote.critique.strip() for vote in votes if vote.critique.strip()), "")
    return written or "A verifier takes this step for wrong."


def _mark(leaf: Node, number: int) -> None:
    for node in leaf.path:
        node.round = number if node.round is None else node.round


async def _first_wrong(scene: Scene, leaf: Node) -> StepJudgment | str:
    """The first step found wrong, or why nothing is to be rewritten."""
    path = leaf.path
    if not path:
        return leaf.note or "the policy wrote no step"
    if not scene.judge.by_step:
        await scene.judge_solutions([leaf])
    for index, node in enumerate(path):
        if scene.judge.by_step:
            await scene.judge_steps([node])
        judgment = leaf.judgments[index]
        if judgment is None or judgment.reward is None:
            return f"the step at index {index} is unscored: {node.why_unscored()}"
        if judgment.verdict == "incorrect":
            for later in path[index + 1 :]:
                later.unscored_reason = f"not judged: node {node.id} before it is wrong"
            return judgment
    return "no step is found wrong"
