"""docs/integrations.md: every snippet runs, and prints what its comment says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from genprm.integrations import core
from genprm.integrations.core import SharedVerifier
from genprm.integrations.search_and_learn import PRM
from genprm.integrations.trl import make_reward, make_step_rewards

from .conftest import RIGHT, WRONG, Counting

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "integrations.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SHOWN = [code for code in SNIPPETS if "print(" in code]


def said(code):
    """The output that the last comments of a snippet promise."""
    lines = [line[2:] for line in code.splitlines() if line.startswith("# ")]
    return "\n".join(lines) or re.findall(r"print\(.*\)  # (.*)", code)[-1]


@pytest.mark.parametrize("code", SHOWN, ids=[re.search(r"integrations\.(\w+)", code)[1] for code in SHOWN])
def test_every_snippet_prints_what_its_comment_says(code, tmp_path):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == said(code)


def defined(name):
    """A class that a snippet defines."""
    namespace: dict[str, object] = {}
    exec(next(code for code in SNIPPETS if f"class {name}" in code), namespace)
    return namespace[name]


def test_the_reward_manager_fills_a_token_level_tensor(monkeypatch, tiny_tokenizer):
    import torch

    judge = SharedVerifier(Counting(lambda text: 0.25 if "no" in text else 0.75))
    monkeypatch.setattr(core, "_NAMED", {"default": judge})
    monkeypatch.delenv("GENPRM_CONFIG", raising=False)

    pad = tiny_tokenizer.pad_token_id
    ids = [tiny_tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("yes.\n\nno.", "yes.")]
    width = len(ids[0]) + 2
    responses = torch.tensor([[*row, *[pad] * (width - len(row))] for row in ids])
    masks = torch.tensor([[0, 1, *[1] * len(row), *[0] * (width - len(row))] for row in ids])
    data = SimpleNamespace(
        batch={"responses": responses, "prompts": torch.zeros(2, 2, dtype=torch.long), "attention_mask": masks},
        non_tensor_batch={"extra_info": [{"question": "q"}] * 2},
    )
    manager = defined("StepRewardManager")(tiny_tokenizer, 0)
    rewards = manager(data)
    assert rewards.shape == responses.shape
    assert [row[row != 0].tolist() for row in rewards] == [[0.75, 0.25], [0.75]]
    assert rewards[0, len(ids[0]) - 1] == 0.25
    assert rewards[1, len(ids[1]) - 1] == 0.75
    assert torch.equal(manager(data, return_dict=True)["reward_tensor"], rewards)


@pytest.mark.model
@pytest.mark.filterwarnings("ignore")  # the trainer's own warnings are not ours
def test_a_trainer_takes_process_advantages_on_tokens(tiny_model, tiny_tokenizer, tmp_path):
    import copy

    import torch
    from datasets import Dataset
    from trl import GRPOConfig

    policy = copy.deepcopy(tiny_model)
    before = policy.model.layers[0].mlp.up_proj.weight.detach().clone()
    rewards = Counting(lambda text: (len(text) % 7) / 7)
    config = GRPOConfig(
        output_dir=str(tmp_path), max_steps=2, per_device_train_batch_size=4, num_generations=4,
        max_completion_length=12, learning_rate=1e-2, use_cpu=True, bf16=False, report_to="none", logging_steps=1,
        save_strategy="no", disable_tqdm=True, seed=0,
    )  # fmt: skip
    trainer = defined("StepGRPOTrainer")(
        policy,
        step_rewards=make_step_rewards(rewards, tiny_tokenizer, splitter=None, unscored=0.0),
        args=config,
        train_dataset=Dataset.from_list([{"prompt": "a b c"}] * 2),
        processing_class=tiny_tokenizer,
    )
    seen = []
    inner = trainer._generate_and_score_completions
    trainer._generate_and_score_completions = lambda inputs: seen.append(inner(inputs)) or seen[-1]
    trainer.train()
    assert trainer.state.global_step == len(seen) == 2
    for output in seen:
        assert output["advantages"].shape == output["completion_mask"].shape
    assert not torch.equal(before, policy.model.layers[0].mlp.up_proj.weight)


@pytest.fixture(scope="module")
def service():
    """`genprm serve` with the fake verifier, on a free port."""
    command = [sys.executable, "-m", "genprm.cli", "serve", "--config", "scripted", "--port", "0"]
    env = {name: value for name, value in os.environ.items() if name != "GENPRM_API_KEY"}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env) as process:
        assert process.stderr is not None
        url = next(json.loads(line)["url"] for line in process.stderr if '"ready"' in line)
        yield url
        process.terminate()
        process.stderr.read()


def test_the_address_of_a_service_does_in_place_of_a_verifier(service, scripted):
    from genprm.client import Client

    outputs = [[f"{RIGHT}\n\n{WRONG}", RIGHT]]
    with PRM(service) as remote:
        assert remote.score(["q"], outputs) == PRM(scripted).score(["q"], outputs)
    with Client(service) as client:
        assert make_reward(client)(["q"] * 2, outputs[0]) == make_reward(scripted)(["q"] * 2, outputs[0])
