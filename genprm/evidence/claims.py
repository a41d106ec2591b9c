"""Claims: the values that a step says it has computed, and the solution's final answer.

Knows where results stand: after an equality sign, in a box, in a calculator annotation, after words such as "is".
Knows nothing of programs and does not judge; equations.py says whether an equality holds, values.py compares.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal

from ..outcome import extract_answer
from ..types import Record
from .chains import Chain, Part, chains
from .expressions import parse, parse_start
from .reading import NUMBER_WORDS, read_value, value_of
from .tokens import MAX_CHARS, Token, names, tokenise
from .values import Value, same

MAX_CLAIMS = 100
"""Further claims of a step are dropped: no reader has use for them."""

MAX_NUMBERS = 500
"""Further numbers of a text are not compared with."""

How = Literal["equation", "boxed", "statement", "annotation"]


class Claim(Record):
    """A value that a step claims to have computed."""

    value: Value
    span: tuple[int, int]
    """Start and end in characters of the step."""
    how: How
    last: bool = False
    """Whether it is the last of the step's claims that are sure, or of all where none is."""
    sure: bool = True
    """False for what may be no result: number words, the right side of a condition, numbers after "has"."""
    computed: bool = False
    """Whether the step shows the arithmetic that gives it."""


_ANNOTATION = re.compile(r"<<([^<>\n]{1,300})>>")
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_STATED = re.compile(r"####|#\s*answer\b|\banswer\b[^.\n]{0,80}?(?:\bis\b|=|:)|^answer\s*:", re.IGNORECASE)
_CUES = names(
    "is are was were equals equal be becomes become gives give get gets got yields makes totals obtain obtains leaves "
    "find found that's it's there's that’s it’s there’s"
)
_WEAK_CUES = names(
    "has have had costs cost earns earn earned spends spent needs need pays paid sold left of to total takes took "
    "contains makes made"
)
_CHANGED_BY = names("times more less fewer out dozen hundred thousand million")
_LABELS = names("step case part equation problem question row method option choice stage")
_BETWEEN = 5
"""Words that may stand between a cue and its number."""


def step_claims(step: str) -> list[Claim]:
    """The values that a step claims to have computed, by place. Empty for a step longer than `tokens.MAX_CHARS`."""
    if len(step) > MAX_CHARS:
        return []
    found: dict[int, Claim] = {}
    busy: list[tuple[int, int]] = []
    found.update((claim.span[0], claim) for claim in _annotated(step))
    annotations = [match.span() for match in _ANNOTATION.finditer(step)]
    for chain in chains(step):
        read = [part for part in chain.parts if part.tokens]
        if read:
            busy.append((min(part.start for part in read), max(part.end for part in read)))
        for claim in _of_chain(step, chain):
            if not _within(claim.span[0], annotations):
                found.setdefault(claim.span[0], claim)
    for box, claim in _boxed(step):
        busy.append(claim.span)
        # A box around the right side of an equality is one claim, not two.
        for start in [at for at in found if box <= at < claim.span[1]]:
            claim = claim.model_copy(update={"computed": claim.computed or found.pop(start).computed})
        found[claim.span[0]] = claim
    for claim in _stated(step, busy + annotations):
        if not any(a < claim.span[1] and claim.span[0] < b for a, b in (other.span for other in found.values())):
            found[claim.span[0]] = claim
    if not found:
        found.update((claim.span[0], claim) for claim in _last_number(step, busy))
    claims = [found[start] for start in sorted(found)][:MAX_CLAIMS]
    last = max((at for at, claim in enumerate(claims) if claim.sure), default=len(claims) - 1)
    return [claim.model_copy(update={"last": True}) if at == last else claim for at, claim in enumerate(claims)]


def restated(step: str, problem: str, earlier: Sequence[str] = ()) -> list[Claim]:
    """The claims that only repeat a number of the problem or of an earlier step; what the step computes is none."""
    known: list[Value] = []
    for text in (problem, *earlier):
        known += [*numbers(text), *(claim.value for claim in step_claims(text))]
    plain = {value.number for value in known if value.number is not None}
    symbolic = [value for value in known if value.number is None][:50]
    return [
        claim
        for claim in step_claims(step)
        if not claim.computed and (claim.value.number in plain or any(same(claim.value, value) for value in symbolic))
    ]


def numbers(text: str) -> list[Value]:
    """The different numbers in a text, numerals and words up to twenty; none where it exceeds `tokens.MAX_CHARS`."""
    found: dict[str, Value] = {}
    for token in tokenise(text):
        word = token.text.lower()
        if token.kind == "num" and token.value is not None:
            found[word] = value_of(token.value)
        elif token.kind == "word" and word in NUMBER_WORDS:
            found[word] = value_of(NUMBER_WORDS[word])
        if len(found) >= MAX_NUMBERS:
            break
    return list(found.values())


def final_answer(steps: Sequence[str]) -> Value | None:
    """The answer that a solution states; see `outcome.extract_answer` for where it is looked for.

    Where it states none in such a form, the value that its last step comes to, since a comparison with programs errs
    less by that than by giving the solution up.
    """
    answer = extract_answer("\n".join(steps))
    if answer is not None:
        return read_value(answer)
    return next((claim.value for claim in step_claims(steps[-1]) if claim.last), None) if steps else None


def _within(position: int, spans: Sequence[tuple[int, int]]) -> bool:
    return any(start <= position < end for start, end in spans)


def _annotated(step: str) -> Iterator[Claim]:
    for match in _ANNOTATION.finditer(step):
        left, sign, right = match[1].rpartition("=")
        value = read_value(right)
        if sign and value.kind != "text":
            end = match.end() - 2
            yield Claim(value=value, span=(end - len(right), end), how="annotation", computed=bool(left.strip()))


def _of_chain(step: str, chain: Chain) -> Iterator[Claim]:
    computed = False
    for at, part in enumerate(chain.parts):
        final = at == len(chain.parts) - 1
        node, used = parse_start(part.tokens)
        if at and part.tokens and (final or (node is not None and node.literal and used == len(part.tokens))):
            claim = _right_side(step, chain, part, used if node is not None else 0, computed)
            if claim is not None:
                yield claim
        if node is not None and used == len(part.tokens):
            computed = computed or (not node.symbols and not node.literal)


def _right_side(step: str, chain: Chain, part: Part, used: int, computed: bool) -> Claim | None:
    end = part.tokens[used - 1].end if used else part.end
    with_unit = " ".join([step[part.start : end], *part.units[:2]])
    value = read_value(with_unit)
    if value.kind == "text":
        value = read_value(step[part.start : end])
    if value.kind == "text" and used:
        value, end = read_value(step[part.start : part.end]), part.end
    if value.kind == "text" or (value.kind == "expression" and not part.tokens[0].kind):
        return None
    first = parse(chain.parts[0].tokens) if chain.parts[0].tokens else None
    condition = first is not None and bool(first.symbols) and first.op not in ("sym", "mul") and len(chain.parts) == 2
    return Claim(value=value, span=(part.start, end), how="equation", sure=not condition, computed=computed)


def _boxed(step: str) -> Iterator[tuple[int, Claim]]:
    """Claims in boxes, each with the place of its box."""
    for match in list(_BOX.finditer(step))[:20]:
        depth = 1
        for at in range(match.end(), min(len(step), match.end() + 500)):
            if step[at] in "{}" and step[at - 1] != "\\":
                depth += 1 if step[at] == "{" else -1
            if depth == 0:
                inner = step[match.end() : at]
                if inner.strip():
                    yield match.start(), Claim(value=read_value(inner), span=(match.end(), at), how="boxed")
                break


def _stated(step: str, busy: Sequence[tuple[int, int]]) -> Iterator[Claim]:
    if _STATED.search(step) and (answer := extract_answer(step)) and (at := step.rfind(answer)) >= 0:
        value = read_value(answer)
        if value.kind != "text" and not _within(at, busy):
            yield Claim(value=value, span=(at, at + len(answer)), how="statement")
    tokens = tokenise(step)
    at = count = 0
    while at < len(tokens):
        cue = _cue(tokens, at, step)
        at += 1
        if cue is None:
            continue
        sure = cue
        for _ in range(_BETWEEN + 1):
            if at >= len(tokens) or (tokens[at].kind not in ("word", "soft") and not _opens(tokens, at)):
                break
            if tokens[at].kind == "soft":
                at += 1
                continue
            if tokens[at].kind == "word" and tokens[at].text.lower() not in NUMBER_WORDS:
                if _cue(tokens, at, step) is not None:
                    break
                at += 1
                continue
            claims, at = _values_at(step, tokens, at, sure, busy)
            yield from claims
            count += max(len(claims), 1)
            if count >= MAX_CLAIMS:
                return
            break


def _last_number(step: str, busy: Sequence[tuple[int, int]]) -> list[Claim]:
    """Failing all else, the last number in the text, as in "so she ate 12 apples"."""
    tokens = tokenise(step)
    for at in range(len(tokens) - 1, -1, -1):
        if tokens[at].kind == "num" and (not at or tokens[at - 1].text.lower() not in _LABELS):
            claims, _ = _values_at(step, tokens, at, False, busy)
            return claims[:1]
    return []


def _cue(tokens: Sequence[Token], at: int, step: str) -> bool | None:
    """Whether a token announces a result, and if so whether surely."""
    token = tokens[at]
    if token.kind == "word":
        word = token.text.lower()
        return True if word in _CUES else False if word in _WEAK_CUES else None
    if token.text == ":" and token.kind == "stop":
        # "Step 3: 4 apples" announces no result.
        return (
            None
            if re.search(
                r"(?:^|\n)\W*(?:step|case|part)\s+\w+$", step[max(token.start - 60, 0) : token.start], re.IGNORECASE
            )
            else False
        )
    return None


def _opens(tokens: Sequence[Token], at: int) -> bool:
    return tokens[at].kind in ("num", "sym", "cmd", "open", "fn") or tokens[at].text == "-"


def _values_at(
    step: str, tokens: Sequence[Token], at: int, sure: bool, busy: Sequence[tuple[int, int]]
) -> tuple[list[Claim], int]:
    """The value at a place and those listed after it, and where the reading stopped."""
    claims: list[Claim] = []
    while at < len(tokens) and len(claims) < 30:
        stop = _value_end(tokens, at)
        if stop == at:
            return claims, at + 1
        start, end = tokens[at].start, tokens[stop - 1].end
        following = tokens[stop] if stop < len(tokens) else None
        unit = following.text if following is not None and following.kind == "word" else ""
        value = read_value(f"{step[start:end]} {unit}")
        if value.kind == "text":
            value = read_value(step[start:end])
        symbol = stop == at + 1 and tokens[at].kind == "sym" and tokens[at].text != "pi"
        overlaps = any(low < end and start < high for low, high in busy)
        if value.kind != "text" and not symbol and not overlaps and unit.lower() not in _CHANGED_BY:
            known = sure and tokens[at].kind != "word"
            claims.append(Claim(value=value, span=(start, end), how="statement", sure=known))
        at = stop
        while at < len(tokens) and (tokens[at].kind in ("comma", "soft") or tokens[at].text.lower() in ("and", "or")):
            at += 1
        if at == stop or at >= len(tokens) or not _opens(tokens, at):
            return claims, at
    return claims, at


def _value_end(tokens: Sequence[Token], at: int) -> int:
    """Where the expression, tuple or set that begins at a token ends; the same place if none does."""
    if tokens[at].kind == "word":
        return at + 1
    _, used = parse_start(tokens[at : at + 60])
    while used and tokens[at + used - 1].kind == "soft":
        used -= 1
    if used or tokens[at].kind != "open":
        return at + used
    depth = 0
    for stop in range(at, min(len(tokens), at + 60)):
        depth += (tokens[stop].kind == "open") - (tokens[stop].kind == "close")
        if depth == 0:
            return stop + 1
    return at
