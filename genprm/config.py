"""The effective configuration: YAML files and dotted overrides become one frozen pydantic tree.

Knows names and types of settings, nothing of what they do. An unknown key is refused with the nearest known one.
Shipped files lie in `genprm.configs`; a file may say `extends: NAME` to start from another.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from .errors import ConfigError
from .sandbox.limits import Limits


class Section(BaseModel):
    """Base of every section: frozen, and strict about unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class BackendConfig(Section):
    """The engine that runs the verifier model."""

    kind: Literal["transformers", "scripted"] = "transformers"
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


class VerifyConfig(Section):
    """How a solution is judged."""

    protocol: str = "compact"
    """A shipped protocol's name, or the path of a template folder."""
    mode: str = "full"
    """Which parts of the critique are written: one of the protocol's modes, e.g. `full`, `direct`."""
    votes: int = Field(default=1, ge=1)
    """Critiques sampled for each step; the reward is the mean of their P(Yes)."""
    early_stop: bool = False
    """Judge no step after the first error."""
    aggregation: Literal["min", "product", "mean", "last"] = "min"
    """How step rewards become the solution's reward."""
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

    @field_validator("kind", mode="before")
    @classmethod
    def _bare_off(cls, value: Any) -> Any:
        return "off" if value is False else value  # YAML reads a bare `off` as false


class ScriptedConfig(Section):
    """The deterministic fake backend."""

    latency_seconds: float = Field(default=0.0, ge=0)
    """What each call takes."""


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

    def digest(self) -> str:
        """sha256 over every setting that can change a result; where and how fast it runs does not count."""
        speed = {
            "backend": {"device", "max_batch", "max_in_flight", "prefix_cache_mb"},
            "sandbox": {"workers", "url"},
            "scripted": {"latency_seconds"},
            "card": True,
        }
        tree = self.model_dump(mode="json", exclude=speed)
        return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()


def shipped_configs() -> list[str]:
    """Names of the configs that come with the package."""
    files = resources.files("genprm.configs").iterdir()
    return sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml"))


def load_config(name_or_path: str = "default", overrides: Iterable[str] = ()) -> Config:
    """Read a shipped config or a YAML file and apply `a.b=c` overrides in order.

    Raises:
        ConfigError: no such config, not YAML, an unknown key, or a value of the wrong type.
    """
    tree = _read_tree(name_or_path, ())
    for override in overrides:
        _apply(tree, override)
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(_explain(error)) from None


def _read_tree(name_or_path: str, seen: tuple[str, ...]) -> dict[str, Any]:
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
        known = shipped_configs()
        if name_or_path not in known:
            raise ConfigError(
                f"there is no config {name_or_path!r}{_nearest(name_or_path, known)}; "
                f"shipped: {', '.join(known)} (or give the path of a .yaml file)"
            )
        text = resources.files("genprm.configs").joinpath(f"{name_or_path}.yaml").read_text(encoding="utf-8")
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
    return _merge(_read_tree(parent, (*seen, name_or_path)), tree)


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


def _explain(error: ValidationError) -> str:
    """One line for the first fault, naming key, value and the nearest known key."""
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    if first["type"] == "extra_forbidden":
        section: Any = Config
        for part in first["loc"][:-1]:
            section = section.model_fields[part].annotation
        return f"unknown setting {where!r}{_nearest(str(first['loc'][-1]), section.model_fields)}{more}"
    return f"setting {where!r}: {first['msg']}, got {first['input']!r}{more}"


def _nearest(word: str, known: Iterable[str]) -> str:
    match = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {match[0]!r}?" if match else ""
