"""`genprm sandbox serve`: this machine's sandbox over HTTP, in the shape of SandboxFusion's `POST /run_code`.

For running code apart from the models, and for tests of the `http` sandbox. There is no authentication: whoever
reaches it may use this machine's processor, so it belongs on a private network. Programs are scripts here: the
value of a last expression is not shown, and stderr comes merged into stdout.
"""

from __future__ import annotations

import signal
from typing import Any, Literal

from fastapi import FastAPI
from pydantic import BaseModel, Field

from ..errors import SandboxUnavailable
from .channel import Raw
from .embedded import EmbeddedSandbox
from .limits import Limits
from .output import death_note, limit_note


class RunCodeRequest(BaseModel):
    """What SandboxFusion takes; fields that do not matter to Python are ignored."""

    code: str
    language: str = "python"
    run_timeout: float = Field(default=10.0, gt=0)
    memory_limit_MB: int = -1  # noqa: N815 (the published name)
    stdin: str | None = None
    files: dict[str, str | None] = Field(default_factory=dict)
    fetch_files: list[str] = Field(default_factory=list)


class RunResult(BaseModel):
    """How the program went."""

    status: Literal["Finished", "Error", "TimeLimitExceeded"]
    execution_time: float
    return_code: int | None
    stdout: str
    stderr: str = ""


class RunCodeResponse(BaseModel):
    """SandboxFusion's answer."""

    status: Literal["Success", "Failed", "SandboxError"]
    message: str = ""
    compile_result: None = None
    run_result: RunResult | None = None
    executor_pod_name: str | None = None
    files: dict[str, str] = Field(default_factory=dict)


def _refusal(request: RunCodeRequest) -> str | None:
    if request.language != "python":
        return f"language {request.language!r} is not offered, only python"
    if request.stdin or request.files or request.fetch_files:
        return "stdin and files are not offered: the sandbox has no input and no file system"
    return None


def _answer(raw: Raw, limits: Limits) -> RunCodeResponse:
    text = raw.output[: limits.output_bytes].decode("utf-8", "replace")
    status: Literal["Finished", "Error", "TimeLimitExceeded"] = "Error"
    code: int | None = None
    if raw.status in ("ok", "error"):
        status, code = "Finished" if raw.status == "ok" else "Error", raw.exit_code
    elif raw.status == "timeout":
        status = "TimeLimitExceeded"
    else:
        text += death_note(raw.wait_status) if raw.status == "died" else limit_note(raw.status, limits)
        # The convention of shells for a process that was killed.
        code = raw.wait_status >> 8 or 128 + ((raw.wait_status & 0x7F) or signal.SIGKILL)
    run = RunResult(status=status, execution_time=raw.seconds, return_code=code, stdout=text)
    return RunCodeResponse(status="Success" if status == "Finished" else "Failed", run_result=run)


def create_app(sandbox: EmbeddedSandbox) -> FastAPI:
    """The service around an open sandbox, whose limits are the most that a request can ask for."""
    app = FastAPI(title="genprm sandbox", description=__doc__)
    top = sandbox.limits

    @app.get("/health")
    def health() -> dict[str, Any]:
        return {"status": "ok", "level": sandbox.level, "layers": list(sandbox.layers), "versions": sandbox.versions}

    @app.post("/run_code")
    async def run_code(request: RunCodeRequest) -> RunCodeResponse:
        if (refusal := _refusal(request)) is not None:
            return RunCodeResponse(status="SandboxError", message=refusal)
        memory = request.memory_limit_MB
        asked = {
            "wall_seconds": min(request.run_timeout, top.wall_seconds),
            "cpu_seconds": min(request.run_timeout, top.cpu_seconds),
            "memory_mb": min(max(memory, 16), top.memory_mb) if memory > 0 else top.memory_mb,
        }
        limits = Limits.model_validate({**top.model_dump(include=set(Limits.model_fields)), **asked})
        if len(request.code) > top.source_chars:
            return RunCodeResponse(status="SandboxError", message=f"more than {top.source_chars:,} characters of code")
        try:
            raw = await sandbox.run_script(request.code, top if limits.model_dump() == top.model_dump() else limits)
        except SandboxUnavailable as error:
            return RunCodeResponse(status="SandboxError", message=str(error))
        return _answer(raw, limits)

    return app
