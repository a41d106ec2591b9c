"""Splits the text of a solution into steps without losing a character.

Knows the shapes in which people and models write steps: explicit `Step k:` markers, numbered lists, paragraphs. Knows
nothing about mathematics, records or models, and never judges whether a split is a sensible unit of reasoning.

The rules, in order; the first that finds something decides for the whole text:

1. Explicit markers at the start of a line: `Step 1:`, `Step 1.`, `Step 1)`, `Step 1 -`, a line `Step 1`,
   `**Step 1:** ...`, `### Step 1 ...`. One marker is enough, and the numbers need not be in order.
2. A numbered list at the start of lines, `1. ` or `1) ` (also `**1. ` and `### 1. `), counting 1, 2, 3, ... with one
   indentation and one style; at least two items. Other numbers, such as those of inner lists, split nothing.
3. Blank lines.

No rule splits inside a closed code fence or display mathematics (`\\[..\\]`, `$$..$$`, `\\begin{..}..\\end{..}`): a
comment `# Step 2: ...` in a program is not a marker. What is never closed protects nothing.
Text before the first marker or item belongs to the first step, text after the last one to the last step, and the white
space between two steps to the earlier one.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from itertools import pairwise

_STEP_MARKER = re.compile(
    r"""^[ \t]*(?:[-*+][ \t]+)?(?:
        \#{1,6}[ \t]*(?:\*\*|__)?step[ \t]+\d+\b              # a heading
      | (?:\*\*|__)step[ \t]+\d+\b                            # bold
      | step[ \t]+\d+[ \t]*(?::|\)|\.(?!\d)|[-–—][ \t]|\r?$)  # plain: only with a delimiter, "Step 2 shows" is prose
    )""",
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
_LIST_ITEM = re.compile(
    r"""^(?P<indent>[ \t]*)(?P<lead>\#{1,6}[ \t]+)?(?P<bold>\*\*)?
    (?P<number>\d{1,6})(?P<style>[.)])(?:\*\*)?[ \t]+(?=\S)""",
    re.MULTILINE | re.VERBOSE,
)
_BLANK_LINES = re.compile(r"\n(?:[^\S\n]*\n)+")
_DELIMITER = re.compile(
    r"""^[ \t]*(?P<fence>`{3,}|~{3,})(?P<info>[^`\n]*)$
      | (?<!\\)(?P<bracket>\\[\[\]])
      | (?<!\\)(?P<dollars>\$\$)
      | (?<!\\)\\(?P<verb>begin|end)\{(?P<name>[^{}\n]{1,40})\}
    """,
    re.MULTILINE | re.VERBOSE,
)


def segment(text: str) -> list[str]:
    """Split a solution into its steps; `"".join(segment(text)) == text` always holds.

    Args:
        text: The whole solution, as a model wrote it.

    Returns:
        The steps in order, none of them only white space. The exceptions that losing nothing forces: `[]` for the empty
        text, and one step for a text of only white space. Takes time linear in the length, up to a logarithm.
    """
    if not text:
        return []
    protected = _protected_spans(text)
    starts = [m.start() for m in _STEP_MARKER.finditer(text) if not _inside(protected, m.start())]
    starts = starts or _list_starts(text, protected)
    if starts:
        return _cut(text, starts[1:])
    # A separator lies wholly inside or wholly outside: no region begins or ends with a newline of its own.
    return _cut(text, [m.end() for m in _BLANK_LINES.finditer(text) if not _inside(protected, m.start())])


def _cut(text: str, cuts: list[int]) -> list[str]:
    """Cut at the offsets; a piece of only white space joins the piece before it, or the next one at the beginning."""
    pieces: list[str] = []
    pending = ""
    for start, end in pairwise([0, *(cut for cut in cuts if 0 < cut < len(text)), len(text)]):
        piece = pending + text[start:end]
        pending = ""
        if piece.strip():
            pieces.append(piece)
        elif pieces:
            pieces[-1] += piece
        else:
            pending = piece
    if pending:
        pieces.append(pending)
    return pieces


def _list_starts(text: str, protected: list[tuple[int, int]]) -> list[int]:
    starts: list[int] = []
    shape: tuple[str, ...] | None = None
    for match in _LIST_ITEM.finditer(text):
        if int(match["number"]) != len(starts) + 1 or _inside(protected, match.start()):
            continue
        this = (match["indent"], match["lead"] or "", match["bold"] or "", match["style"])
        if shape is None:
            shape = this
        if this == shape:
            starts.append(match.start())
    return starts if len(starts) > 1 else []


def _protected_spans(text: str) -> list[tuple[int, int]]:
    """Closed code fences and display mathematics, as ordered, disjoint (start, end) offsets."""
    openers: list[tuple[int, str]] = []
    # The ends of everything that can close, by what it closes: looked up by bisection, so that a text full of
    # delimiters that are never closed stays cheap.
    closers: defaultdict[str, list[int]] = defaultdict(list)
    for match in _DELIMITER.finditer(text):
        if fence := match["fence"]:
            openers.append((match.start(), fence))
            if not match["info"].strip():
                closers[fence].append(match.end())
        elif match["dollars"]:
            openers.append((match.start(), "$$"))
            closers["$$"].append(match.end())
        elif bracket := match["bracket"]:
            if bracket == r"\[":
                openers.append((match.start(), bracket))
            else:
                closers[r"\["].append(match.end())
        elif match["verb"] == "begin":
            openers.append((match.start(), match["name"]))
        else:
            closers[match["name"]].append(match.end())
    # An environment's name may look like a fence or a bracket only in hostile text; the two then share closers, which
    # moves a cut and loses nothing.
    spans: list[tuple[int, int]] = []
    position = 0
    for start, kind in openers:
        if start < position:
            continue
        ends = closers[kind]
        # Of a symmetric delimiter the opener itself is among the closers and must not close itself.
        own = start + (len(kind) if kind == "$$" else 0)
        index = bisect_left(ends, own + 1)
        if kind[:1] in "`~" and index < len(ends) and "\n" not in text[start : ends[index]]:
            index += 1
        if index < len(ends):
            position = ends[index]
            spans.append((start, position))
    return spans


def _inside(spans: list[tuple[int, int]], offset: int) -> bool:
    index = bisect_left(spans, (offset + 1,)) - 1
    return index >= 0 and spans[index][0] <= offset < spans[index][1]
