"""A small OpenAI-style server over a real socket, whose answers a test writes down beforehand."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

VLLM_MODELS = {"data": [{"id": "tiny", "owned_by": "vllm", "root": "/models/tiny", "max_model_len": 400}]}
PLAIN_MODELS = {"data": [{"id": "big", "owned_by": "someone"}]}


def completion(text: str = "fine", **fields: Any) -> dict[str, Any]:
    choice = {"text": text, "finish_reason": "stop", "stop_reason": None, **fields}
    return {"choices": [choice], "usage": {"prompt_tokens": 5, "completion_tokens": 3}}


class FakeServer:
    """Keeps every request; answers with `script` first, then with `default`."""

    def __init__(self, models: dict[str, Any]):
        self.models = models
        self.script: list[Any] = []
        self.default: Callable[[str, dict[str, Any]], Any] = lambda path, body: completion()
        self.requests: list[tuple[str, dict[str, Any], dict[str, str]]] = []
        self.tokenize: Callable[[dict[str, Any]], list[int]] | None = None
        self.seconds = 0.0
        self.running = self.most = 0
        self._lock = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def do_GET(self) -> None:
                server._answer(self, server.models if self.path.endswith("/models") else {})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path == "/tokenize":
                    server._answer(self, {"tokens": server.tokenize(body)} if server.tokenize else (404, {}, {}))
                    return
                with server._lock:
                    server.requests.append((self.path, body, dict(self.headers)))
                    answer = server.script.pop(0) if server.script else server.default(self.path, body)
                    server.running += 1
                    server.most = max(server.most, server.running)
                time.sleep(server.seconds)
                with server._lock:
                    server.running -= 1
                server._answer(self, answer)

        class Server(ThreadingHTTPServer):
            request_queue_size = 512
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A client that hung up is no news."""

        self._http = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}/v1"

    def _answer(self, handler: BaseHTTPRequestHandler, answer: Any) -> None:
        if answer == "hang":
            time.sleep(1.5)
            answer = "close"
        if answer == "close":
            handler.close_connection = True
            return
        status, headers, content = 200, {}, answer
        if isinstance(answer, tuple):
            status, headers, content = answer
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        handler.send_response(status)
        promised = len(data) * 2 if headers.pop("half", False) else len(data)
        handler.send_header("Content-Length", str(promised))
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(data)
        if promised != len(data):
            handler.close_connection = True

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
