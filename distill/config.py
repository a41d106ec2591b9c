"""The settings of a distillation run: one frozen tree, a section for each stage.

Knows names and types of settings, nothing of what they do. Shipped files lie in `genprm.configs`, folder `distill`.
A model is named by a config of `genprm verify` with overrides on top of it, so that a teacher here is set up exactly
as a verifier there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Literal, get_args

from pydantic import Field, field_validator, model_validator

from ..config import Config, Section, load_config, load_settings
from ..errors import ConfigError

StageName = Literal["sample", "label", "critique", "filter", "format", "train", "evaluate"]
SourceName = Literal["policy", "perturb", "gold", "file"]
MethodName = Literal["mc_soft", "mc_hard", "rpe", "binary_search", "gold", "construction", "outcome", "programs"]
STAGES: tuple[StageName, ...] = get_args(StageName)
"""In the order in which they run; each reads the rows of the one before it."""


class ModelRef(Section):
    """A model with all its settings: a config of `genprm verify`, and overrides."""

    config: str = "default"
    """A shipped config's name or a YAML file's path."""
    overrides: dict[str, Any] = Field(default_factory=dict)
    """Settings on top of it, nested or dotted, e.g. `{verify.votes: 4}`."""

    def load(self, *more: str) -> Config:
        """The effective config.

        Args:
            more: `a.b=c` overrides on top of its own.

        Raises:
            ConfigError: there is no such config, or a setting is wrong.
        """
        return load_config(self.config, [*(f"{key}={json.dumps(value)}" for key, value in self._flat()), *more])

    def _flat(self) -> Iterator[tuple[str, Any]]:
        waiting: list[tuple[str, Any]] = list(self.overrides.items())
        while waiting:
            key, value = waiting.pop(0)
            if isinstance(value, Mapping) and value:
                waiting[:0] = [(f"{key}.{name}", inner) for name, inner in value.items()]
            else:
                yield key, value


class Cost(Section):
    """What `--dry-run` assumes of a stage; changes no result."""

    rows: float = Field(default=1.0, ge=0)
    """Rows that come out for each row that goes in."""
    tokens: float = Field(default=0.0, ge=0)
    """Tokens that a model generates or is trained on, for each row that goes in."""
    tokens_per_second: float = Field(default=100.0, gt=0)
    """Over all sequences that run at once."""


class StageConfig(Section):
    """Base of every stage's section."""

    no_result: ClassVar[frozenset[str]] = frozenset({"cost"})
    """Settings that change no row: a stage goes on under another value of them."""
    cost: Cost = Cost()


class SampleConfig(StageConfig):
    """Stage `sample`: solutions to judge, from a policy, by perturbing right solutions, or from files."""

    no_result: ClassVar[frozenset[str]] = frozenset({"cost", "in_flight"})
    cost: Cost = Cost(rows=4, tokens=600, tokens_per_second=100)
    inputs: tuple[str, ...] = ()
    """Files of problems (JSON, JSON Lines, Parquet), hub ids, or `shipped:NAME`."""
    format: str = "auto"
    """Of the inputs' rows; `auto` recognises each."""
    split: str = "train"
    """Of a hub id."""
    limit: int | None = Field(default=None, ge=1)
    """The first so many problems."""
    sources: tuple[SourceName, ...] = ("gold", "perturb")
    """Where solutions come from: `policy` = written by the model that `policy` names, with that config's sampling and
    limits; `gold` = the worked solution of the input; `perturb` = made from it with one error; `file` = the input's own
    steps."""
    max_samples: int = Field(default=8, ge=1)
    """`policy`: the most solutions drawn for a problem."""
    want_right: int = Field(default=1, ge=0)
    """`policy`: stop once so many are right ..."""
    want_wrong: int = Field(default=1, ge=0)
    """... and so many are wrong; further ones are not kept."""
    per_problem: int = Field(default=2, ge=0)
    """`perturb`: wrong solutions made of each right one, each of another kind."""
    kinds: dict[str, float] = Field(
        default_factory=lambda: {
            "arithmetic": 1.0,
            "operator": 1.0,
            "quantity": 2.0,
            "dropped_condition": 2.0,
            "skipped_step": 1.5,
            "copy": 1.0,
            "unit": 2.0,
            "premature": 0.7,
        }
    )
    """`perturb`: kinds of errors and how readily each is tried; misreadings, rarer to find room for and the commonest
    errors of today's models, come first."""
    in_flight: int = Field(default=64, ge=1)
    """Problems that are worked on at once."""

    @field_validator("kinds")
    @classmethod
    def _known_kinds(cls, value: dict[str, float]) -> dict[str, float]:
        from .kinds import KINDS

        for kind, weight in value.items():
            if kind not in KINDS:
                raise ValueError(f"there is no kind {kind!r}: the kinds are {', '.join(KINDS)}")
            if weight < 0:
                raise ValueError(f"the weight of {kind!r} must be 0 or more")
        return value


class LabelConfig(StageConfig):
    """Stage `label`: which steps of a solution are wrong."""

    no_result: ClassVar[frozenset[str]] = frozenset({"cost", "in_flight"})
    cost: Cost = Cost(rows=1, tokens=4000, tokens_per_second=100)
    method: Literal["auto"] | MethodName = "auto"
    """`auto`: the label known by construction or by hand where there is one, else `rollout_method`. The others:
    `mc_soft`, `mc_hard`, `rpe`, `binary_search` by rollouts; `gold` = by hand; `construction` = of perturbed rows;
    `outcome` = the last step by the final answer; `programs` = the first step that no program which reaches the
    reference answer supports."""
    rollout_method: Literal["mc_soft", "mc_hard", "rpe", "binary_search"] = "rpe"
    agree_with: MethodName | None = None
    """A second method: rows on whose first error the two disagree, or on which it is silent, are rejected."""
    rpe_threshold: float = Field(default=0.8, gt=0)
    soft_threshold: float = Field(default=0.5, gt=0, le=1)
    """`mc_soft`: a step is right where MC(t) is at least this."""
    rollouts: tuple[tuple[float, int], ...] = ((0.1, 128), (0.9, 64), (1.01, 32))
    """[pass rate below, K]: how many completions are drawn from each prefix, by the pass rate on the problem."""
    first_rollouts: int = Field(default=16, ge=1)
    """Completions of the problem alone from which the pass rate is first estimated."""
    wave: int = Field(default=8, ge=1)
    """Completions drawn at once; each further wave of a prefix is as large as all before it."""
    stop_bound: float | None = Field(default=0.02, gt=0, lt=1)
    """Stop the rollouts of a prefix once the chance that all K would give its step another label is at most this;
    None = only where it can no longer change."""
    exact: bool = False
    """Always draw all K from every prefix, for the values themselves."""
    after_error: bool = False
    """Roll out prefixes behind the first wrong step too; their labels add nothing to the first error."""
    programs: int = Field(default=6, ge=1)
    """`programs`: how many are written for a problem, by the model that `policy` names."""
    in_flight: int = Field(default=16, ge=1)
    """Solutions that are worked on at once."""

    @field_validator("rollouts")
    @classmethod
    def _rising(cls, value: tuple[tuple[float, int], ...]) -> tuple[tuple[float, int], ...]:
        if not value or any(count < 1 for _, count in value):
            raise ValueError("needs pairs of a pass rate and a number of rollouts, at least 1")
        if [rate for rate, _ in value] != sorted({rate for rate, _ in value}):
            raise ValueError("needs rising pass rates")
        return value


class CritiqueConfig(StageConfig):
    """Stage `critique`: the teacher judges every step, along the code path of `genprm verify`."""

    cost: Cost = Cost(rows=1, tokens=1200, tokens_per_second=100)
    votes: int | None = Field(default=None, ge=1)
    """Critiques sampled for each step; None = as the teacher's config."""
    evidence_programs: int | None = Field(default=None, ge=0)
    """Programs written from the problem alone and executed, which the teacher is shown; None = as the teacher's
    config."""
    stop_after_error: bool = True
    """Judge no step after the label's first error: what follows an error is neither right nor wrong."""
    unlabelled: bool = False
    """Judge rows without a label too; the filter can keep none of their critiques."""


class FilterConfig(StageConfig):
    """Stage `filter`: which critiques are worth learning."""

    cost: Cost = Cost(rows=0.4)
    consensus: Literal["step", "solution"] = "step"
    """`step`: a critique's verdict agrees with its step's label. `solution`: the verdicts on all steps do, in one
    vote."""
    ran: Literal["all", "any", "ignore"] = "all"
    """Of a critique's blocks of code, how many must have run without an error; one without code is not refused."""
    need_code: bool = False
    """Refuse a critique without code."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Of one critique."""
    per_step: int | None = Field(default=None, ge=1)
    """Critiques kept of one step, the first votes; None = all."""
    balance: bool = True
    """Drop critiques of the commoner verdict, by a hash of their ids, until Yes and No are equally many."""
    programs_must_reach_answer: bool = False
    """Refuse rows whose programs, written from the problem alone, do not lead to the reference answer; where there is
    no reference or no program, there is nothing to refuse by."""
    against: tuple[str, ...] = ()
    """Files of evaluation problems: rows that repeat one are refused as contaminated."""
    ngram: int = Field(default=13, ge=1)
    """Words in a row that a training problem may not share with an evaluation problem."""


class FormatConfig(StageConfig):
    """Stage `format`: critiques as rows of token ids, rendered by the code that runs at inference."""

    cost: Cost = Cost(rows=3, tokens=0)
    max_length: int = Field(default=2048, ge=16)
    """Tokens; a row that is longer is refused, never cut."""
    pack_turns: bool = True
    """`multi_turn` students: one row holds a conversation with all its kept turns; False = a row for each turn."""
    conversations: int | None = Field(default=None, ge=1)
    """`multi_turn` students: the most conversations made of one solution; None = as many as a step has kept
    critiques."""
    programs: bool = False
    """Add rows of the solver protocol: problem -> a program that reached the reference answer."""
    programs_per_problem: int = Field(default=2, ge=1)
    exports: tuple[Literal["trl-stepwise", "step-dpo"], ...] = ()
    """Files to write beside the rows, for other trainers."""


class TrainConfig(StageConfig):
    """Stage `train`: supervised fine-tuning of the student."""

    no_result: ClassVar[frozenset[str]] = frozenset({"cost", "save_steps", "keep_checkpoints", "device"})
    cost: Cost = Cost(rows=1, tokens=1000, tokens_per_second=150)
    method: Literal["lora", "full"] = "lora"
    epochs: float = Field(default=1.0, gt=0)
    max_steps: int | None = Field(default=None, ge=1)
    """Optimiser steps; None = by `epochs`."""
    batch: int = Field(default=8, ge=1)
    """Rows that go through the model together, on each device."""
    accumulate: int = Field(default=1, ge=1)
    """Batches a step of the optimiser."""
    learning_rate: float = Field(default=2e-4, gt=0)
    warmup_ratio: float = Field(default=0.03, ge=0, le=1)
    schedule: str = "cosine"
    weight_decay: float = Field(default=0.0, ge=0)
    max_grad_norm: float = Field(default=1.0, gt=0)
    lora_rank: int = Field(default=16, ge=1)
    lora_alpha: int = Field(default=32, ge=1)
    lora_dropout: float = Field(default=0.0, ge=0, lt=1)
    lora_targets: str | tuple[str, ...] = "all-linear"
    """Names of the layers that get an adapter."""
    verdict_weight: float = Field(default=1.0, gt=0)
    """How much a label's token counts in the loss beside any other: it alone decides the reward."""
    device: str = "auto"
    """`auto` = a GPU where there is one, else `cpu`."""
    dtype: Literal["auto", "bfloat16", "float32"] = "auto"
    """What is computed in, over float32 weights; `auto`: bfloat16 where the device has it natively."""
    gradient_checkpointing: bool = False
    """Less memory for more time."""
    save_steps: int = Field(default=50, ge=1)
    """Optimiser steps between checkpoints."""
    keep_checkpoints: int = Field(default=2, ge=1)
    eval_steps: int = Field(default=50, ge=1)
    """Optimiser steps between looks at the held-out rows."""
    holdout: float = Field(default=0.05, ge=0, lt=1)
    """Share of the problems whose rows are not learnt from; by their labels' F1 the best weights are chosen."""
    holdout_rows: int = Field(default=200, ge=1)
    """The most held-out rows that are looked at."""
    patience: int | None = Field(default=None, ge=1)
    """Stop after so many looks without a better F1; None = never."""


class EvaluateConfig(StageConfig):
    """Stage `evaluate`: teacher, base student, distilled student and the direct baseline in one table."""

    cost: Cost = Cost(rows=1, tokens=1200, tokens_per_second=100)
    files: tuple[str, ...] = ()
    """Files of labelled solutions, as for `genprm eval processbench`; or `shipped:NAME`."""
    limit: int | None = Field(default=None, ge=1)
    """The first so many rows over all files."""
    sample: int | None = Field(default=None, ge=1)
    """So many rows of each file, drawn by the seed."""
    judges: tuple[Literal["teacher", "base", "student", "direct", "student_direct"], ...] = (
        "teacher",
        "base",
        "student",
        "direct",
    )
    """`base`: the student's model before training; `direct`: the same without a critique; `student_direct`: the trained
    one without a critique."""
    base: dict[str, Any] = Field(default_factory=dict)
    """Settings of `base` and `direct` on top of the student's, e.g. `{verify.protocol: compact}`: a model that was not
    trained needs the examples that a trained one does without."""


class DistillConfig(Section):
    """The whole tree."""

    name: str = "distill"
    """What the run is called in reports and on the model card."""
    seed: int = 0
    """Of everything that is drawn; seeds of rows derive from it and from their ids, never from their order."""
    out: str = "distilled"
    """The run's folder; `--out` names another."""
    verify_config: ModelRef = ModelRef()
    """The teacher."""
    student: ModelRef = ModelRef()
    """The model to train, with the settings under which it will judge."""
    policy: ModelRef = ModelRef()
    """The model that solves problems, for `sample` and for the rollouts of `label`."""
    sample: SampleConfig = SampleConfig()
    label: LabelConfig = LabelConfig()
    critique: CritiqueConfig = CritiqueConfig()
    filter: FilterConfig = FilterConfig()
    format: FormatConfig = FormatConfig()
    train: TrainConfig = TrainConfig()
    evaluate: EvaluateConfig = EvaluateConfig()

    @model_validator(mode="before")
    @classmethod
    def _not_a_verify_config(cls, value: Any) -> Any:
        if isinstance(value, dict) and "backend" in value and "sample" not in value:
            raise ConfigError(
                "this is a config of `genprm verify`; a distillation config has sections sample, label, …"
            )
        return value

    def stage(self, name: StageName) -> StageConfig:
        """One stage's section."""
        section: StageConfig = getattr(self, name)
        return section

    def result_settings(self, name: StageName) -> dict[str, Any]:
        """Every setting that can change the rows of a stage, its models' settings included.

        Raises:
            ConfigError: a model's config is wrong.
        """
        section = self.stage(name)
        own = section.model_dump(mode="json", exclude=set(section.no_result))
        settings: dict[str, Any] = {name: own, "seed": self.seed}
        for role in MODELS[name]:
            ref: ModelRef = getattr(self, role)
            config = ref.load()
            settings[role] = config.result_settings()
            if role == "policy":
                settings[role]["policy"] = config.policy.model_dump(mode="json")
        return settings


MODELS: dict[StageName, tuple[str, ...]] = {
    "sample": ("policy",),
    "label": ("policy",),
    "critique": ("verify_config",),
    "filter": ("verify_config",),
    "format": ("verify_config", "student"),
    "train": ("student",),
    "evaluate": ("verify_config", "student"),
}
"""The models whose settings can change a stage's rows."""


def load_distill_config(name_or_path: str, overrides: Iterable[str] = ()) -> DistillConfig:
    """Read a shipped distillation config or a YAML file and apply `a.b=c` overrides in order.

    Raises:
        ConfigError: no such config, not YAML, an unknown key, or a value of the wrong type.
    """
    return load_settings(DistillConfig, name_or_path, overrides, folder="distill")
