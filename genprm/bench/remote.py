"""Remote concurrency: a whole run against a local server that takes 50 ms a call, beside the least that it can take.

The server runs in a process of its own and does nothing but wait and answer, so that what is measured is how well the
client keeps its calls in flight, its own work for each call included.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from typing import Any

from ..build import load_generative
from ..config import load_config
from .engines import workload
from .figure import figure
from .http import message

CALL_SECONDS = 0.05


class _Answering(asyncio.Protocol):
    """Just enough HTTP: waits, then gives every token that is asked for the same log-probability."""

    def __init__(self) -> None:
        self._data = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        found = message(self._data)
        if found is None:
            return
        head, body, self._data = found
        if head.startswith(b"GET"):
            self._send({"data": [{"id": "fake", "owned_by": "vllm", "max_model_len": 32768}]})
        else:
            tokens = json.loads(body).get("logprob_token_ids") or []
            logs = {f"token_id:{token}": -2.0 for token in tokens}
            choice = {"text": "fine", "finish_reason": "stop", "logprobs": {"top_logprobs": [logs]}}
            answer = {"choices": [choice], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}
            asyncio.get_running_loop().call_later(CALL_SECONDS, self._send, answer)

    def _send(self, answer: dict[str, Any]) -> None:
        body = json.dumps(answer).encode()
        if self._transport is not None and not self._transport.is_closing():
            head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            self._transport.write(head.encode() + body)


def serve() -> None:
    """Run the server until the standard input ends; prints its port."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(_Answering, "127.0.0.1", 0, backlog=1024)
        print(server.sockets[0].getsockname()[1], flush=True)
        await loop.run_in_executor(None, sys.stdin.read)
        server.close()

    asyncio.run(run())


def bench_remote(*, solutions: int = 64, votes: int = 8, in_flight: int = 256) -> list[dict[str, Any]]:
    """Time of a whole run beside calls x 50 ms / calls in flight."""
    command = [sys.executable, "-c", "from genprm.bench.remote import serve; serve()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        base = f"http://127.0.0.1:{int(server.stdout.readline())}/v1"
        overrides = ["model=fake", f"backend.base_url={base}", "backend.tokenizer=smollm2-135m"]
        overrides += ["sandbox.kind=off", "verify.mode=direct", f"backend.max_in_flight={in_flight}"]
        with load_generative(load_config("openai", [*overrides, f"verify.votes={votes}"])) as verifier:
            traffic = verifier.backend.endpoints.traffic  # type: ignore[attr-defined]
            list(verifier.verify_many(workload(1)))
            before = traffic.requests
            start = time.perf_counter()
            list(verifier.verify_many(workload(solutions)))
            seconds = time.perf_counter() - start
            calls = traffic.requests - before
        server.communicate("")
    least = calls * CALL_SECONDS / in_flight
    return [
        figure(
            "remote",
            seconds / least,
            1.15,
            "at most",
            ours_seconds=seconds,
            other_seconds=least,
            runs=calls,
            calls_per_second=round(calls / seconds),
            retries=traffic.retries,
        )
    ]
