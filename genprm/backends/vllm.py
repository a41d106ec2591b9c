"""vLLM in this process: its asynchronous engine, or a caller's own `LLM`.

Prompts go in as token ids, so that nothing is templated twice. Labels are read by `logprob_token_ids`, which gives
full-vocabulary values whatever the sampling parameters are; the fallback through structured outputs gives the same
probabilities but no mass. A dead or silent engine is an error, never a verdict, and never waited for for ever.

On CPU a sampled request with a seed of its own kills vLLM's engine, so there none is sent: there only greedy
critiques can be reproduced.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self

from ..config import BackendConfig
from ..errors import BackendUnavailable
from ..labels import LabelPaths, LabelReader, Path
from ..models import offline
from ..prompting import Prompt
from ..rendering import ChatRenderer
from .base import Finish, Generation, LabelReading, Labels, SamplingParams
from .fitting import fit, fit_writing, said_by_context
from .kv import Ids
from .vllm_drivers import AsyncDriver, OfflineDriver

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# What vLLM takes in one request.
MAX_TOKEN_IDS = 128
SETTINGS = {
    "VLLM_CPU_NUM_OF_RESERVED_CPU": "0",
    "VLLM_CPU_KVCACHE_SPACE": "2",
    # vLLM logs to standard output, which holds results and nothing else.
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "VLLM_LOGGING_LEVEL": "WARNING",
}


class VllmBackend:
    """One vLLM engine with one model in it."""

    def __init__(
        self,
        driver: AsyncDriver | OfflineDriver,
        tokenizer: PreTrainedTokenizerBase,
        *,
        name: str,
        max_context: int,
        config: BackendConfig | None = None,
    ):
        """Wrap a running engine; `load` and `from_vllm` are how one is usually made."""
        from vllm.platforms import current_platform

        self.config = config or BackendConfig(kind="vllm")
        self.model = name
        self.driver = driver
        self.renderer = ChatRenderer(tokenizer, self.config.template_kwargs)
        self.labels = LabelReader(tokenizer)
        self.max_context = min(self.config.max_context or max_context, max_context)
        self.seeds = not current_platform.is_cpu()
        self.end_tokens = sorted({int(i) for i in tokenizer.convert_tokens_to_ids(list(self.renderer.special))})
        self._slots = itertools.count()

    @classmethod
    def load(cls, source: str, *, name: str | None = None, config: BackendConfig | None = None) -> Self:
        """Start an engine on a local folder or a hub id.

        Raises:
            BackendUnavailable: vLLM is not installed, or its engine does not start.
            ModelUnavailable: the model's files cannot be found or read.
        """
        config = config or BackendConfig(kind="vllm")
        _prepare_environment()
        try:
            from vllm import AsyncEngineArgs
        except ImportError as error:
            raise BackendUnavailable(
                f"vLLM cannot be imported ({error}); install it with `pip install 'genprm[vllm]'`, "
                "or use another backend"
            ) from error
        lora: dict[str, Any] = {"enable_lora": True} if config.lora else {}
        arguments: dict[str, Any] = {
            "model": source,
            "dtype": config.dtype,
            "max_model_len": config.max_context,
            "enable_prefix_caching": True,
            "tensor_parallel_size": config.tensor_parallel,
            "pipeline_parallel_size": config.pipeline_parallel,
            "quantization": config.quantization,
            "gpu_memory_utilization": config.gpu_memory_utilization,
            "disable_log_stats": True,
            **lora,
            **config.engine_args,
        }
        arguments = {key: value for key, value in arguments.items() if value is not None}
        driver = AsyncDriver(lambda: AsyncEngineArgs(**arguments), config)
        try:
            tokenizer, max_context = driver.start()
        except BaseException:
            driver.close()
            raise
        return cls(driver, tokenizer, name=name or source, max_context=max_context, config=config)

    @classmethod
    def from_vllm(cls, llm: Any, *, name: str | None = None, config: BackendConfig | None = None) -> Self:
        """Wrap the caller's own offline `vllm.LLM`; it is not ended with this object."""
        model = llm.llm_engine.model_config
        driver = OfflineDriver(llm)
        return cls(
            driver, llm.get_tokenizer(), name=name or model.model, max_context=model.max_model_len, config=config
        )

    @asynccontextmanager
    async def work(self) -> AsyncIterator[None]:
        """The engine keeps its own prefix cache."""
        yield

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[VllmSlot]:
        """A seat; the engine batches by itself."""
        async with self.driver.seat(next(self._slots)) as complete:
            yield VllmSlot(self, complete)

    def close(self) -> None:
        """End the engine; safe to call twice."""
        self.driver.close()


class VllmSlot:
    """One critique's seat."""

    def __init__(self, backend: VllmBackend, complete: Callable[[Ids, Any], Awaitable[Any]]):
        self._backend, self._complete = backend, complete

    async def generate(self, prompt: Prompt, params: SamplingParams) -> Generation:
        """Continue the assistant's turn; see `Slot.generate`."""
        from vllm import SamplingParams as VllmParams

        backend = self._backend
        ids, params, bounded = fit_writing(backend.renderer, prompt, params, backend.max_context)
        wanted = VllmParams(
            max_tokens=params.max_tokens,
            temperature=params.temperature,
            top_p=params.top_p,
            top_k=params.top_k or -1,
            stop=list(params.stop),
            stop_token_ids=backend.end_tokens,
            seed=params.seed if backend.seeds else None,
        )
        answer = (await self._complete(ids, wanted)).outputs[0]
        stop = answer.stop_reason if answer.stop_reason in params.stop else None
        finish: Finish = "length" if answer.finish_reason == "length" else "stop" if stop else "eos"
        text = backend.renderer.clean(answer.text).rstrip("\ufffd")
        return said_by_context(Generation(text, finish, stop, len(ids), len(answer.token_ids)), bounded)

    async def read_label(self, prompt: Prompt, labels: Labels, boundary: str) -> LabelReading:
        """Read the label distribution; see `Slot.read_label`."""
        backend = self._backend
        paths = backend.labels.paths(labels, boundary)
        ids = fit(backend.renderer, prompt, backend.max_context, 1 + max(len(path) for path in paths.nodes))
        if backend.config.label_read == "constrained":
            return await self._constrained(ids, paths)
        logs = await asyncio.gather(*(self._node(ids, path, list(tokens)) for path, tokens in paths.nodes.items()))
        reading = paths.read(dict(zip(paths.nodes, logs, strict=True)))
        return LabelReading(reading.probs, reading.mass, len(ids))

    async def _node(self, ids: Ids, path: Path, tokens: Sequence[int]) -> dict[int, float]:
        """Full-vocabulary log-probabilities at one node, in as many requests as its tokens need."""
        from vllm import SamplingParams as VllmParams

        found: dict[int, float] = {}
        for start in range(0, len(tokens), MAX_TOKEN_IDS):
            part = list(tokens[start : start + MAX_TOKEN_IDS])
            params = VllmParams(max_tokens=1, temperature=0.0, logprob_token_ids=part, detokenize=False)
            answer = (await self._complete(_behind(ids, path), params)).outputs[0]
            values = answer.logprobs[0]
            found.update({token: float(values[token].logprob) for token in part})
        return found

    async def _constrained(self, ids: Ids, paths: LabelPaths) -> LabelReading:
        """The fallback: the constraint itself masks the engine's log-probabilities, so that no mass is left to see."""
        from vllm import SamplingParams as VllmParams
        from vllm.sampling_params import StructuredOutputsParams

        logs: dict[Path, dict[int, float]] = {}
        for path, tokens in paths.nodes.items():
            # Behind a begun label the constraint is what may still follow it.
            tokenizer = self._backend.renderer.tokenizer
            allowed = [tokenizer.decode([token]) for token in tokens]
            params = VllmParams(
                max_tokens=1,
                temperature=0.0,
                logprobs=min(len(tokens), 20),
                structured_outputs=StructuredOutputsParams(choice=allowed),
                detokenize=False,
            )
            values = (await self._complete(_behind(ids, path), params)).outputs[0].logprobs[0]
            logs[path] = {token: float(values[token].logprob) if token in values else -math.inf for token in tokens}
        return LabelReading(paths.read(logs).probs, None, len(ids))


def _behind(ids: Ids, path: Path) -> Ids:
    import numpy as np

    return np.concatenate([ids, np.asarray(path, dtype=np.int64)])


def _prepare_environment() -> None:
    """Settings that vLLM reads at import, where the user has not set them."""
    for key, value in SETTINGS.items():
        os.environ.setdefault(key, value)
    if offline():
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
