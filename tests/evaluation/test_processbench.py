"""The ProcessBench metric against independent arithmetic, hand-made cases and scikit-learn."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import brier_score_loss, roc_auc_score

from genprm.evaluation.processbench import _auroc, f1, metrics
from genprm.evaluation.rows import Judged, labelled_steps
from genprm.evaluation.stats import bootstrap, brier, ece, harmonic_mean, reliability_bins


def judged(label, rewards, *, prediction="by threshold", subset="s", steps=None, identity="x", tokens=10):
    row = Judged(
        id=identity,
        subset=subset,
        label=label,
        rewards=tuple(rewards),
        steps=len(rewards) if steps is None else steps,
        prediction=None,
        reward=None,
        completion_tokens=tokens,
        code_runs=1,
        seconds=2.0,
    )
    return replace(row, prediction=row.at(0.5) if prediction == "by threshold" else prediction)


def made_up(count, seed=0):
    chosen = random.Random(seed)
    rows = []
    for n in range(count):
        steps = chosen.randint(1, 9)
        label = chosen.choice([-1, chosen.randrange(steps)])
        rewards = [min(max(chosen.gauss(0.3 if i == label else 0.7, 0.25), 0), 1) for i in range(steps)]
        rows.append(judged(label, rewards, identity=str(n), subset=chosen.choice("ab")))
    return rows


def test_f1_of_a_file_of_100_predictions_equals_an_independent_count(tmp_path):
    path = tmp_path / "predictions.jsonl"
    rows = made_up(100)
    path.write_text("".join(json.dumps({"label": row.label, "prediction": row.prediction}) + "\n" for row in rows))
    # F1 = 2ab / (a + b) with a = hits/errors and b = hits/corrects, written without a division before the last.
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    n_error = sum(line["label"] >= 0 for line in lines)
    n_correct = 100 - n_error
    hit_error = sum(line["label"] == line["prediction"] and line["label"] >= 0 for line in lines)
    hit_correct = sum(line["label"] == line["prediction"] == -1 for line in lines)
    by_counts = 2 * hit_error * hit_correct / (hit_error * n_correct + hit_correct * n_error)
    assert f1(rows)[2] == pytest.approx(by_counts)
    assert 0.1 < by_counts < 0.9


def test_the_metric_counts_only_exact_indices_and_takes_undecided_rows_as_missed():
    rows = [
        judged(2, [0.9, 0.9, 0.1]),
        judged(2, [0.9, 0.1, 0.1]),
        judged(1, [0.9, None]),
        judged(0, [0.9, 0.9]),
        judged(-1, [0.9, 0.5]),
        judged(-1, [0.9, None]),
    ]
    found = metrics(rows, resamples=50)["subsets"]["s"]
    assert (found["n"], found["n_error"], found["n_correct"]) == (6, 4, 2)
    assert found["error_accuracy"] == pytest.approx(1 / 4)
    assert found["correct_accuracy"] == pytest.approx(1 / 2)
    assert found["f1"] == pytest.approx(1 / 3)
    assert (found["undecided"], found["unscored_steps"], found["steps"]) == (2, 2, 14)
    assert found["completion_tokens_per_solution"] == 10
    assert found["seconds_per_solution"] == 2.0


def test_without_a_kind_of_row_there_is_no_f1_and_no_average():
    found = metrics([judged(-1, [0.9]), judged(-1, [0.2])], resamples=20)
    assert found["subsets"]["s"]["error_accuracy"] is None
    assert found["subsets"]["s"]["f1"] is None
    assert found["average_f1"] is None
    assert found["subsets"]["s"]["auroc"] is None


def test_the_average_is_the_mean_of_subsets_and_not_of_rows():
    rows = [judged(0, [0.1], subset="a"), judged(-1, [0.9], subset="a")]
    rows += [judged(0, [0.9], subset="b"), judged(0, [0.1], subset="b"), judged(-1, [0.9], subset="b")]
    found = metrics(rows, resamples=50)
    assert found["subsets"]["a"]["f1"] == 1.0
    assert found["subsets"]["b"]["f1"] == pytest.approx(2 / 3)
    assert found["average_f1"] == pytest.approx(5 / 6)
    assert found["threshold"] == 0.5


def test_steps_after_the_first_error_have_no_gold_verdict():
    owners, scores, truths = labelled_steps([judged(1, [0.9, 0.2, 0.7, 0.1]), judged(-1, [0.8, None, 0.6])])
    assert owners == [0, 0, 1, 1]
    assert scores == [0.9, 0.2, 0.8, 0.6]
    assert truths == [1, 0, 1, 1]


def test_step_metrics_equal_scikit_learns():
    rows = made_up(80, seed=3)
    _, scores, truths = labelled_steps(rows)
    found = metrics([replace(row, subset="s") for row in rows], resamples=50)["subsets"]["s"]
    assert found["auroc"] == pytest.approx(roc_auc_score(truths, scores))
    assert found["brier"] == pytest.approx(brier_score_loss(truths, scores))
    assert brier(truths, scores) == pytest.approx(np.mean((np.array(scores) - np.array(truths)) ** 2))


def test_the_quick_auroc_of_the_bootstrap_equals_scikit_learns_with_ties():
    random_numbers = np.random.default_rng(1)
    truths = random_numbers.integers(0, 2, 300)
    scores = random_numbers.integers(0, 8, 300) / 8
    assert _auroc(truths, scores) == pytest.approx(roc_auc_score(truths, scores))


def test_ece_of_two_bins_by_hand():
    # Bin 0.2: mean reward 0.25, half right. Bin 0.9: mean reward 0.95, all right.
    assert ece([1, 0, 1, 1], [0.25, 0.25, 0.95, 0.95]) == pytest.approx((2 * 0.25 + 2 * 0.05) / 4)
    assert [item.steps for item in reliability_bins([1, 0, 1, 1], [0.25, 0.25, 1.0, 0.95])] == [2, 2]
    assert ece([], []) is None


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    generator = np.random.default_rng(5)
    covered = 0
    for _ in range(100):
        sample = generator.random(120) < 0.3
        found = bootstrap(120, lambda at, sample=sample: float(sample[at].mean()), resamples=200)
        covered += found.low <= 0.3 <= found.high
    assert 86 <= covered <= 100


def test_the_same_seed_gives_the_same_interval():
    rows = made_up(60)
    assert metrics(rows, resamples=100, seed=1) == metrics(rows, resamples=100, seed=1)
    assert metrics(rows, resamples=100, seed=1) != metrics(rows, resamples=100, seed=2)


def test_the_oracle_is_there_only_if_asked_and_is_never_worse():
    rows = made_up(60, seed=2)
    assert "oracle" not in metrics(rows, resamples=10)["subsets"]["a"]
    found = metrics(rows, oracle=True, resamples=10)["subsets"]["a"]
    assert found["oracle"]["f1"] >= found["f1"]
    best = found["oracle"]["threshold"]
    again = [replace(row, prediction=row.at(best)) for row in rows if row.subset == "a"]
    assert f1(again)[2] == pytest.approx(found["oracle"]["f1"])


def test_a_row_that_was_stopped_early_is_not_called_right_at_a_lower_threshold():
    row = judged(2, [0.9, 0.4], steps=4)
    assert row.at(0.5) == 1
    assert row.at(0.3) is None


@pytest.mark.parametrize(("a", "b", "mean"), [(0.0, 0.0, 0.0), (1.0, 0.0, 0.0), (0.5, 1.0, 2 / 3), (None, 1.0, None)])
def test_the_harmonic_mean(a, b, mean):
    assert harmonic_mean(a, b) == (None if mean is None else pytest.approx(mean))
