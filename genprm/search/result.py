"""What a search says of a problem: its pick, the votes beside it, every candidate, and what it cost.

A solution without a final answer is never picked over one that has it, and an unscored one never over a scored one;
where nothing better is there, the pick says so.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..outcome import extract_answer
from ..types import ProtocolRef, Record
from .answers import VotedAnswer, grouped, is_correct, vote
from .scene import Scene
from .tree import Node

SEARCH_SCHEMA_VERSION = 1


class Candidate(Record):
    """One solution, finished or not."""

    node: int
    """Its last node in the trace."""
    steps: tuple[str, ...]
    answer: str | None
    """None where it is not finished."""
    reward: float | None
    """Its steps' rewards as one; None where one of them is not known."""
    step_rewards: tuple[float | None, ...]
    finished: bool
    note: str | None = None
    """Why it is not finished, or has no reward."""
    copies: int = 1
    """How many samples wrote it."""
    correct: bool | None = None
    """Its answer against the reference; None = no reference, or not decided."""


class Correct(Record):
    """What each way to choose would have got right; None = not decided."""

    pick: bool | None
    majority: bool | None
    weighted_majority: bool | None
    random: float | None
    """Share of right candidates: what a random pick gets."""
    oracle: bool | None
    """Whether any candidate is right."""


class Counts(Record):
    """How much was done."""

    nodes: int
    rounds: int
    """Rounds, simulations or rewrites."""
    candidates: int
    finished: int
    unfinished: int
    unscored: int
    """Candidates without a reward."""
    asked: int
    """Judgements that were wanted."""
    judged: int
    """Judgements that were made: each distinct prefix once."""
    reused: int
    """Judgements that were there already, from this search, another one, or the verdict cache."""


class SearchUsage(Record):
    """What one problem cost."""

    policy_prompt_tokens: int = 0
    policy_completion_tokens: int = 0
    judge_prompt_tokens: int = 0
    judge_completion_tokens: int = 0
    code_runs: int = 0
    seconds: float = 0.0


class SearchResult(Record):
    """Everything that came of one problem."""

    schema_version: int = SEARCH_SCHEMA_VERSION
    id: str
    problem: str
    method: str
    pick: Candidate | None
    """None where the policy wrote no step."""
    majority: VotedAnswer | None
    """The answer of the most candidates; unfinished ones have no vote."""
    weighted_majority: VotedAnswer | None
    """The answer with the largest sum of rewards; unscored ones have no vote."""
    candidates: tuple[Candidate, ...]
    ended: str
    """Why the search ended."""
    answer: str | None = None
    """The reference."""
    correct: Correct | None = None
    """None where there is no reference."""
    counts: Counts
    usage: SearchUsage
    aggregation: str
    model: str
    """The judge."""
    protocol: ProtocolRef
    policy: str
    policy_protocol: ProtocolRef
    config_sha256: str
    sandbox: str


async def candidates_of(scene: Scene, reference: str | None) -> list[Candidate]:
    """Where samples ended; where none is finished, also what was not continued. Best last is not implied."""
    leaves = [node for node in scene.tree.leaves() if node.finished or node.note is not None]
    if not any(node.finished for node in leaves):
        leaves = list(scene.tree.leaves())
    answers = [extract_answer("\n".join(node.steps)) if node.finished else None for node in leaves]
    spelled = await grouped(answers)
    verdicts: dict[str | None, bool | None] = {}
    if reference is not None:
        verdicts = {answer: await is_correct(answer, reference) for answer in dict.fromkeys(spelled)}
    return [_candidate(scene, node, answer, verdicts.get(answer)) for node, answer in zip(leaves, spelled, strict=True)]


def _candidate(scene: Scene, node: Node, answer: str | None, correct: bool | None) -> Candidate:
    notes = [] if node.finished else [node.note or f"not continued: {scene.ended}"]
    reward = scene.score(node)
    if reward is None:
        notes.append(f"unscored: {node.why_unscored()}")
    return Candidate(
        node=node.id,
        steps=node.steps,
        answer=answer,
        reward=reward,
        step_rewards=tuple(node.rewards),
        finished=node.finished,
        note="; ".join(notes) or None,
        copies=max(node.ends, 1),
        correct=correct,
    )


def picked(candidates: Sequence[Candidate]) -> Candidate | None:
    """The best candidate: scored before unscored, finished before unfinished, then by reward; of equals the first."""
    return min(
        candidates,
        key=lambda one: (one.reward is None, not one.finished, -(one.reward or 0.0), one.node),
        default=None,
    )


async def correctness(
    pick: Candidate | None,
    majority: VotedAnswer | None,
    weighted: VotedAnswer | None,
    candidates: Sequence[Candidate],
    reference: str,
) -> Correct:
    """What each way to choose gets right."""
    known = [(one.correct, one.copies) for one in candidates if one.correct is not None]
    total = sum(copies for _, copies in known)
    right = any(correct for correct, _ in known)
    return Correct(
        pick=False if pick is None else pick.correct,
        majority=await is_correct(majority.answer if majority else None, reference),
        weighted_majority=await is_correct(weighted.answer if weighted else None, reference),
        random=sum(copies for correct, copies in known if correct) / total if total else None,
        oracle=True if right else False if len(known) == len(candidates) else None,
    )


def votes_of(candidates: Sequence[Candidate]) -> tuple[VotedAnswer | None, VotedAnswer | None]:
    """Plain and weighted majority; a candidate has a vote for each sample that wrote it."""
    answers = [one.answer for one in candidates]
    plain = vote(answers, [float(one.copies) for one in candidates])
    weighted = vote(answers, [None if one.reward is None else one.reward * one.copies for one in candidates])
    return plain, weighted


def counts_of(scene: Scene, candidates: Sequence[Candidate]) -> Counts:
    """How much was done."""
    finished = sum(one.finished for one in candidates)
    return Counts(
        nodes=len(scene.tree.nodes) - 1,
        rounds=scene.rounds,
        candidates=len(candidates),
        finished=finished,
        unfinished=len(candidates) - finished,
        unscored=sum(one.reward is None for one in candidates),
        asked=scene.ledger.asked,
        judged=scene.ledger.judged,
        reused=scene.ledger.reused,
    )


def usage_of(scene: Scene, seconds: float) -> SearchUsage:
    """What it cost."""
    ledger = scene.ledger
    return SearchUsage(
        policy_prompt_tokens=ledger.policy_prompt_tokens,
        policy_completion_tokens=ledger.policy_completion_tokens,
        judge_prompt_tokens=ledger.judge_prompt_tokens,
        judge_completion_tokens=ledger.judge_completion_tokens,
        code_runs=ledger.code_runs,
        seconds=round(seconds, 3),
    )
