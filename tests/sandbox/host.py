"""A process that holds a sandbox, as genprm does, and runs what a test sends it: one JSON line in, one out.

It is a process of its own so that the tests look at it, and at what hostile code does to it, from outside, and so
that it can be another user with fewer calls of the kernel.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time

from genprm.errors import SandboxUnavailable
from genprm.sandbox import Limits, open_sandbox


def answer(line: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main() -> None:
    options = json.loads(sys.argv[1])
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # orphans of hostile code become this process' children: they are seen
    limits = Limits(**options["limits"])
    try:
        sandbox = open_sandbox(options["kind"], limits, workers=1, level=options["level"], cache_size=0)
    except SandboxUnavailable as error:
        answer({"unavailable": str(error), "missing": list(error.missing)})
        return
    held = [os.environ.get("GENPRM_TEST_TOKEN")]  # in this process' memory too
    answer({"level": sandbox.level, "held": len(held), "servers": getattr(sandbox, "server_pids", [])})
    for line in sys.stdin:
        request = json.loads(line)
        own = request.get("limits")
        session = sandbox.open(Limits(**{**options["limits"], **own})) if own else sandbox.open()
        start = time.monotonic()
        try:
            checks = [session.run_sync(block).model_dump() for block in request["blocks"]]
        finally:
            session.close()
        servers = getattr(sandbox, "server_pids", [])
        answer({"checks": checks, "elapsed": time.monotonic() - start, "servers": servers})
    sandbox.close()


main()
