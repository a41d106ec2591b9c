"""Segmentation: the three rules, what is protected from them, and that no character is ever lost."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genprm.segment import segment

PROCESSBENCH = Path(__file__).parents[2] / "shared" / "data" / "eval" / "processbench"

FRAGMENTS = [
    "Step 1: add", "Step 2. take", "**Step 3:** so", "### Step 4\n", "1. one", "2. two", "3) three", "  1. inner", "\n",
    "\n\n", "\n \t\n", "\r\n\r\n", " ", "```", "```python", "~~~", "\\[", "\\]", "$$", "\\begin{align}",
    "\\end{align}", "x = 1", "\u2028", "\x1c", "é", "\ud800",
]  # fmt: skip


@pytest.mark.parametrize(
    "markers",
    [
        ("Step 1:", "Step 2:", "Step 3:"),
        ("**Step 1:**", "**Step 2:**", "**Step 3:**"),
        ("**Step 1**:", "**Step 2**:", "**Step 3**:"),
        ("### Step 1", "### Step 2", "### Step 3"),
        ("## Step 1:", "## Step 2:", "## Step 3:"),
        ("### **Step 1: First**", "### **Step 2: Then**", "### **Step 3: Last**"),
        ("STEP 1.", "step 2.", "Step 3."),
        ("Step 1)", "Step 2)", "Step 3)"),
        ("Step 1 -", "Step 2 –", "Step 3 —"),
        ("Step 1\n", "Step 2\n", "Step 3\n"),
        ("- Step 1:", "- Step 2:", "- Step 3:"),
        ("1.", "2.", "3."),
        ("1)", "2)", "3)"),
        ("**1.**", "**2.**", "**3.**"),
        ("### 1.", "### 2.", "### 3."),
        ("\n", "\n\n", "\n\n"),
    ],
)
def test_each_kind_of_marker_starts_a_step(markers: tuple[str, str, str]) -> None:
    pieces = [f"{marker} We add {number}.\n" for number, marker in enumerate(markers)]
    steps = segment("".join(pieces))
    assert [step.strip() for step in steps] == [piece.strip() for piece in pieces]
    assert "".join(steps) == "".join(pieces)


def test_explicit_markers_win_over_numbered_lists_and_blank_lines() -> None:
    text = "Step 1: Choose.\n1. a\n2. b\n\nStill choosing.\n\nStep 2: Done."
    assert segment(text) == ["Step 1: Choose.\n1. a\n2. b\n\nStill choosing.\n\n", "Step 2: Done."]


def test_a_numbered_list_wins_over_blank_lines() -> None:
    text = "1. Take 3.\n\nIt is odd.\n\n2. Take 4.\n\nIt is even."
    assert segment(text) == ["1. Take 3.\n\nIt is odd.\n\n", "2. Take 4.\n\nIt is even."]


def test_text_before_the_first_marker_belongs_to_the_first_step() -> None:
    assert segment("Let us see.\n\nStep 1: a\nStep 2: b\n\nSo 5.") == [
        "Let us see.\n\nStep 1: a\n",
        "Step 2: b\n\nSo 5.",
    ]
    assert segment("Let us see.\n1. a\n2. b") == ["Let us see.\n1. a\n", "2. b"]


@pytest.mark.parametrize(
    "prose",
    [
        "Step 2 follows from Step 1 by symmetry.",
        "Stepping 3: no.",
        "By Step 1: we see it.",
        "Step 1.5 was skipped.",
        "Step one: count.",
    ],
)
def test_prose_about_steps_is_not_a_marker(prose: str) -> None:
    assert segment(f"First part.\n\n{prose}") == ["First part.\n\n", prose]


@pytest.mark.parametrize(
    "text",
    [
        "1. A single item is no list.\nMore.",
        "2. Starts at two.\n3. So no list.",
        "3.5 + 1. and\n4.5",
        "1. Mixed.\n2) Styles.",
    ],
)
def test_numbers_that_do_not_count_from_one_make_no_list(text: str) -> None:
    assert segment(text) == [text]


def test_inner_lists_do_not_break_the_outer_one() -> None:
    text = "1. First:\n   1. a\n   2. b\n2. Second:\n   1. c\n3. Third."
    assert segment(text) == ["1. First:\n   1. a\n   2. b\n", "2. Second:\n   1. c\n", "3. Third."]


@pytest.mark.parametrize(
    "block",
    [
        "```python\na = 1\n\n# Step 9: not a step\nb = 2\n```",
        "~~~\na\n\nb\n~~~",
        "```\nStep 1: no\n\nStep 2: no\n```",
        "\\[\nx = 1\n\n+ 2\n\\]",
        "$$\nx\n\n= 1\n$$",
        "\\begin{align}\nx &= 1 \\\\[2pt]\n\ny &= 2\n\\end{align}",
        "\\begin{align}\n\\begin{cases}a\n\nb\\end{cases}\n\n\\end{align}",
        "\\[ ``` \n\n \\]",
        "```\n$$\n\n```",
    ],
)
def test_closed_fences_and_display_mathematics_are_kept_whole(block: str) -> None:
    text = f"Before.\n\n{block}\n\nAfter."
    assert segment(text) == ["Before.\n\n", block + "\n\n", "After."]


@pytest.mark.parametrize("opener", ["```python", "```", "~~~", "\\[", "$$", "\\begin{align}", "```a```"])
def test_what_is_never_closed_protects_nothing(opener: str) -> None:
    assert segment(f"{opener}\nOne.\n\nTwo.\n\nThree.") == [f"{opener}\nOne.\n\n", "Two.\n\n", "Three."]


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("", []),
        (" \n\n ", [" \n\n "]),
        ("One line.", ["One line."]),
        ("One.\nTwo.", ["One.\nTwo."]),
        ("\n\nOne.\n\n\n\nTwo.\n\n", ["\n\nOne.\n\n\n\n", "Two.\n\n"]),
        ("One.\n\n    Two.", ["One.\n\n", "    Two."]),
        ("One.\r\n\r\nTwo.", ["One.\r\n\r\n", "Two."]),
    ],
)
def test_edges_of_the_text(text: str, steps: list[str]) -> None:
    assert segment(text) == steps


def check(text: str) -> None:
    steps = segment(text)
    assert "".join(steps) == text
    if text.strip():
        assert all(step.strip() for step in steps)


@given(st.text())
def test_no_character_of_any_text_is_lost(text: str) -> None:
    check(text)


@given(st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=3), max_size=30), st.sampled_from(["", " ", "\n"]))
def test_no_character_of_text_full_of_markers_is_lost(parts: list[str], glue: str) -> None:
    check(glue.join(parts))


@pytest.mark.parametrize(
    "unit", ["\n\n", "```\n", "```py\n", "\\[", "$$", "\\begin{a}", "Step 1:\n", "1. a\n2. b\n", " ", "\n\x1c"]
)
def test_a_megabyte_of_delimiters_takes_seconds_at_most(unit: str) -> None:
    text = unit * (1_000_000 // len(unit))
    start = time.perf_counter()
    check(text)
    assert time.perf_counter() - start < 20


@pytest.mark.skipif(not PROCESSBENCH.is_dir(), reason=f"{PROCESSBENCH} is not there")
def test_real_steps_joined_by_blank_lines_are_found_again_or_merged_but_never_lost() -> None:
    for line in (PROCESSBENCH / "math.jsonl").read_text(encoding="utf-8").strip().split("\n"):
        check("\n\n".join(json.loads(line)["steps"]))
