"""The same critiques read by three real engines, and real engines that die."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from genprm.backends.base import SamplingParams
from genprm.bench.engines import workload
from genprm.config import BackendConfig, load_config
from genprm.errors import BackendUnavailable, Unscored
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


def test_bounds_from_a_real_servers_likeliest_tokens_hold_the_exact_probability(server_backend, vllm_server, critiques):
    from genprm.backends.openai import OpenAIBackend

    exact = labels_of(server_backend, critiques[:20])
    settings = [f"backend.base_url={vllm_server}", "backend.api=chat"]
    chat = OpenAIBackend.connect(load_config("openai", settings))
    scored = 0
    for prompt, true in zip(critiques[:20], exact, strict=True):
        try:
            (read,) = labels_of(chat, [prompt])
        except Unscored:
            continue
        scored += 1
        said = read.probs["Yes"]
        ends = sorted((said, said + read.slack if said >= 0.5 else said - read.slack))
        assert ends[0] - 0.02 <= true.probs["Yes"] <= ends[1] + 0.02
        assert read.mass <= true.mass + 0.02
    assert scored >= 5
    judge = verifier(chat, "verify.mode=verify")
    result = judge.verify(workload(1)[0])
    judge.sandbox.close()
    votes = [vote for step in result.steps for vote in (*step.votes, *step.failed_votes)]
    assert sum(check.status in ("ok", "error") for vote in votes for check in vote.checks) >= 3


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


@pytest.fixture(scope="module")
def own_llm(embedded_folder):
    """An offline `LLM` as a user makes one, and its engine's processes."""
    from vllm import LLM

    from .conftest import ENGINE_ARGS

    before = set(engine_processes())
    llm = LLM(str(embedded_folder), dtype="float32", max_model_len=2048, **ENGINE_ARGS)
    return llm, set(engine_processes()) - before


def test_a_users_own_llm_is_wrapped_and_reads_the_same_labels(own_llm, vllm_backend, critiques):
    from genprm.backends.vllm import VllmBackend

    backend = VllmBackend.from_vllm(own_llm[0])
    try:
        pairs = list(zip(labels_of(backend, critiques[:20]), labels_of(vllm_backend, critiques[:20]), strict=True))
        assert max(abs(a.probs["Yes"] - b.probs["Yes"]) for a, b in pairs) <= 0.01
        assert max(abs(a.mass - b.mass) for a, b in pairs) <= 0.01
        judge = verifier(backend, "verify.mode=analyze")
        result = judge.verify(workload(1)[0])
        judge.sandbox.close()
        assert all(step.reward is not None for step in result.steps)
    finally:
        backend.close()
        backend.close()


def test_a_users_own_llm_whose_engine_is_killed_is_an_error_and_no_hang(own_llm):
    from genprm.backends.vllm import VllmBackend

    llm, engines = own_llm
    assert engines
    backend = VllmBackend.from_vllm(llm)
    start = time.monotonic()
    with pytest.raises(BackendUnavailable, match="died"):
        asyncio.run(killed_while_writing(backend, engines))
    backend.close()
    assert time.monotonic() - start < 60


def test_a_cancelled_critique_leaves_the_engine(vllm_backend):
    async def cancelled():
        writing = asyncio.ensure_future(write(vllm_backend))
        await asyncio.sleep(1)
        processor = vllm_backend.driver._engine.output_processor
        assert processor.get_num_unfinished_requests() == 1
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        await asyncio.sleep(1.5)
        return processor.get_num_unfinished_requests()

    assert asyncio.run(cancelled()) == 0


def test_a_critique_longer_than_the_stall_limit_is_no_stall_while_the_engine_lives(vllm_backend):
    driver = vllm_backend.driver
    config = driver._config
    driver._config = config.model_copy(update={"stall_seconds": 2.0})
    start = time.monotonic()
    try:
        answer = asyncio.run(write(vllm_backend))
    finally:
        driver._config = config
    assert answer.completion_tokens > 20
    assert time.monotonic() - start > 2.0


def test_standard_output_holds_results_and_nothing_else(tmp_path):
    source = tmp_path / "one.json"
    source.write_text('{"problem": "1 + 1?", "steps": ["1 + 1 = 2."]}')
    command = [str(Path(sys.executable).parent / "genprm"), "verify", str(source), "--config", "vllm", "--json"]
    overrides = ["verify.mode=direct", "backend.max_context=1024", "backend.engine_args.enforce_eager=true"]
    for override in overrides:
        command += ["--set", override]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    (line,) = done.stdout.splitlines()
    assert json.loads(line)["steps"][0]["reward"] is not None
    assert "Traceback" not in done.stderr


async def write(backend):
    """A critique that goes on for as long as the context lets it."""
    async with backend.slot() as slot:
        prompt = load_protocol("compact").conversation(workload(1)[0], 0)
        return await slot.generate(prompt, SamplingParams(1200))


async def killed_while_writing(backend, engines):
    writing = asyncio.ensure_future(write(backend))
    await asyncio.sleep(2)
    for process in engines:
        os.kill(process, signal.SIGKILL)
    return await writing


def test_an_engine_that_is_killed_ends_in_a_clear_error_and_no_hang(embedded_folder):
    from genprm.backends.vllm import VllmBackend

    from .conftest import vllm_config

    before = set(engine_processes())
    backend = VllmBackend.load(str(embedded_folder), name="smollm2-135m", config=vllm_config())
    engines = set(engine_processes()) - before
    assert engines

    start = time.monotonic()
    with pytest.raises(BackendUnavailable, match="died"):
        asyncio.run(killed_while_writing(backend, engines))
    with pytest.raises(BackendUnavailable):
        asyncio.run(write(backend))
    backend.close()
    assert time.monotonic() - start < 120
