"""What a step claims to have computed, what it only repeats, and the solution's answer."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genprm.evidence.claims import final_answer, numbers, restated, step_claims


def claimed(step: str) -> list[str]:
    return [step[slice(*claim.span)] for claim in step_claims(step)]


@pytest.mark.parametrize(
    ("step", "texts"),
    [
        ("3 * 4 = 12 apples", ["12"]),
        ("The cost is $3 × 2 = $6.", ["6"]),
        ("He ate 36/2 = <<36/2=18>>18 plums.", ["18", "18"]),
        ("So the total is 15.", ["15"]),
        ("The rest are a total of 12 apples.", ["12"]),
        ("3 + 4 equals 7", ["7"]),
        ("Total cost: $45", ["45"]),
        (r"Thus $x = \frac{3}{4}$.", [r"\frac{3}{4}"]),
        (r"So it is $3\sqrt{2}$.", [r"3\sqrt{2}"]),
        (r"The area is $\pi$.", [r"\pi"]),
        (r"The answer is $\boxed{7}$.", ["7"]),
        (r"So $x = \boxed{\frac{1}{2}}$.", [r"\frac{1}{2}"]),
        ("It is 1,000 in all.", ["1,000"]),
        (r"It is 1{,}000 in all.", [r"1{,}000"]),
        ("The rate is 25%.", ["25%"]),
        (r"It costs \$18.", ["18"]),
        ("The remainder is -45, so 2 is no root.", ["-45"]),
        ("It is 2 1/2 hours.", ["2 1/2"]),
        ("The point is $(1.5, 3.2)$.", ["(1.5, 3.2)"]),
        ("So the interval is $[0, 3)$.", ["[0, 3)"]),
        (r"The solutions are $\{1, 2\}$.", [r"\{1, 2\}"]),
        (r"The roots are -2, $-\frac{5}{3}$, and 4.", ["-2", r"-\frac{5}{3}", "4"]),
        ("2+3 = 5 = 10/2", ["5", "10/2"]),
        ("g(3) = 3^2-2 = 9-2 = 7", ["7"]),
        (r"$P(x) = x^2 + 1$", ["x^2 + 1"]),
        ("# Answer\n\n-3, 8", ["-3, 8"]),
        ("#### 18", ["18"]),
        ("It has five sides.", ["five"]),
        ("She ate 12 apples.", ["12"]),
        ("She is 3 times as old.", []),
        ("Let us begin.", []),
        ("Step 3: we add.", []),
        ("", []),
    ],
)
def test_results_are_found_where_they_stand(step, texts):
    assert claimed(step) == texts


@pytest.mark.parametrize(
    ("step", "how", "sure", "computed"),
    [
        ("3 * 4 = 12", "equation", True, True),
        ("x = 12", "equation", True, False),
        ("2x + 3 = 12", "equation", False, False),
        ("He has <<3*4=12>> of them", "annotation", True, True),
        (r"\boxed{12}", "boxed", True, False),
        (r"3 * 4 = \boxed{12}", "boxed", True, True),
        ("The sum is 12.", "statement", True, False),
        ("He has 12.", "statement", False, False),
        ("It has twelve sides.", "statement", False, False),
    ],
)
def test_a_claim_says_how_it_is_made_and_how_sure_it_is(step, how, sure, computed):
    (claim,) = step_claims(step)
    assert (claim.how, claim.sure, claim.computed, claim.value.number) == (how, sure, computed, 12)


@pytest.mark.parametrize(
    ("step", "last"),
    [
        ("3 * 4 = 12, and 12 + 1 = 13.", 13),
        ("3 * 4 = 12 apples, so he has 5 left.", 12),
        ("It has five sides", 5),
        (r"The sum is 4. The answer is $\boxed{7}$.", 7),
    ],
)
def test_one_claim_is_the_last_and_it_is_a_sure_one_if_there_is_any(step, last):
    assert [claim.value.number for claim in step_claims(step) if claim.last] == [last]


def test_units_are_read_with_the_value():
    assert step_claims("2 * 1.75 = 3.5 hours")[0].value.unit == "hour"
    assert step_claims("It is 90 minutes.")[0].value.unit == "minute"


def test_what_only_repeats_a_number_is_told_from_what_is_computed():
    problem = "Tom has 3 boxes of 4 apples and seven pears."
    assert [claim.value.number for claim in restated("Each box has 4. There are 7 pears.", problem)] == [4, 7]
    assert restated("3 * 4 = 12", problem) == []
    assert [claim.value.number for claim in restated("So there are 12.", problem, ["3 * 4 = 12"])] == [12]
    assert restated("3 + 4 = 7", problem) == []  # computed, though the problem has a 7 too


def test_the_numbers_of_a_text_are_numerals_and_small_number_words():
    assert sorted(value.number or 0 for value in numbers("3 of 1,000 and seven, 3 again, 0.5 left")) == [
        0.5,
        3,
        7,
        1000,
    ]


@pytest.mark.parametrize(
    ("steps", "exact"),
    [
        (["x = 2", r"So it is \boxed{\frac{1}{2}}."], "1/2"),
        (["She has 18.", "#### 18"], "18"),
        (["The answer is 25%."], "1/4"),
        (["The answer is Monday."], None),
    ],
)
def test_the_final_answer_is_the_one_that_the_outcome_reward_compares(steps, exact):
    value = final_answer(steps)
    assert value is not None
    assert value.exact == exact


def test_a_solution_without_an_answer_has_none():
    assert final_answer(["So the claim holds."]) is None


SIGNS = [*"0123456789+-*/^=().,:${}[]|!%_ \nxyaI"]
SIGNS += ["\\frac", "\\boxed{", " of ", " is ", " five ", "<<", ">>", "#### "]


@settings(deadline=None)
@given(st.lists(st.sampled_from(SIGNS)).map("".join) | st.text())
def test_no_text_raises_and_every_place_lies_inside_with_one_last(text):
    claims = step_claims(text)
    for claim in claims:
        assert 0 <= claim.span[0] < claim.span[1] <= len(text)
    assert sum(claim.last for claim in claims) == min(len(claims), 1)
    restated(text, text, [text])


@pytest.mark.parametrize(
    "unit",
    ["=", "(", "is 5 ", ": 3", "is [1, 2) ", "answer is ", "\\boxed{", "<<1=2>>", "1,", "5 of ", "x = ", "$"],
)
@pytest.mark.parametrize("length", [7_900, 100_000])
def test_a_hostile_step_costs_little(unit, length):
    step = unit * (length // len(unit))
    start = time.process_time()
    step_claims(step)
    assert time.process_time() - start < 1  # about 0.1 on a quiet machine
