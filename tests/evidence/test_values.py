"""Values: how they are read, when two are the same, and what has none."""

from __future__ import annotations

import time
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genprm.evidence.reading import read_value, value_of
from genprm.evidence.values import Value, forms, same


@pytest.mark.parametrize(
    ("text", "kind", "number", "exact"),
    [
        ("0.25", "number", 0.25, "1/4"),
        ("25 %", "number", 0.25, "1/4"),
        (r"25\%", "number", 0.25, "1/4"),
        ("25 percent", "number", 0.25, "1/4"),
        ("1/4", "number", 0.25, "1/4"),
        ("$25", "number", 25, "25"),
        (r"\$25", "number", 25, "25"),
        ("25 dollars", "number", 25, "25"),
        ("1,234.50", "number", 1234.5, "2469/2"),
        (r"1{,}000", "number", 1000, "1000"),
        ("3.5 hours", "number", 3.5, "7/2"),
        ("1.5e3", "number", 1500, "1500"),
        ("-5.", "number", -5, "-5"),
        ("seven", "number", 7, "7"),
        (r"$\frac{3}{4}$", "number", 0.75, "3/4"),
        (r"\dfrac34", "number", 0.75, "3/4"),
        (r"\boxed{7}", "number", 7, "7"),
        ("2 1/2", "number", 2.5, "5/2"),
        (r"2\frac{1}{2}", "number", 2.5, "5/2"),
        (r"\sqrt{2}", "number", 2**0.5, "sqrt(2)"),
        (r"\frac{\sqrt{2}}{2}", "number", 2**0.5 / 2, "sqrt(2)/2"),
        (r"45^\circ", "number", 45, "45"),
        ("x = 3/4", "number", 0.75, "3/4"),
        ("x^2+1", "expression", None, "x**2 + 1"),
        ("3+2i", "expression", None, "3 + 2*i"),
        ("(1, 2)", "tuple", None, "(1, 2)"),
        ("[1,2)", "interval", None, "[1, 2)"),
        (r"(-\infty, 5)", "interval", None, "(-oo, 5)"),
        (r"x \in [1, 2]", "interval", None, "[1, 2]"),
        ("Interval.open(0, 1)", "interval", None, "(0, 1)"),
        (r"\{1, 2\}", "set", None, "{1, 2}"),
        (r"-2, -\frac{5}{3}, and 4", "set", None, "{-2, -5/3, 4}"),
        ("True", "boolean", None, "True"),
        ("Monday", "text", None, None),
        ("2x + y = 3", "text", None, None),
        ("", "text", None, None),
        ("inf", "number", None, None),
        ("nan", "number", None, None),
        ("1/0", "number", None, None),
        ("9^9^9^9", "number", None, None),
        ("10^400", "number", None, None),
    ],
)
def test_a_text_is_read_as_the_value_it_says(text, kind, number, exact):
    value = read_value(text)
    assert (value.kind, value.number, value.exact) == (kind, pytest.approx(number) if number else number, exact)


@pytest.mark.parametrize(
    ("item", "kind", "number", "exact"),
    [
        (3, "number", 3, "3"),
        (True, "boolean", None, "True"),
        (0.5, "number", 0.5, "1/2"),
        (Fraction(3, 4), "number", 0.75, "3/4"),
        (float("inf"), "number", None, None),
        (float("nan"), "number", None, None),
        (10**400, "number", None, None),
        (2 + 3j, "expression", None, "2 + 3*i"),
        (2 + 0j, "number", 2, "2"),
        ([1, 0.5], "tuple", None, "(1, 1/2)"),
        ({1}, "set", None, "{1}"),
        ([[1, 2], 3], "tuple", None, "((1, 2), 3)"),
        ("sqrt(2)/2", "number", 2**0.5 / 2, "sqrt(2)/2"),
        (None, "text", None, None),
        (list(range(1000)), "text", None, None),
    ],
)
def test_an_object_of_a_program_is_the_value_it_has(item, kind, number, exact):
    value = value_of(item)
    assert (value.kind, value.number, value.exact) == (kind, pytest.approx(number) if number else number, exact)


def test_an_object_that_cannot_be_printed_is_text():
    class Silent:
        def __str__(self) -> str:
            raise RuntimeError

    assert value_of(Silent()).kind == "text"


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("0.5", "1/2", True),
        ("25%", "1/4", True),
        ("25%", "25", False),
        ("$25", "25 dollars", True),
        ("25", "25 apples", True),
        ("3.33", "10/3", True),
        ("0.3", "1/3", True),
        ("66.7%", "2/3", True),
        ("0.5", "0.52", False),
        ("3.34", "10/3", False),
        ("3", "10/3", False),
        ("1000000", "1000001", False),
        ("1.41", r"\sqrt{2}", True),
        (r"3\sqrt{2}", r"\sqrt{18}", True),
        (r"\frac{\sqrt{2}}{2}", "1/sqrt(2)", True),
        ("3.5 hours", "210 minutes", False),
        ("5 hours", "5 minutes", None),
        ("5 hours", "5", True),
        ("(x+1)^2", "x**2 + 2*x + 1", True),
        ("(x+1)^2", "x**2 + 1", False),
        ("x", "5", False),
        ("3+2i", "2*i + 3", True),
        ("3+2i", "3-2i", False),
        ("(1, 2)", "(1, 2)", True),
        ("(1, 2)", "(2, 1)", False),
        (r"\{1, 2\}", r"\{2, 1\}", True),
        ("1, 2", "(2, 1)", True),
        ("1, 2", "1, 2, 3", False),
        ("[1, 2)", "[1, 2]", False),
        ("[1, 2)", "[1, 2.0)", True),
        ("(1, 2)", "[1, 2]", None),
        (r"\{5\}", "5", True),
        ("True", "true", True),
        ("True", "1", False),
        ("Monday", "monday", True),
        ("Monday", "Tuesday", False),
        ("Monday", "5", None),
        ("inf", "inf", False),
        ("nan", "nan", False),
        ("1/0", "1/0", False),
    ],
)
def test_two_values_are_the_same_where_that_is_certain_both_ways_round(a, b, expected):
    left, right = read_value(a), read_value(b)
    assert (same(left, right), same(right, left)) == (expected, expected)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("25%", [0.25, 25]),
        ("$1.50", [1.5, 150]),
        ("150 cents", [150, 1.5]),
        ("3.5 hours", [3.5, 210]),
        ("90 minutes", [90, 1.5, 5400]),
        ("30 seconds", [30, 0.5]),
        ("25", [25]),
        ("5 apples", [5]),
        ("x", [None]),
    ],
)
def test_a_unit_allows_other_readings_and_nothing_else_does(text, numbers):
    assert [value.number for value in forms(read_value(text))] == numbers


def test_another_form_is_found_by_its_unit():
    assert any(same(form, read_value("210 minutes")) for form in forms(read_value("3.5 hours")))
    assert any(same(form, read_value("25")) for form in forms(read_value("25 %")))


NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.fractions()
FINITE = NUMBERS | st.text(max_size=3)
COMPLEX = st.complex_numbers(allow_nan=False, allow_infinity=False)
ITEMS = FINITE | st.booleans() | COMPLEX | st.lists(FINITE, max_size=4)


@settings(deadline=None)
@given(st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False) | st.fractions())
def test_a_finite_number_is_the_same_as_itself(item):
    assert same(value_of(item), value_of(item)) is True


@settings(deadline=None)
@given(ITEMS, ITEMS)
def test_sameness_has_no_direction(a, b):
    assert same(value_of(a), value_of(b)) == same(value_of(b), value_of(a))


SIGNS = [*"0123456789+-*/^=().,${}[]|!%_ \nxyabei", "\\frac", "\\sqrt", " hours", "\\infty", "\\pi"]


@settings(deadline=None)
@given(st.lists(st.sampled_from(SIGNS)).map("".join) | st.text())
def test_any_text_is_some_value(text):
    value = read_value(text)
    assert isinstance(value, Value)
    assert value.number is None or abs(value.number) < float("inf")
    assert isinstance(forms(value), list)
    assert same(value, value) in (True, False, None)


@pytest.mark.parametrize("text", ["(" * 499, "9^" * 249 + "9", "1," * 249, "2^(" * 100 + "9" + ")" * 100, "5!" * 200])
def test_no_text_takes_long(text):
    start = time.process_time()
    value = read_value(text)
    same(value, value)
    assert time.process_time() - start < 0.5


def test_a_huge_integer_has_no_number_and_is_not_written_out():
    assert value_of(10**100_000) == Value(kind="number", text="a long number")
