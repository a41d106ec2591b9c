"""PRMScore against hand-made counts and scikit-learn's F1."""

from __future__ import annotations

import random

import pytest
from sklearn.metrics import f1_score

from genprm.evaluation.prmbench import CLASSES, Steps, counts, metrics, scores


def steps(kind, verdicts, errors):
    return Steps(kind, tuple(verdicts), frozenset(errors))


def made_up(count, seed=0):
    chosen = random.Random(seed)
    kinds = [kind for kind in CLASSES if kind != "multi_solutions"]
    rows = []
    for _ in range(count):
        length = chosen.randint(3, 9)
        errors = chosen.sample(range(length), chosen.randint(1, 2))
        verdicts = [chosen.random() < (0.35 if i in errors else 0.8) for i in range(length)]
        rows.append(steps(chosen.choice(kinds), verdicts, errors))
    return rows


def test_f1_and_negative_f1_equal_scikit_learns():
    rows = made_up(60)
    truths = [i not in row.errors for row in rows for i in range(len(row.verdicts))]
    taken = [verdict for row in rows for verdict in row.verdicts]
    found = scores(counts(rows))
    good, bad = f1_score(truths, taken, pos_label=True), f1_score(truths, taken, pos_label=False)
    assert found["f1"] == pytest.approx(good)
    assert found["negative_f1"] == pytest.approx(bad)
    assert found["prm_score"] == pytest.approx((good + bad) / 2)
    assert scores(counts(rows), weight=0.2)["prm_score"] == pytest.approx(0.2 * bad + 0.8 * good)


def test_the_total_pools_steps_and_a_group_is_the_mean_of_its_classes():
    rows = [
        steps("redundency", [True, False, True], {1}),
        steps("circular", [True, True, False, True], {1}),
        steps("circular", [False, True], {0}),
    ]
    found = metrics(rows, resamples=20)
    assert found["classes"]["redundency"]["prm_score"] == 1.0
    # circular: TP 3, FP 1, TN 1, FN 1 -> F1 6/8, negative F1 2/4.
    assert found["classes"]["circular"]["prm_score"] == pytest.approx((0.75 + 0.5) / 2)
    assert found["groups"] == {"simplicity": pytest.approx((1.0 + 0.625) / 2)}
    # All: TP 5, FP 1, TN 2, FN 1.
    assert found["prm_score"]["prm_score"] == pytest.approx((10 / 12 + 4 / 6) / 2)
    assert found["prm_score"]["n"] == 3


def test_a_class_without_errors_is_scored_by_f1_alone():
    found = metrics([steps("multi_solutions", [True, True, False, True], ())], resamples=20)
    assert found["classes"]["multi_solutions"]["prm_score"] == pytest.approx(6 / 7)


def test_unscored_steps_are_left_out_and_counted():
    found = metrics([steps("deception", [True, None, False], {2})], resamples=20)["classes"]["deception"]
    assert found["prm_score"] == 1.0
    assert (found["unscored_steps"], found["steps"]) == (1, 3)


def test_every_upstream_class_stands_in_one_of_the_three_groups():
    assert len(CLASSES) == 9
    assert {group for _, group in CLASSES.values()} == {"simplicity", "soundness", "sensitivity"}


def test_an_unknown_class_is_kept_apart_rather_than_dropped():
    found = metrics([steps("novel", [True, False], {1})], resamples=20)
    assert found["groups"] == {"other": 1.0}
