"""A Ray cluster for a run: connected to or started here, and kept quiet. The only module that starts Ray.

What a worker takes of it, and whether the cluster can ever give that, is said here.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..config import Config, RayConfig
from ..errors import BackendUnavailable, ConfigError

Say = Callable[[str], None]


def import_ray() -> Any:
    """The library, told to send nothing anywhere and to keep its own voice down.

    Raises:
        BackendUnavailable: it is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
        import ray.data
    except ImportError:
        raise BackendUnavailable("--engine ray needs Ray: pip install 'genprm[ray]'") from None
    for name in ("ray", "ray.data"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return ray


@contextmanager
def connected(settings: RayConfig, say: Say = lambda _: None) -> Iterator[Any]:
    """Ray with a cluster behind it; one that was started or joined here is left at the end.

    Raises:
        BackendUnavailable: Ray is missing, or the cluster cannot be reached.
    """
    ray = import_ray()
    if ray.is_initialized():
        yield ray
        return
    address = settings.address or os.environ.get("RAY_ADDRESS") or "local"
    given = {name: os.environ[name] for name in settings.environment if name in os.environ}
    options: dict[str, Any] = {"runtime_env": {"env_vars": given}} if given else {}
    if address == "local":
        options = {"include_dashboard": False}
        if settings.object_store_mb is not None:
            options["object_store_memory"] = settings.object_store_mb * 2**20
    say("starting Ray on this machine" if address == "local" else f"joining the Ray cluster at {address}")
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **options)
    except (ConnectionError, RuntimeError, OSError, ValueError, TimeoutError) as error:
        why = " ".join(str(error).split())[:300]
        raise BackendUnavailable(f"the Ray cluster {address!r} cannot be used: {why}") from None
    try:
        yield ray
    finally:
        ray.shutdown()


def gpus_of(config: Config) -> float:
    """GPUs that each worker takes."""
    if config.ray.gpus is not None:
        return config.ray.gpus
    if config.backend.kind == "vllm":
        return (
            0 if config.backend.device == "cpu" else config.backend.tensor_parallel * config.backend.pipeline_parallel
        )
    return 1 if config.backend.kind == "transformers" and config.backend.device.startswith("cuda") else 0


def check_room(ray: Any, config: Config, say: Say) -> None:
    """Refuse what no node of a cluster on this machine could hold; only say so where nodes may still come.

    Raises:
        ConfigError: a cluster on this machine will never have room for one worker.
    """
    wanted = {"CPU": config.ray.cpus, "GPU": gpus_of(config)}
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if any(all(node.get(kind, 0) >= amount for kind, amount in wanted.items()) for node in nodes):
        return
    largest = {kind: max((node.get(kind, 0) for node in nodes), default=0) for kind in wanted}
    message = (
        f"a worker takes {wanted['CPU']:g} cores and {wanted['GPU']:g} GPUs (ray.cpus, ray.gpus); "
        f"no node has more than {largest['CPU']:g} and {largest['GPU']:g}"
    )
    if len(nodes) <= 1 and not (config.ray.address or os.environ.get("RAY_ADDRESS")):
        raise ConfigError(message)
    say(f"{message}: waiting for a node that has")
