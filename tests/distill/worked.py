"""Worked solutions in GSM8K form for the tests of distillation, and a reader of their arithmetic of its own."""

from __future__ import annotations

import re
from fractions import Fraction

ORCHARD = (
    "Mara picks 14 baskets of apples. Each basket holds 23 apples. She gives away 52 apples and packs the rest into "
    "boxes of 6. How many boxes does she fill?",
    "Mara picks 14 * 23 = <<14*23=322>>322 apples.\n"
    "She keeps 322 - 52 = <<322-52=270>>270 apples.\n"
    "So she fills 270 / 6 = <<270/6=45>>45 boxes.\n#### 45",
)
SHOP = (
    "A shop sells lamps for $48 and shades for $17. Priya buys 3 lamps, 5 shades and a rug for $130, and pays with "
    "$500. How much change does she get?",
    "The lamps cost $48 x 3 = $<<48*3=144>>144.\n"
    "The shades cost $17 x 5 = $<<17*5=85>>85. That is less than the lamps.\n"
    "In total she pays $144 + $85 + $130 = $<<144+85+130=359>>359.\n"
    "So her change is $500 - $359 = $<<500-359=141>>141.\n#### 141",
)
FILM = (
    "A film club meets for 3 hours each evening. It watches clips of 15 minutes. How many clips does it watch in 8 "
    "evenings?",
    "An evening has 3 * 60 = <<3*60=180>>180 minutes.\n"
    "The club watches 180 / 15 = <<180/15=12>>12 clips an evening.\n"
    "So it watches 12 * 8 = <<12*8=96>>96 clips.\n#### 96",
)
SALE = (
    "A coat costs $250. In a sale it is reduced by 20%. Tom also buys a hat for $35. How much does he pay?",
    "The coat is reduced by $250 * .2 = $<<250*.2=50>>50.\n"
    "So the coat costs $250 - $50 = $<<250-50=200>>200.\n"
    "Tom pays $200 + $35 = $<<200+35=235>>235.\n#### 235",
)
LIBRARY = (
    "A library owns 1,250 novels and 840 comics. It lends out 415 of them and buys 96 new ones. How many books are on "
    "its shelves?",
    "The library owns 1,250 + 840 = <<1250+840=2090>>2,090 books.\n"
    "With the new ones and without those lent out there are 2,090 - 415 + 96 = <<2090-415+96=1771>>1,771 books.\n"
    "#### 1,771",
)
ALL = {"orchard": ORCHARD, "shop": SHOP, "film": FILM, "sale": SALE, "library": LIBRARY}

_EQUALITY = re.compile(r"((?:\$?[\d,.]*\d\s*[-+*/x]\s*)+\$?[\d,.]*\d)\s*=\s*\$?((?:\d[\d,]*)?(?:\.\d+)?)")


def equalities(text: str) -> list[bool]:
    """Whether each equality in a text holds, by Python's own fractions."""
    found = []
    for left, right in _EQUALITY.findall(text):
        plain = left.replace("$", "").replace(",", "").replace("x", "*")
        exact = re.sub(r"\d*\.?\d+", lambda match: f"Fraction('{match[0]}')", plain)
        found.append(eval(exact, {"Fraction": Fraction}) == Fraction(right.replace(",", "")))
    return found


def last_number(text: str) -> Fraction:
    """The last number of a text."""
    return Fraction(re.findall(r"\d[\d,]*(?:\.\d+)?", text)[-1].replace(",", ""))
