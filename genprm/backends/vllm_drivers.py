"""How a vLLM engine is driven: its asynchronous one on a loop of its own, or a caller's offline `LLM`.

Both give out seats, and a seat answers one request after another. A dead or silent engine is an error that is said
once in one line, to all that wait and all that come later; nothing waits for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import asynccontextmanager
from typing import Any

from ..config import BackendConfig
from ..errors import BackendUnavailable, ModelUnavailable
from .kv import Ids
from .lockstep import LockStep

# An engine that has been told to end gets this long before its processes are left to the operating system.
CLOSE_SECONDS = 20.0


class AsyncDriver:
    """vLLM's asynchronous engine on an event loop of its own, so that any loop and thread may ask it."""

    def __init__(self, arguments: Callable[[], Any], config: BackendConfig):
        self._arguments, self._config = arguments, config
        self._engine: Any = None
        self._lora: Any = None
        self._dead: str | None = None
        self._numbers = itertools.count()
        self._heard = time.monotonic()
        self._open = 0
        self._probe: asyncio.Future[Any] | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="genprm-vllm", daemon=True)
        self._thread.start()

    def start(self) -> tuple[Any, int]:
        """Start the engine; returns its tokenizer and context."""
        tokenizer, max_context = self._wait(self._start())
        return tokenizer, int(max_context)

    async def _start(self) -> tuple[Any, int]:
        from vllm.v1.engine.async_llm import AsyncLLM

        try:
            engine_args = self._arguments()
            self._engine = AsyncLLM.from_engine_args(engine_args)
            if self._config.lora:
                from vllm.lora.request import LoRARequest

                self._lora = LoRARequest("adapter", 1, self._config.lora)
        except (OSError, FileNotFoundError) as error:
            raise ModelUnavailable(f"vLLM cannot load the model: {_first_line(error)}") from error
        except Exception as error:
            raise BackendUnavailable(f"vLLM's engine does not start: {_first_line(error)}") from error
        tokenizer = self._engine.get_tokenizer()
        if asyncio.iscoroutine(tokenizer):
            tokenizer = await tokenizer
        return tokenizer, int(self._engine.model_config.max_model_len)

    @asynccontextmanager
    async def seat(self, _number: int) -> AsyncIterator[Callable[[Ids, Any], Awaitable[Any]]]:
        """Asks the engine from the caller's own event loop."""

        async def complete(ids: Ids, params: Any) -> Any:
            future = asyncio.run_coroutine_threadsafe(self._complete(ids, params), self._loop)
            return await asyncio.wrap_future(future)

        yield complete

    async def _complete(self, ids: Ids, params: Any) -> Any:
        if self._dead is not None:
            raise BackendUnavailable(self._dead)
        if not self._open:
            self._heard = time.monotonic()  # nothing was asked, so silence until now says nothing
        self._open += 1
        answer = asyncio.ensure_future(self._ask(ids.tolist(), params))
        try:
            while not answer.done():
                await asyncio.wait([answer], timeout=min(1.0, self._config.stall_seconds / 4))
                if not answer.done():
                    self._check(ids)
            return answer.result()
        except BackendUnavailable:
            raise
        except Exception as error:
            if self._engine is None or self._engine.errored:
                self._dead = self._dead or f"vLLM's engine has died: {_first_line(error)}"
                raise BackendUnavailable(self._dead) from error
            raise BackendUnavailable(f"vLLM refused a request: {_first_line(error)}") from error
        finally:
            self._open -= 1
            if not answer.done():
                # The engine drops a request whose asker is cancelled; a dead one may never say so.
                answer.cancel()
                await asyncio.wait([answer], timeout=1.0)

    async def _ask(self, ids: list[int], params: Any) -> Any:
        from vllm.inputs import tokens_input
        from vllm.sampling_params import RequestOutputKind

        params.output_kind = RequestOutputKind.FINAL_ONLY
        identity = f"genprm-{next(self._numbers)}"
        prompt = tokens_input(prompt_token_ids=ids)
        stream = self._engine.generate(prompt, params, identity, lora_request=self._lora)
        result = await _last(stream)
        self._heard = time.monotonic()
        return result

    def _check(self, ids: Ids) -> None:
        """Raise where the engine is dead or has been silent for too long while it has work."""
        if self._dead is None and self._engine.errored:
            self._dead = "vLLM's engine has died"
        silent = time.monotonic() - self._heard
        if self._dead is None and silent > self._config.stall_seconds:
            self._dead = f"vLLM's engine has given nothing for {silent:.0f} s (backend.stall_seconds)"
        if self._dead is not None:
            raise BackendUnavailable(self._dead)
        if silent > self._config.stall_seconds / 2 and (self._probe is None or self._probe.done()):
            # A long critique is silent until its end; a living engine answers one token beside it.
            from vllm import SamplingParams

            self._probe = asyncio.ensure_future(self._ask([int(ids[0])], SamplingParams(max_tokens=1, temperature=0.0)))

    def _wait(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def close(self) -> None:
        """End the engine and its loop; one that does not end in time is left to the operating system."""
        if self._loop.is_closed():
            return
        engine, self._engine = self._engine, None
        self._dead = self._dead or "the engine is closed"
        if engine is not None:
            with contextlib.suppress(Exception):
                asyncio.run_coroutine_threadsafe(self._silence(engine), self._loop).result(CLOSE_SECONDS)
            # A dead engine may hang its own shutdown.
            ending = threading.Thread(target=engine.shutdown, daemon=True)
            ending.start()
            ending.join(CLOSE_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()

    async def _silence(self, engine: Any) -> None:
        """End the task that listens to the engine, which would report the engine's end as its death."""
        tasks = [task for task in (engine.output_handler, self._probe) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class OfflineDriver:
    """A caller's `LLM`, whose `generate` takes whole batches: all open seats' requests go in together."""

    def __init__(self, llm: Any):
        self._llm = llm
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="genprm-vllm")
        self._loops: dict[int, LockStep[tuple[Ids, Any]]] = {}

    @asynccontextmanager
    async def seat(self, _number: int) -> AsyncIterator[Callable[[Ids, Any], Awaitable[Any]]]:
        """Asks together with all other open seats of this event loop."""
        loop = id(asyncio.get_running_loop())
        lockstep = self._loops.setdefault(loop, LockStep(self._run, self._executor))
        slot = lockstep.open()
        waiting = asyncio.Lock()

        async def complete(ids: Ids, params: Any) -> Any:
            async with waiting:  # a seat asks one thing at a time
                return await lockstep.ask(slot, (ids, params))

        try:
            yield complete
        finally:
            lockstep.leave(slot)

    def _run(self, requests: Sequence[tuple[Ids, Any]]) -> Sequence[Any]:
        from vllm import TokensPrompt

        prompts = [TokensPrompt(prompt_token_ids=ids.tolist()) for ids, _ in requests]
        params = [wanted for _, wanted in requests]
        outputs: Future[Any] = Future()

        def generate() -> None:
            try:
                outputs.set_result(self._llm.generate(prompts, params, use_tqdm=False))
            except BaseException as error:
                outputs.set_exception(error)

        # `generate` waits for ever for an engine that was killed: in a thread that nothing waits for in turn.
        threading.Thread(target=generate, name="genprm-vllm-generate", daemon=True).start()
        while not wait([outputs], timeout=1.0).done:
            if self._is_dead():
                raise BackendUnavailable("vLLM's engine has died")
        try:
            return list(outputs.result())
        except Exception as error:
            said = "has died" if self._is_dead() else f"has failed: {_first_line(error)}"
            raise BackendUnavailable(f"vLLM's engine {said}") from error

    def _is_dead(self) -> bool:
        # An engine inside this very process has no such resources, and dies with it.
        resources = getattr(self._llm.llm_engine.engine_core, "resources", None)
        return bool(getattr(resources, "engine_dead", False))

    def close(self) -> None:
        """The `LLM` is the caller's; only this object's thread ends."""
        self._executor.shutdown(wait=True, cancel_futures=True)


async def _last(stream: AsyncIterator[Any]) -> Any:
    results = [result async for result in stream]
    if not results:
        raise BackendUnavailable("vLLM ended a request without an answer")
    return results[-1]


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
