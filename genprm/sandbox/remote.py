"""The sandbox as a service elsewhere, in the shape of SandboxFusion: `POST {url}/run_code`.

How well the code is confined is the service's matter; the canaries are run against it once, because SandboxFusion
started by hand isolates nothing. A service inside a container of its own may fail some of them by design (it may
write to its own /tmp): then say so with `trust`.
"""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import Any, Self

import httpx

from ..errors import SandboxUnavailable
from ..types import CodeCheck
from .limits import Limits
from .output import limit_note
from .replay import Pool, ReplaySession, program, result, status_of
from .selftest import Canary, canary_source, read_canaries

_SPARE_SECONDS = 30.0
"""Beyond the code's own time: the service may have a queue."""


class HttpSandbox:
    """Runs code through a SandboxFusion service."""

    def __init__(self, url: str, limits: Limits | None = None, *, workers: int | None = None, trust: bool = False):
        """Connect and send the canaries.

        Raises:
            SandboxUnavailable: no such service answers, or a canary was let through and `trust` is not given.
        """
        self.url, self.limits = url.rstrip("/"), limits or Limits()
        self._pool = Pool(workers or 16)
        self._client = httpx.Client(timeout=self.limits.wall_seconds + _SPARE_SECONDS)
        self.level = "http"
        try:
            self.canaries = self._test()
        except BaseException:
            self.close()
            raise
        escaped = [canary for canary in self.canaries if not canary.contained]
        if escaped:
            if not trust:
                self.close()
                names = ", ".join(canary.name for canary in escaped)
                raise SandboxUnavailable(
                    f"the sandbox at {url} lets through what it must refuse ({names}); "
                    "put it in a container and set `sandbox.trust: true`, or use another",
                    missing=[canary.name for canary in escaped],
                )
            self.level = "http-unverified"

    def _test(self) -> list[Canary]:
        source, marker = canary_source()
        try:
            answer = self.post(source)
            printed = str((answer.get("run_result") or {}).get("stdout") or "")
        except (httpx.HTTPError, ValueError, AttributeError) as error:
            text = (
                f"no sandbox answers at {self.url} ({type(error).__name__}: {error}); start one: genprm sandbox serve"
            )
            raise SandboxUnavailable(text, missing=["http"]) from error
        return read_canaries(printed, marker)

    def post(self, code: str) -> dict[str, Any]:
        """One run; the answer as the service gave it."""
        request = {
            "code": code,
            "language": "python",
            "run_timeout": self.limits.wall_seconds,
            "memory_limit_MB": self.limits.memory_mb,
        }
        response = self._client.post(f"{self.url}/run_code", json=request)
        response.raise_for_status()
        answer: dict[str, Any] = response.json()
        return answer

    def open(self) -> HttpSession:
        """A new session; the service keeps nothing of it."""
        return HttpSession(self)

    def close(self) -> None:
        """Close the connections; safe to call twice."""
        self._pool.close()
        with contextlib.suppress(RuntimeError):
            self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


class HttpSession(ReplaySession):
    """Blocks sent together, in one program, each time."""

    def __init__(self, sandbox: HttpSandbox):
        super().__init__(sandbox._pool, sandbox.limits)
        self._sandbox = sandbox

    def execute(self, blocks: list[str]) -> CodeCheck:
        """Run the program of all blocks; tried twice, then `unavailable`."""
        source, reason = blocks[-1], ""
        for _ in range(2):
            try:
                answer = self._sandbox.post(program(blocks))
                if answer.get("status") != "SandboxError":
                    return self._read(source, answer["run_result"])
                reason = str(answer.get("message") or "the service reports an error of its own")
            except (httpx.HTTPError, RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
                reason = f"{type(error).__name__}: {error}"
        text = f"[code execution failed: {reason}]"
        return CodeCheck(source=source, status="unavailable", output=text, seconds=0.0)

    def _read(self, source: str, run: dict[str, Any]) -> CodeCheck:
        printed = (str(run.get("stdout") or "") + str(run.get("stderr") or "")).encode("utf-8", "replace")
        seconds = float(run.get("execution_time") or 0.0)
        code = run.get("return_code")
        status = status_of(None if code is None else int(code))
        if run["status"] == "TimeLimitExceeded":
            status = "timeout"
        if len(printed) > self.limits.output_bytes:
            status, printed = "output_limit", printed[: self.limits.output_bytes]
        note = ""
        if status == "died":
            note = f"[the program ended with exit code {code}]"
        elif status not in ("ok", "error"):
            note = limit_note(status, self.limits)
        return result(source, status, printed, seconds, self.limits, note)
