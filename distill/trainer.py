"""The training loop: TRL's trainer over our own rows, a loss on learnt positions only, and looks at verdicts.

Imports torch and TRL at once; it is itself imported when training begins. Rows are never cut or packed, so that each
keeps its verdict; padding is masked whatever its id is.
"""

from __future__ import annotations

import json
import random
import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from torch.nn.functional import cross_entropy, pad
from torch.utils.data import Sampler
from transformers import AutoModelForCausalLM, PrinterCallback, ProgressCallback, TrainerCallback, set_seed
from trl import SFTConfig, SFTTrainer

from ..adapters import SETTINGS
from ..backends.loading import from_where, load_tokenizer, pick_device, pick_dtype, reading
from ..config import BackendConfig
from ..evaluation.stats import auroc, harmonic_mean
from ..labels import LabelReader
from .config import TrainConfig
from .masks import IGNORED
from .store import Row, replace_file, row_seed
from .train import BEST, CHECKPOINTS, FINAL, LOSSES, last_checkpoint, read_losses, rewind_losses


def train_rows(
    learn: Sequence[Row],
    held: Sequence[Row],
    settings: TrainConfig,
    *,
    name: str,
    source: str,
    labels: Mapping[str, tuple[str, ...]],
    backend: BackendConfig,
    seed: int,
    folder: Path,
    say: Callable[[str], None] = lambda _: None,
    expect: Callable[[int], None] = lambda _: None,
    advance: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Train, and leave the best weights in `folder/final`.

    Args:
        learn: rows of stage `format`.
        held: rows whose verdicts are looked at.
        settings: of the stage.
        name: what the student is called, for the adapter's own settings.
        source: folder or hub id of the student.
        labels: label -> spellings; the first is the positive one; empty = verdicts are not looked at.
        backend: whose device is used.
        seed: of the adapter's first values and the order of rows.
        folder: for checkpoints, losses and results; training goes on from what it holds.
        say: told in a few words what takes long.
        expect: told how many optimiser steps there are.
        advance: told of each.

    Returns:
        Facts for the manifest.
    """
    device = pick_device(backend.device)
    dtype = pick_dtype(settings.dtype, device)
    set_seed(seed)
    tokenizer = load_tokenizer(source)
    say(f"loading {source}")
    model = load_student(source, settings, dtype)
    rows = Dataset.from_list([_example(row, settings.verdict_weight) for row in learn])
    with _quiet():
        trainer = LearntTrainer(
            model=model,
            args=_arguments(settings, folder, seed, device, dtype, tokenizer.eos_token),
            train_dataset=rows,
            data_collator=Collator(_pad_id(tokenizer)),
            processing_class=tokenizer,
            peft_config=_lora(settings),
        )
    for callback in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(callback)
    resumed = last_checkpoint(folder / CHECKPOINTS)
    done = 0 if resumed is None else int(resumed.name.rpartition("-")[2])
    main = bool(trainer.accelerator.is_main_process)
    past = rewind_losses(folder, done) if main else read_losses(folder, done)
    verdicts = Verdicts(held, labels, LabelReader(tokenizer), settings.batch) if labels and held else None
    watch = Watch(trainer, verdicts, settings, folder, past, expect, advance)
    trainer.add_callback(watch)
    started = time.monotonic()
    if resumed is not None:
        say(f"going on from step {done}")
    with _quiet():
        trainer.train(resume_from_checkpoint=None if resumed is None else str(resumed))
        if watch.best is None:
            trainer.save_model(str(folder / BEST))
    if main:
        _keep(folder, tokenizer, name)
    trained = sum(parameter.numel() for parameter in trainer.model.parameters() if parameter.requires_grad)
    return {
        "main_process": main,
        "steps": int(trainer.state.global_step),
        "tokens": sum(len(row["input_ids"]) for row in learn),
        "train_seconds": round(time.monotonic() - started, 1),
        "trained_parameters": trained,
        "dtype": str(dtype).removeprefix("torch."),
        "device": device.type,
        "processes": int(trainer.accelerator.num_processes),
        "best": watch.best,
        "stopped_early": watch.stopped,
    }


@contextmanager
def _quiet() -> Iterator[None]:
    """The libraries' warnings of each other's old names are not the user's business."""
    with warnings.catch_warnings():
        for kind in (FutureWarning, DeprecationWarning, UserWarning):
            warnings.filterwarnings("ignore", category=kind)
        yield


def load_student(source: str, settings: TrainConfig, dtype: torch.dtype) -> Any:
    """The model to train: frozen weights in the number format of the computation, trained ones in float32."""
    kept = dtype if settings.method == "lora" else torch.float32
    with reading(source):
        model = AutoModelForCausalLM.from_pretrained(source, dtype=kept, **from_where())
    model.config.use_cache = False
    return model


class Collator:
    """Rows of one batch, padded on the right; what is padded is neither attended to nor learnt."""

    def __init__(self, pad_id: int):
        self._pad_id = pad_id

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """Tensors of shape [rows, longest]."""
        longest = max(len(row["input_ids"]) for row in rows)

        def block(key: str, fill: float, dtype: torch.dtype) -> torch.Tensor:
            tensors = [torch.tensor(row[key], dtype=dtype) for row in rows]
            return torch.stack([pad(item, (0, longest - len(item)), value=fill) for item in tensors])

        ids = block("input_ids", self._pad_id, torch.long)
        lengths = torch.tensor([len(row["input_ids"]) for row in rows])
        return {
            "input_ids": ids,
            "attention_mask": (torch.arange(longest)[None] < lengths[:, None]).long(),
            "labels": block("labels", IGNORED, torch.long),
            "weights": block("weights", 0.0, torch.float32),
        }


class ByLength(Sampler[int]):
    """Rows of about the same length together, in an order that seed and epoch alone decide.

    A run that goes on in the middle of an epoch then skips exactly the rows that it has learnt.
    """

    POOL = 50
    """Batches among which rows are sorted: the more, the less padding and the less chance."""

    def __init__(self, lengths: Sequence[int], batch: int, seed: int):
        self._lengths, self._batch, self._seed, self._epoch = list(lengths), batch, seed, 0

    def set_epoch(self, epoch: int) -> None:
        """Called by the training loop."""
        self._epoch = epoch

    def __len__(self) -> int:
        return len(self._lengths)

    def __iter__(self) -> Iterator[int]:
        draw = random.Random(row_seed(self._seed, "epoch", self._epoch))
        order = list(range(len(self._lengths)))
        draw.shuffle(order)
        size = self._batch * self.POOL
        pools = [order[start : start + size] for start in range(0, len(order), size)]
        rows = [row for pool in pools for row in sorted(pool, key=lambda row: -self._lengths[row])]
        batches = [rows[start : start + self._batch] for start in range(0, len(rows), self._batch)]
        # A batch that is not full has to be the last: the loader cuts the order into batches again.
        rest = batches.pop() if batches and len(batches[-1]) < self._batch else []
        draw.shuffle(batches)
        return iter([row for batch in [*batches, rest] for row in batch])


class LearntTrainer(SFTTrainer):  # type: ignore[misc]
    """Computes logits at learnt positions only, and counts each by its weight."""

    def _set_signature_columns_if_needed(self) -> None:
        self._signature_columns = ["input_ids", "labels", "weights", "length"]

    def _get_train_sampler(self, train_dataset: Any = None) -> ByLength:
        rows = self.train_dataset if train_dataset is None else train_dataset
        return ByLength(rows["length"], self.args.train_batch_size, self.args.data_seed)

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Weighted negative log-likelihood a learnt token; see `Trainer.compute_loss`."""
        labels, weights = inputs["labels"], inputs["weights"]
        here = {"input_ids": inputs["input_ids"], "attention_mask": inputs["attention_mask"]}
        if self.accelerator.num_processes == 1:
            wanted = labels[:, 1:] != IGNORED
            logits = logits_at(model, here, wanted)
            nll = cross_entropy(logits.float(), labels[:, 1:][wanted], reduction="none")
            total = (nll * weights[:, 1:][wanted]).sum()
        else:
            # Sharded weights can only be used by the whole model's own forward.
            outputs = model(**here, labels=labels, use_cache=False, fused_lm_head=True)
            total = (-outputs.log_probs * weights[:, 1:]).sum()
        count = (labels[:, 1:] != IGNORED).sum() if num_items_in_batch is None else num_items_in_batch
        loss = total / torch.as_tensor(count, device=total.device).clamp(min=1)
        if self.args.average_tokens_across_devices and num_items_in_batch is not None:
            loss = loss * self.accelerator.num_processes
        return (loss, None) if return_outputs else loss

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """TRL's own metrics are not collected here."""
        for metrics in self._metrics.values():
            metrics.clear()
        super().log(logs, start_time)

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """The card is written from the run's manifests, not by the trainer."""


def logits_at(model: Any, inputs: Mapping[str, torch.Tensor], wanted: torch.Tensor) -> torch.Tensor:
    """Logits of chosen positions only, shape [chosen, vocabulary]: most of a small model's work is its vocabulary.

    Args:
        model: a causal model, with or without a PEFT wrapper.
        inputs: `input_ids` and `attention_mask`, shape [rows, tokens].
        wanted: bool, shape [rows, tokens - 1].
    """
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    with torch.autocast(
        inputs["input_ids"].device.type,
        torch.bfloat16,
        enabled=torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled(),
    ):
        hidden = inner.get_decoder()(**inputs, use_cache=False).last_hidden_state[:, :-1]
        logits: torch.Tensor = inner.get_output_embeddings()(hidden[wanted])
    cap = getattr(inner.config, "final_logit_softcapping", None)
    return logits if cap is None else torch.tanh(logits / cap) * cap


class Verdicts:
    """Held-out rows, and how well a model's label tokens tell right steps from wrong ones."""

    def __init__(self, rows: Sequence[Row], labels: Mapping[str, tuple[str, ...]], reader: LabelReader, batch: int):
        self._rows = sorted(rows, key=lambda row: len(row["input_ids"]))
        self._batch = batch
        self._positive = next(iter(labels))
        # The boundary was checked when the rows were made.
        root = reader.paths(labels, "?").nodes[()]
        self._tokens = {label: [token for token, of in root.items() if of == label] for label in labels}

    def look(self, trainer: LearntTrainer) -> dict[str, Any]:
        """One forward pass over the rows: F1 (harmonic mean of the accuracies on right and on wrong steps), AUROC."""
        model = trainer.model_wrapped if trainer.accelerator.num_processes > 1 else trainer.model
        was_training = model.training
        model.eval()
        truths: list[int] = []
        scores: list[float] = []
        with torch.inference_mode(), trainer.compute_loss_context_manager():
            for start in range(0, len(self._rows), self._batch):
                rows = self._rows[start : start + self._batch]
                truth, score = self._scores(trainer, model, rows)
                truths += truth
                scores += score
        model.train(was_training)
        hits = {
            kind: [(score >= 0.5) == bool(kind) for truth, score in zip(truths, scores, strict=True) if truth == kind]
            for kind in (0, 1)
        }
        right, wrong = (sum(hits[kind]) / len(hits[kind]) if hits[kind] else None for kind in (1, 0))
        return {
            "verdicts": len(truths),
            "right_accuracy": right,
            "wrong_accuracy": wrong,
            "verdict_f1": harmonic_mean(right, wrong),
            "verdict_auroc": auroc(truths, scores),
        }

    def _scores(self, trainer: LearntTrainer, model: Any, rows: Sequence[Row]) -> tuple[list[int], list[float]]:
        batch = Collator(0)([{**row, "weights": [0.0] * len(row["input_ids"])} for row in rows])
        device = trainer.accelerator.device
        inputs = {key: batch[key].to(device) for key in ("input_ids", "attention_mask")}
        wanted = torch.zeros_like(inputs["input_ids"][:, 1:], dtype=torch.bool)
        truths: list[int] = []
        for at, row in enumerate(rows):
            for begin, _, label in sorted(row["verdicts"]):
                wanted[at, begin - 1] = True
                truths.append(int(label == self._positive))
        if trainer.accelerator.num_processes == 1:
            logits = logits_at(model, inputs, wanted)
        else:
            logits = model(**inputs, use_cache=False).logits[:, :-1][wanted]
        sums = {label: logits[:, ids].float().logsumexp(-1) for label, ids in self._tokens.items()}
        positive = sums[self._positive]
        others = torch.stack([value for label, value in sums.items() if label != self._positive]).logsumexp(0)
        return truths, torch.sigmoid(positive - others).tolist()


class Watch(TrainerCallback):  # type: ignore[misc]
    """Writes `loss.jsonl`, looks at the held-out verdicts, keeps the best weights and may end the training."""

    def __init__(
        self,
        trainer: LearntTrainer,
        verdicts: Verdicts | None,
        settings: TrainConfig,
        folder: Path,
        past: Sequence[Mapping[str, Any]],
        expect: Callable[[int], None],
        advance: Callable[[], None],
    ):
        self._trainer, self._verdicts, self._settings, self._folder = trainer, verdicts, settings, folder
        self._expect, self._advance = expect, advance
        self._looks = [dict(item) for item in past if "verdicts" in item]
        self._started = time.monotonic()
        self.stopped = False

    @property
    def best(self) -> dict[str, Any] | None:
        """The best look so far; of equals the first."""
        return max(self._looks, key=_quality, default=None)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """A look at the untrained model, so that the curve has its beginning."""
        self._expect(state.max_steps)
        for _step in range(state.global_step):
            self._advance()
        if state.global_step == 0:
            self._look(0)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Look where it is time."""
        self._advance()
        step = state.global_step
        if self._verdicts is None or (step % self._settings.eval_steps and step != state.max_steps):
            return
        if self._look(step):
            # The checkpoint of the same step: a killed run then finds the weights that it remembers as the best.
            control.should_save = True
        patience = self._settings.patience
        best = self.best
        since = [item for item in self._looks if best is not None and item["step"] > best["step"]]
        if patience is not None and len(since) >= patience:
            self.stopped = True
            control.should_training_stop = True

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, float] | None = None, **_: Any) -> None:
        """A line for each step's loss."""
        if logs and "loss" in logs:
            names = ("loss", "grad_norm", "learning_rate", "epoch")
            self._write({"step": state.global_step, **{name: logs[name] for name in names if name in logs}})

    def _look(self, step: int) -> bool:
        """Look, and keep the weights where they are the best; True where they are. The untrained are never kept."""
        if self._verdicts is None:
            return False
        found = {"step": step, **self._verdicts.look(self._trainer)}
        before = self.best if step else None
        self._write(found)
        if not step:
            return False
        self._looks.append(found)
        if before is not None and _quality(found) <= _quality(before):
            return False
        self._trainer.save_model(str(self._folder / BEST))
        return True

    def _write(self, line: Mapping[str, Any]) -> None:
        if self._trainer.accelerator.is_main_process:
            shown = {**line, "seconds": round(time.monotonic() - self._started, 1)}
            with (self._folder / LOSSES).open("a", encoding="utf-8") as file:
                file.write(json.dumps(shown) + "\n")


def _quality(look: Mapping[str, Any]) -> float:
    """What the best weights are chosen by; AUROC breaks ties of F1, and stands in where only one kind is held out."""
    f1, ranking = look.get("verdict_f1"), look.get("verdict_auroc") or 0.0
    if f1 is None:
        known = [value for value in (look.get("right_accuracy"), look.get("wrong_accuracy")) if value is not None]
        f1 = sum(known) / len(known) if known else 0.0
    return float(f1) + 1e-6 * float(ranking)


def _arguments(
    settings: TrainConfig, folder: Path, seed: int, device: torch.device, dtype: torch.dtype, eos: str
) -> SFTConfig:
    return SFTConfig(
        output_dir=str(folder / CHECKPOINTS),
        per_device_train_batch_size=settings.batch,
        gradient_accumulation_steps=settings.accumulate,
        num_train_epochs=settings.epochs,
        max_steps=settings.max_steps or -1,
        learning_rate=settings.learning_rate,
        # Below 1 a share of all steps.
        warmup_steps=settings.warmup_ratio if settings.warmup_ratio < 1 else 0,
        lr_scheduler_type=settings.schedule,
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.max_grad_norm,
        bf16=dtype == torch.bfloat16,
        use_cpu=device.type == "cpu",
        gradient_checkpointing=settings.gradient_checkpointing,
        dataset_kwargs={"skip_prepare_dataset": True},
        max_length=None,
        packing=False,
        remove_unused_columns=False,
        shuffle_dataset=False,
        dataloader_pin_memory=device.type == "cuda",
        save_strategy="steps",
        save_steps=settings.save_steps,
        save_total_limit=settings.keep_checkpoints,
        eval_strategy="no",
        logging_strategy="steps",
        logging_steps=1,
        report_to="none",
        disable_tqdm=True,
        log_level="error",
        seed=seed,
        data_seed=seed,
        eos_token=eos,
    )


def _lora(settings: TrainConfig) -> Any:
    if settings.method == "full":
        return None
    from peft import LoraConfig

    targets = settings.lora_targets
    return LoraConfig(
        r=settings.lora_rank,
        lora_alpha=settings.lora_alpha,
        lora_dropout=settings.lora_dropout,
        target_modules=targets if isinstance(targets, str) else list(targets),
        task_type="CAUSAL_LM",
    )


def _example(row: Row, verdict_weight: float) -> dict[str, Any]:
    weights = [0.0 if label == IGNORED else 1.0 for label in row["labels"]]
    for begin, end, _ in row.get("verdicts") or ():
        weights[begin:end] = [verdict_weight] * (end - begin)
    return {
        "input_ids": row["input_ids"],
        "labels": row["labels"],
        "weights": weights,
        "length": len(row["input_ids"]),
    }


def _pad_id(tokenizer: Any) -> int:
    """Any id will do: what is padded is masked by place, not by id."""
    return int(tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id or 0)


def _keep(folder: Path, tokenizer: Any, name_of_base: str) -> None:
    """The best weights become `final`, with the tokenizer and without what only the trainer needs."""
    final = folder / FINAL
    scratch = folder / f".{FINAL}"
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(folder / BEST, scratch)
    for name in ("training_args.bin", "README.md"):
        (scratch / name).unlink(missing_ok=True)
    adapter = scratch / SETTINGS
    if adapter.is_file():
        # The model's name, not the place where it lay on this machine.
        settings = {**json.loads(adapter.read_text(encoding="utf-8")), "base_model_name_or_path": name_of_base}
        replace_file(adapter, json.dumps(settings, indent=2, sort_keys=True).encode() + b"\n")
    tokenizer.save_pretrained(scratch)
    shutil.rmtree(final, ignore_errors=True)
    scratch.rename(final)
