"""One JSON line a sample, and lm-eval's hook."""

from __future__ import annotations

import json

import pytest

from genprm.errors import InputError
from genprm.integrations.samples import Sample, process_results, read_samples, write_samples
from genprm.types import Solution

from .conftest import RIGHT, WRONG, Counting, result_of

RESULT = result_of(Solution(id="a", problem="p", steps=("1", "2", "3"), label=1), [0.9, 0.1, None])


def test_samples_come_back_as_they_were_written(tmp_path):
    path = tmp_path / "samples.jsonl"
    assert write_samples(path, [RESULT, Sample.of(RESULT, source="b")]) == 2
    first, second = read_samples(path)
    assert first == Sample(idx="a", prediction=1, label=1, step_scores=(0.9, 0.1, None), reward=None)
    assert second.extra == {"source": "b"}
    assert set(json.loads(path.read_text().splitlines()[0])) >= {"idx", "prediction", "label", "step_scores"}
    assert write_samples(path, [RESULT], append=True) == 1
    assert len(list(read_samples(path))) == 3


def test_a_bad_line_is_named(tmp_path):
    path = tmp_path / "samples.jsonl"
    write_samples(path, [RESULT])
    with path.open("a") as file:
        file.write('{"idx": 3, "prediction": null, "step_scores": []}\n')
    with pytest.raises(InputError, match=r"samples.jsonl:2: idx"):
        list(read_samples(path))


def test_prmbench_gets_no_labels_where_a_step_is_unscored():
    assert Sample.of(RESULT).as_prmbench() == {"idx": "a", "validity": False}
    whole = Sample(idx="a", prediction=1, step_scores=(0.9, 0.1)).as_prmbench()
    assert whole["scores"]["step_level_validity_labels"] == [True, False]


@pytest.mark.parametrize(
    ("label", "metrics"), [(1, {"error_acc": 1.0}), (0, {"error_acc": 0.0}), (-1, {"correct_acc": 0.0})]
)
def test_a_sample_is_compared_with_the_documents_label(label, metrics):
    assert process_results({"label": label}, [RESULT]) == metrics


def test_solutions_that_a_model_wrote_are_judged(scripted, monkeypatch):
    monkeypatch.setenv("GENPRM_CONFIG", "scripted")
    metrics = process_results({"question": "q"}, [RIGHT, WRONG])
    assert metrics == process_results({"problem": "q"}, [RIGHT, WRONG], verifier=scripted)
    assert metrics["genprm_scored"] == 1.0
    assert metrics["genprm_no_error"] == 0.5
    assert 0 < metrics["genprm_reward"] < 1


def test_metrics_that_are_not_known_are_absent():
    assert process_results({"question": "q"}, ["a?"], verifier=Counting()) == {"genprm_scored": 0.0}


@pytest.mark.parametrize(("doc", "results"), [({}, ["a"]), ({"label": None}, [RESULT]), ({"label": 1}, [3])])
def test_a_document_that_lacks_something_is_refused(doc, results):
    with pytest.raises(InputError):
        process_results(doc, results, verifier=Counting())
