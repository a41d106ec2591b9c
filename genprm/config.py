"""The effective configuration: YAML files and dotted overrides become one frozen pydantic tree.

Knows names and types of settings, nothing of what they do. An unknown key is refused with the nearest known one.
Shipped files lie in `genprm.configs`; a file may say `extends: NAME` to start from another.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from .errors import ConfigError
from .sandbox.limits import Limits

S = TypeVar("S", bound="Section")


class Section(BaseModel):
    """Base of every section: frozen, and strict about unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class BackendConfig(Section):
    """The engine that runs the verifier model."""

    kind: Literal["transformers", "vllm", "openai", "scripted"] = "transformers"
    device: str = "auto"
    """`auto`, `cpu`, `cuda`, `cuda:1`."""
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    """`auto`: bfloat16 where the device computes in it natively, else float32."""
    max_context: int | None = Field(default=None, ge=64)
    """Tokens; None = what the model was made for. A longer prompt is unscored, never cut."""
    max_batch: int = Field(default=16, ge=1)
    """Sequences that decode together."""
    max_in_flight: int = Field(default=64, ge=1)
    """Critiques that are under way at once."""
    template_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Given to the chat template, e.g. `enable_thinking: false`."""
    prefix_cache_mb: int = Field(default=1024, ge=0)
    """Memory for the keys and values of earlier prompts, which later requests extend."""

    tensor_parallel: int = Field(default=1, ge=1)
    """`vllm`: GPUs that share each layer."""
    pipeline_parallel: int = Field(default=1, ge=1)
    """`vllm`: groups of GPUs that hold consecutive layers."""
    gpu_memory_utilization: float | None = Field(default=None, gt=0, le=1)
    """`vllm`: share of each GPU's memory; None = vLLM's own."""
    quantization: str | None = None
    """`vllm`: how the weights are quantised, e.g. `awq`, `fp8`; None = as the checkpoint says."""
    lora: str | None = None
    """`transformers`, `vllm`: folder or hub id of a LoRA adapter on top of the model."""
    label_read: Literal["exact", "constrained"] = "exact"
    """`vllm`: `exact` reads full-vocabulary values of the labels' tokens; `constrained` is the fallback through
    structured outputs for engines without them: the same probabilities, but no `mass`."""
    engine_args: dict[str, Any] = Field(default_factory=dict)
    """`vllm`: any further engine argument by vLLM's own name, e.g. `enforce_eager: true`."""
    stall_seconds: float = Field(default=600.0, gt=0)
    """`vllm`: an engine that gives nothing for so long while it has work is taken for dead."""

    base_url: str | tuple[str, ...] = ()
    """`openai`: address of a server, e.g. `http://127.0.0.1:8000/v1`, or a list of addresses that serve one model."""
    api: Literal["auto", "vllm", "completions", "chat"] = "auto"
    """`openai`: `vllm` = token ids and exact label reads; the other two are plain OpenAI-style calls, whose labels are
    read from `top_logprobs` with bounds; `auto` = `vllm` where the server is one, else `chat`."""
    api_key_env: str = "OPENAI_API_KEY"
    """`openai`: environment variable that holds the key; unset = no key is sent."""
    tokenizer: str | None = None
    """`openai`: folder, hub id or name of the served model's tokenizer; None = the model's own name."""
    prefill: Literal["continue", "prefix", "message", "ask"] = "continue"
    """`openai` with `api: chat`: how the server is told to go on with a begun answer. `continue`: the field
    `continue_final_message` (vLLM, SGLang); `prefix`: `prefix: true` in the message (Mistral, DeepSeek); `message`: a
    last assistant message is continued unasked (llama.cpp); `ask`: not possible there, a further user turn asks."""
    top_logprobs: int = Field(default=20, ge=1, le=100)
    """`openai`: how many tokens' log-probabilities are asked for where labels cannot be asked for by id."""
    extra_body: dict[str, Any] = Field(default_factory=dict)
    """`openai`: fields added to every request."""
    send_seed: Literal["auto", "always", "never"] = "auto"
    """`openai`: `auto` sends seeds, but not to vLLM servers, whose engine dies of them on CPU; `always` for one with a
    GPU makes sampled critiques reproducible."""
    health_seconds: float = Field(default=10.0, ge=0)
    """`openai`: time between two checks of each server, by `genprm serve` and wherever there are several; one that does
    not answer is left out until it does. 0 = no checks."""
    connect_seconds: float = Field(default=10.0, gt=0)
    read_seconds: float = Field(default=300.0, gt=0)
    """`openai`: how long a server may be silent."""
    total_seconds: float = Field(default=900.0, gt=0)
    """`openai`: bound on one attempt, however slowly bytes trickle in."""
    retries: int = Field(default=6, ge=0)
    """`openai`: further attempts after one that may be mended (429, 5xx, a broken answer, a timeout)."""
    backoff_seconds: float = Field(default=0.5, gt=0)
    """`openai`: pause before the first further attempt; doubles, with jitter, up to `max_backoff_seconds`."""
    max_backoff_seconds: float = Field(default=30.0, gt=0)
    requests_per_minute: int | None = Field(default=None, ge=1)
    tokens_per_minute: int | None = Field(default=None, ge=1)
    """`openai`: prompt tokens plus the most that may be generated, in any 60 seconds."""


# Settings that say where, how fast and how patiently the engine runs, not what it answers.
SPEED_ONLY = {
    "device",
    "max_batch",
    "max_in_flight",
    "prefix_cache_mb",
    "tensor_parallel",
    "pipeline_parallel",
    "gpu_memory_utilization",
    "stall_seconds",
    "base_url",
    "api_key_env",
    "health_seconds",
    "connect_seconds",
    "read_seconds",
    "total_seconds",
    "retries",
    "backoff_seconds",
    "max_backoff_seconds",
    "requests_per_minute",
    "tokens_per_minute",
}


class VerifyConfig(Section):
    """How a solution is judged."""

    judge: Literal["generative", "prm_head", "implicit", "outcome"] = "generative"
    """`generative`: a model writes critiques. The others are baselines, set in `baseline`: `prm_head` = a
    discriminative PRM, `implicit` = the log-ratio of two language models, `outcome` = the final answer alone."""
    protocol: str = "compact"
    """A shipped protocol's name, or the path of a template folder. `programs` writes no critique: evidence and a rule
    alone."""
    mode: str = "full"
    """Which parts of the critique are written: one of the protocol's modes, e.g. `full`, `direct`."""
    votes: int = Field(default=1, ge=1)
    """Critiques sampled for each step; the reward is the mean of their P(Yes)."""
    vote_bound: float | None = Field(default=None, gt=0, lt=1)
    """Take votes in waves and stop once the chance that all `votes` would give another verdict is at most this;
    None = always take all. The rule is in `genprm.voting`."""
    cascade: tuple[float, float] | None = None
    """[low, high]: judge each step directly first, and write critiques only where P(Yes) lies within; None = off."""
    early_stop: bool = False
    """Judge no step after the first error."""
    calibration: str | None = None
    """File that `genprm calibrate` made for this model, protocol and mode; None = rewards are plain P(Yes)."""
    reward: Literal["calibrated", "label"] = "calibrated"
    """`label`: the plain mean P(Yes), also where a calibration is given."""
    aggregation: Literal["min", "product", "mean", "last"] = "min"
    """How step rewards become the solution's reward."""
    outcome_weight: float = Field(default=0.0, ge=0, le=1)
    """How much the share of `evidence.programs` with the solution's answer counts in the solution's reward: the weight
    in a geometric mean with the aggregated step rewards. Where no program tells, the reward is then null."""
    threshold: float = Field(default=0.5, gt=0, lt=1)
    """A step whose reward is under this is incorrect."""
    min_mass: float = Field(default=0.01, ge=0, le=1)
    """A vote whose label mass is under this is flagged `low_mass`."""
    seed: int = 0
    max_tokens: int | None = Field(default=None, ge=1)
    """Bound on generated tokens in one critique; None = the protocol's own limits."""


class SamplingConfig(Section):
    """How critiques are sampled."""

    temperature: float | None = Field(default=None, ge=0)
    """None: greedy for one vote, 0.6 for several."""
    top_p: float = Field(default=0.95, gt=0, le=1)
    top_k: int = Field(default=20, ge=0)
    """0 = no limit."""


class SandboxConfig(Limits):
    """Where the model's Python runs; the limits hold for one block of code."""

    kind: Literal["embedded", "http", "off", "unsafe-subprocess"] = "embedded"
    url: str | None = None
    """Address of a SandboxFusion-style service, for `kind: http`."""
    workers: int | None = Field(default=None, ge=1)
    """Blocks that run at once; None = one a core."""
    level: str | None = None
    """The one level to accept, e.g. `L3`; None = the best that works here."""
    trust: bool = False
    """`kind: http`: go on although the service lets canaries through; results then say `http-unverified`."""

    @field_validator("kind", mode="before")
    @classmethod
    def _bare_off(cls, value: Any) -> Any:
        return "off" if value is False else value  # YAML reads a bare `off` as false


class ScriptedConfig(Section):
    """The deterministic fake backend."""

    latency_seconds: float = Field(default=0.0, ge=0)
    """What each call takes."""


class BaselineConfig(Section):
    """The judges that write no critique; see `verify.judge`."""

    form: Literal["auto", "qwen", "math_shepherd", "trl"] = "auto"
    """`prm_head`: how steps are laid out and where the model is read; `auto` = by the checkpoint's config and
    tokenizer."""
    separator: str | None = None
    """What ends a step; None = the form's own: `<extra_0>`, `ки`, a line break; `implicit`: a blank line."""
    reference: str | None = None
    """`implicit`: the reference model, named like `model`; usually the one that the policy was trained from."""
    beta: float = Field(default=0.05, gt=0)
    """`implicit`: weight of the log-ratio; the one that the policy was trained with."""
    implicit_score: Literal["step", "cumulative"] = "step"
    """`implicit`: a step's reward from its own log-ratio, or from that of all steps up to it."""


class EvidenceConfig(Section):
    """What the host finds out by itself before a critique is written."""

    programs: int = Field(default=0, ge=0, le=256)
    """The most programs written from the problem alone and executed, shared by all steps, votes and candidates of the
    problem; 0 = none."""
    first: int = Field(default=2, ge=1)
    """Programs written at once; more, up to `programs`, only while the verdict is open."""
    equations: bool = False
    """Check the equalities that a step states."""
    rollouts: int = Field(default=0, ge=0, le=256)
    """Where no program reaches the solution's answer: continuations of each prefix that bisection tries, by the model
    under `policy`'s sampling settings; 0 = none."""
    rollout_share: float = Field(default=0.0, ge=0, lt=1)
    """A prefix counts as right where more than this share of its continuations reaches the programs' answer."""
    show: bool = True
    """Show the evidence to the model that writes the critique, in protocols that have a place for it."""
    temperature: float = Field(default=0.8, ge=0)
    """Of the programs."""
    top_p: float = Field(default=0.95, gt=0, le=1)
    protocol: str = "solver"
    """How a problem is put to the model that writes the programs."""


class CacheConfig(Section):
    """The verdict cache: finished critiques are kept and not written again."""

    enabled: bool = False
    path: str | None = None
    """A file; None = `verdicts.sqlite` in the cache folder; `:memory:` = kept for this run only."""


class ServeConfig(Section):
    """The judge as a service: how much it takes on, and how other PRMs' callers are read."""

    queue: int = Field(default=1024, ge=1)
    """Solutions in the house, waiting and being judged; a request that goes beyond is refused with 429. As many as
    `backend.max_in_flight` are judged at once."""
    deadline_seconds: float = Field(default=600.0, gt=0)
    """How long a request may take; a request may ask for less with the header `X-Request-Deadline`."""
    drain_seconds: float = Field(default=30.0, ge=0)
    """After SIGTERM: how long requests under way may take to finish."""
    max_request_mb: float = Field(default=16.0, gt=0)
    """The longest request body, in 2**20 bytes."""
    api_key_env: str = "GENPRM_API_KEY"
    """Environment variable that holds the bearer token that callers must send; unset or empty = none is asked for."""
    log_texts: bool = False
    """Write problems and steps into the log."""
    separator: str = Field(default="<extra_0>", min_length=1)
    """`/pooling`: what ends each step."""
    openr_separators: tuple[str, ...] = ("ки", "\n\n\n\n\n", "<extra_0>")
    """`/worker_value_inference`: what may end each step; the first of these that a text holds."""
    problem_pattern: str | None = None
    """Regular expression with a group `problem`, matched at the beginning of texts that hold problem and steps; what
    follows the match is the steps. None = chat turns, else what stands before `Step 1`, else before a blank line."""

    @field_validator("problem_pattern")
    @classmethod
    def _has_problem(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                groups = re.compile(value).groupindex
            except re.error as error:
                raise ValueError(f"is no regular expression ({error})") from None
            if "problem" not in groups:
                raise ValueError("needs a group named problem: (?P<problem>...)")
        return value

    @field_validator("openr_separators")
    @classmethod
    def _has_separators(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not all(value) or not value:
            raise ValueError("needs at least one separator, and none may be empty")
        return value


class PolicyConfig(Section):
    """The model that writes solutions, for search and rollouts."""

    model: str | None = None
    """Named like `model`; None = the judge's own model."""
    backend: BackendConfig | None = None
    """Its engine; None = the judge's settings. Where model and engine are the judge's, one engine is shared."""
    protocol: str = "policy"
    """How a problem is put to it."""
    temperature: float = Field(default=0.8, ge=0)
    top_p: float = Field(default=0.95, gt=0, le=1)
    top_k: int = Field(default=0, ge=0)
    """0 = no limit."""
    max_tokens: int = Field(default=2048, ge=1)
    """The most tokens of one solution."""
    step_tokens: int = Field(default=256, ge=1)
    """The most tokens of one step; a step that is cut there ends its solution, unfinished."""
    max_steps: int = Field(default=24, ge=1)
    separator: str = Field(default="\n\n", min_length=1)
    """What ends a step."""
    max_in_flight: int = Field(default=64, ge=1)
    """Solutions that are being written at once."""


class SearchConfig(Section):
    """How solutions are searched for with a policy and a judge; the sampling's seed is `verify.seed`."""

    n: int = Field(default=8, ge=1)
    """Solutions (`best-of-n`), or steps sampled in each round (`beam`, `dvts`)."""
    width: int = Field(default=4, ge=1)
    """`beam`: how many partial solutions are kept; `dvts`: how many subtrees there are. Each is extended by
    n / width samples."""
    simulations: int = Field(default=64, ge=1)
    """`mcts`: how many nodes are evaluated."""
    expansions: int = Field(default=4, ge=1)
    """`mcts`: steps sampled behind a node."""
    c_puct: float = Field(default=1.0, ge=0)
    """`mcts`: weight of what is little visited."""
    prior: Literal["uniform", "policy"] = "uniform"
    """`mcts`: `policy` = the share of the samples that wrote this step."""
    rounds: int = Field(default=3, ge=0)
    """`critic`: the most rewrites."""
    aggregation: Literal["min", "product", "mean", "last"] = "min"
    """How the rewards of a solution's steps become its score."""
    budget_tokens: int | None = Field(default=None, ge=1)
    """Tokens that policy and judge may generate for one problem: once they are used no further work begins."""
    budget_judgements: int | None = Field(default=None, ge=1)
    """Judgements that may be made for one problem; those that are reused do not count."""
    in_flight: int = Field(default=4, ge=1)
    """Problems that are searched at once."""


class ActorsConfig(Section):
    """How many workers of a bulk run there may be."""

    min: int = Field(default=1, ge=1)
    """Workers that are started at once; the run waits until the cluster has room for one."""
    max: int = Field(default=2, ge=1)
    """Workers that are started while rows wait and the cluster has room."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min is {self.min}, more than max, {self.max}")
        return self


class RayConfig(Section):
    """A bulk run on Ray (`--engine ray`): workers that hold an engine and a sandbox each."""

    address: str | None = None
    """`auto`, `HOST:PORT` or `ray://HOST:PORT`; None = the cluster that RAY_ADDRESS names, else one on this machine."""
    actors: ActorsConfig = ActorsConfig()
    cpus: float = Field(default=1.0, ge=0)
    """Cores that each worker takes in Ray's books; parts of one are allowed."""
    gpus: float | None = Field(default=None, ge=0)
    """GPUs of each worker; parts of one let several share it. None = `backend.tensor_parallel` x
    `backend.pipeline_parallel` for `vllm`, 0 for engines elsewhere, and 1 for `transformers` on `cuda`."""
    batch_size: int = Field(default=16, ge=1)
    """Rows that travel together: what a worker is given at a time, and what a Parquet file holds."""
    batches_in_flight: int = Field(default=2, ge=1)
    """Batches that a worker judges at once, so that its engine is not idle at the end of one."""
    max_attempts: int = Field(default=3, ge=1)
    """How often a row may fail, or end the process that judges it, before it is listed as failed."""
    object_store_mb: int | None = Field(default=None, ge=76)
    """Shared memory of a cluster that is started here, in 2**20 bytes; None = Ray's own choice."""
    environment: tuple[str, ...] = ("GENPRM_CACHE", "GENPRM_OFFLINE", "HF_HOME", "HF_HUB_OFFLINE")
    """Environment variables that workers get from the driver where they are set. Ray shows them to whoever may look at
    the cluster: keys belong in the nodes' own environment."""


class ModelCard(Section):
    """What a config says of the model it names."""

    licence: str | None = None
    size: str | None = None
    note: str | None = None


class Config(Section):
    """The whole tree."""

    model: str = "smollm2-135m"
    """A name from `genprm models list`, a local folder, or a hub id."""
    card: ModelCard = ModelCard()
    backend: BackendConfig = BackendConfig()
    verify: VerifyConfig = VerifyConfig()
    sampling: SamplingConfig = SamplingConfig()
    sandbox: SandboxConfig = SandboxConfig()
    scripted: ScriptedConfig = ScriptedConfig()
    baseline: BaselineConfig = BaselineConfig()
    evidence: EvidenceConfig = EvidenceConfig()
    cache: CacheConfig = CacheConfig()
    serve: ServeConfig = ServeConfig()
    policy: PolicyConfig = PolicyConfig()
    search: SearchConfig = SearchConfig()
    ray: RayConfig = RayConfig()

    def digest(self) -> str:
        """sha256 over every setting that can change a result; where and how fast it runs does not count.

        A calibration counts by what is in its file, not by where the file lies.
        """
        settings = json.dumps(self.result_settings(verify={"calibration"}), sort_keys=True).encode()
        digest = hashlib.sha256(settings)
        if self.verify.calibration is not None:
            try:
                digest.update(Path(self.verify.calibration).expanduser().read_bytes())
            except OSError as error:
                message = f"the calibration {self.verify.calibration!r} cannot be read: {error.strerror}"
                raise ConfigError(message) from None
        return digest.hexdigest()

    def result_settings(self, **without: Any) -> dict[str, Any]:
        """Every setting that can change a result, less the sections or keys named in `without`."""
        speed: Any = {
            "backend": SPEED_ONLY,
            "sandbox": {"workers", "url", "level", "trust"},
            "scripted": {"latency_seconds"},
            "card": True,
            "cache": True,
            "serve": True,
            # Rollouts are written by the judge's own model, under the policy's settings.
            "policy": {"model", "backend", "max_in_flight"} if self.evidence.rollouts else True,
            "search": True,
            "ray": True,
            **({"baseline": True} if self.verify.judge == "generative" else {}),
        }
        return self.model_dump(mode="json", exclude={**speed, **without})


def shipped_configs(folder: str = "") -> list[str]:
    """Names of the configs that come with the package, or of those in a folder of them, e.g. `distill`."""
    files = resources.files("genprm.configs").joinpath(folder).iterdir()
    return sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml"))


def load_config(name_or_path: str = "default", overrides: Iterable[str] = ()) -> Config:
    """Read a shipped config or a YAML file and apply `a.b=c` overrides in order.

    Raises:
        ConfigError: no such config, not YAML, an unknown key, or a value of the wrong type.
    """
    return load_settings(Config, name_or_path, overrides)


def load_settings(kind: type[S], name_or_path: str, overrides: Iterable[str] = (), *, folder: str = "") -> S:
    """`load_config` for any tree of settings, whose shipped files lie in `folder` of the shipped configs."""
    tree = _read_tree(name_or_path, (), folder)
    for override in overrides:
        _apply(tree, override)
    try:
        return kind.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(_explain(error, kind)) from None


def _read_tree(name_or_path: str, seen: tuple[str, ...], folder: str) -> dict[str, Any]:
    if name_or_path in seen:
        raise ConfigError(f"config {name_or_path!r} extends itself: {' -> '.join((*seen, name_or_path))}")
    base_folder = None
    if "/" in name_or_path or name_or_path.endswith((".yaml", ".yml")):
        base_folder = Path(name_or_path).parent
        try:
            text = Path(name_or_path).read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"config {name_or_path!r} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise ConfigError(f"config {name_or_path!r} is not UTF-8 text") from None
    else:
        known = shipped_configs(folder)
        if name_or_path not in known:
            raise ConfigError(
                f"there is no config {name_or_path!r}{_nearest(name_or_path, known)}; "
                f"shipped: {', '.join(known)} (or give the path of a .yaml file)"
            )
        shipped = resources.files("genprm.configs").joinpath(folder, f"{name_or_path}.yaml")
        text = shipped.read_text(encoding="utf-8")
    try:
        tree = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise ConfigError(f"config {name_or_path!r} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(tree, dict):
        raise ConfigError(f"config {name_or_path!r} is not a mapping of settings")
    parent = tree.pop("extends", None)
    if parent is None:
        return tree
    if not isinstance(parent, str):
        raise ConfigError(f"config {name_or_path!r}: `extends` names one config, not {parent!r}")
    if base_folder is not None and parent.endswith((".yaml", ".yml")):
        parent = str(base_folder / parent)
    return _merge(_read_tree(parent, (*seen, name_or_path), folder), tree)


def _merge(base: dict[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in top.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), dict)
        merged[key] = _merge(merged[key], value) if both else value
    return merged


def _apply(tree: dict[str, Any], override: str) -> None:
    path, equals, text = override.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise ConfigError(f"--set {override!r} is not of the form a.b=value")
    try:
        value = yaml.safe_load(text) if text else None
    except yaml.YAMLError:
        value = text
    node = tree
    for key in keys[:-1]:
        child = node.setdefault(key, {})
        if not isinstance(child, dict):
            raise ConfigError(f"--set {override!r}: {key!r} is a value, not a section")
        node = child
    node[keys[-1]] = value


def _explain(error: ValidationError, kind: type[Section]) -> str:
    """One line for the first fault, naming key, value and the nearest known key."""
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    if first["type"] == "extra_forbidden":
        section: Any = kind
        for part in first["loc"][:-1]:
            field = getattr(section, "model_fields", {}).get(part)
            section = None if field is None else _section_of(field.annotation)
        known = getattr(section, "model_fields", {})
        return f"unknown setting {where!r}{_nearest(str(first['loc'][-1]), known)}{more}"
    return f"setting {where!r}: {first['msg']}, got {first['input']!r}{more}"


def _section_of(annotation: Any) -> Any:
    """The section that a setting holds, also where it may be None."""
    return next((kind for kind in get_args(annotation) if kind is not type(None)), annotation)


def _nearest(word: str, known: Iterable[str]) -> str:
    match = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {match[0]!r}?" if match else ""
