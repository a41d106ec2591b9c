"""Puts a verifier together from a config: the one place that turns names into concrete parts.

Heavy libraries are imported here, when a part is made, and nowhere before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from .backends.base import Backend
from .baselines.scored import ScoredVerifier, Scorer
from .cache import VerdictCache
from .calibration import Calibration, load_calibration
from .config import CacheConfig, Config, load_config
from .errors import ConfigError
from .models import resolve
from .policy import Policy
from .prompting import Protocol, load_protocol
from .sandbox import open_sandbox
from .search import Searcher
from .types import ProtocolRef
from .verifier import GenPRM, Verifier

Say = Callable[[str], None]
RULE = "programs"


def load(config: Config | str = "default", *, overrides: Iterable[str] = (), say: Say = lambda _: None) -> Verifier:
    """A verifier ready to judge: the generative one, or the baseline that `verify.judge` names.

    >>> with genprm.load("scripted") as judge:  # doctest: +SKIP
    ...     judge.verify(Solution(id="0", problem="1 + 1?", steps=("1 + 1 = 3",))).first_error
    0

    Args:
        config: a shipped config's name, a YAML file's path, or a `Config`.
        overrides: `a.b=c` settings on top of it.
        say: told in a few words what takes long (fetching, loading).

    Raises:
        ConfigError, ProtocolError: the settings are wrong.
        ModelUnavailable, BackendUnavailable, SandboxUnavailable: a part cannot be had.
    """
    settings = load_config(config, overrides) if isinstance(config, str) else config
    if settings.verify.judge == "generative":
        return load_generative(settings, say=say)
    return ScoredVerifier(make_scorer(settings, say), settings)


def load_generative(settings: Config, *, say: Say = lambda _: None) -> GenPRM:
    """The verifier that writes critiques, with its parts; see `load`.

    Raises:
        ConfigError: the config names another judge.
    """
    if settings.verify.judge != "generative":
        raise ConfigError(f"this needs a judge that writes critiques, and verify.judge is {settings.verify.judge!r}")
    protocol, solver = _protocols(settings)
    limits = settings.sandbox
    sandbox = open_sandbox(
        limits.kind, limits, url=limits.url, workers=limits.workers, level=limits.level, trust=limits.trust
    )
    with ExitStack() as made:
        made.callback(sandbox.close)
        backend = make_backend(settings, say)
        made.callback(backend.close)
        calibration = _calibration(settings, backend.model, protocol.ref)
        cache = None
        if settings.cache.enabled:
            cache = VerdictCache(Path(settings.cache.path).expanduser() if settings.cache.path else None, say)
        made.pop_all()  # the verifier closes them from here on
    policy = load_protocol(settings.policy.protocol) if settings.evidence.rollouts else None
    return GenPRM(
        backend, protocol, sandbox, settings, cache=cache, calibration=calibration, solver=solver, policy=policy
    )


def _protocols(settings: Config) -> tuple[Protocol, Protocol | None]:
    """The protocol that judges, and the one that writes programs where they are wanted."""
    verify, wanted = settings.verify, settings.evidence
    solver = load_protocol(wanted.protocol) if wanted.programs else None
    if wanted.rollouts and solver is None:
        raise ConfigError("evidence.rollouts are compared with the programs' answer: set evidence.programs too")
    if wanted.rollouts and settings.policy.temperature == 0:
        raise ConfigError("evidence.rollouts are samples: set policy.temperature above 0")
    if verify.protocol == RULE:
        if solver is None:
            raise ConfigError(f"the protocol {RULE!r} judges by programs: set evidence.programs, e.g. to 6")
        if verify.calibration is not None:
            raise ConfigError(f"verify.calibration is fitted for critiques; the protocol {RULE!r} writes none")
        return replace(solver, manifest=solver.manifest.model_copy(update={"name": RULE, "judges": False})), solver
    protocol = load_protocol(verify.protocol)
    if not protocol.manifest.judges:
        raise ConfigError(f"the protocol {verify.protocol!r} judges nothing: it is one for evidence.protocol")
    protocol.parts(verify.mode)
    return protocol, solver


def _calibration(settings: Config, model: str, protocol: ProtocolRef) -> Calibration | None:
    verify = settings.verify
    if verify.calibration is None or verify.reward == "label":
        return None
    if verify.cascade is not None:
        raise ConfigError("verify.calibration is fitted for one mode of a protocol; verify.cascade mixes two")
    return load_calibration(verify.calibration, model=model, protocol=protocol, mode=verify.mode)


def make_scorer(config: Config, say: Say = lambda _: None) -> Scorer:
    """What gives steps their scores for a judge that writes no critique.

    Raises:
        ConfigError: the settings do not fit the judge or the model.
        ModelUnavailable, BackendUnavailable: the model cannot be had.
    """
    judge = config.verify.judge
    if config.verify.calibration is not None:
        raise ConfigError(f"verify.calibration is fitted for critiques; verify.judge is {judge!r}")
    if judge == "outcome":
        from .baselines.outcome import OutcomeScorer

        return OutcomeScorer()
    if config.backend.kind != "transformers":
        raise ConfigError(
            f"verify.judge {judge!r} runs with backend.kind 'transformers' only, not with {config.backend.kind!r}"
        )
    source = resolve(config.model, say)
    if judge == "implicit":
        from .baselines.implicit import ImplicitPrm

        return ImplicitPrm.load(source, config, say)
    from .baselines.prm_head import PrmHead

    say(f"loading {config.model}")
    return PrmHead.load(source, config)


def load_policy(
    settings: Config | str = "default",
    judge_backend: Backend | None = None,
    *,
    overrides: Iterable[str] = (),
    say: Say = lambda _: None,
) -> Policy:
    """The policy that `policy` in a config names, ready to write solutions.

    Args:
        settings: a shipped config's name, a YAML file's path, or a `Config`.
        judge_backend: the engine of a verifier with the same settings; it is used, and left open by the policy's
            `close`, where model and engine are the same. None = an engine of the policy's own.
        overrides: `a.b=c` settings on top of it.
        say: told in a few words what takes long.

    Raises:
        ConfigError, ProtocolError: the settings are wrong.
        ModelUnavailable, BackendUnavailable: the model cannot be had.
    """
    config = load_config(settings, overrides) if isinstance(settings, str) else settings
    wanted = config.policy
    protocol = load_protocol(wanted.protocol)
    own = config.model_copy(update={"model": wanted.model or config.model, "backend": wanted.backend or config.backend})
    if judge_backend is not None and (own.model, own.backend) == (config.model, config.backend):
        return Policy(judge_backend, protocol, wanted)
    backend = make_backend(own, say)
    try:
        return Policy(backend, protocol, wanted, owns=True)
    except BaseException:
        backend.close()
        raise


def load_search(
    config: Config | str = "default", *, overrides: Iterable[str] = (), say: Say = lambda _: None
) -> Searcher:
    """A policy and a judge that solve problems together.

    Every critique is remembered, in the verdict cache where one is enabled, else for as long as this object lives; and
    no step is left out after an error, since a search weighs what it already has.

    Args:
        config: a shipped config's name, a YAML file's path, or a `Config`; its sections `policy` and `search` count.
        overrides: `a.b=c` settings on top of it.
        say: told in a few words what takes long.

    Raises:
        ConfigError, ProtocolError: the settings are wrong.
        ModelUnavailable, BackendUnavailable, SandboxUnavailable: a part cannot be had.
    """
    settings = load_config(config, overrides) if isinstance(config, str) else config
    update: dict[str, Any] = {"verify": settings.verify.model_copy(update={"early_stop": False})}
    if not settings.cache.enabled:
        update["cache"] = CacheConfig(enabled=True, path=":memory:")
    settings = settings.model_copy(update=update)
    with ExitStack() as made:
        judge = made.enter_context(load(settings, say=say))
        policy = load_policy(settings, getattr(judge, "backend", None), say=say)
        made.pop_all()  # the searcher closes them from here on
    return Searcher(policy, judge, settings.search)


def make_backend(config: Config, say: Say = lambda _: None) -> Backend:
    """The engine that a config names."""
    if config.backend.kind == "scripted":
        from .backends.scripted import ScriptedBackend

        return ScriptedBackend(config.scripted, config.backend.max_context)
    if config.backend.kind == "openai":
        from .backends.openai import OpenAIBackend

        return OpenAIBackend.connect(config, say)
    source = resolve(config.model, say)
    say(f"loading {config.model}")
    if config.backend.kind == "vllm":
        from .backends.vllm import VllmBackend

        return VllmBackend.load(source, name=config.model, config=config.backend)
    from .backends.transformers import TransformersBackend

    return TransformersBackend.load(source, name=config.model, config=config.backend)
