"""From a matplotlib figure to SVG markup that fits into a page: its colours, its fonts, its ids.

Figures are drawn in stand-in colours (`TEXT`, `series_colour`), which become the page's own, so that a plot is legible
in light and dark. Styles become attributes, because the page's policy allows no inline styles, and matplotlib's
document-wide style sheet is dropped, because it would reach the whole page. Knows nothing about what is plotted.
"""

from __future__ import annotations

import hashlib
import io
import re
import warnings
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from ..text import shorten

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TEXT = "#010203"
"""Stands for the page's text colour."""
FALLBACKS = ("#0a62a9", "#b3480a", "#1a7a4c", "#7a3e9d", "#826000", "#a6266e")
"""Series colours outside of a page; inside it, `--series-1` and so on."""
SETTINGS = {
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "text.color": TEXT,
    "axes.labelcolor": TEXT,
    "axes.edgecolor": TEXT,
    "xtick.color": TEXT,
    "ytick.color": TEXT,
    "hatch.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "grid.color": TEXT,
    "grid.alpha": 0.15,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
}
"""matplotlib's settings under which a figure is made and saved."""
_ID = re.compile(r"#([\w.-]+)")
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def series_colour(index: int) -> str:
    """The stand-in of one series' colour; after the last one the first comes again."""
    return f"#0000{index % len(FALLBACKS) + 1:02x}"


def label(text: str, limit: int = 48) -> str:
    """Text of any origin as matplotlib draws it literally: one line, no mathematics, nothing unprintable."""
    line = shorten(_UNPRINTABLE.sub("�", text), limit).replace("$", r"\$")
    # A legend leaves out names that start with an underscore.
    return f"\u200b{line}" if line.startswith("_") else line


def to_svg(figure: Figure, *, title: str, description: str) -> str:
    """Markup of a figure.

    Args:
        figure: made under `SETTINGS`, in stand-in colours.
        title: its accessible name.
        description: what a person who does not see it needs: the numbers.
    """
    import matplotlib

    salt = hashlib.sha256(f"{title}\n{description}".encode("utf-8", "replace")).hexdigest()[:8]
    stream = io.StringIO()
    with matplotlib.rc_context({**SETTINGS, "svg.hashsalt": salt}), warnings.catch_warnings():
        # Fonts of the browser show what matplotlib's own font lacks.
        warnings.filterwarnings("ignore", message="Glyph")
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _page_ready(ElementTree.fromstring(stream.getvalue()), salt, title, description)


def _page_ready(root: ElementTree.Element, salt: str, title: str, description: str) -> str:
    targets = {found for element in root.iter() for value in element.attrib.values() for found in _ID.findall(value)}
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.rpartition("}")[2] in ("metadata", "style"):
                parent.remove(child)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        attributes = {name.rpartition("}")[2]: value for name, value in element.attrib.items()}
        attributes |= _declarations(attributes.pop("style", ""))
        if attributes.get("id") not in targets:
            attributes.pop("id", None)
        element.attrib.clear()
        for name, value in attributes.items():
            element.set(name, f"p{salt}-{value}" if name == "id" else _rewritten(value, targets, salt))
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.attrib.update({"role": "img", "stroke-linejoin": "round", "stroke-linecap": "butt", "fill": "currentColor"})
    for place, (name, text) in enumerate((("title", title), ("desc", description))):
        element = ElementTree.Element(name)
        element.text = _UNPRINTABLE.sub("�", text)
        root.insert(place, element)
    return ElementTree.tostring(root, encoding="unicode")


def _declarations(style: str) -> dict[str, str]:
    """CSS declarations as presentation attributes; the page chooses the font."""
    pairs = (part.partition(":") for part in style.split(";") if ":" in part)
    found = {name.strip(): value.strip() for name, _, value in pairs}
    short = re.search(r"([\d.]+)px", found.pop("font", ""))
    if short:
        found["font-size"] = f"{short[1]}px"
    found.pop("font-family", None)
    return found


def _rewritten(value: str, targets: set[str], salt: str) -> str:
    """A value with the page's colours, and ids that no other figure has."""
    if value == TEXT:
        return "currentColor"
    if re.fullmatch(r"#0000[0-9a-f]{2}", value) and 0 < (index := int(value[1:], 16)) <= len(FALLBACKS):
        return f"var(--series-{index}, {FALLBACKS[index - 1]})"
    return _ID.sub(lambda match: f"#p{salt}-{match[1]}" if match[1] in targets else match[0], value)
