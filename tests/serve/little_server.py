"""A small chat server in a process of its own, which tests kill and start again: says Yes to everything.

`python little_server.py PORT SECONDS MODEL` prints its port; `GET /count` tells how many calls it has answered.
"""

from __future__ import annotations

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

port, seconds, model = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
count = 0
TOP = [{"token": "Yes", "logprob": -0.1}, {"token": "No", "logprob": -2.4}, {"token": "x", "logprob": -9.0}]
CHOICE = {"message": {"content": "Yes"}, "finish_reason": "stop", "logprobs": {"content": [{"top_logprobs": TOP}]}}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # The head and the body are two writes, which would otherwise wait for each other.
    disable_nagle_algorithm = True

    def log_message(self, *_) -> None:
        pass

    def do_GET(self) -> None:
        known = {"/v1/models": {"data": [{"id": model, "owned_by": "tests"}]}, "/count": count}
        self.say(200 if self.path in known else 404, known.get(self.path, {}))

    def do_POST(self) -> None:
        global count
        self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(seconds)
        count += 1
        self.say(200, {"choices": [CHOICE], "usage": {"prompt_tokens": 5, "completion_tokens": 1}})

    def say(self, status: int, content: object) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256


server = Server(("127.0.0.1", port), Handler)
print(server.server_port, flush=True)
server.serve_forever()
