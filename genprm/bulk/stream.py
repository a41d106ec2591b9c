"""`judge_stream`: the same results from this process's verifier and from a Ray cluster's workers.

Callers know solutions, settings and the engine's name; which rows they still want, and where results go, is theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

from ..build import load
from ..config import Config
from ..errors import UnavailableError
from ..types import Solution, VerificationResult
from .chunks import Failed
from .worker import Load

Engine = Literal["local", "ray"]


def judge_stream(
    solutions: Iterable[Solution],
    settings: Config,
    *,
    engine: Engine = "local",
    on_failed: Callable[[Failed], None] | None = None,
    say: Callable[[str], None] = lambda _: None,
    load: Load = load,
) -> Iterator[VerificationResult]:
    """Judge a stream of solutions; results come as they are done, in no order, and little is read ahead.

    Args:
        solutions: read while earlier ones are judged, in another thread.
        settings: the verifier's; `settings.ray` is for `engine="ray"`.
        engine: `local` = one verifier in this process; `ray` = workers on a Ray cluster.
        on_failed: told each row that `ray` gave up after `ray.max_attempts`; None = the first one is raised once
            all others are judged.
        say: told in a few words what takes long.
        load: makes a verifier of a config.

    Raises:
        ConfigError, ProtocolError: the settings are wrong.
        UnavailableError: a part cannot be had, or rows were given up.
    """
    if engine == "local":
        with load(settings) as verifier:
            yield from verifier.verify_many(solutions)
        return
    from .pipeline import ray_stream

    lost: list[Failed] = []
    count = 0

    def given_up(failed: Failed) -> None:
        nonlocal count
        count += 1
        if on_failed is not None:
            on_failed(failed)
        elif not lost:
            lost.append(failed)

    yield from ray_stream(solutions, settings, on_failed=given_up, say=say, load=load)
    if lost:
        raise UnavailableError(
            f"{count} rows could not be judged, the first is {lost[0].id!r} after {lost[0].attempts} attempts: "
            f"{lost[0].reason}"
        )
