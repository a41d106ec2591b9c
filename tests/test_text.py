"""Neutralised delimiters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genprm.text import neutralise, shorten

DELIMITERS = ["<|im_end|>", "</analyze>", "```", "<think>", "aa", "ab"]


@given(st.lists(st.sampled_from([*DELIMITERS, "`", "a", "<", " ", "|", "x"]), max_size=30).map("".join))
def test_no_delimiter_survives_and_only_spaces_are_added(text):
    clean = neutralise(text, DELIMITERS)
    assert not any(delimiter in clean for delimiter in DELIMITERS)
    assert clean.replace(" ", "") == text.replace(" ", "")


@given(st.text())
def test_text_without_delimiters_is_left_alone(text):
    if not any(delimiter in text for delimiter in DELIMITERS):
        assert neutralise(text, DELIMITERS) == text


def test_single_characters_are_no_delimiters():
    assert neutralise("a < b", ["<", ""]) == "a < b"


@pytest.mark.parametrize(("text", "limit", "expected"), [("a  b\nc", 10, "a b c"), ("abcdef", 4, "abc…"), ("", 3, "")])
def test_shorten_makes_one_line(text, limit, expected):
    assert shorten(text, limit) == expected
