"""What one search has used, and the bounds at which it ends with what it has.

A bound is looked at before work begins, so tokens may exceed theirs by what was under way; judgements never do.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..types import Usage


@dataclass(slots=True)
class Ledger:
    """Counts of one search."""

    budget_tokens: int | None = None
    """Generated tokens of policy and judge; None = no bound."""
    budget_judgements: int | None = None
    """None = no bound."""
    policy_prompt_tokens: int = 0
    policy_completion_tokens: int = 0
    judge_prompt_tokens: int = 0
    judge_completion_tokens: int = 0
    code_runs: int = 0
    asked: int = 0
    """Judgements that the search wanted."""
    judged: int = 0
    """Those that were made for it."""
    reserved: int = 0
    """Those that may be under way, so that the bound holds among judgements that run together."""

    @property
    def tokens(self) -> int:
        """Generated tokens so far."""
        return self.policy_completion_tokens + self.judge_completion_tokens

    @property
    def reused(self) -> int:
        """Judgements that were there already."""
        return self.asked - self.judged

    def spent(self) -> str | None:
        """Which bound is reached; None where more work may begin."""
        if self.budget_tokens is not None and self.tokens >= self.budget_tokens:
            return f"search.budget_tokens = {self.budget_tokens} is used up"
        if self.budget_judgements is not None and self.judged + self.reserved >= self.budget_judgements:
            return f"search.budget_judgements = {self.budget_judgements} is used up"
        return None

    def wrote(self, prompt_tokens: int, completion_tokens: int) -> None:
        """Count what the policy wrote."""
        self.policy_prompt_tokens += prompt_tokens
        self.policy_completion_tokens += completion_tokens

    def take(self, usage: Usage | None) -> None:
        """Count one judgement that was asked for; None = it was there already."""
        self.asked += 1
        if usage is None:
            return
        # All of its critiques came from the verdict cache: nothing was made for it.
        self.judged += not (usage.cache_hits and not usage.completion_tokens and not usage.prompt_tokens)
        self.judge_prompt_tokens += usage.prompt_tokens
        self.judge_completion_tokens += usage.completion_tokens
        self.code_runs += usage.code_runs
