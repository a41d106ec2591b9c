"""The three published forms of discriminative PRM: what stands around the steps, and at which token each is read.

| form | layout | read at | of |
|---|---|---|---|
| `qwen` | chat: system, problem, then the steps, each ended by `<extra_0>` | `<extra_0>` | Qwen2.5-Math-PRM |
| `math_shepherd` | problem, then a line a step, each ended by the tag `ки` | the tag | Math-Shepherd |
| `trl` | problem, then the steps, each ended by a separator | the separator's last token | TRL's PRMTrainer |

Knows tokenizers, no models. Steps are read where the layout put them, never where a separator is found, and a special
token or separator spelled in a problem or a step is broken; one of white space alone is ordinary text there, as it was
in training, and stays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from ..errors import ConfigError, ContextOverflow
from ..labels import encode
from ..prompting import Message, Prompt
from ..rendering import ChatRenderer
from ..text import neutralise
from ..types import Solution
from .layout import Ids, Layout, encode_within, lay_out, opening, single_token

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

FormName = Literal["qwen", "math_shepherd", "trl"]

QWEN_SYSTEM = "Please reason step by step, and put your final answer within \\boxed{}."
QWEN_SEPARATOR = "<extra_0>"
SHEPHERD_TAG = "ки"
TRL_SEPARATOR = "\n"


class Form(Protocol):
    """Lays solutions out for one tokenizer."""

    name: FormName
    separator: str

    def layout(self, solution: Solution, limit: int) -> Layout:
        """The solution as token ids, as far as `limit` tokens hold it."""
        ...

    def settings(self) -> dict[str, object]:
        """What fixes the layout, for the digest in results."""
        ...


def make_form(name: FormName, tokenizer: PreTrainedTokenizerBase, separator: str | None) -> Form:
    """The form of a name.

    Args:
        name: which one.
        tokenizer: the model's.
        separator: what ends a step; None = the form's own.

    Raises:
        ConfigError: the tokenizer has no token for the separator.
    """
    kinds: dict[FormName, type[QwenForm | ShepherdForm | TrlForm]]
    kinds = {"qwen": QwenForm, "math_shepherd": ShepherdForm, "trl": TrlForm}
    return kinds[name](tokenizer, separator)


def detect_form(architectures: Sequence[str], tokenizer: PreTrainedTokenizerBase, model: str) -> FormName:
    """Tell the form from a checkpoint's config and tokenizer.

    Raises:
        ConfigError: neither gives it away.
    """
    if any(name.endswith("ProcessRewardModel") for name in architectures):
        return "qwen"
    if any(name.endswith("ForTokenClassification") for name in architectures):
        return "qwen" if QWEN_SEPARATOR in tokenizer.get_vocab() else "trl"
    if any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in architectures):
        return "math_shepherd"
    found = ", ".join(architectures) or "no architecture"
    raise ConfigError(f"the form of the model {model!r} ({found}) cannot be told: set baseline.form")


class _Form(ABC):
    """What the forms share: untrusted text is cleaned before it is tokenised."""

    default: str

    def __init__(self, tokenizer: PreTrainedTokenizerBase, separator: str | None):
        self.tokenizer = tokenizer
        self.separator = separator if separator is not None else self.default
        self.renderer = ChatRenderer(tokenizer)
        self._broken = (*self.renderer.special, *([self.separator] if self.separator.strip() else []))
        self._prepare()

    def _clean(self, text: str) -> str:
        return neutralise(text, self._broken)

    def layout(self, solution: Solution, limit: int) -> Layout:
        """The solution as token ids, as far as `limit` tokens hold it."""
        try:
            head = self._head(solution.problem, limit)
        except ContextOverflow as overflow:
            return Layout([], 0, [], overflow)
        return lay_out(head, self._pieces(solution.steps, limit), limit)

    @abstractmethod
    def _prepare(self) -> None:
        """Look up the separator's tokens."""

    @abstractmethod
    def _head(self, problem: str, limit: int) -> Ids:
        """Tokens before the first step."""

    @abstractmethod
    def _pieces(self, steps: Sequence[str], limit: int) -> Iterator[Ids]:
        """Tokens of each step with its separator."""


class QwenForm(_Form):
    """Qwen2.5-Math-PRM: the chat template's assistant turn holds the steps."""

    name: FormName = "qwen"
    default = QWEN_SEPARATOR

    def _prepare(self) -> None:
        self._end = single_token(self.tokenizer, self.separator, "the separator")

    def _head(self, problem: str, limit: int) -> Ids:
        messages = (Message("system", QWEN_SYSTEM), Message("user", self._clean(problem)))
        return encode_within(self.tokenizer, self.renderer.text(Prompt(messages)), limit)

    def _pieces(self, steps: Sequence[str], limit: int) -> Iterator[Ids]:
        for step in steps:
            yield [*encode_within(self.tokenizer, self._clean(step), limit), self._end]

    def settings(self) -> dict[str, object]:
        """What fixes the layout, for the digest in results."""
        template = self.tokenizer.chat_template
        return {"form": self.name, "separator": self.separator, "system": QWEN_SYSTEM, "template": template}


class ShepherdForm(_Form):
    """Math-Shepherd: a causal model whose own tokens `+` and `-` are the labels, read at the tag."""

    name: FormName = "math_shepherd"
    default = SHEPHERD_TAG

    def _prepare(self) -> None:
        self._tag = single_token(self.tokenizer, self.separator, "the step tag")
        self.good = single_token(self.tokenizer, "+", "the label")
        self.bad = single_token(self.tokenizer, "-", "the label")

    def _head(self, problem: str, limit: int) -> Ids:
        return opening(self.tokenizer) + encode_within(self.tokenizer, self._clean(problem), limit)

    def _pieces(self, steps: Sequence[str], limit: int) -> Iterator[Ids]:
        for number, step in enumerate(steps):
            yield [*self._behind_tag((" " if number == 0 else "\n") + self._clean(step), limit), self._tag]

    def _behind_tag(self, text: str, limit: int) -> Ids:
        """Tokens of a text that goes on from other text: some tokenizers begin a text of its own with a space."""
        joined = encode_within(self.tokenizer, self.separator + text, limit)
        return joined[1:] if joined[:1] == [self._tag] else encode(self.tokenizer, text)

    def settings(self) -> dict[str, object]:
        """What fixes the layout, for the digest in results."""
        return {"form": self.name, "separator": self.separator, "labels": ["+", "-"]}


class TrlForm(_Form):
    """TRL's PRMTrainer: begin-of-text token if there is one, prompt, then each step and the separator's tokens."""

    name: FormName = "trl"
    default = TRL_SEPARATOR

    def _prepare(self) -> None:
        self._end = encode(self.tokenizer, self.separator)
        if not self._end:
            raise ConfigError(f"baseline.separator {self.separator!r} has no token to read a step at")

    def _head(self, problem: str, limit: int) -> Ids:
        begin = self.tokenizer.bos_token_id
        return [*([] if begin is None else [begin]), *encode_within(self.tokenizer, self._clean(problem), limit)]

    def _pieces(self, steps: Sequence[str], limit: int) -> Iterator[Ids]:
        for step in steps:
            yield [*encode_within(self.tokenizer, self._clean(step), limit), *self._end]

    def settings(self) -> dict[str, object]:
        """What fixes the layout, for the digest in results."""
        return {"form": self.name, "separator": self.separator}
