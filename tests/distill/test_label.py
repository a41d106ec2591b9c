"""Labelling: each method on solutions whose values are known, and what is said where nothing can be."""

from __future__ import annotations

import asyncio
import json

import pytest
from genprm.distill.config import DistillConfig, LabelConfig
from genprm.distill.grading import Grader, stated_answer
from genprm.distill.label import Labeller, label_row, method_for
from genprm.distill.pipeline import chosen_stages, run_stages
from genprm.distill.rollouts import Roller
from genprm.distill.solvers import judge
from genprm.distill.store import read_rows

from genprm.evidence.programs import Program
from genprm.evidence.reading import read_value
from genprm.policy import Draft
from genprm.types import Solution


class Table:
    """A policy whose rollouts from a prefix of t steps reach the answer 7 in a known share, evenly spread."""

    def __init__(self, shares, wrong="8"):
        self.shares, self.wrong = shares, wrong
        self.calls = []
        self.drawn = {}

    async def complete(self, problem, steps=(), *, n, seed):
        length = len(steps)
        self.calls.append((length, n, seed))
        start = self.drawn.get(length, 0)
        self.drawn[length] = start + n
        return [self._draft(steps, number) for number in range(start, start + n)]

    def _draft(self, steps, number):
        share = self.shares[len(steps)]
        right = int((number + 1) * share) > int(number * share)
        answer = "7" if right else self.wrong
        if answer is None:
            return Draft((*steps, "…"), False, 3, note="cut")
        return Draft((*steps, f"The answer is {answer}."), True, 3)


def row(count, final, **more):
    base = {"id": "p/0", "problem_id": "p", "problem": "What?", "answer": "7", "source": "policy:x"}
    steps = [f"Step {step}." for step in range(count)]
    return {**base, "steps": steps, "final_correct": final, "label": None, "meta": {}, **more}


def label(policy, sample, method, **settings):
    """What a method says, with every rollout drawn unless the settings say otherwise."""
    config = LabelConfig(**{"rollouts": ((1.01, 16),), "first_rollouts": 8, "exact": True, **settings})

    async def run():
        with Grader() as grader:
            roller = Roller(policy, grader, config, 0, whole_rate=method == "rpe")
            return await Labeller(config, roller).label(sample, method)

    return asyncio.run(run())


def test_soft_labels_follow_the_share_of_rollouts_that_reach_the_answer():
    found = label(Table([0.5, 0.75, 0.25, 0.5]), row(4, False), "mc_soft")
    assert found.values == [0.75, 0.25, 0.5, 0.0]
    assert found.steps == [True, False, True, False]
    assert found.first == 1


def test_hard_labels_need_one_rollout():
    found = label(Table([0.5, 0.5, 0.125, 0.0]), row(4, False), "mc_hard")
    assert (found.steps, found.first) == ([True, True, False, False], 2)


def test_relative_progress_divides_by_the_problem_s_pass_rate_first():
    found = label(Table([0.5, 0.5, 0.25, 0.5]), row(4, True), "rpe")
    assert (found.steps, found.first) == ([True, False, True, True], 1)
    assert label_row(row(4, True), found)["rpe"] == [1.0, 0.5, 2.0, 2.0]


def test_every_value_that_was_drawn_is_stored_beside_the_label():
    sample = row(3, False)
    made = label_row(sample, label(Table([0.5, 0.5, 0.0]), sample, "rpe"))
    assert (made["label"], made["step_labels"], made["label_method"]) == (1, [True, False, False], "rpe")
    assert (made["mc"], made["hard"], made["rpe"]) == ([0.5, 0.0, 0.0], [True, False, False], [1.0, 0.0, 0.0])
    assert made["pass_rate"]["n"] == 16
    first, second = made["rollouts"]
    assert (first["step"], first["n"], first["known"], first["right"], first["tokens"]) == (1, 16, 16, 8, 48)
    assert second["answers"] == ["8"] * 16
    assert json.loads(json.dumps(made)) == made


@pytest.mark.parametrize("error", range(6))
def test_bisection_labels_as_hard_estimation_does_with_fewer_rollouts(error):
    shares = [0.5] * (error + 1) + [0.0] * (6 - error)
    scan, search = Table(shares), Table(shares)
    one, other = label(scan, row(6, False), "mc_hard"), label(search, row(6, False), "binary_search")
    assert one.first == other.first == error
    lengths = [length for length, _, _ in search.calls if length]
    assert len(set(lengths)) <= 3 < len({length for length, _, _ in scan.calls if length})


def test_bisection_draws_nothing_for_a_right_answer():
    policy = Table([])
    found = label(policy, row(5, True), "binary_search")
    assert (found.first, found.steps, policy.calls) == (-1, [True] * 5, [])


@pytest.mark.parametrize("method", ["mc_soft", "mc_hard", "rpe", "binary_search"])
def test_a_problem_that_the_policy_never_solves_tells_nothing(method):
    found = label(Table([0.0] * 4), row(4, False), method)
    assert (found.first, found.steps, found.reason) == (None, [None] * 4, "the policy never solves the problem")


@pytest.mark.parametrize("method", ["mc_soft", "mc_hard", "rpe", "binary_search"])
def test_rollouts_without_an_answer_are_unknown_and_not_wrong(method):
    found = label(Table([0.5, 0.5, 0.0, 0.5], wrong=None), row(4, False), method)
    # From the problem and the first step on, the rollouts that ended all reached the answer; from two, none ended.
    assert found.values[1] is None
    assert found.first is None
    assert found.reason == "no rollout's answer could be compared"
    assert all(point.known == point.right for point in found.points)


@pytest.mark.parametrize("method", ["mc_soft", "binary_search"])
def test_without_a_reference_answer_there_are_no_rollouts(method):
    policy = Table([])
    found = label(policy, row(3, None, answer=None), method)
    assert (found.steps, found.reason, policy.calls) == ([None] * 3, "no reference answer", [])


def test_an_unknown_final_answer_leaves_the_last_step_open():
    found = label(Table([1.0, 1.0, 1.0]), row(3, None), "mc_hard")
    assert (found.steps, found.first, found.reason) == ([True, True, None], None, "the final answer is unknown")


def test_hard_problems_are_rolled_out_more_often():
    table = ((0.1, 12), (0.9, 6), (1.01, 3))
    for rate, count in ((0.05, 12), (0.5, 6), (1.0, 3)):
        policy = Table([rate, 0.5])
        found = label(policy, row(2, True), "mc_soft", rollouts=table, first_rollouts=4)
        assert found.points[0].planned == count
        assert policy.drawn[1] == count


@pytest.mark.parametrize(("share", "labels"), [(1.0, [True, True]), (0.0, [False, False])])
def test_stopping_early_saves_rollouts_and_keeps_the_label(share, labels):
    whole = label(Table([1.0, share]), row(2, share == 1.0), "mc_hard", rollouts=((1.01, 64),))
    policy = Table([1.0, share])
    found = label(policy, row(2, share == 1.0), "mc_hard", rollouts=((1.01, 64),), exact=False)
    assert found.steps == whole.steps == labels
    assert policy.drawn[1] == (8 if share else 64)  # that none of 64 is right takes 64


def test_soft_labels_stop_by_the_bound():
    for bound, most in ((0.02, 8), (None, 64)):
        policy = Table([0.5, 0.9])
        label(policy, row(2, True), "mc_soft", rollouts=((1.01, 64),), exact=False, stop_bound=bound)
        assert policy.drawn[1] <= most
        assert bound is not None or policy.drawn[1] > 8


def test_nothing_is_rolled_out_behind_the_first_wrong_step_unless_asked_for():
    shares = [0.5, 0.0, 0.0, 0.0]
    for after, lengths in ((False, {0, 1}), (True, {0, 1, 2, 3})):
        policy = Table(shares)
        found = label(policy, row(4, False), "mc_hard", exact=False, after_error=after)
        assert {length for length, _, _ in policy.calls} == lengths
        assert found.first == 0
        assert found.steps == [False, False if after else None, False if after else None, False]


def test_solutions_of_a_problem_share_its_pass_rate_and_seeds_hang_on_the_prefix():
    policy = Table([0.5, 0.5, 0.5])
    config = LabelConfig(rollouts=((1.01, 16),), first_rollouts=8, exact=True)

    async def run():
        with Grader() as grader:
            labeller = Labeller(config, Roller(policy, grader, config, 0, whole_rate=True))
            rows = [row(2, True, id=f"p/{number}") for number in range(3)]
            await asyncio.gather(*(labeller.label(one, "rpe") for one in rows))

    asyncio.run(run())
    assert policy.drawn[0] == 16
    seeds = [(length, seed) for length, _, seed in policy.calls if length]
    assert len(set(seeds)) == 2  # two waves, the same for all three solutions


@pytest.mark.parametrize(
    ("source", "known", "method", "first", "reason"),
    [
        ("perturb:copy", 1, "construction", 1, ""),
        ("gold", -1, "construction", -1, ""),
        ("file", 1, "construction", None, "no label by construction"),
        ("file", 1, "gold", 1, ""),
        ("perturb:copy", 1, "gold", None, "no label by hand"),
        ("policy:x", None, "gold", None, "no label by hand"),
    ],
)
def test_known_labels_are_taken_by_the_method_that_they_come_from(source, known, method, first, reason):
    found = label(Table([]), row(3, False, source=source, label=known), method)
    assert (found.first, found.reason) == (first, reason)
    if first == 1:
        assert found.steps == [True, False, None]


def test_the_outcome_method_labels_the_last_step():
    assert label(Table([]), row(3, False), "outcome").steps == [None, None, False]
    assert label(Table([]), row(1, True), "outcome").first == -1


@pytest.mark.parametrize(
    ("source", "known", "method"),
    [("policy:x", None, "mc_soft"), ("file", 0, "gold"), ("perturb:copy", 0, "construction")],
)
def test_auto_takes_the_known_label_and_rollouts_without_one(source, known, method):
    settings = LabelConfig(rollout_method="mc_soft")
    assert method_for(row(2, False, source=source, label=known), settings) == method


def program(answer, **values):
    read = {name: read_value(text) for name, text in values.items()}
    return Program(source="", status="ok", output="", answer=read_value(answer), values=read)


def test_only_programs_that_reach_the_reference_answer_label_a_solution():
    steps = ("She has 4 * 5 = 20 pens.", "She sells 20 - 6 = 13 pens.", "The answer is 13.")
    solution = Solution(id="0", problem="4 boxes of 5 pens, 6 sold?", steps=steps, answer="14")
    good, bad = program("14", pens="20", left="14"), program("13", pens="20", left="13")
    assert judge(solution, [bad, good, bad]) == (1, "")
    assert judge(solution, [bad]) == (None, "no program reaches the reference answer")
    right = solution.model_copy(update={"steps": (steps[0], "So 20 - 6 = 14.", "The answer is 14.")})
    assert judge(right, [bad, good]) == (-1, "")


# ---------------------------------------------------------------- the whole stage


def run(out, rows, tmp_path, **settings):
    """Sample rows of a file and label them with the scripted policy; the label rows and the summary."""
    file = tmp_path / "in.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in rows))
    sample = {"inputs": [str(file)], "sources": settings.pop("sources", ["file"])}
    config = DistillConfig.model_validate(
        {"policy": {"config": "scripted"}, "sample": sample, "label": {"rollouts": [[1.01, 8]], **settings}}
    )
    summary = list(run_stages(config, out, chosen_stages("sample", "label")))[-1]
    return list(read_rows(out / "label")), summary


SOLVED = {"id": "a", "problem": "3 + 4 + 5?", "answer": "12"}


def test_rollouts_of_a_scripted_policy_label_a_solution_and_are_counted(tmp_path):
    wrong = {**SOLVED, "id": "b", "steps": ["Step 1: 3 + 4 = 8.", "Step 2: 8 + 5 = 13.", "The answer is 13."]}
    right = {**SOLVED, "steps": ["Step 1: 3 + 4 = 7.", "Step 2: 7 + 5 = 12.", "The answer is 12."]}
    rows, summary = run(tmp_path / "out", [right, wrong], tmp_path, method="mc_hard")
    assert [one["label"] for one in rows] == [-1, 0]
    assert summary["rollouts"]["drawn"] == sum(point["n"] for one in rows for point in one["rollouts"])
    assert summary["rollouts"]["saved_share"] >= 0
    assert summary["tokens"]["completion"] > 0


def test_rows_on_which_two_methods_disagree_are_rejected(tmp_path):
    problem = {"question": "3 + 4 + 5 pens?", "answer": "3 + 4 = <<3+4=7>>7\n7 + 5 = <<7+5=12>>12\n#### 12", "id": "a"}
    rows, summary = run(
        tmp_path / "one", [problem], tmp_path, sources=["gold", "perturb"], agree_with="programs", programs=2
    )
    assert rows
    assert {one["label_method"] for one in rows} == {"construction+programs"}
    assert all(one["label"] == -1 for one in rows if one["source"] == "gold")
    file = {**SOLVED, "steps": ["3 + 4 = 7.", "7 + 5 = 13.", "The answer is 13."], "label": 0}
    rows, summary = run(tmp_path / "two", [file], tmp_path, method="gold", agree_with="programs", programs=2)
    assert (rows, summary["reasons"]) == ([], {"two methods disagree": 1})
    rejected = list(read_rows(tmp_path / "two" / "label", "rejected.jsonl"))
    assert rejected[0]["methods"] == {"gold": 0, "programs": 1}


def test_rows_that_nothing_is_known_of_are_rejected_with_the_reason(tmp_path):
    unknown = {**SOLVED, "id": "b", "steps": ["Step 1: who knows."]}
    rows, summary = run(tmp_path / "out", [unknown], tmp_path, method="outcome")
    assert rows == []
    assert summary["reasons"] == {"the final answer is unknown": 1}


def test_no_model_is_loaded_where_every_label_is_known(tmp_path):
    known = {**SOLVED, "steps": ["3 + 4 = 7.", "The answer is 12."], "label": -1}
    rows, _ = run(tmp_path / "out", [known], tmp_path)
    assert rows[0]["label_method"] == "gold"
    assert rows[0]["pass_rate"] is None


def test_a_step_s_own_number_is_no_answer():
    assert stated_answer(["Step 1: 3 + 4 = 7.", "Step 2: So they all win."]) is None
    assert stated_answer(["Step 1: 3 + 4 = 7."]) == "7"
