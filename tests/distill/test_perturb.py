"""Perturbations: one error, known exactly, and everything behind it consistent with it."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from random import Random

import pytest
from genprm.distill.carry import Edit, Look, carry
from genprm.distill.gold import Refused, clean_text, read_gold
from genprm.distill.perturb import KINDS, perturb
from genprm.distill.style import draw_style, write
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from genprm.outcome import extract_answer
from tests.distill.worked import ALL, FILM, LIBRARY, ORCHARD, SALE, SHOP, equalities, last_number

GSM8K = Path(__file__).parents[3] / "shared" / "data" / "train" / "gsm8k_train.jsonl"


def made(worked, kind, tries=12):
    """All different wrong solutions of a kind that some seeds give."""
    gold = read_gold(*worked)
    found = {}
    for seed in range(tries):
        wrong = perturb(gold, kind, Random(seed))
        found[wrong.steps, wrong.value] = wrong
    return gold, list(found.values())


# ---------------------------------------------------------------- worked solutions


def test_a_worked_solution_is_read_into_plain_steps_and_its_arithmetic():
    gold = read_gold(*SHOP)
    assert gold.texts[0] == "The lamps cost $48 x 3 = $144."
    assert gold.value == 141
    first = gold.steps[0]
    assert [number.value for number in first.numbers] == [48, 3, 144]
    assert [first.text[slice(*span)] for span in first.equations[0].signs] == ["x"]
    assert first.text[first.numbers[2].start : first.numbers[2].end] == "144"
    assert [equation.value for step in gold.steps for equation in step.equations] == [144, 85, 359, 141]


def test_a_percentage_counts_as_a_share_where_the_annotation_says_so():
    gold = read_gold("20% of 50?", "It is 20% * 50 = <<.2*50=10>>10.\n#### 10")
    operand = gold.steps[0].equations[0].operands[0]
    assert (operand.value, operand.scale) == (Fraction(1, 5), Fraction(1, 100))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("It is 2 + 3 = <<2+3=5>>5.", "no final answer"),
        ("It is 2 + 3 = <<2+3=5>>5.\n#### five", "the final answer is no number"),
        ("It is five.\n#### 5", "no annotation"),
        ("It is 2 + 4 = <<2+3=5>>5.\n#### 5", "text and annotation differ"),
        ("It is 2 - 3 = <<2+3=5>>5.\n#### 5", "text and annotation differ"),
        ("It is 2 + 3 = <<2+3=5>>6.\n#### 6", "text and annotation differ"),
        ("It is 10 / 3 = <<10/3=3.33>>3.33.\n#### 3.33", "a rounded result"),
        ("It is 2 + 3 = 5.\nSo 5 * 2 = <<5*2=10>>10.\n#### 10", "an equation without annotation"),
        ("It is 2 + 3 = <<2+3=5>>5.\n#### 7", "the final answer is not the last result"),
        ("It is 2 + 3 = <<2+3=5>>5.\nThat is all.\n#### 5", "the last step has no annotation"),
        ("It is <<5=5>>5.\n#### 5", "an annotation without an operation"),
        ("It is 2S = <<2*S=5>>5.\n#### 5", "an annotation that is no plain arithmetic"),
        ("It is 5th <<2+3=5>>5th.\n#### 5", "an annotation without its result in the text"),
    ],
)
def test_a_solution_whose_numbers_cannot_be_traced_is_refused_with_the_reason(answer, reason):
    with pytest.raises(Refused) as refused:
        read_gold("How many?", answer)
    assert refused.value.reason == reason


def test_a_solution_that_cannot_be_perturbed_still_gives_clean_steps():
    assert clean_text("It is 10 / 3 = <<10/3=3.33>>3.33.\n\nDone.\n#### 3.33") == ("It is 10 / 3 = 3.33.", "Done.")


# ---------------------------------------------------------------- carrying on


def test_a_wrong_result_is_carried_into_every_later_step_in_the_text_s_format():
    carried = carry(read_gold(*LIBRARY), Edit(0, result=(0, Fraction(3090))))
    assert carried.steps == (
        "The library owns 1,250 + 840 = 3,090 books.",
        "With the new ones and without those lent out there are 3,090 - 415 + 96 = 2,771 books.",
    )
    assert carried.value == 2771
    assert carried.steps[0][carried.at :].startswith("3,090")


def test_a_mention_of_the_result_before_its_calculation_changes_with_it():
    gold = read_gold("8 boxes of 37?", "There are 296 pens because 8 * 37 = <<8*37=296>>296.\n#### 296")
    carried = carry(gold, Edit(0, result=(0, Fraction(286))))
    assert carried.steps == ("There are 286 pens because 8 * 37 = 286.",)
    assert carried.at == len("There are ")


@pytest.mark.parametrize(
    ("problem", "answer", "result", "reason"),
    [
        # 30 stands in the problem too: the second step may mean either.
        ("5 rows of 6, and 30 more?", "5 * 6 = <<5*6=30>>30\n30 + 30 = <<30+30=60>>60\n#### 60", 31, "two possible"),
        # 61 stems from nothing that is known, perhaps from what changed.
        ("7 rows of 6?", "7 * 6 = <<7*6=42>>42\n42 + 61 = <<42+61=103>>103\n#### 103", 43, "unknown source"),
        ("9 and 8 cups?", "9 + 8 = <<9+8=17>>17\n17 * 2 = <<17*2=34>>34, twice seventeen\n#### 34", 18, "as a word"),
        ("40 and 15?", "40 - 15 = <<40-15=25>>25\n40 - 25 = <<40-25=15>>15\n#### 15", 50, "negative"),
        ("40 and 12 pens?", "40 - 12 = <<40-12=28>>28\n28 / 4 = <<28/4=7>>7 pens\n#### 7", 30, "counted whole"),
        ("9 and 7 pens?", "9 - 7 = <<9-7=2>>2 pens\n9 * 2 = <<9*2=18>>18\n#### 18", 1, "singular and plural"),
    ],
)
def test_a_change_that_leaves_a_choice_or_reads_badly_is_refused(problem, answer, result, reason):
    with pytest.raises(Refused, match=reason):
        carry(read_gold(problem, answer), Edit(0, result=(0, Fraction(result))))


def test_a_look_changes_how_numbers_are_written_and_nothing_else():
    gold = read_gold(*SHOP)
    steps = carry(gold, None, Look(cents=True, spaced=True)).steps
    assert steps[0] == "The lamps cost $48.00 x 3 = $144.00."
    tight = read_gold("2 and 3 thousand?", "2+3000=<<2+3000=3002>>3002\n#### 3002")
    assert carry(tight, None, Look(commas=True, spaced=True)).steps == ("2 + 3,000 = 3,002",)


# ---------------------------------------------------------------- kinds of errors


def test_an_arithmetic_error_makes_one_equality_false_and_all_others_follow():
    gold, wrongs = made(ORCHARD, "arithmetic")
    assert len(wrongs) > 3
    for wrong in wrongs:
        assert [all(equalities(step)) for step in wrong.steps] == [at != wrong.label for at in range(3)]
        assert wrong.steps[: wrong.label] == gold.texts[: wrong.label]


def test_a_wrong_operation_is_carried_on():
    _, wrongs = made(ORCHARD, "operator", 30)
    texts = {wrong.steps: wrong.label for wrong in wrongs}
    summed = ("Mara picks 14 * 23 = 322 apples.", "She keeps 322 + 52 = 374 apples.", "So she fills 374 / 6 =")
    assert not any(steps[:2] == summed[:2] for steps in texts)  # 374 / 6 is no whole number of boxes
    times = (
        "Mara picks 14 * 23 = 322 apples.",
        "She keeps 322 - 52 = 270 apples.",
        "So she fills 270 * 6 = 1620 boxes.",
    )
    assert texts[times] == 2


def test_a_misread_quantity_is_another_one_of_the_problem():
    _, wrongs = made(SHOP, "quantity", 40)
    assert any(wrong.steps[0] == "The lamps cost $17 x 3 = $51." and wrong.label == 0 for wrong in wrongs)
    # The price that was misread in the first step stays misread where the problem's own is meant.
    first = next(wrong for wrong in wrongs if wrong.steps[0].startswith("The lamps cost $17"))
    assert first.steps[2] == "In total she pays $51 + $85 + $130 = $266."


def test_a_dropped_condition_leaves_a_term_out():
    _, wrongs = made(SHOP, "dropped_condition", 20)
    thirds = {wrong.steps[2] for wrong in wrongs}
    assert "In total she pays $144 + $130 = $274." in thirds
    assert "In total she pays $85 + $130 = $215." in thirds
    assert {wrong.label for wrong in wrongs} == {2}


def test_a_skipped_step_is_missing_and_the_step_that_used_it_is_wrong():
    _, wrongs = made(FILM, "skipped_step", 20)
    texts = {wrong.steps: wrong.label for wrong in wrongs}
    first = "An evening has 3 * 60 = 180 minutes."
    assert texts == {(first, "So it watches 180 * 8 = 1440 clips."): 1, (first, "So it watches 15 * 8 = 120 clips."): 1}


def test_a_wrong_copy_leaves_the_earlier_step_right():
    gold, wrongs = made(SHOP, "copy", 30)
    for wrong in wrongs:
        assert wrong.steps[: wrong.label] == gold.texts[: wrong.label]
        assert wrong.label in (2, 3)
    assert "So her change is $500 - $144 = $356." in {wrong.steps[3] for wrong in wrongs}
    assert "In total she pays $144 + $58 + $130 = $332." in {wrong.steps[2] for wrong in wrongs}


def test_a_unit_error_is_a_forgotten_or_wrong_factor_or_a_percentage_taken_wrongly():
    _, hours = made(FILM, "unit", 20)
    # Without the conversion 3 / 15 clips would be left, which nobody would go on with.
    assert {wrong.steps[0] for wrong in hours} == {"An evening has 3 * 100 = 300 minutes."}
    _, percent = made(SALE, "unit", 10)
    assert {wrong.steps[0] for wrong in percent} == {"The coat is reduced by $250 * .02 = $5."}
    wide = (
        "A tap drips 4 times a minute. How often does it drip in 6 hours?",
        "4 * 60 * 6 = <<4*60*6=1440>>1440\n#### 1440",
    )
    assert {wrong.steps for wrong in made(wide, "unit", 10)[1]} == {("4 * 6 = 24",), ("4 * 100 * 6 = 2400",)}
    days = (
        "A hen lays 2 eggs a day. How many in 3 weeks?",
        "There are 3 * 7 = <<3*7=21>>21 days.\nSo it lays 2 * 21 = <<2*21=42>>42 eggs.\n#### 42",
    )
    assert ("So it lays 2 * 3 = 6 eggs.",) in {wrong.steps for wrong in made(days, "unit", 20)[1]}


def test_a_premature_answer_is_an_intermediate_value_and_the_closing_is_what_is_wrong():
    gold, wrongs = made(ORCHARD, "premature", 3)
    (wrong,) = wrongs
    assert (wrong.steps, wrong.label, wrong.value) == (gold.texts[:-1], 2, 270)


def test_what_has_no_place_is_refused():
    with pytest.raises(Refused, match="no place for this kind"):
        perturb(read_gold(*ORCHARD), "dropped_condition", Random(0))


def test_the_same_seed_makes_the_same_error():
    gold = read_gold(*SHOP)
    for kind in KINDS:
        try:
            once = perturb(gold, kind, Random("a"))
        except Refused:
            continue
        assert once == perturb(gold, kind, Random("a"))


def check(gold, wrong):
    """What holds for every kind."""
    assert wrong.value != gold.value
    assert 0 <= wrong.label <= len(wrong.steps)
    for at, step in enumerate(wrong.steps):
        held = all(equalities(step))
        assert held or (wrong.kind == "arithmetic" and at == wrong.label), (wrong.kind, step)
    if wrong.kind not in ("skipped_step", "premature"):
        assert wrong.steps[: wrong.label] == gold.texts[: wrong.label]
        assert wrong.steps[wrong.label] != gold.texts[wrong.label]
    else:
        assert set(wrong.steps[: wrong.label]) <= set(gold.texts)
    if wrong.kind != "premature":
        assert last_number(wrong.steps[-1]) == wrong.value


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ALL)
def test_every_equality_but_the_error_s_own_holds_by_an_independent_recomputation(kind, name):
    gold = read_gold(*ALL[name])
    for seed in range(8):
        try:
            wrong = perturb(gold, kind, Random(seed))
        except Refused:
            continue
        check(gold, wrong)


@st.composite
def chains(draw):
    """A problem of several steps, each of which uses the one before and a new number."""
    numbers = draw(st.lists(st.integers(11, 97), min_size=3, max_size=6, unique=True))
    value, lines = numbers[0], []
    for number in numbers[1:]:
        sign = draw(st.sampled_from(["+", "*", "-"] if value > number else ["+", "*"]))
        if value * number > 500_000:
            sign = "+"
        result = {"+": value + number, "*": value * number, "-": value - number}[sign]
        lines.append(f"Now there are {value} {sign} {number} = <<{value}{sign}{number}={result}>>{result} of them.")
        value = result
    return "Use " + ", ".join(map(str, numbers)) + ".", "\n".join([*lines, f"#### {value}"])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(chains(), st.sampled_from(KINDS), st.integers(0, 1000))
def test_chains_of_any_numbers_keep_one_error(worked, kind, seed):
    try:
        gold = read_gold(*worked)
        wrong = perturb(gold, kind, Random(seed))
    except Refused:
        return
    check(gold, wrong)


# ---------------------------------------------------------------- style


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(sorted(ALL)), st.sampled_from(KINDS), st.integers(0, 10_000))
def test_a_style_states_the_answer_and_keeps_the_error_at_its_label(name, kind, seed):
    gold, style = read_gold(*ALL[name]), draw_style(Random(seed))
    try:
        wrong = perturb(gold, kind, Random(seed), style.look)
    except Refused:
        return
    styled = write(wrong.steps, wrong.label, wrong.at, wrong.stated, False, style)
    answer = extract_answer("\n".join(styled.steps))
    assert answer is not None
    assert last_number(answer.replace("{,}", ",")) == wrong.value
    false = [at for at, step in enumerate(styled.steps) if not all(equalities(step))]
    assert false == ([styled.label] if kind == "arithmetic" else [])
    assert 0 <= styled.label < len(styled.steps)


def test_splitting_and_merging_move_the_label_with_the_error():
    steps = ("One. Two 2 + 2 = 5.", "Three.")
    base = draw_style(Random(1))
    plain = type(base)(Look(), "hashes", False, False, False, 0.0)
    split = type(base)(Look(), "hashes", False, True, False, 0.0)
    merge = type(base)(Look(), "hashes", False, False, True, 0.0)
    at = steps[0].index("5")
    assert write(steps, 0, at, "5", False, plain).steps[-1] == "Three.\n#### 5"
    assert write(steps, 0, at, "5", False, split).label == 1
    assert write(steps, 0, 0, "5", False, split).label == 0
    assert write(steps, 1, 0, "5", False, split).label == 2
    assert write(steps, -1, 0, "5", False, split).label == -1
    merged = write(steps, 1, 0, "5", False, merge)
    assert (merged.steps, merged.label) == (("One. Two 2 + 2 = 5. Three.\n#### 5",), 0)


def test_a_premature_answer_is_labelled_where_it_is_stated():
    gold = read_gold(*ORCHARD)
    wrong = perturb(gold, "premature", Random(0))
    base = draw_style(Random(1))
    for closing, label in (("hashes", 1), ("sentence", 1), ("step", 2), ("boxed", 2)):
        style = type(base)(Look(), closing, False, False, False, 0.0)
        styled = write(wrong.steps, wrong.label, wrong.at, wrong.stated, False, style)
        assert styled.label == label
        assert "270" in styled.steps[label]


def test_styles_do_not_depend_on_the_solution():
    assert [draw_style(Random(seed)).closing for seed in range(9)] == [
        draw_style(Random(seed)).closing for seed in range(9)
    ]
    assert {draw_style(Random(seed)).closing for seed in range(40)} == {"hashes", "step", "sentence", "boxed"}


# ---------------------------------------------------------------- real problems


@pytest.mark.skipif(not GSM8K.exists(), reason=f"there is no {GSM8K.name} beside this checkout")
def test_perturbed_school_problems_agree_with_the_checker_of_equations():
    from genprm.evidence.equations import step_equations

    made_of = dict.fromkeys(KINDS, 0)
    with GSM8K.open(encoding="utf-8") as file:
        rows = [json.loads(line) for line, _ in zip(file, range(120), strict=False)]
    for row in rows:
        try:
            gold = read_gold(row["question"], row["answer"])
        except Refused:
            continue
        for kind in KINDS:
            try:
                wrong = perturb(gold, kind, Random(row["question"]))
            except Refused:
                continue
            made_of[kind] += 1
            false = [
                at
                for at, step in enumerate(wrong.steps)
                if any(equation.true is False for equation in step_equations(step))
            ]
            assert false in ([[wrong.label], []] if kind == "arithmetic" else [[]]), wrong
    assert min(made_of.values()) > 0
