"""The PRM of search-and-learn: [Q][N][T], steps between blank lines."""

from __future__ import annotations

import pytest

from genprm.errors import ConfigError, InputError, Unscored
from genprm.integrations.search_and_learn import PRM, load_prm

from .conftest import RIGHT, WRONG, Counting


def test_scores_are_questions_by_outputs_by_steps(scripted):
    questions = ["q 0", "q 1", "q 2"]
    outputs = [[f"{RIGHT}\n\n{WRONG}", RIGHT], [f"{RIGHT}\n\nSo.\n\n{RIGHT}"], []]
    scores = PRM(scripted).score(questions, outputs)
    assert [[len(steps) for steps in row] for row in scores] == [[2, 1], [3], []]
    assert [[len(text.split("\n\n")) for text in row] for row in outputs] == [[2, 1], [3], []]
    assert scores[0][0][0] > 0.5 > scores[0][0][1]
    assert all(isinstance(score, float) for row in scores for steps in row for score in steps)


def test_a_name_opens_the_verifier_and_with_closes_it(scripted):
    with PRM("scripted") as prm:
        assert prm.score(["q"], [[WRONG]]) == PRM(scripted).score(["q"], [[WRONG]])


def test_blank_pieces_repeat_the_step_before_so_that_the_count_stays():
    prm = PRM(Counting(lambda text: float(text) / 10))
    text = "\n\n1\n\n\n\n2\n\n"
    assert prm.score(["q"], [[text]]) == [[[0.1, 0.1, 0.1, 0.2, 0.2]]]
    assert len(text.split("\n\n")) == 5
    assert PRM(Counting(lambda text: float(text) / 10), blank="drop").score(["q"], [[text]]) == [[[0.1, 0.2]]]


def test_an_unscored_step_is_an_error_that_names_it():
    with pytest.raises(Unscored, match="output 1 of question 0, step 1 is unscored: the model was lost"):
        PRM(Counting()).score(["q"], [["a", "b\n\nc?"]])


def test_an_output_without_steps_is_unscored():
    with pytest.raises(Unscored, match="output 0 of question 0 is unscored: the text has no steps"):
        PRM(Counting()).score(["q"], [[""]])


def test_the_callers_own_number_stands_for_what_is_unscored():
    assert PRM(Counting(), unscored=-1.0).score(["q"], [["b\n\nc?", "\n\n"]]) == [[[0.9, -1.0], [-1.0, -1.0]]]


@pytest.mark.parametrize(("questions", "outputs"), [(["q"], []), (["q"], ["text"]), (["q"], [[3]])])
def test_shapes_that_do_not_fit_are_refused(questions, outputs):
    with pytest.raises(InputError):
        PRM(Counting()).score(questions, outputs)


def test_none_is_no_policy_where_numbers_are_wanted():
    with pytest.raises(ConfigError, match="give 'raise', a number"):
        PRM(Counting(), unscored=None)


def test_load_prm_takes_the_name_from_the_callers_config():
    class Config:
        prm_path = "scripted"

    with load_prm(Config()) as prm:
        assert len(prm.score(["q"], [[RIGHT]], batched=True, batch_size=8)[0][0]) == 1
