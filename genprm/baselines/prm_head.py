"""A discriminative PRM: one forward pass a solution, a probability at the end of each step, nothing generated.

Puts a form's layouts through a reader; knows neither templates nor weights.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Self

from ..config import Config
from ..types import Solution
from .forms import Form, ShepherdForm, detect_form, make_form
from .forward import CausalReader, ClassReader, halving
from .heads import architectures, load_classifier
from .layout import Layout
from .scored import Scored

Rows = Sequence[Sequence[int]]
Read = Callable[[Rows, Rows], list[list[float]]]
"""From rows of token ids and the places in each to P(good) at each place."""


class PrmHead:
    """Scores steps with a token classifier, or with two label tokens of a causal model."""

    name = "prm_head"

    def __init__(self, read: Read, form: Form, *, model: str, max_context: int):
        """Wrap what reads probabilities.

        Args:
            read: gives P(good) at each place of each row.
            form: how solutions are laid out.
            model: what results call the model.
            max_context: tokens; steps behind it are unscored.
        """
        self.form, self.model, self.max_context = form, model, max_context
        self._read: Read | None = read

    @classmethod
    def load(cls, source: str, config: Config) -> Self:
        """Load the checkpoint that a config names, in the form that it asks for.

        Args:
            source: a folder or hub id; results call the model by the config's own name.
            config: model, form, device and context.

        Raises:
            ModelUnavailable: the files cannot be read, or lack weights.
            BackendUnavailable: the device is not there.
            ConfigError: the checkpoint has no head of two classes, or its tokenizer lacks the form's separator.
        """
        from transformers import AutoModelForCausalLM

        from ..backends.loading import context_size, load_model, load_tokenizer

        tokenizer = load_tokenizer(source)
        kinds = architectures(source)
        wanted = config.baseline.form
        name = detect_form(kinds, tokenizer, config.model) if wanted == "auto" else wanted
        form = make_form(name, tokenizer, config.baseline.separator)
        if isinstance(form, ShepherdForm):
            model = load_model(AutoModelForCausalLM, source, config.backend, needed=("",))
            read = two_labels(CausalReader(model), form)
        else:
            model, head = load_classifier(source, kinds, config.backend, config.model)
            read = ClassReader(model, head).read
        made_for = context_size(model, tokenizer)
        limit = min(config.backend.max_context or made_for, made_for)
        return cls(read, form, model=config.model, max_context=limit)

    def settings_digest(self) -> str:
        """sha256 over the form, its separator and its template."""
        settings = {"name": self.name, **self.form.settings()}
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()

    def score(self, batch: Sequence[Solution]) -> list[Scored]:
        """One forward pass for all solutions, halved where memory does not hold it.

        Raises:
            BackendUnavailable: out of memory for a single solution.
        """
        layouts = [self.form.layout(solution, self.max_context) for solution in batch]
        fitting = [layout for layout in layouts if layout.places]
        probs = iter(halving(self._run, fitting, repr(self.model)))
        scored = []
        for solution, layout in zip(batch, layouts, strict=True):
            found = next(probs) if layout.places else []
            left = len(solution.steps) - len(layout.places)
            overflow = [] if layout.overflow is None else [layout.overflow] * left
            scored.append(Scored((*found, *overflow), prompt_tokens=len(layout.ids) if found else 0))
        return scored

    def close(self) -> None:
        """Let go of the model; safe to call twice."""
        self._read = None

    def _run(self, layouts: Sequence[Layout]) -> list[list[float]]:
        if self._read is None:
            raise RuntimeError("this judge is closed")
        return self._read([layout.ids for layout in layouts], [layout.places for layout in layouts])


def two_labels(reader: CausalReader, form: ShepherdForm) -> Read:
    """Reads P(+) against P(-) with a causal model."""
    return lambda rows, places: reader.read_two(rows, places, form.good, form.bad)
