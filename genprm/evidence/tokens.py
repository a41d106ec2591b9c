"""The words and signs of a step, plain or LaTeX, as one list of tokens with their places.

Knows spelling only: which characters are a number, an operator, a word, a piece of LaTeX. Knows no grammar and no
values beyond those of numerals. Linear in the text's length.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

MAX_CHARS = 8_000
"""Longer texts are not read: they have no tokens."""
MAX_DIGITS = 120
"""A numeral with more characters is not read as a number."""

Kind = Literal[
    "num", "sym", "fn", "op", "open", "close", "bar", "post", "rel", "cmd", "sub", "comma", "word", "soft", "stop",
    "line", "dirt", "note",
]  # fmt: skip
"""`soft`: a sign that multiplication by adjacency does not cross, as `$`; `stop`: a sign that ends an expression;
`line`: a line's end; `dirt`: what is not understood, and may belong to the expression beside it; `note`: `<<a=b>>`."""


@dataclass(frozen=True, slots=True)
class Token:
    """One token. `start` and `end` are character positions in the text."""

    kind: Kind
    text: str
    start: int
    end: int
    value: Fraction | None = None
    """Of a numeral."""
    decimals: int = 0
    """Digits that a numeral has after its point."""


def names(text: str) -> frozenset[str]:
    """The words of a text as a set."""
    return frozenset(text.split())


FUNCTIONS = names(
    "sin cos tan cot sec csc arcsin arccos arctan asin acos atan sinh cosh tanh log ln exp sqrt abs gcd lcm "
    "max min floor ceil ceiling factorial binomial root cbrt"
)
_ALSO_WORDS = names("log max min floor ceil ceiling root exp abs")
_GREEK = names(
    "alpha beta gamma delta epsilon varepsilon theta lambda mu nu rho sigma tau phi varphi chi psi omega Delta "
    "Gamma Lambda Omega ell"
)
_ATTACHED_UNITS = names(
    "cm mm km kg mg ml mL ft in lb lbs oz hr hrs min mins sec secs mph pm am kb mb gb tb KB MB GB TB pts pt qt "
    "gal th st nd rd kW kWh Hz rpm cc cal sq yd yds mi"
)
_SPACE = frozenset(
    "\\" + name
    for name in names(
        ", ; : ! thinspace displaystyle limits left right big Big bigg Bigg bigl bigr Bigl Bigr middle nonumber notag "
        "hline"
    )
) | {"\\ ", "\\\n"}
_COMMANDS: dict[str, tuple[Kind, str]] = {
    r"\times": ("op", "*"), r"\cdot": ("op", "*"), r"\ast": ("op", "*"), r"\div": ("op", "/"), r"\pi": ("sym", "pi"),
    r"\frac": ("cmd", "frac"), r"\dfrac": ("cmd", "frac"), r"\tfrac": ("cmd", "frac"), r"\cfrac": ("cmd", "frac"),
    r"\binom": ("cmd", "binom"), r"\dbinom": ("cmd", "binom"), r"\tbinom": ("cmd", "binom"), r"\sqrt": ("cmd", "sqrt"),
    r"\%": ("post", "%"), r"\{": ("open", "{s"), r"\}": ("close", "}s"), r"\lbrace": ("open", "{s"),
    r"\rbrace": ("close", "}s"), r"\lfloor": ("open", "floor"), r"\rfloor": ("close", "floor"),
    r"\lceil": ("open", "ceil"), r"\rceil": ("close", "ceil"), r"\lvert": ("bar", "|"), r"\rvert": ("bar", "|"),
    r"\vert": ("bar", "|"), r"\infty": ("sym", "oo"), r"\circ": ("post", "deg"), r"\degree": ("post", "deg"),
    r"\approx": ("rel", "~"), r"\simeq": ("rel", "~"), r"\cong": ("dirt", ""), r"\doteq": ("rel", "~"),
    r"\(": ("soft", "m"), r"\)": ("soft", "m"), r"\[": ("soft", "m"), r"\]": ("soft", "m"), r"\$": ("soft", "$"),
    r"\boxed": ("soft", "b"), r"\fbox": ("soft", "b"), r"\mathbf": ("soft", ""), r"\textbf": ("soft", ""),
    r"\boldsymbol": ("soft", ""), r"\bold": ("soft", ""), r"\\": ("line", ""), r"\newline": ("line", ""),
    r"\quad": ("stop", ""), r"\qquad": ("stop", ""), r"\Rightarrow": ("stop", ""), r"\implies": ("stop", ""),
    r"\Longrightarrow": ("stop", ""), r"\rightarrow": ("stop", ""), r"\to": ("stop", ""), r"\iff": ("stop", ""),
    r"\Leftrightarrow": ("stop", ""), r"\therefore": ("stop", ""), r"\because": ("stop", ""), r"\neq": ("stop", "!="),
    r"\ne": ("stop", "!="), r"\leq": ("stop", "<"), r"\le": ("stop", "<"), r"\geq": ("stop", ">"),
    r"\ge": ("stop", ">"), r"\lt": ("stop", "<"), r"\gt": ("stop", ">"), r"\in": ("stop", ""), r"\mid": ("stop", ""),
}  # fmt: skip
_SIGNS: dict[str, tuple[Kind, str]] = {
    "+": ("op", "+"), "-": ("op", "-"), "\u2212": ("op", "-"), "\u2013": ("op", "-"), "*": ("op", "*"),
    "×": ("op", "*"), "·": ("op", "*"), "⋅": ("op", "*"), "∙": ("op", "*"), "✕": ("op", "*"), "/": ("op", "/"),
    "÷": ("op", "/"), "∕": ("op", "/"), "⁄": ("op", "/"), "^": ("op", "^"), "(": ("open", "("), ")": ("close", ")"),
    "[": ("open", "["), "]": ("close", "]"), "{": ("open", "{"), "}": ("close", "}"), "|": ("bar", "|"),
    "%": ("post", "%"), "!": ("post", "!"), "°": ("post", "deg"), "=": ("rel", "="), "≈": ("rel", "~"),
    "≅": ("rel", "~"), "≃": ("rel", "~"), "π": ("sym", "pi"), "√": ("cmd", "root"), "_": ("sub", "_"),
    ",": ("comma", ","), "$": ("soft", "$"), "€": ("soft", "$"), "£": ("soft", "$"), "\n": ("line", ""),
    "¢": ("word", "cents"), "∞": ("sym", "oo"), "≠": ("stop", "!="), "<": ("stop", "<"), ">": ("stop", ">"),
    "≤": ("stop", "<"), "≥": ("stop", ">"), "±": ("dirt", ""), "…": ("dirt", ""), "≡": ("dirt", ""),
    "\\": ("dirt", ""), "'": ("dirt", ""),
}  # fmt: skip
_PARTS = {"½": (1, 2), "¼": (1, 4), "¾": (3, 4), "⅓": (1, 3), "⅔": (2, 3), "⅛": (1, 8), "⅕": (1, 5)}
_POWERS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")

_TOKEN = re.compile(
    r"""(?P<note><<[^<>\n]{0,300}>>)
    |(?P<ordinal>\d{1,9}(?:st|nd|rd|th)\b)
    |(?P<num>(?:[1-9]\d{0,2}(?:(?:,|\{,\}|\\,|\\!,)\d{3})++(?!\d)|\d++)(?:\.\d++)?+|\.\d++)
    |(?P<env>\\(?:begin|end)\s*+\{(?P<envname>[a-zA-Z]*+\*?)\}(?:\{[^{}\n]*+\})?+)
    |(?P<text>\\(?:text|mathrm|mbox|textit|textrm|operatorname|emph|rm)\s*+\{(?P<inside>[^{}]*+)\})
    |(?P<cmd>\\[A-Za-z]++|\\.)
    |(?P<pow>\*\*)
    |(?P<dots>\.\.+)
    |(?P<rels><=|>=|=>|->|!=|-->|==|<|>)
    |(?P<up>[⁰¹²³⁴⁵⁶⁷⁸⁹]++)
    |(?P<times>(?<=[\d)%}$])[ \t]*+[xX](?=[ \t]*+[$(]?+[$]?+\.?+\d)|(?<=[\d)%])[ \t]++[xX](?=[ \t]++[$(]))
    |(?P<hyphen>(?<=[A-Za-z\d])-(?=[A-Za-z]{2})(?P<tail>[A-Za-z]++))
    |(?P<letters>[A-Za-z]++(?:[’'][A-Za-z]++)?+)
    |(?P<space>[ \t\r~&\u00a0]++)
    |(?P<sign>[^\w\s]|_|\n)
    |(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_MATH = re.compile(
    r"\$\$(?:[^$]{1,2000}?)\$\$|\\\((?:.{1,2000}?)\\\)|\\\[(?:.{1,4000}?)\\\]|(?<![\\\d])\$(?![\s$])([^$\n]{1,400})(?<![\s\\])\$",
    re.DOTALL,
)
_WORDED = re.compile(r"\\(?:text|mathrm|mbox|operatorname)\s*\{[^{}]*\}")
_PROSE = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{4,}")
_ALIGNED = names("align align* aligned equation equation* gather gather* gathered split")


def tokenise(text: str) -> list[Token]:
    """The tokens of a text, in order; none where it is longer than `MAX_CHARS`."""
    if len(text) > MAX_CHARS:
        return []
    math = _math_regions(text)
    starts = [start for start, _ in math]
    tokens: list[Token] = []
    skip_to = 0
    for match in _TOKEN.finditer(text):
        start, end = match.span()
        if start < skip_to or (group := match.lastgroup) == "space":
            continue
        if group == "env":
            name = match["envname"]
            if name in _ALIGNED or not match[0].startswith("\\begin"):
                tokens.append(Token("stop" if name in _ALIGNED else "dirt", "", start, end))
            else:
                closing = text.find(f"\\end{{{name}}}", end)
                skip_to = closing if closing >= 0 else end
                tokens.append(Token("dirt", "", start, end))
            continue
        region = bisect_right(starts, start) - 1
        inside = region >= 0 and start < math[region][1]
        tokens.extend(_read(match, text, inside, tokens[-1] if tokens else None))
    return tokens


def _math_regions(text: str) -> list[tuple[int, int]]:
    """Where LaTeX mathematics stands; a `$` of money opens none."""
    regions = []
    position = 0
    while match := _MATH.search(text, position):
        inner = match[1]
        if inner is not None and (inner[-1] in "+-*/=×(" or _PROSE.search(_WORDED.sub("", inner))):
            position = match.start() + 1
            continue
        regions.append(match.span())
        position = match.end()
    return regions


def _read(match: re.Match[str], text: str, math: bool, last: Token | None) -> list[Token]:
    start, end = match.span()
    piece = match[0]
    group = match.lastgroup
    if group == "num":
        return [_numeral(piece, start, end)]
    if group == "text":
        return _words(match["inside"], start, end)
    if group == "cmd":
        return _command(piece, start, end)
    following = text[end : end + 2].lstrip()[:1]
    if group == "hyphen":
        if math or match["tail"] in FUNCTIONS:
            return [
                Token("op", "-", start, start + 1),
                *_letters(match["tail"], start + 1, end, math, False, following),
            ]
        return [Token("word", piece, start, end)]
    if group == "letters":
        attached = last is not None and last.end == start and last.kind == "num"
        return _letters(piece, start, end, math, attached, following)
    if group in ("sign", "other"):
        if piece == "!" and last is not None and last.end != start:
            return [Token("stop", "!", start, end)]
        if piece == ":" and re.match(r"\d", text[end : end + 1]) and last is not None and last.end == start:
            return [Token("dirt", ":", start, end)]
        if piece == "*" and not text[:start].rpartition("\n")[2].strip():
            return [Token("line", "", start, end)]
        if piece in _PARTS:
            return [Token("num", piece, start, end, Fraction(*_PARTS[piece]))]
        kind, name = _SIGNS.get(piece, ("stop", piece))
        return [Token(kind, name, start, end)]
    if group == "times":
        return [Token("op", "*", start, end)]
    if group == "pow":
        between = (
            last is not None and last.kind in ("num", "sym", "close") and re.match(r"\s*[\w(-]", text[end : end + 3])
        )
        spaced = last is not None and (last.end == start) == (text[end : end + 1] not in (" ", ""))
        return [Token("op", "^", start, end) if between and spaced else Token("soft", "", start, end)]
    if group == "up":
        value = Fraction(int(piece[:4].translate(_POWERS)))
        return [Token("op", "^", start, start), Token("num", piece, start, end, value)]
    if group == "rels":
        kind, name = {"==": ("rel", "=")}.get(piece, ("stop", piece[:1] if piece[0] in "<>" else ""))  # type: ignore[assignment]
        return [Token(kind, name, start, end)]
    return [Token({"note": "note", "dots": "dirt"}.get(group or "", "stop"), piece, start, end)]  # type: ignore[arg-type]


def _numeral(piece: str, start: int, end: int) -> Token:
    digits = re.sub(r"[^\d.]", "", piece)
    clock = digits[0] == "0" and len(digits) > 1 and digits.isdigit()
    if len(digits) > MAX_DIGITS or clock:
        return Token("dirt", "", start, end)
    return Token("num", piece, start, end, Fraction(digits), len(digits.partition(".")[2]))


def _words(inside: str, start: int, end: int) -> list[Token]:
    if inside.strip() in FUNCTIONS:
        return [Token("fn", inside.strip(), start, end)]
    # Each word has the whole command's place: a cut inside it would leave half a command.
    return [Token("word", word, start, end) for word in re.findall(r"[^\W\d_]+|\d+|[.,;:]", inside)]


def _command(piece: str, start: int, end: int) -> list[Token]:
    name = piece[1:]
    if piece in _SPACE:
        return []
    if piece in _COMMANDS:
        kind, text = _COMMANDS[piece]
        return [Token(kind, text, start, end)]
    if name in FUNCTIONS:
        return [Token("fn", name, start, end)]
    if name in _GREEK:
        return [Token("sym", name, start, end)]
    return [Token("dirt", name, start, end)]


def _letters(piece: str, start: int, end: int, math: bool, attached: bool, after: str) -> list[Token]:
    if piece in FUNCTIONS and (math or after in "(_{" or (after.isdigit() and piece not in _ALSO_WORDS)):
        return [Token("fn", piece, start, end)]
    if piece in ("pi", "oo"):
        return [Token("sym", piece, start, end)]
    symbols = math or (attached and len(piece) <= 3 and piece not in _ATTACHED_UNITS)
    if len(piece) == 1 or (symbols and piece.isalpha() and len(piece) <= 8):
        return [Token("sym", letter, start + at, start + at + 1) for at, letter in enumerate(piece)]
    return [Token("word", piece, start, end)]
