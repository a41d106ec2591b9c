"""A model behind an OpenAI-style server.

A vLLM server is read exactly: token-id prompts on `/completions`, labels by `logprob_token_ids`. Any other server is
asked with text, and labels come from its `top_logprobs`: a label's token that is not among them has a probability
between zero and the smallest one shown. Where those bounds leave the verdict open the vote is unscored; otherwise
the middle of the bounds is taken. A guess never stands for a missing number.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, Self

from ..config import BackendConfig, Config
from ..errors import BackendUnavailable, ContextOverflow, ModelUnavailable, Unscored
from ..labels import LabelReader, Path
from ..models import MODELS, resolve
from ..prompting import Prompt
from ..rendering import ChatRenderer
from ..text import neutralise
from .base import Finish, Generation, LabelReading, Labels, SamplingParams
from .endpoints import Endpoints
from .fitting import fit, fit_writing, said_by_context

Say = Callable[[str], None]
MAX_TOKEN_IDS = 128
# Control tokens' usual spellings, broken in text for servers whose tokenizer is not known here.
COMMON_SPECIAL = (
    *("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|begin_of_text|>", "<|eot_id|>"),
    *("<|start_header_id|>", "<|end_header_id|>", "<start_of_turn>", "<end_of_turn>"),
    *("<s>", "</s>", "[INST]", "[/INST]", "<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>"),
)


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
        """
        self.endpoints, self.model, self.api, self.config = endpoints, model, api, config
        self.renderer = None if tokenizer is None else ChatRenderer(tokenizer, config.template_kwargs)
        self.labels = None if tokenizer is None else LabelReader(tokenizer)
        self.max_context = max_context or config.max_context or 2**31
        self.seeds = seeds
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
            served = (await endpoints.get("/models")).get("data") or []
        finally:
            await endpoints.close()
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
            tokenizer = _tokenizer(backend.tokenizer or str(entry.get("root") or entry["id"]), say)
        return cls(
            endpoints,
            model=str(entry["id"]),
            api=api,
            config=backend,
            tokenizer=tokenizer,
            max_context=min((size for size in (entry.get("max_model_len"), backend.max_context) if size), default=None),
            # A vLLM server does not say whether it runs on CPU, where a seeded request would kill its engine.
            seeds=backend.send_seed == "always" or (backend.send_seed == "auto" and not is_vllm),
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
        try:
            yield
        finally:
            self._works[loop] -= 1
            if not self._works[loop]:
                del self._works[loop]
                await self.endpoints.close()

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
        choice, usage = await self._ask(prompt, body)
        text = str(choice.get("text") if "text" in choice else (choice.get("message") or {}).get("content") or "")
        finish, stop = _finish(choice, params)
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
        shown = _shown(choice)
        if not shown:
            raise Unscored("the server shows no log-probabilities, without which a label cannot be read")
        probs, mass = bounded_labels(shown, labels)
        return LabelReading(probs, mass, int(usage.get("prompt_tokens") or 0), source="top_k")

    async def _ask(self, prompt: Prompt | None, body: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """One call; a prompt that is not token ids yet is rendered as this server wants it."""
        backend = self._backend
        path = "/chat/completions" if backend.api == "chat" else "/completions"
        if prompt is not None and "prompt" not in body:
            if backend.api == "chat":
                body = {**_messages(prompt, backend.config.prefill), **body}
            elif backend.renderer is not None:
                body = {"prompt": backend.renderer.text(prompt), **body}
        size = len(body["prompt"]) if isinstance(body.get("prompt"), list) else len(str(body)) // 4
        asked = {"model": backend.model, **body, **backend.config.extra_body}
        try:
            answer = await backend.endpoints.post(path, asked, tokens=size + int(body["max_tokens"]))
        except BackendUnavailable as error:
            if any(
                words in str(error) for words in ("context length", "context_length", "maximum context", "too long")
            ):
                raise ContextOverflow(f"the server says that the prompt is too long: {error}") from None
            raise
        choices = answer.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            raise BackendUnavailable(f"{backend.endpoints.urls[0]}{path}: the answer holds no choice")
        return choices[0], answer.get("usage") or {}


def bounded_labels(shown: Mapping[str, float], labels: Labels) -> tuple[dict[str, float], float]:
    """Label probabilities from some tokens' log-probabilities, where others are not shown.

    Every token that begins a label's spelling (spaces before it aside) counts for the label. What is not shown adds
    to each label something between 0 and the smaller of the smallest probability shown and what is left of 1.

    Args:
        shown: token text -> natural log of its probability.
        labels: label -> spellings; two of them, or the first token must tell them apart.

    Returns:
        Label -> middle of its bounds, and the mass that was seen.

    Raises:
        Unscored: the bounds leave open which label is likelier.
    """
    seen = dict.fromkeys(labels, 0.0)
    for token, log in shown.items():
        text = token.lstrip(" \n▁Ġ")
        fits = [
            label for label, spellings in labels.items() if text and any(s.lstrip().startswith(text) for s in spellings)
        ]
        if len(fits) == 1:
            seen[fits[0]] += math.exp(log)
    mass = min(sum(seen.values()), 1.0)
    rest = max(1.0 - sum(math.exp(log) for log in shown.values()), 0.0)
    hidden = min(rest, math.exp(min(shown.values())))
    ranked = sorted(seen.values(), reverse=True)
    if mass == 0 or ranked[0] <= ranked[1] + hidden:
        raise Unscored(
            f"among the {len(shown)} likeliest tokens that the server shows the labels have "
            f"{', '.join(f'{label} {p:.2g}' for label, p in seen.items())}; up to {hidden:.2g} is hidden, "
            "so that the verdict is open"
        )
    # A label that was seen has its number; the bounds are those of labels of which nothing was shown.
    middle = {label: p if p > 0 else hidden / 2 for label, p in seen.items()}
    total = sum(middle.values())
    return {label: p / total for label, p in middle.items()}, mass


def _messages(prompt: Prompt, prefill: str) -> dict[str, Any]:
    """A chat request whose last message is the answer so far, in the way that this server continues one."""
    messages = [{"role": m.role, "content": neutralise(m.content, COMMON_SPECIAL)} for m in prompt.messages]
    if not prompt.prefix:
        return {"messages": messages}
    prefix = neutralise(prompt.prefix, COMMON_SPECIAL)
    if prefill == "ask":
        ask = f"Go on exactly where this answer ends, and write nothing else:\n\n{prefix}"
        return {"messages": [*messages, {"role": "user", "content": ask}]}
    begun: dict[str, Any] = {"role": "assistant", "content": prefix}
    if prefill == "prefix":
        begun["prefix"] = True
    continued = {"continue_final_message": True, "add_generation_prompt": False} if prefill == "continue" else {}
    return {"messages": [*messages, begun], **continued}


def _finish(choice: Mapping[str, Any], params: SamplingParams) -> tuple[Finish, str | None]:
    """How a stretch ended; servers other than vLLM do not say which stop string it was."""
    if choice.get("finish_reason") == "length":
        return "length", None
    stop = choice.get("stop_reason")
    if isinstance(stop, str) and stop in params.stop:
        return "stop", stop
    if "stop_reason" not in choice and params.stop and choice.get("finish_reason") == "stop":
        # One stop string can be told from the end of the turn no better than this: the part ends either way.
        return ("stop", params.stop[0]) if len(params.stop) == 1 else ("eos", None)
    return "eos", None


def _shown(choice: Mapping[str, Any]) -> dict[str, float]:
    """Token text -> log-probability at the first position, from either API's shape."""
    logs = choice.get("logprobs") or {}
    if isinstance(logs.get("content"), list) and logs["content"]:
        return {str(item["token"]): float(item["logprob"]) for item in logs["content"][0].get("top_logprobs") or []}
    first = (logs.get("top_logprobs") or [{}])[0] or {}
    return {str(token): float(log) for token, log in first.items()}


def _plain(ids: Any) -> list[int]:
    return [int(token) for token in ids]


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
