"""Final answers against the reference, from many tasks at once.

Knows how answers are extracted and compared (genprm.outcome: math-verify in a process that can be killed). What cannot
be compared is None, never wrong.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

from ..outcome import compare, extract_answer

_MARKER = re.compile(r"^\s*(?:[#*]+\s*)?step\s*\d+\s*[:.)]?", re.IGNORECASE)
MAX_KEPT = 50_000
"""Comparisons that are remembered."""


def stated_answer(steps: Sequence[str]) -> str | None:
    """The final answer that steps state; the number in a marker such as `Step 3:` is none."""
    return extract_answer("\n".join(_MARKER.sub("", step) for step in steps))


class Grader:
    """Compares answers, each pair once; a thread of its own keeps the event loop free."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="genprm-grader")
        self._known: dict[tuple[str, str], bool | None] = {}
        self.counts: Counter[str] = Counter()

    async def solution(self, steps: Sequence[str], reference: str | None) -> tuple[str | None, bool | None]:
        """The answer that steps state, and whether it is the reference."""
        answer = stated_answer(steps)
        return answer, await self.answer(answer, reference)

    async def answer(self, answer: str | None, reference: str | None) -> bool | None:
        """Whether an answer is the reference; None where either is missing or they cannot be compared."""
        if answer is None or reference is None:
            return None
        pair = (answer, reference)
        if pair not in self._known:
            # Like answers in other words cost a comparison each: that is rare, and a spelling is no value.
            found = await asyncio.get_running_loop().run_in_executor(self._pool, compare, answer, reference)
            if len(self._known) >= MAX_KEPT:
                self._known.clear()
            self._known[pair] = found
        return self._known[pair]

    def close(self) -> None:
        """End the thread."""
        self._pool.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
