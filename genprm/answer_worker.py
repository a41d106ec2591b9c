"""Decides whether two final answers are equal: a process of its own, because the question may have no end.

Reads one JSON object a line, `{"id", "answer", "reference"}`, and writes one, `{"id", "correct"}`, where `correct` is
true, false, or null for "not decided". Its first line is `{"ready": true}` or `{"fatal": REASON}`. outcome.py starts it
and kills it when it takes too long; it ends by itself when its standard input does.

This is the only module that imports math-verify. Around it, it settles what math-verify reads wrongly: words (to it
`Monday` is a product of six symbols, equal to each of its anagrams), units written as bare words, mixed numbers, and
`1e3`. It gives up, with null, on what is too large to evaluate, and on prose.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
import resource
import signal
import sys
from decimal import Decimal
from typing import Any

MEMORY_BYTES = 2**30
"""Address space of the process."""
CPU_SECONDS = 60
"""Per question, enforced by the kernel: ends the process even where its parent has died without killing it."""
MAX_CHARS = 2_000
"""Longer answers are not compared as mathematics."""
MAX_DIGITS = 100_000
"""Numbers with more decimal digits are not evaluated."""

_NUMBER = re.compile(
    r"""(?P<sign>[-+]?)\s*[$€£¥]?\s*
    (?P<whole>\d{1,3}(?:[,\ ]\d{3})+|\d*)(?P<fraction>\.\d*)?(?:[eE](?P<exponent>[-+]?\d{1,2}))?
    \s*(?P<percent>\\?%|percent\b)?(?P<unit>(?:\s*[€£¥])|(?:\s+(?:[mgsL]|[A-Za-z]{2,}[A-Za-z .]*)))?""",
    re.VERBOSE,
)
_MIXED = re.compile(r"(?P<sign>-?)\s*(?P<whole>\d+)\s+(?P<top>\d+)\s*/\s*(?P<bottom>\d+)")
_WRAPPED = re.compile(r"\$\$(.*)\$\$|\$(.*)\$|\\\((.*)\\\)|\\\[(.*)\\\]|\*\*(.*)\*\*", re.DOTALL)
_TEXT = re.compile(r"\\(?:text|textbf|textit|mathrm|mbox|operatorname)\s*\{([^{}]*)\}")
_FUNCTION = re.compile(
    r"pi|a?(?:rc)?(?:sin|cos|tan|cot|sec|csc)h?|log|ln|exp|sqrt|max|min|gcd|lcm|mod|inf|deg|det", re.IGNORECASE
)
# Words after a number that change its value, and so are no unit of it.
_NO_UNIT = re.compile(
    r"\b(?:or|and|to|than|more|less|plus|minus|times|over|squared|cubed|hundred|thousand|million|billion|trillion|dozen"
    r"|score|pairs?)\b",
    re.IGNORECASE,
)


def main() -> None:
    """Answer questions until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle, which then closes our input
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints must not look like a reply
    _limit(resource.RLIMIT_CORE, 0)
    try:
        import math_verify  # noqa: F401
    except Exception as error:
        print(json.dumps({"fatal": f"{type(error).__name__}: {error}"}), file=replies, flush=True)
        return
    logging.disable(logging.CRITICAL)  # math-verify warns that it was told not to use signals
    _limit(resource.RLIMIT_AS, MEMORY_BYTES)
    print(json.dumps({"ready": True}), file=replies, flush=True)
    for line in sys.stdin.buffer:
        question = json.loads(line)
        _limit(resource.RLIMIT_CPU, math.ceil(_time_used()) + CPU_SECONDS)
        try:
            correct = equal(question["answer"], question["reference"])
        except Exception:  # what cannot be worked out is not decided; a memory error is among these
            correct = None
        print(json.dumps({"id": question["id"], "correct": correct}), file=replies, flush=True)


def _time_used() -> float:
    """CPU seconds of this process so far."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _limit(which: int, value: int) -> None:
    _, hard = resource.getrlimit(which)
    resource.setrlimit(which, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def equal(answer: str, reference: str) -> bool | None:
    """Whether two answers are the same; None where that cannot be decided.

    Raises:
        Exception: Of any kind, from sympy; means the same as None.
    """
    given, wanted = clean(answer), clean(reference)
    if not given or not wanted:
        return None
    if _squeezed(given) == _squeezed(wanted):
        return True
    if max(len(given), len(wanted)) > MAX_CHARS:
        return None
    words = [text.isalpha() and len(text) > 1 and not _FUNCTION.fullmatch(text) for text in (given, wanted)]
    if all(words):
        # `xyz` and `zyx` may be products after all.
        return None if sorted(given.lower()) == sorted(wanted.lower()) else False
    if _is_prose(given) or _is_prose(wanted):
        return None
    from math_verify import verify

    numbers = _number(given), _number(wanted)
    left, right = _parse(given, numbers[0]), _parse(wanted, numbers[1])
    if not left or not right or any(_digits(item) > MAX_DIGITS for item in (*left, *right)):
        return None
    same = bool(verify(right, left, timeout_seconds=None, raise_on_error=True))
    units = [_unit(number) for number in numbers]
    # 5 cm is neither shown to be 5 m nor shown to differ from 0.05 m: units are not converted.
    return None if all(units) and units[0] != units[1] else same


def clean(text: str) -> str:
    """Strip what surrounds an answer, `$..$`, `**..**`, a full stop, and LaTeX spacing; unwrap a lone `\\text{..}`."""
    text = text.replace("\u2212", "-").replace("{,}", ",").replace(r"\$", "$")
    text = re.sub(r"\\[,;:!]|\\q?quad\b|~|\u00a0", lambda match: "" if match[0] in (r"\,", r"\!") else " ", text)
    before = None
    while text != before:
        before = text
        text = text.strip().rstrip(".;,").strip()
        if (wrapped := _WRAPPED.fullmatch(text)) and "$" not in (inner := next(filter(None, wrapped.groups()), "")):
            text = inner
        if lone := _TEXT.fullmatch(text):
            text = lone[1]
    return text


def _squeezed(text: str) -> str:
    text = re.sub(r"\\(?:left|right)\b", "", text)
    return re.sub(r"\s+", "", re.sub(r"\\[dt]frac", r"\\frac", text)).casefold()


def _is_prose(text: str) -> bool:
    """Whether words are left beside the mathematics: parsed, they would become products of their letters."""
    if _number(text) is not None:
        return False
    text = re.sub(r"\b(?:and|or)\b", " ", re.sub(r"\\[A-Za-z]+", " ", _TEXT.sub(" ", text)))
    return any(not _FUNCTION.fullmatch(word) for word in re.findall(r"[^\W\d_]{3,}", text))


def _number(text: str) -> tuple[str, str] | None:
    """A plain number in one spelling, `-1200.5` or `50%`, and its unit; a money sign is dropped."""
    if mixed := _MIXED.fullmatch(text):
        bottom = int(mixed["bottom"])
        return f"{mixed['sign']}{int(mixed['whole']) * bottom + int(mixed['top'])}/{bottom}", ""
    match = _NUMBER.fullmatch(_TEXT.sub(r" \1 ", text).strip())
    if match is None or not (match["whole"] or (match["fraction"] or "").strip(".")):
        return None
    unit = (match["unit"] or "").strip().lower()
    if _NO_UNIT.search(unit) or _FUNCTION.fullmatch(unit.split(" ")[0]):
        return None
    digits = re.sub(r"[, ]", "", match["whole"]) or "0"
    value = Decimal(f"{match['sign']}{digits}{(match['fraction'] or '').rstrip('.')}e{match['exponent'] or 0}")
    return f"{value:f}" + ("%" if match["percent"] else ""), unit


def _unit(number: tuple[str, str] | None) -> str:
    return number[1].rstrip(".s") if number is not None else ""


def _parse(text: str, number: tuple[str, str] | None) -> list[Any]:
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse

    if number is not None:
        config: Any = [ExprExtractionConfig()]
        latex = number[0]
    else:
        config = [LatexExtractionConfig()]
        latex = re.sub(r"(?<![A-Za-z\\])(pi|sin|cos|tan|log|ln)(?![A-Za-z])", r"\\\1 ", text.replace("$", ""))
        latex = "$" + re.sub(r"\s+(?:and|or)\s+", ", ", latex) + "$"
    return list(parse(latex, config, fallback_mode="no_fallback", parsing_timeout=None))


def _digits(item: Any) -> float:
    """About how many decimal digits the value of an unevaluated expression has, or its largest part."""
    import sympy

    if not isinstance(item, sympy.Basic):
        return 0.0
    if isinstance(item, sympy.Integer):
        return int(item).bit_length() * 0.30103
    if isinstance(item, sympy.Rational):
        return max(int(item.p).bit_length(), int(item.q).bit_length()) * 0.30103
    parts = [_digits(part) for part in item.args]
    if isinstance(item, sympy.Pow) and item.exp.is_number:
        size = abs(float(item.exp)) if isinstance(item.exp, sympy.Number) else 10.0 ** min(parts[1], 300)
        return float(max(parts[0], 1.0) * size)
    if isinstance(item, sympy.factorial | sympy.binomial | sympy.gamma) and parts:
        return float(max(parts) * 10.0 ** min(max(parts), 300))
    return float(sum(parts) if isinstance(item, sympy.Mul) else max(parts, default=0.0))


if __name__ == "__main__":
    main()
