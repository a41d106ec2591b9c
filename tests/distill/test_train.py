"""Training for real: few steps, on a tiny model with random weights and on the embedded one."""

from __future__ import annotations

import json

import pytest
from genprm.distill.config import DistillConfig
from genprm.distill.job import Job
from genprm.distill.masks import IGNORED
from genprm.distill.store import Store
from genprm.distill.train import check_rows, last_checkpoint, read_losses, run_train, split_rows

from genprm.config import load_config
from genprm.errors import UsageError


@pytest.fixture(scope="session")
def tiny_student(tmp_path_factory, tiny_model, tiny_tokenizer):
    """The tiny model as a folder."""
    folder = tmp_path_factory.mktemp("student")
    tiny_model.save_pretrained(folder)
    tiny_tokenizer.save_pretrained(folder)
    return folder


def rows_for(tokenizer, count):
    """Rows whose label hangs on one letter of the prompt."""
    rows = []
    for number in range(count):
        right = number % 2 == 0
        prompt = f"the step is {'a' if right else 'b'}{' 1' * (number % 3)} correct?"
        context = tokenizer.encode(prompt, add_special_tokens=False)
        label = tokenizer.encode(" Yes" if right else " No", add_special_tokens=False)
        rows.append(
            {
                "id": f"p{number}/0/c0/r0",
                "problem_id": f"p{number}",
                "input_ids": [*context, *label],
                "labels": [IGNORED] * len(context) + label,
                "text": prompt,
                "step": 0,
                "verdicts": [[len(context), len(context) + len(label), "Yes" if right else "No"]],
            }
        )
    return rows


def train(out, student, rows, *, advance=lambda: None, **settings):
    """Stage `train` over given rows; returns its manifest."""
    if not (out / "format").exists():
        with Store(out / "format") as store:
            for row in rows:
                store.add(row)
            store.finish()
    config = DistillConfig.model_validate(
        {
            "student": {"overrides": {"model": str(student), "verify.protocol": "student"}},
            "train": {"batch": 4, "eval_steps": 4, "save_steps": 4, "device": "cpu", "lora_rank": 4, **settings},
        }
    )
    with Store(out / "train") as store:
        run_train(Job(config, "train", out, store, advance=advance))
        store.finish()
        return store.manifest


def test_training_learns_the_verdict_and_keeps_the_best_weights(tmp_path, tiny_student, tiny_tokenizer):
    rows = rows_for(tiny_tokenizer, 48)
    manifest = train(
        tmp_path,
        tiny_student,
        rows,
        max_steps=24,
        learning_rate=0.02,
        holdout=0.3,
        verdict_weight=2.0,
        schedule="constant",
    )
    lines = read_losses(tmp_path / "train")
    losses = [line["loss"] for line in lines if "loss" in line]
    looks = [line for line in lines if "verdicts" in line]
    assert len(losses) == 24
    assert losses[-1] < losses[0] / 2
    assert [look["step"] for look in looks] == [0, 4, 8, 12, 16, 20, 24]
    assert manifest["best"]["verdict_f1"] == max(look["verdict_f1"] for look in looks[1:])
    assert manifest["best"]["verdict_f1"] > 0.9
    assert manifest["rows_learnt"] + manifest["rows_held_out"] == 48
    assert {file.name for file in (tmp_path / "train" / "final").iterdir()} >= {
        "adapter_config.json",
        "adapter_model.safetensors",
        "tokenizer.json",
    }
    assert (tmp_path / "train" / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_a_killed_run_goes_on_from_its_last_whole_checkpoint_and_takes_no_step_twice(
    tmp_path, tiny_student, tiny_tokenizer
):
    rows = rows_for(tiny_tokenizer, 32)
    settings = {"max_steps": 12, "learning_rate": 0.01, "holdout": 0.3}
    whole = train(tmp_path / "whole", tiny_student, rows, **settings)
    taken = []

    def kill():
        taken.append(1)
        if len(taken) == 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "cut", tiny_student, rows, advance=kill, **settings)
    checkpoints = tmp_path / "cut" / "train" / "checkpoints"
    torn = checkpoints / "checkpoint-9"
    torn.mkdir()
    (torn / "trainer_state.json").write_text('{"global_step": 9,')
    with (tmp_path / "cut" / "train" / "loss.jsonl").open("a") as file:
        file.write('{"step": 10, "lo')
    manifest = train(tmp_path / "cut", tiny_student, rows, **settings)
    assert not torn.exists()
    assert manifest["steps"] == whole["steps"] == 12
    mine, other = (read_losses(tmp_path / name / "train") for name in ("cut", "whole"))
    assert [line["step"] for line in mine] == [line["step"] for line in other]
    for line, reference in zip(mine, other, strict=True):
        assert line.keys() == reference.keys()
        for name in line.keys() & {"loss", "verdict_f1", "verdict_auroc"}:
            assert line[name] == pytest.approx(reference[name], rel=1e-4)
    assert manifest["best"]["step"] == whole["best"]["step"]


def test_an_epochs_order_hangs_on_seed_and_epoch_alone_and_keeps_lengths_together():
    from genprm.distill.trainer import ByLength

    lengths = [10 + 7 * number % 90 for number in range(101)]
    sampler = ByLength(lengths, 4, 0)
    first = list(sampler)
    assert sorted(first) == list(range(101))
    assert list(ByLength(lengths, 4, 0)) == first
    sampler.set_epoch(1)
    assert list(sampler) != first
    spreads = [
        max(part) - min(part) for part in ([lengths[row] for row in first[at : at + 4]] for at in range(0, 100, 4))
    ]
    assert max(spreads) <= 8


def test_training_stops_early_when_the_verdicts_get_no_better(tmp_path, tiny_student, tiny_tokenizer):
    rows = rows_for(tiny_tokenizer, 32)
    manifest = train(
        tmp_path, tiny_student, rows, max_steps=40, learning_rate=1e-9, holdout=0.3, eval_steps=2, patience=2
    )
    assert manifest["stopped_early"]
    assert manifest["steps"] == 6
    assert manifest["best"]["step"] == 2


def test_full_training_keeps_whole_weights(tmp_path, tiny_student, tiny_tokenizer):
    manifest = train(
        tmp_path, tiny_student, rows_for(tiny_tokenizer, 8), method="full", max_steps=2, holdout=0.0, dtype="float32"
    )
    assert manifest["best"] is None
    assert (tmp_path / "train" / "final" / "model.safetensors").is_file()
    assert (tmp_path / "train" / "final" / "config.json").is_file()


@pytest.mark.model
@pytest.mark.slow
def test_the_embedded_model_trains_an_adapter_that_verify_can_use(tmp_path, embedded_folder, trip):
    from transformers import AutoTokenizer

    from genprm.build import load

    rows = rows_for(AutoTokenizer.from_pretrained(embedded_folder), 16)
    manifest = train(tmp_path, "smollm2-135m", rows, max_steps=3, holdout=0.0, learning_rate=1e-3)
    losses = [line["loss"] for line in read_losses(tmp_path / "train")]
    assert len(losses) == 3
    assert losses[-1] < losses[0]
    assert manifest["trained_parameters"] < 5_000_000
    settings = ["verify.protocol=student", "verify.mode=direct", "sandbox.kind=off", "backend.device=cpu"]
    rewards = []
    for lora in (None, str(tmp_path / "train" / "final")):
        with load(load_config("default", [*settings, f"backend.lora={json.dumps(lora)}"])) as judge:
            rewards.append(judge.verify(trip).steps[0].reward)
    assert rewards[0] != rewards[1]


def test_no_problem_is_both_learnt_and_held_out_and_more_rows_move_none(tiny_tokenizer):
    settings = DistillConfig.model_validate({"train": {"holdout": 0.3}}).train
    rows = rows_for(tiny_tokenizer, 60)
    rows += [{**row, "id": row["id"] + "x"} for row in rows]
    learn, held = split_rows(rows, settings, 0)
    assert held
    assert not {row["problem_id"] for row in learn} & {row["problem_id"] for row in held}
    fewer, _ = split_rows(rows[:30], settings, 0)
    assert {row["id"] for row in fewer} <= {row["id"] for row in learn}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"labels": [IGNORED, IGNORED]}, "nothing is learnt"),
        ({"labels": [IGNORED, 9]}, "labels that are not its ids"),
        ({"input_ids": [1] * 99, "labels": [1] * 99}, "has 99 tokens"),
    ],
)
def test_rows_that_a_trainer_would_spoil_are_refused(change, said):
    row = {"id": "p/0", "input_ids": [1, 2], "labels": [IGNORED, 2], **change}
    with pytest.raises(UsageError, match=said):
        check_rows([row], 16)


def test_a_checkpoint_without_its_end_is_none(tmp_path):
    assert last_checkpoint(tmp_path) is None
    (tmp_path / "checkpoint-3").mkdir()
    assert last_checkpoint(tmp_path) is None
