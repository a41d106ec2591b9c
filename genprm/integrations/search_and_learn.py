"""search-and-learn's `PRM`: questions and sampled outputs in, a reward for each step out.

Knows that project's shapes: steps are what stands between blank lines, and there is one number for each of them.
"""

from __future__ import annotations

from typing import Any, Literal, Self

from ..errors import InputError
from ..formats import kind_of
from .core import SharedVerifier, Source, sharing
from .rewards import NO_STEPS, Asked, UnscoredPolicy, all_decided, check_policy, decided
from .texts import cut

SEPARATOR = "\n\n"


class PRM:
    """In the place of `sal.models.reward_models.PRM`.

    >>> PRM("scripted").score(["12 + 30?"], [["12 + 30 = 42.\\n\\nSo 42.", "12 + 30 = 41."]])  # doctest: +SKIP
    [[[0.94, 0.97], [0.09]]]
    """

    def __init__(
        self,
        config_or_verifier: Source | SharedVerifier = "default",
        *,
        unscored: Literal["raise"] | float = "raise",
        blank: Literal["repeat", "drop"] = "repeat",
        separator: str = SEPARATOR,
        **_ignored: Any,
    ):
        """Open the verifier.

        Args:
            config_or_verifier: a verifier, a client, a config, its name or path, or a service's address. That
                project's own config object is none of these; give genprm's.
            unscored: an error, or the number that stands for a step without a reward.
            blank: a piece between separators that holds nothing, such as the one behind a trailing blank line:
                `repeat` gives it the reward of the step before it, so that T is the count of pieces; `drop` gives it
                no entry.
            separator: what stands between steps.
            _ignored: model options of the class whose place this one takes.

        Raises:
            ConfigError: a setting is wrong.
            UnavailableError: model, engine or sandbox cannot be had.
        """
        check_policy(unscored, none=False)
        self._unscored: UnscoredPolicy = unscored
        self._blank, self._separator = blank, separator
        self._judge = sharing(config_or_verifier)
        self._judge.open()

    def score(self, questions: list[str], outputs: list[list[str]], **_ignored: Any) -> list[list[list[float]]]:
        """Rewards of every step of every output.

        Args:
            questions: Q problems.
            outputs: for each of them N solutions; N may differ between problems.
            _ignored: `batched`, `batch_size` and the like.

        Returns:
            `[Q][N][T]` numbers in [0, 1], T = the pieces of that output.

        Raises:
            InputError: the shapes do not fit, or a question is blank.
            Unscored: a step has no reward and no number is to stand for it.
        """
        if len(questions) != len(outputs):
            raise InputError(f"{len(questions)} questions have {len(outputs)} lists of outputs")
        for place, row in enumerate(outputs):
            if not isinstance(row, list | tuple) or not all(isinstance(text, str) for text in row):
                raise InputError(f"must be a list of texts, found {kind_of(row)}", field=f"outputs[{place}]")
        cuts = [[cut(text, self._separator) for text in row] for row in outputs]
        asked = [Asked(question, pieces.steps) for question, row in zip(questions, cuts, strict=True) for pieces in row]
        found = iter(self._judge.judge(asked))
        scores: list[list[list[float]]] = []
        for q, inside in enumerate(cuts):
            scores.append([])
            for n, pieces in enumerate(inside):
                where = f"output {n} of question {q}"
                rewards = next(found)
                values = all_decided(rewards, self._unscored, where)
                if not pieces.steps:
                    values = [decided(None, self._unscored, where, NO_STEPS)] * max(len(pieces.pieces), 1)
                elif self._blank == "repeat":
                    values = pieces.spread(values)
                    assert len(values) == len(pieces.pieces)
                scores[-1].append([float(value) for value in values if value is not None])
                assert len(scores[-1][-1]) == len(values)
            assert len(scores[-1]) == len(outputs[q])
        return scores

    def close(self) -> None:
        """Close the verifier, if it was opened here; safe to call twice."""
        self._judge.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def load_prm(config: Any) -> PRM:
    """That project's `load_prm`: `config.prm_path` names the verifier as `PRM` takes it."""
    return PRM(config.prm_path)
