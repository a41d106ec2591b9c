"""Which critiques are kept: the rules one by one, on hand-made rows."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from genprm.distill.config import DistillConfig
from genprm.distill.decontaminate import Known, normalise
from genprm.distill.filter import Picker, dropped_for_balance, known_problems
from genprm.distill.pipeline import run_stages
from genprm.distill.store import read_rows
from hypothesis import given
from hypothesis import strategies as st

from genprm.errors import InputError

from .judged import critique_row, label_row, put, vote

PROBLEM = "A class of 24 pupils pays 5 dollars each for a trip to the lake in May. How much is that?"


def config(**rules):
    return DistillConfig.model_validate({"verify_config": {"config": "scripted"}, "filter": rules})


def pick(row, known=(), **rules):
    """(step, vote) of each kept critique, and the reasons of the others by their names."""
    keep, rejected = Picker(config(**rules), Known(known)).pick(row)
    return [(item["step"], item["vote"]) for item in keep], {name: reason for name, reason, _ in rejected}


def test_a_critique_is_kept_only_where_its_verdict_is_the_label():
    row = critique_row(label_row(labels=[True, False]), [[vote(0.9), vote(0.4, "b")], [vote(0.9, "c"), vote(0.1, "d")]])
    kept, why = pick(row)
    assert kept == [(0, 0), (1, 1)]
    assert why == dict.fromkeys(["p0/0#0.1", "p0/0#1.0"], "the verdict disagrees with the label")


def test_the_verdict_turns_at_the_teachers_threshold():
    row = critique_row(label_row(steps=["s"]), [[vote(0.6)]])
    assert pick(row)[0] == [(0, 0)]
    strict = {"verify_config": {"config": "scripted", "overrides": {"verify.threshold": 0.7}}}
    keep, _ = Picker(DistillConfig.model_validate(strict), Known()).pick(row)
    assert keep == []


def test_a_step_without_a_label_teaches_nothing():
    row = critique_row(label_row(labels=[True, None]), [[vote()], [vote(critique="b")]])
    assert pick(row) == ([(0, 0)], {"p0/0#1.0": "no label"})


@pytest.mark.parametrize(
    ("cast", "rules", "reason"),
    [
        (vote(statuses=("ok", "error")), {}, "code failed"),
        (vote(statuses=("ok", "error")), {"ran": "any"}, None),
        (vote(statuses=("error",)), {"ran": "any"}, "code failed"),
        (vote(statuses=("timeout",)), {"ran": "ignore"}, None),
        (vote(statuses=("unavailable",)), {}, "code could not be run"),
        (vote(statuses=()), {}, None),
        (vote(statuses=()), {"need_code": True}, "no code"),
        (vote(notes=("the part analyze was cut at 48 tokens",)), {}, "cut short"),
        (vote(), {"max_tokens": 9}, "too long"),
        (vote(), {"max_tokens": 10}, None),
        (vote(direct=True), {}, "no critique"),
    ],
)
def test_code_length_and_cuts_are_reasons_to_reject(cast, rules, reason):
    kept, why = pick(critique_row(label_row(steps=["s"]), [[cast]]), **rules)
    assert (kept, why) == (([(0, 0)], {}) if reason is None else ([], {"p0/0#0.0": reason}))


def test_a_vote_without_a_verdict_is_listed_with_its_reason():
    row = critique_row(label_row(steps=["s"]), [[vote()]], failed={0})
    keep, rejected = Picker(config(), Known()).pick(row)
    assert len(keep) == 1
    assert rejected == [("p0/0#0.failed0", "no verdict", {"why": "the prompt does not fit"})]


def test_solution_consensus_wants_all_verdicts_of_a_vote_to_agree():
    votes = [[vote(0.9, "a"), vote(0.9, "b")], [vote(0.1, "c"), vote(0.9, "d")]]
    row = critique_row(label_row(labels=[True, False]), votes)
    kept, why = pick(row, consensus="solution")
    assert kept == [(0, 0), (1, 0)]
    assert why["p0/0#0.1"] == "the verdict disagrees with a label of the solution"
    holed = critique_row(label_row(labels=[True, False]), votes, failed={1})
    assert pick(holed, consensus="solution")[0] == []


def test_one_critique_of_all_steps_is_kept_only_if_it_is_right_on_all():
    shared = [[vote(0.9, "whole")], [vote(0.9, "whole", shared=True)]]
    assert pick(critique_row(label_row(labels=[True, True]), shared))[0] == [(0, 0), (1, 0)]
    assert pick(critique_row(label_row(labels=[True, False]), shared))[0] == []


def test_the_same_critique_of_the_same_step_is_kept_once_over_all_rows():
    picker = Picker(config(), Known())
    first = critique_row(label_row("p0/0", steps=["s"]), [[vote(), vote(), vote(critique="other")]])
    again = critique_row(label_row("p0/1", steps=["s"]), [[vote()]])
    elsewhere = critique_row(label_row("p1/0", steps=["s"], problem="Another?"), [[vote()]])
    assert [len(picker.pick(row)[0]) for row in (first, again, elsewhere)] == [2, 0, 1]
    assert picker.pick(again)[1] == [("p0/1#0.0", "duplicate", {})]


def test_no_more_critiques_of_a_step_are_kept_than_wanted():
    row = critique_row(label_row(steps=["s"]), [[vote(0.1, "a"), vote(critique="b"), vote(critique="c")]])
    kept, why = pick(row, per_step=1)
    assert kept == [(0, 1)]
    assert why["p0/0#0.2"] == "more critiques than per_step"


@pytest.mark.parametrize(
    ("problem", "match"),
    [
        (PROBLEM, True),
        (f"  {PROBLEM.upper().replace(' ', '  ')}!!", True),
        ("On Monday " + PROBLEM.replace("How much is that?", "What do they pay?"), True),
        ("A class of 24 pupils pays 5 dollars each.", False),
        ("Something else?", False),
    ],
)
def test_a_problem_is_known_by_its_words_or_thirteen_of_them_in_a_row(problem, match):
    known = Known([("e1", PROBLEM), ("e2", "")])
    assert known.match(problem) == ("e1" if match else None)


@given(st.lists(st.text(alphabet="ab ", min_size=1), min_size=1, max_size=5), st.integers(1, 4))
def test_every_known_problem_is_found_again_however_it_is_written(texts, ngram):
    known = Known(((str(at), text) for at, text in enumerate(texts)), ngram)
    for text in texts:
        assert known.match(f" {text.upper()}. ") is not None
        assert normalise(normalise(text)) == normalise(text)


def test_rows_planted_from_an_evaluation_file_are_rejected_as_contaminated(tmp_path):
    files = [tmp_path / "a.jsonl", tmp_path / "b.json"]
    files[0].write_text(json.dumps({"id": "e", "problem": PROBLEM, "steps": ["x"], "label": -1}) + "\n")
    files[1].write_text(json.dumps([{"id": "e", "question": "How many legs have 7 spiders?", "answer": "#### 56"}]))
    known = known_problems(config(against=list(map(str, files))).filter)
    for problem in (PROBLEM, "how many legs have 7 spiders"):
        row = critique_row(label_row(problem=problem), [[vote()], [vote()]])
        assert Picker(config(), known).pick(row)[0] == []
        assert Picker(config(), known).pick(row)[1] == [("p0/0", "contaminated", {"with": "e"})]


def test_a_bad_row_in_an_evaluation_file_is_an_error_for_it_could_be_the_one(tmp_path):
    file = tmp_path / "e.jsonl"
    file.write_text('{"problem": "fine?", "steps": ["x"]}\n{"problem": 5}\n')
    with pytest.raises(InputError, match=r"e\.jsonl:2: problem"):
        known_problems(config(against=[str(file)]).filter)


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ([{"answer": "5", "share": 0.7}, {"answer": "6", "share": 0.3}], None),
        ([{"answer": "5", "share": 0.3}, {"answer": "6", "share": 0.7}], "the programs do not reach the answer"),
        ([], "the programs give no answer"),
    ],
)
def test_programs_count_only_if_they_reach_the_reference_answer(answers, reason):
    evidence = {"programs": [{"source": "x", "status": "ok"}], "answers": answers, "steps": []}
    row = critique_row(label_row(steps=["s"]), [[vote()]], evidence=evidence)
    assert pick(row)[0] == [(0, 0)]
    kept, why = pick(row, programs_must_reach_answer=True)
    assert (kept, why) == (([(0, 0)], {}) if reason is None else ([], {"p0/0": reason}))


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=4), max_size=12), st.integers(0, 3))
def test_balance_drops_only_the_commoner_verdict_and_leaves_as_many_of_each(labels, seed):
    kept = {
        f"p{at}": [{"step": step, "vote": 0, "label": label} for step, label in enumerate(row)]
        for at, row in enumerate(labels)
    }
    before = Counter(label for row in labels for label in row)
    dropped = dropped_for_balance(kept, seed)
    after = Counter(item["label"] for keep in kept.values() for item in keep)
    if min(before[True], before[False]) == 0:
        assert (dropped, after) == ([], before)
    else:
        assert after[True] == after[False] == min(before[True], before[False])
        assert len(dropped) == before.total() - after.total()
    assert all(kept.values())


def test_the_choice_for_balance_does_not_hang_on_the_order_of_rows():
    def kept(order):
        return {f"p{at}": [{"step": 0, "vote": 0, "label": at != 3}] for at in order}

    one, other = kept(range(9)), kept(reversed(range(9)))
    assert sorted(dropped_for_balance(one, 0)) == sorted(dropped_for_balance(other, 0))
    assert sorted(one) == sorted(other)


def test_the_stage_reports_the_kept_share_and_counts_every_reason(tmp_path):
    settings = config(per_step=1)
    rows = [
        critique_row(label_row("a", problem="One?"), [[vote(), vote(critique="b")], [vote(0.2)]]),
        critique_row(label_row("b", problem="Two?", labels=[False, None]), [[vote(0.1)]]),
        critique_row(label_row("c", problem="Three?", steps=["s"]), [[vote(0.2)]]),
    ]
    for stage, made in (("sample", rows), ("label", rows), ("critique", rows)):
        put(settings, tmp_path, stage, made)
    (line,) = run_stages(settings, tmp_path, ["filter"])
    assert line["critiques"] == {"in": 5, "kept": 2, "yes": 1, "no": 1}
    assert line["kept_share"] == 0.4
    assert line["reasons"] == {
        "more critiques than per_step": 1,
        "no critique is kept": 1,
        "the verdict disagrees with the label": 2,
    }
    assert (line["in"], line["out"], line["rejected"]) == (3, 2, 4)
    kept = {row["id"]: row["keep"] for row in read_rows(tmp_path / "filter")}
    assert kept == {"a": [{"step": 0, "vote": 0, "label": True}], "b": [{"step": 0, "vote": 0, "label": False}]}
