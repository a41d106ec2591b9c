"""Rollouts by the policy, each prefix's once: kept in the verdict cache. Knows the policy; says nothing of prefixes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from pydantic import TypeAdapter

from ..cache import VerdictCache
from ..outcome import extract_answer
from ..policy import Policy
from .rollouts import Rollout

_KEPT = TypeAdapter(tuple[Rollout, ...])


class Roller:
    """Continues prefixes of solutions."""

    def __init__(self, policy: Policy, *, seed: int, cache: VerdictCache | None = None):
        self._policy, self._seed, self._cache = policy, seed, cache
        self._base = [policy.model, policy.protocol.ref.sha256, policy.settings.model_dump(mode="json"), seed]

    async def __call__(self, problem: str, steps: Sequence[str], *, n: int) -> Sequence[Rollout]:
        """`n` continuations of a prefix, with their final answers; what was remembered costs nothing."""
        parts = json.dumps(["rollouts", self._base, problem, list(steps), n])
        key = hashlib.sha256(parts.encode("utf-8", "surrogatepass")).hexdigest()
        if self._cache is not None and (kept := self._cache.get(key)) is not None:
            return [Rollout(answer=one.answer) for one in _KEPT.validate_json(kept)]
        drafts = await self._policy.complete(problem, steps, n=n, seed=self._seed)
        rolled = tuple(
            Rollout(
                extract_answer("\n".join(draft.steps)) if draft.finished else None,
                draft.completion_tokens,
                draft.prompt_tokens,
            )
            for draft in drafts
        )
        if self._cache is not None:
            self._cache.put(key, _KEPT.dump_json(rolled).decode())
        return rolled
