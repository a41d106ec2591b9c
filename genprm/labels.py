"""Which token paths spell a label: the constraint comes from outlines, the arithmetic is ours.

Outlines compiles the label spellings to an `outlines_core.Index`, whose states allow not only the whole label but
every token that begins it (`Y`, `Ye`, `Yes`). A label's probability is the sum over all token paths that spell it
under the masked distribution, that is, with the probabilities of the allowed tokens renormalised at each state:

    P(label) = sum over paths of  prod_i  p(token_i | path before) / sum_{allowed t} p(t | path before)

which is exactly what constrained sampling with outlines' logits processor would draw. A path is followed only as
far as labels still compete: for Yes/No the first token decides. Knows no engine: log-probabilities come in as numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from .errors import ProtocolError

if TYPE_CHECKING:
    from outlines_core import Vocabulary
    from transformers import PreTrainedTokenizerBase

Path = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """One label distribution read at a forced position."""

    probs: Mapping[str, float]
    """Label -> probability under the constraint; sums to 1."""
    mass: float
    """Full-vocabulary probability of all tokens that the constraint allows first."""


@dataclass(frozen=True, slots=True)
class LabelPaths:
    """The decision tree over token paths for one tokenizer and one set of labels.

    `nodes[path]` maps each allowed next token to the label it decides, or to None where labels still compete behind
    it (then `path + (token,)` is a node too). The root is the empty path.
    """

    labels: tuple[str, ...]
    nodes: Mapping[Path, Mapping[int, str | None]]

    @property
    def token_ids(self) -> tuple[int, ...]:
        """All token ids that any node asks for, sorted."""
        return tuple(sorted({token for choices in self.nodes.values() for token in choices}))

    def read(self, log_probs: Mapping[Path, Mapping[int, float]]) -> Reading:
        """Label probabilities from full-vocabulary log-probabilities at every node.

        Args:
            log_probs: node -> token id -> natural log of its full-vocabulary probability.
        """
        probs = dict.fromkeys(self.labels, 0.0)

        def walk(path: Path, weight: float) -> float:
            here = log_probs[path]
            choices = self.nodes[path]
            top = max(here[token] for token in choices)
            if top == -math.inf:
                return 0.0
            shares = {token: math.exp(here[token] - top) for token in choices}
            total = math.fsum(shares.values())
            for token, label in choices.items():
                share = weight * shares[token] / total
                if label is None:
                    walk((*path, token), share)
                else:
                    probs[label] += share
            return total * math.exp(top)

        mass = walk((), 1.0)
        return Reading(probs, min(mass, 1.0))


def build_paths(
    vocabulary: Vocabulary, token_text: Callable[[int], str], labels: Mapping[str, Sequence[str]]
) -> LabelPaths:
    """Compile label spellings with outlines and walk the index into a decision tree.

    Args:
        vocabulary: outlines_core vocabulary of the tokenizer.
        token_text: token id -> the text it adds.
        labels: label -> spellings. No spelling may be the beginning of another label's.
    """
    from outlines.types import Choice
    from outlines.types.dsl import python_types_to_terms, to_regex
    from outlines_core import Index

    spelling = {text: label for label, texts in labels.items() for text in texts}
    for text, label in spelling.items():
        for other, other_label in spelling.items():
            if label != other_label and other.startswith(text):
                raise ProtocolError(f"label spelling {text!r} is the beginning of {other!r}: neither could be read")
    index = Index(to_regex(python_types_to_terms(Choice(list(spelling)))), vocabulary)
    nodes: dict[Path, dict[int, str | None]] = {}

    def walk(path: Path, state: int, text: str) -> None:
        choices: dict[int, str | None] = {}
        for token in sorted(index.get_allowed_tokens(state) or ()):
            following = index.get_next_state(state, token)
            written = text + token_text(token)
            reachable = {label for full, label in spelling.items() if full.startswith(written)}
            if following is None or not reachable:
                continue
            choices[token] = reachable.pop() if len(reachable) == 1 else None
            if choices[token] is None:
                walk((*path, token), following, written)
        nodes[path] = choices

    walk((), index.get_initial_state(), "")
    decided = {label for choices in nodes.values() for label in choices.values() if label is not None}
    if missing := [label for label in labels if label not in decided]:
        raise ProtocolError(f"the tokenizer cannot spell the labels {missing}")
    return LabelPaths(tuple(labels), nodes)


class LabelReader:
    """Label paths of one Hugging Face tokenizer, compiled once for each set of labels."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase):
        self._tokenizer = tokenizer
        self._paths: dict[tuple[tuple[str, tuple[str, ...]], ...], LabelPaths] = {}
        self._checked: set[tuple[str, str]] = set()
        self._texts: dict[int, str] = {}
        self._vocabulary: Vocabulary | None = None

    def paths(self, labels: Mapping[str, Sequence[str]], prefix: str) -> LabelPaths:
        """The decision tree for these labels, after checking that they can be read behind `prefix`.

        Args:
            labels: label -> spellings.
            prefix: the forced text right before the label.

        Raises:
            ProtocolError: prefix and label share a token, so that the label is no token path of its own there.
        """
        for texts in labels.values():
            for text in texts:
                self.check_boundary(prefix, text)
        key = tuple((label, tuple(texts)) for label, texts in labels.items())
        if key not in self._paths:
            if self._vocabulary is None:
                self._vocabulary, self._texts = _vocabulary(self._tokenizer)
            self._paths[key] = build_paths(self._vocabulary, self._texts.__getitem__, labels)
        return self._paths[key]

    def check_boundary(self, prefix: str, label: str) -> None:
        """Raise unless the tokens of `prefix + label` begin with the tokens of `prefix`."""
        if (prefix, label) in self._checked:
            return
        alone = encode(self._tokenizer, prefix)
        joined = encode(self._tokenizer, prefix + label)
        if joined[: len(alone)] != alone:
            at = next((i for i, (a, b) in enumerate(zip(alone, joined, strict=False)) if a != b), len(joined))
            tokens = self._tokenizer.convert_ids_to_tokens
            raise ProtocolError(
                f"the label {label!r} cannot be read after {prefix!r}: this tokenizer joins them, "
                f"{tokens(alone[at:])} becomes {tokens(joined[at:])}"
            )
        self._checked.add((prefix, label))


def encode(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Token ids of rendered text: no special tokens added, those spelled in it recognised."""
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False)
    return ids


def _vocabulary(tokenizer: PreTrainedTokenizerBase) -> tuple[Vocabulary, dict[int, str]]:
    from outlines.backends.outlines_core import OutlinesCoreBackend
    from outlines.models.transformers import TransformerTokenizer

    wrapped = TransformerTokenizer(tokenizer)
    texts: dict[int, str] = {}
    special = set(tokenizer.all_special_tokens)

    @cache
    def to_text(token: str) -> str:
        return str(wrapped.convert_token_to_string(token))

    # A special token's spelling is not text: `Yes` spelled by an added special token would forge a label.
    vocab: dict[str, Any] = {token: number for token, number in wrapped.get_vocab().items() if token not in special}
    for token, number in vocab.items():
        texts[number] = to_text(token)
    eos = wrapped.eos_token
    vocabulary = OutlinesCoreBackend.create_outlines_core_vocabulary(vocab, wrapped.eos_token_id, eos, to_text)
    return vocabulary, texts
