"""The same critiques read by three real engines, and real engines that die."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from genprm.backends.base import SamplingParams
from genprm.bench.engines import workload
from genprm.config import BackendConfig, load_config
from genprm.errors import BackendUnavailable
from genprm.prompting import load_protocol
from genprm.sandbox import open_sandbox
from genprm.verifier import GenPRM

# vLLM leaves sockets to the garbage collector when an engine ends.
pytestmark = [
    *(pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(900)),
    *(
        pytest.mark.filterwarnings(f"ignore::{kind}")
        for kind in (
            "pytest.PytestUnraisableExceptionWarning",
            "ResourceWarning",
            "DeprecationWarning",
            "FutureWarning",
            "UserWarning",
        )
    ),
]
CONFIG = ["verify.protocol=compact", "backend.max_context=2048"]


def verifier(backend, *overrides):
    config = load_config("vllm", [*CONFIG, *overrides])
    return GenPRM(backend, load_protocol("compact"), open_sandbox("embedded", config.sandbox), config)


@pytest.fixture(scope="session")
def transformers_backend(embedded_folder):
    from genprm.backends.transformers import TransformersBackend

    config = BackendConfig(dtype="float32", device="cpu", max_context=2048)
    backend = TransformersBackend.load(embedded_folder, name="smollm2-135m", config=config)
    yield backend
    backend.close()


@pytest.fixture(scope="session")
def server_backend(vllm_server):
    from genprm.backends.openai import OpenAIBackend

    return OpenAIBackend.connect(load_config("openai", [f"backend.base_url={vllm_server}"]))


@pytest.fixture(scope="session")
def critiques(transformers_backend):
    """Fifty greedy critiques, each as the conversation and the text before its label."""
    protocol = load_protocol("compact")
    config = load_config("default", CONFIG)
    judge = GenPRM(transformers_backend, protocol, open_sandbox("embedded", config.sandbox), config)
    prompts = []
    prefix = protocol.manifest.judgement.prefix
    for result in judge.verify_many(workload(10)):
        solution = next(item for item in workload(10) if item.id == result.id)
        rendered = [protocol.render_step(text, index) for index, text in enumerate(solution.steps)]
        for step in result.steps:
            before = step.votes[0].critique.rsplit(prefix, 1)[0] + prefix
            conversation = protocol.conversation(solution, step.index, previous="".join(rendered[: step.index]))
            prompts.append(conversation.extended(before))
    judge.sandbox.close()
    assert len(prompts) == 50
    return prompts


def labels_of(backend, prompts):
    judgement = load_protocol("compact").manifest.judgement

    async def read(prompt):
        async with backend.slot() as slot:
            return await slot.read_label(prompt, judgement.labels, judgement.prefix)

    async def all_of_them():
        async with backend.work():
            return await asyncio.gather(*(read(prompt) for prompt in prompts))

    return asyncio.run(all_of_them())


def test_label_reads_of_the_same_text_agree_between_three_engines(
    transformers_backend, vllm_backend, server_backend, critiques
):
    engines = {"transformers": transformers_backend, "vllm": vllm_backend, "vllm serve": server_backend}
    readings = {name: labels_of(backend, critiques) for name, backend in engines.items()}
    for name in ("vllm", "vllm serve"):
        pairs = list(zip(readings["transformers"], readings[name], strict=True))
        reward = max(abs(a.probs["Yes"] - b.probs["Yes"]) for a, b in pairs)
        mass = max(abs(a.mass - b.mass) for a, b in pairs)
        print(f"{name}: largest difference in reward {reward:.4f}, in mass {mass:.4f}")
        assert reward <= 0.02
        assert mass <= 0.02
    assert all(reading.source == "full_vocabulary" for reading in readings["vllm serve"])


def test_the_constrained_fallback_gives_the_same_probabilities_without_a_mass(vllm_backend, critiques):
    exact = labels_of(vllm_backend, critiques[:10])
    config = vllm_backend.config
    vllm_backend.config = config.model_copy(update={"label_read": "constrained"})
    try:
        fallback = labels_of(vllm_backend, critiques[:10])
    finally:
        vllm_backend.config = config
    for a, b in zip(exact, fallback, strict=True):
        assert b.mass is None
        assert b.probs["Yes"] == pytest.approx(a.probs["Yes"], abs=0.03)


@pytest.mark.parametrize("which", ["vllm_backend", "server_backend"])
def test_whole_solutions_are_judged_with_executed_code(request, which):
    backend = request.getfixturevalue(which)
    judge = verifier(backend)
    results = list(judge.verify_many(workload(3)))
    judge.sandbox.close()
    assert sorted(result.id for result in results) == ["0", "1", "2"]
    steps = [step for result in results for step in result.steps]
    assert all(step.reward is not None for step in steps)
    assert sum(len(vote.checks) for step in steps for vote in step.votes) >= 5
    assert all(vote.mass > 0.3 for step in steps for vote in step.votes)


@pytest.mark.parametrize("which", ["vllm_backend", "server_backend"])
def test_sampled_votes_with_seeds_do_not_kill_the_engine_on_cpu(request, which):
    """A seeded sampled request ends vLLM's engine on CPU; the backends know that."""
    judge = verifier(request.getfixturevalue(which), "verify.votes=3", "verify.mode=analyze")
    (result,) = list(judge.verify_many(workload(1)))
    judge.sandbox.close()
    assert all(len(step.votes) == 3 for step in result.steps)


def test_a_prompt_over_the_context_is_unscored_and_never_cut(vllm_backend):
    solution = workload(1)[0].model_copy(update={"steps": ("word " * 5000, "1 + 1 = 2.")})
    judge = verifier(vllm_backend)
    result = judge.verify(solution)
    judge.sandbox.close()
    assert [step.verdict for step in result.steps] == ["unscored", "unscored"]
    assert "2,048" in result.steps[0].unscored_reason


def engine_processes():
    """Processes of vLLM's engine core among this process's descendants."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                name = (entry / "cmdline").read_text()
            except OSError:
                continue
            if parent == os.getpid() and ("EngineCore" in name or "spawn_main" in name):
                found.append(int(entry.name))
    return found


def test_an_engine_that_is_killed_ends_in_a_clear_error_and_no_hang(embedded_folder):
    from genprm.backends.vllm import VllmBackend

    from .conftest import vllm_config

    before = set(engine_processes())
    backend = VllmBackend.load(str(embedded_folder), name="smollm2-135m", config=vllm_config())
    engines = set(engine_processes()) - before
    assert engines

    async def write():
        async with backend.slot() as slot:
            prompt = load_protocol("compact").conversation(workload(1)[0], 0)
            return await slot.generate(prompt, SamplingParams(1200))

    async def killed():
        writing = asyncio.ensure_future(write())
        await asyncio.sleep(2)
        for process in engines:
            os.kill(process, signal.SIGKILL)
        return await writing

    start = time.monotonic()
    with pytest.raises(BackendUnavailable, match="died"):
        asyncio.run(killed())
    with pytest.raises(BackendUnavailable):
        asyncio.run(write())
    backend.close()
    assert time.monotonic() - start < 120
