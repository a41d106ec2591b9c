"""An implicit PRM: the log-ratio of a policy and the reference that it was trained from is the reward.

From Yuan et al. 2024, "Free Process Rewards without Process Labels" (arXiv 2412.01981). For step t with tokens T(t)::

    r_t = beta * sum over i in T(t) of [log policy(y_i | y_<i) - log reference(y_i | y_<i)]
    q_t = r_1 + ... + r_t

The paper's step reward is r_t = q_t - q_(t-1), a real number, and 0 says nothing either way. A result needs a value
in [0, 1], so a step's score is sigmoid(r_t) or, with `implicit_score: cumulative`, sigmoid(q_t). The sigmoid is a
monotone map that puts "nothing either way" at the threshold 0.5; the score is not a probability.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Self

from ..config import BaselineConfig, Config
from ..errors import ConfigError, ContextOverflow
from ..labels import encode
from ..models import Say, resolve
from ..prompting import Message, Prompt
from ..rendering import ChatRenderer
from ..types import Solution
from .forward import CausalReader, halving
from .layout import Ids, Layout, encode_within, lay_out
from .scored import Scored

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SEPARATOR = "\n\n"


class ImplicitPrm:
    """Scores steps with two causal language models."""

    name = "implicit"

    def __init__(
        self,
        policy: CausalReader,
        reference: CausalReader,
        tokenizer: PreTrainedTokenizerBase,
        settings: BaselineConfig,
        *,
        model: str,
        max_context: int,
    ):
        """Wrap two models.

        Args:
            policy: the model that was trained.
            reference: the one that it was trained from.
            tokenizer: of both.
            settings: beta, separator, and which score.
            model: what results call the policy.
            max_context: tokens; steps behind it are unscored.
        """
        self.model, self.max_context, self.settings = model, max_context, settings
        self.tokenizer, self.renderer = tokenizer, ChatRenderer(tokenizer)
        self.separator = SEPARATOR if settings.separator is None else settings.separator
        self._models: tuple[CausalReader, ...] = (policy, reference)

    @classmethod
    def load(cls, source: str, config: Config, say: Say = lambda _: None) -> Self:
        """Load the policy and the reference that a config names.

        Args:
            source: the policy's folder or hub id; results call it by the config's own name.
            config: models, device, context and `baseline`.
            say: told what takes long.

        Raises:
            ConfigError: no reference is named, or its vocabulary is another one.
            ModelUnavailable: the files cannot be read.
            BackendUnavailable: the device is not there.
        """
        from transformers import AutoModelForCausalLM

        from ..backends.loading import context_size, load_model, load_tokenizer

        named = config.baseline.reference
        if named is None:
            raise ConfigError("verify.judge 'implicit' compares two models: set baseline.reference")
        other = resolve(named, say)
        tokenizer = load_tokenizer(source)
        if tokenizer.get_vocab() != load_tokenizer(other).get_vocab():
            raise ConfigError(
                f"the policy {config.model!r} and baseline.reference {named!r} have different vocabularies, "
                "so their probabilities cannot be compared"
            )
        models = []
        for name, place in ((config.model, source), (named, other)):
            say(f"loading {name}")
            models.append(load_model(AutoModelForCausalLM, place, config.backend, needed=("",)))
        made_for = min(context_size(model, tokenizer) for model in models)
        policy, reference = (CausalReader(model) for model in models)
        limit = min(config.backend.max_context or made_for, made_for)
        return cls(policy, reference, tokenizer, config.baseline, model=config.model, max_context=limit)

    def settings_digest(self) -> str:
        """sha256 over the reference's name, beta, which score, separator and chat template."""
        settings = {
            "name": self.name,
            "reference": self.settings.reference,
            "beta": self.settings.beta,
            "score": self.settings.implicit_score,
            "separator": self.separator,
            "template": self.tokenizer.chat_template,
        }
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()

    def score(self, batch: Sequence[Solution]) -> list[Scored]:
        """One forward pass of each model for all solutions, halved where memory does not hold it.

        Raises:
            BackendUnavailable: out of memory for a single solution.
        """
        layouts = [self.layout(solution) for solution in batch]
        fitting = [layout for layout in layouts if layout.places]
        rewards = iter(halving(self._rewards, fitting, repr(self.model)))
        scored = []
        for solution, layout in zip(batch, layouts, strict=True):
            found = self._scores(next(rewards)) if layout.places else []
            left = len(solution.steps) - len(layout.places)
            overflow = [] if layout.overflow is None else [layout.overflow] * left
            # Both models read every token.
            scored.append(Scored((*found, *overflow), prompt_tokens=2 * len(layout.ids) if found else 0))
        return scored

    def close(self) -> None:
        """Let go of the models; safe to call twice."""
        self._models = ()

    def layout(self, solution: Solution) -> Layout:
        """The problem as a user turn, and the steps as the assistant's, each but the last with the separator."""
        limit = self.max_context
        prompt = self.renderer.text(Prompt((Message("user", solution.problem),)))
        try:
            head = encode_within(self.tokenizer, prompt, limit)
        except ContextOverflow as overflow:
            return Layout([], 0, [], overflow)
        return lay_out(head, self._pieces(solution.steps, limit), limit)

    def _pieces(self, steps: Sequence[str], limit: int) -> Iterator[Ids]:
        end = encode(self.tokenizer, self.separator)
        for number, step in enumerate(steps, start=1):
            ids = encode_within(self.tokenizer, self.renderer.clean(step), limit)
            yield [*ids, *end] if number < len(steps) else ids

    def _rewards(self, layouts: Sequence[Layout]) -> list[list[float]]:
        """r_t of the steps of each solution."""
        if not self._models:
            raise RuntimeError("this judge is closed")
        rows, starts = [layout.ids for layout in layouts], [layout.start for layout in layouts]
        policy, reference = (model.read_logs(rows, starts) for model in self._models)
        rewards = []
        for layout, ours, theirs in zip(layouts, policy, reference, strict=True):
            ratios = [one - other for one, other in zip(ours, theirs, strict=True)]
            bounds = [0, *(place + 1 - layout.start for place in layout.places)]
            rewards.append([self.settings.beta * math.fsum(ratios[start:end]) for start, end in pairwise(bounds)])
        return rewards

    def _scores(self, rewards: Sequence[float]) -> list[float]:
        if self.settings.implicit_score == "cumulative":
            rewards = [math.fsum(rewards[: number + 1]) for number in range(len(rewards))]
        return [sigmoid(reward) for reward in rewards]


def sigmoid(value: float) -> float:
    """1 / (1 + exp(-value)), without overflow for large negative values."""
    if value >= 0:
        return 1 / (1 + math.exp(-value))
    small = math.exp(value)
    return small / (1 + small)
