"""Equalities in a step's text: found, judged, never a false alarm on loose writing, never late."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genprm.evidence.equations import Equation, links, step_equations

HOSTILE = [
    "=" * 100_000,
    "=" * 7_900,
    "(" * 10_000 + "1" + ")" * 10_000 + " = 1",
    "(" * 3_000 + "1" + ")" * 3_000 + " = 1",
    "9^9^9^9 = 3",
    "(9^99)^(9^9) = 2",
    "10^400 = 5",
    "1/0 = 2",
    "99999!^99999! = 3",
    "1" * 7_000 + " = 3",
    r"\frac" * 1_500 + "=1",
    r"\frac{1}{" * 800 + "}" * 800 + " = 4",
    r"\sqrt" * 1_500 + " 4 = 2",
    "2^" * 3_900 + "2 = 4",
    "1+" * 3_900 + "1 = 3",
    "1 = 2 " * 1_300,
    "200! = 3 " * 800,
    r"\binom{5000}{200} = 3 " * 300,
    "5!" + "!" * 7_000 + " = 1",
    r"\begin{align}" * 100 + "1 = 1\n & = 1" * 400,
    "\ud800 = 1",
]


def truths(step: str, context: str = "") -> list[bool | None]:
    return [equation.true for equation in step_equations(step, context)]


@pytest.mark.parametrize(
    "step",
    [
        "3 * 12 + 4 = 40",
        "3 x 12 = 36",
        "3x12=36",
        "He pays $3 × $2 = $6.",
        "20% of 50 = 10",
        "He ate 36/2 = <<36/2=18>>18 plums.",
        "3 apples + 2 apples = 5 apples",
        "5 miles/hour * 3 hours = 15 miles",
        "$20 in quarters + $10 in dimes = $30.",
        "3 boxes times 4 = 12",
        "3 + 4 equals 7",
        "14 * 100,000 = $1,400,000",
        "50 x .96 = 48",
        "10/3 = 3.33",
        "2/3 = 0.66",
        "10/3 ≈ 3.3",
        r"\pi \approx 3.14",
        "20/50 = 40%",
        "(60/240) * 100 = 25%",
        r"\frac{1}{2}\cdot 6 = 3",
        r"$2 \times 3 = 6$",
        r"\sqrt{16}=4",
        r"\sqrt[3]{-8} = -2",
        r"$3\sqrt{2} = \sqrt{18}$",
        r"$\frac12 + \frac13 = \frac56$",
        r"$2\frac{1}{2} = \frac{5}{2}$",
        r"$2\frac{1}{2} = 1$",
        "2 1/2 + 1/2 = 3",
        r"$\dbinom{9}{4} = 126$",
        "5! = 120",
        r"$\lfloor 3.7 \rfloor = 3$",
        r"$|-3| = 3$",
        r"$\sin 30^\circ = \frac{1}{2}$",
        r"$\sin (390 - 360)^\circ = 0.5$",
        r"$\log_2 8 = 3$",
        "2^10 = 1024",
        "2**3 = 8",
        "5² = 25",
        "½ * 8 = 4",
        r"$12_{7} = 9$",
        "(x+1)^2 = x^2+2x+1",
        "x + 2x = 3x",
        r"$(2+i)(2-i) = 5$",
        "- 3 + 4 = 7",
        "6/3*2 = 1",
        "18 / 1/3 = 54",
        "The total is 3 + 4 = 7!",
        "3 + 4 = 7 (apples and pears)",
        r"1{,}000 + 1 = 1{,}001",
        "0.1 + 0.2 = 0.3",
        "gcd(12, 18) = 6",
    ],
)
def test_a_true_equality_is_found_and_called_true(step):
    assert truths(step)[-1:] == [True]


@pytest.mark.parametrize(
    ("step", "true_value"),
    [
        ("3 * 12 + 4 = 41", "40"),
        ("So she has 3 + 4 = 8 apples.", "7"),
        ("$3 × $2 = $7", "6"),
        ("20% of 50 = 12", "10"),
        ("10/3 = 3.43", "10/3"),
        ("1/8 = 0.135", "0.125"),
        ("41 = 3 * 12 + 4", "40"),
        (r"So $\frac{3}{5} \cdot \frac{1}{6} = \frac{1}{8}.$", "0.1"),
        (r"\sqrt{16} + 1 = 6", "5"),
        (r"$2\sqrt{3} = \sqrt{13}$", "3.4641"),
        (r"$\sin 210^\circ = \sin 30^\circ$", "-0.5"),
        ("x = (10 - 52) / -7 = -6.", "6"),
        ("2 - 3 - 4 + 8 = 0", "3"),
    ],
)
def test_a_false_equality_is_called_false_with_the_true_value(step, true_value):
    (equation,) = [equation for equation in step_equations(step) if equation.true is False]
    assert equation.true_value == true_value


@pytest.mark.parametrize("step", ["x + 2x = 4x", "Factor: $x^2 - 9x + 6 = (x - 6)(x - 1).$"])
def test_a_rewriting_that_cannot_be_a_condition_is_called_false(step):
    assert truths(step) == [False]


@pytest.mark.parametrize(
    "step",
    [
        "2x + 3 = 7",
        "x = 5",
        "x^2 + 9 = (x - 5)^2",
        "f(2) = 4",
        "6 dozen = 72",
        "half of 20 = 10",
        "Half of 20 + 4 = 12",
        "3 more than 2 + 4 = 9",
        "10/3 = 3",
        "3.33 * 3 = 10",
        "$1.99 * 3 = $6",
        "5 * 60 minutes = 5 hours",
        "50 cents * 4 = $2",
        "100 cm + 1 cm = 1.01 m",
        "3 + 4 = 7 * 2",
        "1 apple = 1/2 * 3 bananas",
        "a year and 3 months = 12 + 3",
        "2/5 is equal to $14",
        "In base 7, 4 + 5 = 12",
        "2 + 3 = 6 is false",
        r"3 + 4 = 7 + 5 \pmod{5}",
        r"$1 + 2 + \cdots + 9 = 45$",
        r"$\sum_{k=1}^{3} k = 6$",
        "21, 300 / 60 = 355",
        "0800 - 0145 = 0615",
        "10/4 = 2 remainder 2",
        "1.5 + 1.5 = 3 million",
        "3 plus 4 times 2 = 14",
        "If we plug in -2, we get |-2-1| = 3(-2) + 5",
        r"\begin{pmatrix} 1 + 1 = 3 \end{pmatrix}",
        "3:4 = 6:8",
        "1/0 = 5",
    ],
)
def test_what_is_a_condition_or_loosely_written_is_not_called_false(step):
    assert False not in truths(step)


@pytest.mark.parametrize("context", ["Compute it in base 6.", "Let a # b = 2a + b.", r"$a \star b$", "modulo 7"])
def test_where_the_problem_has_an_arithmetic_of_its_own_nothing_is_called_false(context):
    assert truths("4 + 5 = 13") == [False]
    assert truths("4 + 5 = 13", context) == [None]


def test_each_pair_of_a_chain_is_judged():
    assert truths("2+3 = 5 = 10/2") == [True, True]
    assert truths("2+3 = 5 + 0 = 6") == [True, False]
    assert truths("The area is $A = 2 \\cdot 3 = 6$") == [None, True]


def test_a_chain_goes_on_over_lines():
    step = "\\begin{align*}\nV &= 2 \\cdot 3 \\cdot 4 \\\\\n&= 6 \\cdot 4 \\\\\n&= 25\n\\end{align*}"
    assert truths(step) == [None, True, False]


def test_an_equation_says_where_and_what_it_is():
    step = "So she has 3 + 4 = 8 apples."
    assert step_equations(step) == [
        Equation(text="3 + 4 = 8", left="3 + 4", right="8", span=(11, 20), true=False, true_value="7")
    ]


@pytest.mark.parametrize(
    ("previous", "step", "expected"),
    [
        ("The total is 3 + 4", "= 7 apples", [True]),
        ("The total is $3 + 4$.", "$= 8$", [False]),
        ("So $x = 2(y+1)$", "$= 2y + 2$", [True]),
        ("So $x = 2(y+1)$", "$= 2y + 3$", [None]),
        ("The total is 3 + 4", "That makes 8", []),
        ("She is glad.", "= 8", []),
        ("", "= 8", []),
        ("half of 3 + 5", "= 4", [None]),
    ],
)
def test_a_step_that_begins_with_the_sign_is_compared_with_the_end_of_the_one_before(previous, step, expected):
    assert [equation.true for equation in links(previous, step)] == expected


@pytest.mark.parametrize("step", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_step_costs_little_and_raises_nothing(step):
    start = time.process_time()
    step_equations(step)
    links(step, step)
    assert time.process_time() - start < 1  # about 0.1 on a quiet machine


SIGNS = [*"0123456789+-*/^=().,${}[]|!%_ \nxyabei", "\\frac", "\\sqrt", " of ", " is "]
MATHEMATICS = st.lists(st.sampled_from(SIGNS)).map("".join)


@settings(deadline=None)
@given(MATHEMATICS | st.text())
def test_no_text_raises_and_every_place_lies_inside(text):
    for equation in step_equations(text):
        start, end = equation.span
        assert 0 <= start < end <= len(text)
        assert equation.text == text[start:end]
        assert (equation.true_value is None) or equation.true is False
    links(text, text)


@settings(deadline=None)
@given(st.integers(-999, 999), st.integers(-999, 999), st.sampled_from("+-*"))
def test_sums_and_products_are_judged_as_arithmetic_has_it(a, b, sign):
    value = {"+": a + b, "-": a - b, "*": a * b}[sign]
    assert truths(f"{a} {sign} ({b}) = {value}") == [True]
    assert truths(f"{a} {sign} ({b}) = {value}.01")[0] is not True
