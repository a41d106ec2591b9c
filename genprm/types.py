"""The records that go in and the results that come out, as frozen pydantic models.

Knows nothing about models, files or prompts. Field names of the result are part of the published format
(`schema_version` 1): other programs read them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

SCHEMA_VERSION = 1

CheckStatus = Literal["ok", "error", "timeout", "memory", "output_limit", "died", "unavailable"]
Verdict = Literal["correct", "incorrect", "unscored"]


class Record(BaseModel):
    """Base: immutable, and strict about unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Solution(Record):
    """One problem with one candidate solution, already split into steps."""

    id: str
    problem: str
    steps: tuple[str, ...]
    answer: str | None = None
    """Reference final answer; enables the outcome reward."""
    label: int | None = None
    """Gold index of the first wrong step, 0-based; -1 = none is wrong; None = not known."""
    meta: dict[str, Any] = Field(default_factory=dict)
    """Fields of the row that genprm does not read, kept for the caller."""


class CodeCheck(Record):
    """One executed block of code and what came of it."""

    source: str
    status: CheckStatus
    """`ok` and `error` are the program's own doing; the others say how it was stopped, or that it never ran."""
    output: str
    """What the model is shown: merged output, then the last expression's value or the traceback."""
    seconds: float
    """Wall-clock seconds inside the sandbox."""


class Vote(Record):
    """One sampled critique of one step and the label probability read after it."""

    p_yes: float = Field(ge=0, le=1)
    """P(Yes) under the label constraint."""
    mass: float | None
    """Probability in the full vocabulary, before the constraint, of all tokens that start a label."""
    low_mass: bool = False
    """True where `mass` is under `verify.min_mass`: the model hardly wanted to answer here."""
    critique: str
    written: tuple[tuple[int, int], ...] | None = None
    """Start and end, in characters of `critique`, of what the model wrote; the rest was inserted by the host."""
    checks: tuple[CodeCheck, ...] = ()
    notes: tuple[str, ...] = ()
    """What cut the critique short: length limits, round limits."""
    completion_tokens: int = 0
    """Tokens the model generated; host-inserted text is not counted."""
    seed: int | None = None
    """None = greedy."""
    shared: bool = False
    """True where one critique covers several steps; its tokens are counted at the first of them."""
    direct: bool = False
    """True where a direct judgement was sure enough, so that no critique was written."""
    prefix_score: float | None = None
    """P(Yes) to a closing question on all steps up to here, for protocols that ask one."""


class FailedVote(Record):
    """A critique from which no label could be read; it takes no part in the reward."""

    reason: str
    critique: str = ""
    checks: tuple[CodeCheck, ...] = ()
    notes: tuple[str, ...] = ()
    completion_tokens: int = 0
    seed: int | None = None
    shared: bool = False


Ballot = Vote | FailedVote
"""What came of one critique of one step."""


class StepJudgment(Record):
    """The verdict on one step."""

    index: int
    text: str
    reward: float | None
    verdict: Verdict
    unscored_reason: str | None = None
    features: dict[str, float] | None = None
    votes: tuple[Vote, ...] = ()
    failed_votes: tuple[FailedVote, ...] = ()


OnStep = Callable[[StepJudgment], None]
"""Told each step's judgment, in order, as soon as nothing can change it."""


class Outcome(Record):
    """The solution's own final answer compared with the reference answer."""

    answer: str | None
    correct: bool | None
    """None = could not be decided (no answer found, not parsable, or the comparison ran out of time)."""


class ProtocolRef(Record):
    """Which prompts judged: a result can be traced back to the exact templates."""

    name: str
    sha256: str


class Usage(Record):
    """What one solution cost."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    code_runs: int = 0
    cache_hits: int = 0
    """Critiques that the verdict cache held; their tokens are not counted here."""
    seconds: float = 0.0
    """Wall-clock seconds from the first request to the last verdict."""


class VerificationResult(Record):
    """Everything known about one judged solution."""

    schema_version: int = SCHEMA_VERSION
    id: str
    problem: str
    steps: tuple[StepJudgment, ...]
    first_error: int | None
    """0-based; -1 = no step is wrong; None = undecided because an earlier step is unscored."""
    stopped_early: bool = False
    """True where steps after the first error were not judged; they are absent from `steps`."""
    reward: float | None
    aggregation: str
    outcome: Outcome | None = None
    prefix_score: float | None = None
    """For protocols that judge the whole solution at once: mean P(Yes) to their closing question."""
    evidence: dict[str, Any] | None = None
    label: int | None = None
    model: str
    protocol: ProtocolRef
    config_sha256: str
    sandbox: str
    """The level under which code ran, e.g. `L1`, or `off`."""
    usage: Usage = Usage()
