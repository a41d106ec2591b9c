"""The parts of a page that stand above its solutions: tables and plots, given by whoever asks for the report.

Knows nothing about how they are drawn (plots.py) or put on a page (html.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Cell = str | int | float | None


@dataclass(frozen=True)
class Table:
    """A table with a caption; the first cell of a row is its heading."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    """Text stands as it is, a float with three decimals, and None as a dash."""
    note: str = ""
    """A sentence below the table: how a figure is defined, what is missing."""


@dataclass(frozen=True)
class Plot:
    """A picture with a caption."""

    title: str
    svg: str
    """Made by plots.py. It goes into the page as markup: never give it text from outside."""
    caption: str = ""


Section = Table | Plot
