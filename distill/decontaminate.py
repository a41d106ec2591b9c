"""Whether a training problem stands in an evaluation set: the same words, or a long run of the same words.

Knows texts only. The rule of thirteen words in a row is that of GPT-3 (Brown et al., 2020, appendix C), which counts
words without case and punctuation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

NGRAM = 13


def normalise(text: str) -> str:
    """Case folded, letters and digits only, one space between words.

    >>> normalise("  Ana buys 5 boxes,\\n at $2.50!")
    'ana buys 5 boxes at 2 50'
    """
    return re.sub(r"[\W_]+", " ", text.casefold()).strip()


class Known:
    """The problems of evaluation sets, for asking whether another one is among them."""

    def __init__(self, problems: Iterable[tuple[str, str]] = (), ngram: int = NGRAM):
        """Take the problems in.

        Args:
            problems: name and text of each.
            ngram: words in a row that make two problems the same. One that is shorter is known by its whole text only.
        """
        self.ngram = ngram
        self._texts: dict[str, str] = {}
        self._runs: dict[int, str] = {}
        for name, text in problems:
            words = normalise(text)
            self._texts.setdefault(words, name)
            for run in self._hashes(words):
                self._runs.setdefault(run, name)

    def __len__(self) -> int:
        return len(self._texts)

    def match(self, problem: str) -> str | None:
        """The name of a known problem that this one repeats, or None."""
        words = normalise(problem)
        if words in self._texts:
            return self._texts[words]
        return next((self._runs[run] for run in self._hashes(words) if run in self._runs), None)

    def _hashes(self, words: str) -> Iterator[int]:
        # Hashes of this process: a long evaluation set's runs as text would be many times its size.
        parts = words.split()
        return (hash(tuple(parts[at : at + self.ngram])) for at in range(len(parts) - self.ngram + 1))
