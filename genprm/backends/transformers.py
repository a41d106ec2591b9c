"""A causal language model from Hugging Face transformers, in this process, on CPU or CUDA.

Puts the synchronous engine behind the asynchronous seam. Same prompts, seeds and limits give the same batches and
so the same numbers; another number of critiques in flight may round differently in the last digits.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch

from ..adapters import apply_adapter
from ..config import BackendConfig
from ..errors import BackendUnavailable
from ..labels import LabelPaths, LabelReader
from ..prompting import Prompt
from ..rendering import ChatRenderer
from .base import Generation, LabelReading, Labels, SamplingParams
from .engine import Engine
from .fitting import fit, fit_writing, said_by_context
from .kv import Ids
from .loading import context_size, load_model, load_tokenizer
from .lockstep import LockStep

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class _Write:
    ids: Ids
    params: SamplingParams


@dataclass(frozen=True, slots=True)
class _Read:
    ids: Ids
    paths: LabelPaths


class TransformersBackend:
    """One model in this process; batches the requests of all open slots."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        name: str | None = None,
        config: BackendConfig | None = None,
    ):
        """Wrap a loaded model.

        Args:
            model: a causal LM whose whole state is attention keys and values; put in evaluation mode here.
            tokenizer: its tokenizer.
            name: what results call the model; None = the folder or hub id that it was loaded from.
            config: batch size, context and memory limits.

        Raises:
            BackendUnavailable: the model keeps other state (a recurrent or hybrid model).
        """
        self.config = config or BackendConfig()
        self.model = name or str(model.config.name_or_path)
        self.renderer = ChatRenderer(tokenizer, self.config.template_kwargs)
        self.labels = LabelReader(tokenizer)
        made_for = context_size(model, tokenizer)
        self.max_context = min(self.config.max_context or made_for, made_for)
        _refuse_recurrent(model)
        model.eval()
        on_cpu = model.device.type == "cpu"
        self.engine = Engine(
            model,
            tokenizer,
            prefix_bytes=self.config.prefix_cache_mb * 2**20,
            prefill_tokens=4096 if on_cpu else 32768,
            end_tokens=_end_tokens(model, tokenizer, self.renderer.special),
        )
        self._works = 0
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="genprm-engine")
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, LockStep[_Write | _Read]] = (
            weakref.WeakKeyDictionary()
        )

    @classmethod
    def from_transformers(cls, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, **kwargs: Any) -> Self:
        """Wrap the caller's own objects; the same as the constructor, by the name users look for."""
        return cls(model, tokenizer, **kwargs)

    @classmethod
    def load(cls, source: str | Path, *, name: str | None = None, config: BackendConfig | None = None) -> Self:
        """Load a local folder or a hub id.

        Raises:
            ModelUnavailable: the files cannot be found or read.
            BackendUnavailable: the device is not there.
        """
        from transformers import AutoModelForCausalLM

        config = config or BackendConfig()
        tokenizer = load_tokenizer(source)
        model = load_model(AutoModelForCausalLM, source, config)
        if config.lora:
            model = apply_adapter(model, config.lora).eval()
        return cls(model, tokenizer, name=name or str(source), config=config)

    @asynccontextmanager
    async def work(self) -> AsyncIterator[None]:
        """Forgets remembered keys at its end: reused keys round differently, and equal work gives equal numbers."""
        self._works += 1
        try:
            yield
        finally:
            self._works -= 1
            if not self._works:
                self._executor.submit(self.engine.store.clear)

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[TransformersSlot]:
        """A seat: batches wait until every open seat asks for something."""
        loop = asyncio.get_running_loop()
        if loop not in self._loops:
            self._loops[loop] = LockStep(self._run, self._executor)
        lockstep = self._loops[loop]
        number = lockstep.open()
        try:
            yield TransformersSlot(self, lockstep, number)
        finally:
            lockstep.leave(number)

    def close(self) -> None:
        """Stop the engine's thread and forget remembered keys; safe to call twice."""
        self._executor.shutdown(wait=True, cancel_futures=True)
        self.engine.store.clear()

    def _run(self, requests: Sequence[_Write | _Read]) -> list[Any]:
        """Answer one lock-step group, in the engine's thread; an answer may be an exception."""
        answers: list[Any] = [None] * len(requests)
        batch = self.config.max_batch
        reads = [place for place, request in enumerate(requests) if isinstance(request, _Read)]
        writes = [place for place, request in enumerate(requests) if isinstance(request, _Write)]
        chunks = [(self._read, reads[start : start + batch]) for start in range(0, len(reads), batch)]
        for run, places in [*chunks, (self._write, writes)]:
            for place, answer in zip(places, self._fitting(run, [requests[i] for i in places]), strict=True):
                answers[place] = answer
        return answers

    def _fitting(self, run: Any, requests: list[Any]) -> list[Any]:
        """Run a chunk; where the device's memory does not hold it, run it in halves."""
        if not requests:
            return []
        try:
            return list(run(requests))
        except torch.OutOfMemoryError as error:
            self.engine.store.clear()
            if len(requests) == 1:
                failure = BackendUnavailable(f"out of memory on {self.engine.device} for one prompt of {self.model!r}")
                failure.__cause__ = error
                return [failure]
        half = len(requests) // 2
        return self._fitting(run, requests[:half]) + self._fitting(run, requests[half:])

    def _write(self, requests: Sequence[_Write]) -> list[Generation]:
        written = self.engine.generate(
            [item.ids for item in requests],
            [item.params for item in requests],
            min(self.config.max_batch, len(requests)),
        )
        return [
            Generation(self.renderer.clean(row.text), row.finish, row.stop, len(item.ids), row.tokens)
            for item, row in zip(requests, written, strict=True)
        ]

    def _read(self, requests: Sequence[_Read]) -> list[LabelReading]:
        logs = self.engine.read_nodes([item.ids for item in requests], [item.paths.nodes for item in requests])
        readings = [item.paths.read(values) for item, values in zip(requests, logs, strict=True)]
        return [
            LabelReading(reading.probs, reading.mass, len(item.ids))
            for item, reading in zip(requests, readings, strict=True)
        ]


class TransformersSlot:
    """One critique's seat."""

    def __init__(self, backend: TransformersBackend, lockstep: LockStep[_Write | _Read], number: int):
        self._backend, self._lockstep, self._number = backend, lockstep, number

    async def generate(self, prompt: Prompt, params: SamplingParams) -> Generation:
        """Continue the assistant's turn; see `Slot.generate`."""
        backend = self._backend
        ids, params, bounded = fit_writing(backend.renderer, prompt, params, backend.max_context)
        answer: Generation = await self._lockstep.ask(self._number, _Write(ids, params))
        return said_by_context(answer, bounded)

    async def read_label(self, prompt: Prompt, labels: Labels, boundary: str) -> LabelReading:
        """Read the label distribution; see `Slot.read_label`."""
        paths = self._backend.labels.paths(labels, boundary)
        longest = max(len(path) for path in paths.nodes)
        ids = fit(self._backend.renderer, prompt, self._backend.max_context, longest)
        reading: LabelReading = await self._lockstep.ask(self._number, _Read(ids, paths))
        return reading


def _end_tokens(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, special: Sequence[str]) -> list[int]:
    """Tokens that end a turn: the declared ones, and every control token, which no critique contains."""
    declared = model.generation_config.eos_token_id if model.generation_config is not None else None
    ends = declared if isinstance(declared, list) else [declared]
    ends += [tokenizer.eos_token_id, *tokenizer.convert_tokens_to_ids(list(special))]
    return [token for token in dict.fromkeys(ends) if token is not None]


def _refuse_recurrent(model: PreTrainedModel) -> None:
    kinds = getattr(model.config.get_text_config(), "layer_types", None) or []
    other = sorted({kind for kind in kinds if "attention" not in kind or "linear" in kind})
    if other or getattr(model, "_is_stateful", False):
        what = ", ".join(other) or type(model).__name__
        raise BackendUnavailable(
            f"this engine reuses attention keys and values; the model also keeps other state ({what}): "
            "run it behind an OpenAI-style server or vLLM"
        )
