"""What every search does: let the policy write behind a node, let the judge score nodes, and keep the books.

Knows policy, judge, tree and bounds; knows no rule of search.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ..config import SearchConfig
from ..critique import derive_seed
from ..errors import ConfigError
from ..policy import Draft, Policy
from .budget import Ledger
from .prefixes import PrefixJudge
from .tree import Node, Tree


class Scene:
    """One problem under search."""

    def __init__(self, problem: str, policy: Policy, judge: PrefixJudge, settings: SearchConfig, *, seed: int = 0):
        """Prepare.

        Args:
            problem: the question.
            policy: writes steps.
            judge: scores prefixes.
            settings: sizes and bounds.
            seed: of all sampling.
        """
        self.problem, self.policy, self.judge, self.settings, self.seed = problem, policy, judge, settings, seed
        self.tree = Tree()
        self.ledger = Ledger(settings.budget_tokens, settings.budget_judgements)
        self.ended = ""
        """Why the search ended."""
        self.rounds = 0
        """Rounds, simulations or rewrites that were done."""
        self.answer: Node | None = None
        """The node that the method itself settled on; None = the best one is picked."""

    def end(self, reason: str) -> None:
        """Remember why the search ends."""
        self.ended = reason

    def spent(self) -> str | None:
        """Which bound is reached; None where more work may begin."""
        return self.ledger.spent()

    def score(self, node: Node) -> float | None:
        """A node's step rewards as one."""
        return node.score(self.settings.aggregation)

    # ------------------------------------------------------------------ writing

    async def grow(self, node: Node, count: int, *, draw: int = 0) -> list[Node]:
        """Sample further steps behind a node.

        Args:
            node: an open node.
            count: how many samples.
            draw: tells apart samplings behind the same node.

        Returns:
            The child of each sample that wrote a step; equal steps are one child, which then stands there repeatedly.
            None where the policy cannot go on, which then stands in the node's note.
        """
        seed = derive_seed(self.seed, "step", draw)
        drafts = await self.policy.next_steps(self.problem, node.steps, n=count, seed=seed)
        before = len(node.steps)
        grown: list[Node] = []
        notes = [draft.note for draft in drafts if len(draft.steps) == before and draft.note]
        for draft in drafts:
            self.ledger.wrote(draft.prompt_tokens, draft.completion_tokens)
            if len(draft.steps) > before:
                grown.append(self._place(node, draft, before))
        if not grown and not node.children:
            node.note = notes[0] if notes else "the policy wrote no step"
            node.ends += len(drafts)
        return grown

    async def complete(self, node: Node, numbers: Sequence[int]) -> list[Node]:
        """Sample whole solutions from a node; returns where each of them ends.

        Args:
            node: an open node.
            numbers: of the samples; a number's sample is the same in every call.

        Raises:
            ConfigError: several greedy samples are asked for.
        """
        if len(numbers) > 1 and self.policy.settings.temperature == 0:
            raise ConfigError(f"policy.temperature is 0, so all {len(numbers)} solutions would be the same")
        steps = node.steps
        drawn = await asyncio.gather(
            *(
                self.policy.complete(self.problem, steps, n=1, seed=derive_seed(self.seed, "solution", number))
                for number in numbers
            )
        )
        return [self.place(node, draft) for (draft,) in drawn]

    def place(self, node: Node, draft: Draft) -> Node:
        """Put a whole solution, of which `node` is a prefix, into the tree; returns where it ends."""
        self.ledger.wrote(draft.prompt_tokens, draft.completion_tokens)
        return self._place(node, draft, len(node.steps))

    def _place(self, node: Node, draft: Draft, before: int) -> Node:
        fresh = draft.steps[before:]
        for number, step in enumerate(fresh, 1):
            node = self.tree.add(node, step, tokens=draft.completion_tokens if number == len(fresh) else 0)
        if draft.finished:
            node.finished, node.note = True, None
        elif draft.note is not None and not node.finished:
            node.note = draft.note
        node.ends += draft.finished or draft.note is not None
        return node

    # ------------------------------------------------------------------ judging

    async def judge_steps(self, nodes: Sequence[Node]) -> None:
        """Judge the last step of each node, as far as the budget goes, in this order; a node may stand there twice."""
        await self._judge_all(nodes, whole=False)

    async def judge_solutions(self, leaves: Sequence[Node]) -> None:
        """Judge all steps of these solutions: each prefix by itself, or each solution in one go."""
        if self.judge.by_step:
            await self.judge_steps([node for leaf in leaves for node in leaf.path])
        else:
            await self._judge_all(leaves, whole=True)

    async def _judge_all(self, nodes: Sequence[Node], *, whole: bool) -> None:
        chosen: dict[int, tuple[Node, bool]] = {}
        for node in nodes:
            if node.parent is None:
                continue
            if node.id in chosen or (node.judgment if not whole else node.whole) is not None:
                self.ledger.take(None)
                continue
            fresh = not self.judge.knows(self.problem, node.steps, whole=whole)
            if fresh and (why := self.spent()) is not None:
                for one in node.path if whole else [node]:
                    one.unscored_reason = f"not judged: {why}"
                continue
            self.ledger.reserved += fresh
            chosen[node.id] = node, fresh
        await asyncio.gather(*(self._judge(node, reserved, whole) for node, reserved in chosen.values()))

    async def _judge(self, node: Node, reserved: bool, whole: bool) -> None:
        try:
            found, usage = await (self.judge.whole if whole else self.judge.last)(self.problem, node.steps)
        finally:
            self.ledger.reserved -= reserved
        self.ledger.take(usage)
        if whole:
            node.whole = found
            for one, judgment in zip(node.path, found, strict=False):
                one.judgment = one.judgment or judgment
        elif found:
            node.judgment = found[0]
        else:
            node.unscored_reason = "judging ended before this step"
