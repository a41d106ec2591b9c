"""Step rewards on tokens: pure placing, and finding the token in which a step ends."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genprm.errors import InputError, Unscored
from genprm.integrations.core import SharedVerifier
from genprm.integrations.texts import cut
from genprm.integrations.tokens import decoder, place, token_ends, token_rewards

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


def test_a_completion_has_a_row_or_none():
    judge = SharedVerifier(Counting(lambda text: None if "?" in text else float(text) / 10))
    completions = [[ord(letter) for letter in text] for text in ("1\n\n2\n", "1\n\n?", " ")]
    rows = token_rewards(judge, ["p"] * 3, completions, letters)
    assert rows == [[0.1, 0.0, 0.0, 0.2, 0.0], None, None]
    rows = token_rewards(judge, ["p"] * 3, completions, letters, unscored=-1.0)
    assert rows[1:] == [[0.1, 0.0, 0.0, -1.0], [-1.0]]
    with pytest.raises(Unscored, match="completion 1, step 1"):
        token_rewards(judge, ["p"] * 3, completions, letters, unscored="raise")
