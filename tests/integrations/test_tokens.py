"""Step rewards on tokens: pure placing, and finding the token in which a step ends."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genprm.errors import InputError, Unscored
from genprm.integrations.core import SharedVerifier
from genprm.integrations.texts import cut
from genprm.integrations.tokens import Placed, decoder, place, place_steps, process_advantages, token_ends

from .conftest import Counting


@pytest.fixture(scope="module")
def embedded_tokenizer(embedded_folder):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(embedded_folder)


def test_rewards_stand_at_their_positions_and_zeros_elsewhere():
    assert place([0.5, 0.25], [1, 4], 6) == [0.0, 0.5, 0.0, 0.0, 0.25, 0.0]


def test_steps_that_end_in_one_token_are_added():
    assert place([0.5, 0.25], [1, 1], 2) == [0.0, 0.75]


@pytest.mark.parametrize(("rewards", "positions"), [([0.5], [2]), ([0.5], [-1]), ([0.5], []), ([], [0])])
def test_positions_that_do_not_fit_are_refused(rewards, positions):
    with pytest.raises(InputError):
        place(rewards, positions, 2)


TEXT = "First α = 2·3.\n\nThen 😀 is 漢字, so\nit ends.\n\n\\boxed{6}"


@settings(max_examples=25, deadline=None)
@given(st.text(alphabet="ab1 .\n😀漢é", min_size=1, max_size=30))
def test_a_step_ends_in_the_first_token_by_which_it_is_complete(embedded_tokenizer, text):
    decode = decoder(embedded_tokenizer)
    ids = embedded_tokenizer(text, add_special_tokens=False)["input_ids"]
    pieces = cut(text, "\n\n")
    assert decode(ids) == text
    for end, position in zip(pieces.step_ends, token_ends(ids, pieces.step_ends, decode), strict=True):
        assert decode(ids[: position + 1]).startswith(text[:end])
        assert not decode(ids[:position]).startswith(text[:end])


def test_ids_that_the_tokenizer_would_not_have_chosen_are_read_as_they_are(embedded_tokenizer):
    """A policy may sample a word letter by letter."""
    decode = decoder(embedded_tokenizer)
    ids = [token for letter in TEXT for token in embedded_tokenizer(letter, add_special_tokens=False)["input_ids"]]
    ids.append(embedded_tokenizer.eos_token_id)
    assert decode(ids) == TEXT
    positions = token_ends(ids, cut(TEXT, "\n\n").step_ends, decode)
    assert [decode(ids[: position + 1]) for position in positions] == [
        TEXT.split("\n\n")[0],
        "\n\n".join(TEXT.split("\n\n")[:2]),
        TEXT,
    ]
    assert positions[-1] == len(ids) - 2  # the end-of-text token is no step's


def test_an_end_behind_the_text_is_refused():
    with pytest.raises(InputError, match="character 9, behind the 2"):
        token_ends([1, 2], [9], lambda ids: "x" * len(ids))


def test_a_tokenizer_that_rewrites_its_beginning_is_refused():
    with pytest.raises(InputError, match="from left to right"):
        token_ends([1, 2], [1], lambda ids: "ab" if calls.append(1) or len(calls) == 1 else "xb")


calls: list[int] = []


def letters(ids):
    return "".join(map(chr, ids))


def rows_of(*args, **options):
    return [None if item is None else item.row() for item in place_steps(*args, **options)]


def test_a_completion_has_a_row_or_none():
    judge = SharedVerifier(Counting(lambda text: None if "?" in text else float(text) / 10))
    completions = [[ord(letter) for letter in text] for text in ("1\n\n2\n", "1\n\n?", " ", "")]
    rows = rows_of(judge, ["p"] * 4, completions, letters)
    assert rows == [[0.1, 0.0, 0.0, 0.2, 0.0], None, None, None]
    rows = rows_of(judge, ["p"] * 4, completions, letters, unscored=-1.0)
    assert rows[1:] == [[0.1, 0.0, 0.0, -1.0], [-1.0], None]
    with pytest.raises(Unscored, match="completion 1, step 1"):
        rows_of(judge, ["p"] * 4, completions, letters, unscored="raise")
    with pytest.raises(Unscored, match="completion 0 is unscored: the text has no steps"):
        rows_of(judge, ["p"], [[32]], letters, unscored="raise")


def test_a_tokens_advantage_sums_the_normalised_rewards_of_the_steps_to_come():
    placed = [Placed([1.0, 0.0], [1, 3], 5), Placed([1.0, 0.0], [0, 1], 2), None, Placed([0.5], [0], 1)]
    rows = process_advantages(placed, 2, 6)
    unit = 0.5 / (0.5 + 1e-4)
    # Mean and deviation of the first group's rewards are both 0.5, so its normalised rewards are 1 and -1.
    assert rows[0] == [0.0, 0.0, -unit, -unit, 0.0, 0.0]
    assert rows[1] == [0.0, -unit, 0.0, 0.0, 0.0, 0.0]
    assert rows[2] == [0.0] * 6  # takes no part
    assert rows[3] == [0.0] * 6  # alone in its group: nothing to compare with


def test_a_step_worth_nothing_still_counts_as_a_step():
    rows = process_advantages([Placed([0.0], [1], 2), Placed([1.0], [1], 2)], 2, 2)
    assert rows[0][0] == pytest.approx(-rows[1][0])
    assert rows[0][0] < 0


def test_groups_must_be_whole():
    with pytest.raises(InputError, match="3 completions are no whole groups of 2"):
        process_advantages([None] * 3, 2, 2)
