"""The tree of partial solutions that a search grows: a node is a prefix of steps.

Knows texts, rewards and visits; knows no policy, no judge and no rule of search. The same step written again after the
same prefix is the same node, with one more copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ..aggregate import aggregate
from ..types import StepJudgment


@dataclass(eq=False, slots=True)
class Node:
    """A prefix of steps; the root has none."""

    id: int
    parent: Node | None = field(default=None, repr=False)
    step: str = ""
    children: list[Node] = field(default_factory=list, repr=False)
    copies: int = 0
    """How many samples wrote this step here."""
    ends: int = 0
    """How many samples ended here."""
    finished: bool = False
    """It states a final answer."""
    note: str | None = None
    """Why it cannot go on although it is not finished."""
    judgment: StepJudgment | None = None
    """Of its step."""
    whole: tuple[StepJudgment, ...] | None = None
    """Of all steps, where a solution was judged in one go."""
    unscored_reason: str | None = None
    """Why there is no judgment."""
    tokens: int = 0
    """That the policy wrote for it."""
    visits: int = 0
    total: float = 0.0
    """Sum of the values backed up through it."""
    prior: float = 1.0
    closed: bool = False
    """Nothing new is to be found below it."""
    round: int | None = None
    """`critic`: the rewrite that it belongs to."""

    @property
    def path(self) -> list[Node]:
        """From the first step to this one."""
        found: list[Node] = []
        node: Node | None = self
        while node is not None and node.parent is not None:
            found.append(node)
            node = node.parent
        return found[::-1]

    @property
    def steps(self) -> tuple[str, ...]:
        """The prefix."""
        return tuple(node.step for node in self.path)

    @property
    def judgments(self) -> list[StepJudgment | None]:
        """One a step; None = not judged."""
        if self.whole is not None:
            known = {judgment.index: judgment for judgment in self.whole}
            return [known.get(index) for index in range(len(self.path))]
        return [node.judgment for node in self.path]

    @property
    def rewards(self) -> list[float | None]:
        """One a step; None = unscored."""
        return [None if judgment is None else judgment.reward for judgment in self.judgments]

    @property
    def open(self) -> bool:
        """Whether a further step can be asked for."""
        return not self.finished and self.note is None

    @property
    def value(self) -> float | None:
        """Mean of the values backed up through it."""
        return self.total / self.visits if self.visits else None

    def score(self, aggregation: str) -> float | None:
        """Its steps' rewards as one; None where one is not known."""
        return aggregate(self.rewards, aggregation)

    def why_unscored(self) -> str | None:
        """The first reason on the path for a reward that is missing."""
        for node, judgment in zip(self.path, self.judgments, strict=True):
            if judgment is None:
                return node.unscored_reason or "it was not judged"
            if judgment.reward is None:
                return judgment.unscored_reason or "no reason is known"
        return None


class Tree:
    """All nodes of one search, in the order in which they were made."""

    def __init__(self) -> None:
        self.root = Node(0)
        self.nodes = [self.root]

    def add(self, parent: Node, step: str, *, tokens: int = 0) -> Node:
        """The child of `parent` with this step, made if it is new."""
        found = next((child for child in parent.children if child.step == step), None)
        if found is None:
            found = Node(len(self.nodes), parent, step)
            parent.children.append(found)
            self.nodes.append(found)
        found.copies += 1
        found.tokens += tokens
        return found

    def leaves(self) -> Iterator[Node]:
        """Nodes with steps at which a sample ended, or from which nothing went on."""
        return (node for node in self.nodes[1:] if node.ends or not node.children)


def ranked(nodes: Sequence[Node], aggregation: str) -> list[Node]:
    """Best first: scored before unscored, finished or open before dead ends, then by score; ties in order of making."""

    def key(node: Node) -> tuple[bool, bool, float, int]:
        score = node.score(aggregation)
        return score is None, node.note is not None, -(score or 0.0), node.id

    return sorted(nodes, key=key)
