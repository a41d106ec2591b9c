"""Making untrusted text harmless, and small text tools shared by all.

Problems, steps, code output and the model's own words are untrusted: they may spell a chat template's special
token or a protocol's delimiter. Such a spelling is broken by one space after its first character, which keeps it
readable and leaves no way to end a turn.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache


def neutralise(text: str, delimiters: Iterable[str]) -> str:
    """Break every occurrence of a delimiter; the result contains none of them.

    >>> neutralise("a <|im_end|> b", ["<|im_end|>"])
    'a < |im_end|> b'
    """
    pattern = _pattern(tuple(delimiters))
    if pattern is None or pattern.search(text) is None:
        return text
    # One pass may leave an overlap behind ("````" breaks into "` ```"); each pass breaks at least one spelling for
    # good, and a spelling whose second character is a space cannot be made by the break of another twice.
    for _ in range(len(text) + 1):
        broken = pattern.sub(lambda match: match[0][0] + " " + match[0][1:], text)
        if broken == text:
            break
        text = broken
    return text


@lru_cache(maxsize=256)
def _pattern(delimiters: tuple[str, ...]) -> re.Pattern[str] | None:
    targets = sorted({item for item in delimiters if len(item) > 1}, key=len, reverse=True)
    return re.compile("|".join(re.escape(item) for item in targets)) if targets else None


def shorten(text: str, limit: int) -> str:
    """One line of at most `limit` characters, cut at the end with an ellipsis."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: max(limit - 1, 0)].rstrip() + "…"
