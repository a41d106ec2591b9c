"""A model behind an OpenAI-style server.

A vLLM server is read exactly: token-id prompts on `/completions`, labels by `logprob_token_ids`. Any other server is
asked with text, and labels come from its `top_logprobs`, with bounds for what is not among them (`bounds`). Such a
server does not say which stop string it met, so it streams, and the stop strings are found here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, Self

from ..config import BackendConfig, Config
from ..errors import BackendUnavailable, ConfigError, ContextOverflow, ModelUnavailable, Unscored
from ..labels import LabelReader, Path
from ..models import MODELS, resolve
from ..prompting import Prompt
from ..rendering import ChatRenderer
from ..text import neutralise
from .base import Generation, LabelReading, Labels, SamplingParams, ServerState
from .bounds import bounded_labels
from .endpoints import Endpoints, Refused
from .fitting import fit, fit_writing, said_by_context
from .wire import COMMON_SPECIAL, finish_of, first_top, messages

Say = Callable[[str], None]
MAX_TOKEN_IDS = 128
# How servers say that a prompt does not fit.
CONTEXT_WORDS = ("context length", "context_length", "maximum context", "context size", "too long")
# Told apart by every two tokenizers that are not one: special tokens, digits, spaces, other scripts.
PROBE = "Is 12345 + 678 right?\n\n```python\nprint(1)  # naïve é 漢\n```\n<|im_end|></s> $\\boxed{Yes}$"


class OpenAIBackend:
    """One model behind one or several servers."""

    def __init__(
        self,
        endpoints: Endpoints,
        *,
        model: str,
        api: str,
        config: BackendConfig,
        tokenizer: Any = None,
        max_context: int | None = None,
        seeds: bool = True,
        threshold: float = 0.5,
    ):
        """Wrap endpoints whose kind is known; `connect` finds it out.

        Args:
            endpoints: where to ask.
            model: the served name.
            api: `vllm`, `completions` or `chat`.
            config: limits and the rest.
            tokenizer: needed for `vllm` and `completions`; None for `chat`.
            max_context: tokens; None = the server says when a prompt is too long.
            seeds: False where a seed of a request's own must not be sent.
            threshold: where a verdict turns, for bounds that may leave it open.
        """
        self.endpoints, self.model, self.api, self.config = endpoints, model, api, config
        self.renderer = None if tokenizer is None else ChatRenderer(tokenizer, config.template_kwargs)
        self.labels = None if tokenizer is None else LabelReader(tokenizer)
        self.max_context = max_context or config.max_context or 2**31
        self.seeds, self.threshold = seeds, threshold
        self._works: dict[int, int] = {}

    @classmethod
    def connect(cls, config: Config, say: Say = lambda _: None) -> Self:
        """Ask the server what it serves and how it can be read.

        Raises:
            BackendUnavailable: no address, no answer, or a model that is not served.
            ModelUnavailable: its tokenizer cannot be found.
        """
        with ThreadPoolExecutor(1) as thread:  # there may be an event loop in this one
            return thread.submit(asyncio.run, cls._connect(config, say)).result()

    @classmethod
    async def _connect(cls, config: Config, say: Say) -> Self:
        backend = config.backend
        endpoints = Endpoints(backend)
        try:
            return await cls._recognise(endpoints, config, say)
        finally:
            await endpoints.close()

    @classmethod
    async def _recognise(cls, endpoints: Endpoints, config: Config, say: Say) -> Self:
        backend = config.backend
        try:
            served = (await endpoints.get("/models")).get("data") or []
        except Refused:
            if config.model == "auto":
                raise
            served = []  # not every service lists what it serves
        names = [str(entry.get("id")) for entry in served if isinstance(entry, dict)]
        entry = next((item for item in served if item.get("id") == config.model), None)
        if entry is None and config.model != "auto":
            root = next((item for item in served if item.get("root") == config.model), None)
            if root is None and names:
                raise BackendUnavailable(f"{endpoints.urls[0]} serves {', '.join(names)}, not {config.model!r}")
            entry = root
        entry = entry or (served[0] if served else {"id": config.model})
        is_vllm = entry.get("owned_by") == "vllm"
        api = backend.api if backend.api != "auto" else "vllm" if is_vllm else "chat"
        tokenizer = None
        if api in ("vllm", "completions"):
            name = backend.tokenizer or str(entry.get("root") or entry["id"])
            tokenizer = _tokenizer(name, say)
            if api == "vllm":
                await _check_tokenizer(endpoints, str(entry["id"]), name, tokenizer)
        return cls(
            endpoints,
            model=str(entry["id"]),
            api=api,
            config=backend,
            tokenizer=tokenizer,
            max_context=min((size for size in (entry.get("max_model_len"), backend.max_context) if size), default=None),
            # A vLLM server does not say whether it runs on CPU, where a seeded request would kill its engine.
            seeds=backend.send_seed == "always" or (backend.send_seed == "auto" and not is_vllm),
            threshold=config.verify.threshold,
        )

    @property
    def retries(self) -> int:
        """Attempts after the first, so far."""
        return self.endpoints.traffic.retries

    @asynccontextmanager
    async def work(self) -> AsyncIterator[None]:
        """Connections stay open for as long as there is work."""
        loop = id(asyncio.get_running_loop())
        self._works[loop] = self._works.get(loop, 0) + 1
        if len(self.endpoints.urls) > 1:
            self.endpoints.begin_checks(self.model)
        try:
            yield
        finally:
            self._works[loop] -= 1
            if not self._works[loop]:
                del self._works[loop]
                await self.endpoints.close()

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[None]:
        """Check the servers at intervals, however few they are; see `Watched.watch`."""
        async with self.work():
            self.endpoints.begin_checks(self.model)
            yield

    def servers(self) -> list[ServerState]:
        """How the servers fare."""
        return self.endpoints.states()

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[OpenAISlot]:
        """A seat; the server batches by itself."""
        yield OpenAISlot(self)

    def close(self) -> None:
        """Nothing is held between stretches of work."""


class OpenAISlot:
    """One critique's seat."""

    def __init__(self, backend: OpenAIBackend):
        self._backend = backend

    async def generate(self, prompt: Prompt, params: SamplingParams) -> Generation:
        """Continue the assistant's turn; see `Slot.generate`."""
        backend = self._backend
        bounded, ids = False, None
        if backend.renderer is not None:
            ids, params, bounded = fit_writing(backend.renderer, prompt, params, backend.max_context)
        body: dict[str, Any] = {
            "max_tokens": params.max_tokens,
            "temperature": params.temperature,
            "top_p": params.top_p,
            "stop": list(params.stop),
        }
        if params.seed is not None and backend.seeds:
            body["seed"] = params.seed % 2**63
        if backend.api == "vllm":
            body |= {"prompt": _plain(ids), "top_k": params.top_k or -1}
        choice, usage = await self._ask(prompt, body, stream=backend.api != "vllm" and bool(params.stop))
        text = str(choice.get("text") if "text" in choice else (choice.get("message") or {}).get("content") or "")
        finish, stop = finish_of(choice, params)
        clean = backend.renderer.clean(text) if backend.renderer is not None else neutralise(text, COMMON_SPECIAL)
        counted = int(usage.get("completion_tokens") or 0)
        prompt_tokens = int(usage.get("prompt_tokens") or 0)
        return said_by_context(Generation(clean.rstrip("\ufffd"), finish, stop, prompt_tokens, counted), bounded)

    async def read_label(self, prompt: Prompt, labels: Labels, boundary: str) -> LabelReading:
        """Read the label distribution; see `Slot.read_label`."""
        backend = self._backend
        if backend.api == "vllm" and backend.labels is not None and backend.renderer is not None:
            paths = backend.labels.paths(labels, boundary)
            longest = max(len(path) for path in paths.nodes)
            ids = fit(backend.renderer, prompt, backend.max_context, 1 + longest)
            nodes = await asyncio.gather(
                *(self._node([*_plain(ids), *path], list(tokens)) for path, tokens in paths.nodes.items())
            )
            logs: dict[Path, dict[int, float]] = dict(zip(paths.nodes, nodes, strict=True))
            reading = paths.read(logs)
            return LabelReading(reading.probs, reading.mass, len(ids))
        return await self._from_top(prompt, labels)

    async def _node(self, ids: list[int], tokens: Sequence[int]) -> dict[int, float]:
        """Full-vocabulary log-probabilities of some tokens behind a token-id prompt."""
        found: dict[int, float] = {}
        for start in range(0, len(tokens), MAX_TOKEN_IDS):
            part = list(tokens[start : start + MAX_TOKEN_IDS])
            body = {
                "prompt": ids,
                "max_tokens": 1,
                "temperature": 0.0,
                "logprobs": len(part),
                "logprob_token_ids": part,
                "return_tokens_as_token_ids": True,
            }
            choice, _ = await self._ask(None, body)
            shown = ((choice.get("logprobs") or {}).get("top_logprobs") or [{}])[0] or {}
            by_id = {int(key.removeprefix("token_id:")): float(value) for key, value in shown.items()}
            if missing := [token for token in part if token not in by_id]:
                raise BackendUnavailable(
                    f"{self._backend.endpoints.urls[0]} gave no log-probability for the tokens {missing}: "
                    "it does not know `logprob_token_ids`; set backend.api=chat or completions"
                )
            found.update({token: by_id[token] for token in part})
        return found

    async def _from_top(self, prompt: Prompt, labels: Labels) -> LabelReading:
        """Labels from the likeliest tokens that the server shows, with bounds for what it does not show."""
        count = self._backend.config.top_logprobs
        body: dict[str, Any] = {"max_tokens": 1, "temperature": 0.0}
        body |= {"logprobs": True, "top_logprobs": count} if self._backend.api == "chat" else {"logprobs": count}
        choice, usage = await self._ask(prompt, body)
        shown = first_top(choice)
        if not shown:
            raise Unscored("the server shows no log-probabilities, without which a label cannot be read")
        read = bounded_labels(shown, labels, self._backend.threshold)
        return LabelReading(read.probs, read.mass, int(usage.get("prompt_tokens") or 0), "top_k", read.slack)

    async def _ask(
        self, prompt: Prompt | None, body: dict[str, Any], stream: bool = False
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """One call; a prompt that is not token ids yet is rendered as this server wants it."""
        backend = self._backend
        path = "/chat/completions" if backend.api == "chat" else "/completions"
        if prompt is not None and "prompt" not in body:
            if backend.api == "chat":
                body = {**messages(prompt, backend.config.prefill), **body}
            elif backend.renderer is not None:
                body = {"prompt": backend.renderer.text(prompt), **body}
        size = len(body["prompt"]) if isinstance(body.get("prompt"), list) else len(str(body)) // 4
        asked = {"model": backend.model, **body, **backend.config.extra_body}
        tokens = size + int(body["max_tokens"])
        try:
            if stream:
                answer = await backend.endpoints.stream(path, asked, tokens=tokens)
            else:
                answer = await backend.endpoints.post(path, asked, tokens=tokens, need="choices")
        except Refused as error:
            if any(words in str(error) for words in CONTEXT_WORDS):
                raise ContextOverflow(f"the server says that the prompt is too long: {error}") from None
            raise
        choice = answer["choices"][0]
        if not isinstance(choice, dict):
            raise BackendUnavailable(f"{backend.endpoints.urls[0]}{path}: the answer holds no choice")
        return choice, answer.get("usage") or {"prompt_tokens": size}


def _plain(ids: Any) -> list[int]:
    return [int(token) for token in ids]


async def _check_tokenizer(endpoints: Endpoints, model: str, name: str, tokenizer: Any) -> None:
    """Raise where the server splits text otherwise: token ids would then mean something else there."""
    theirs = await endpoints.try_beside("/tokenize", {"model": model, "prompt": PROBE, "add_special_tokens": False})
    tokens = (theirs or {}).get("tokens")
    if isinstance(tokens, list) and tokens != tokenizer.encode(PROBE, add_special_tokens=False):
        raise ConfigError(
            f"the tokenizer {name!r} splits text otherwise than {endpoints.urls[0]} does: "
            f"name that of {model!r} with --set backend.tokenizer=FOLDER"
        )


def _tokenizer(name: str, say: Say) -> Any:
    from transformers import AutoTokenizer

    source = resolve(name, say) if name in MODELS else name
    try:
        return AutoTokenizer.from_pretrained(source)
    except (OSError, ValueError) as error:
        first = str(error).strip().split("\n", 1)[0]
        raise ModelUnavailable(
            f"the tokenizer {name!r} cannot be loaded ({first}); name it with --set backend.tokenizer=FOLDER"
        ) from error
