"""The shapes in which OpenAI-style servers are asked and answer. Knows no connection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..prompting import Prompt
from ..text import neutralise
from .base import Finish, SamplingParams

# Control tokens' usual spellings, broken in text for servers whose tokenizer is not known here.
COMMON_SPECIAL = (
    *("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|begin_of_text|>", "<|eot_id|>"),
    *("<|start_header_id|>", "<|end_header_id|>", "<start_of_turn>", "<end_of_turn>"),
    *("<s>", "</s>", "[INST]", "[/INST]", "<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>"),
)


def messages(prompt: Prompt, prefill: str) -> dict[str, Any]:
    """A chat request whose last message is the answer so far, in the way that this server continues one."""
    turns = [{"role": m.role, "content": neutralise(m.content, COMMON_SPECIAL)} for m in prompt.messages]
    if not prompt.prefix:
        return {"messages": turns}
    prefix = neutralise(prompt.prefix, COMMON_SPECIAL)
    if prefill == "ask":
        ask = f"Go on exactly where this answer ends, and write nothing else:\n\n{prefix}"
        return {"messages": [*turns, {"role": "user", "content": ask}]}
    begun: dict[str, Any] = {"role": "assistant", "content": prefix}
    if prefill == "prefix":
        begun["prefix"] = True
    continued = {"continue_final_message": True, "add_generation_prompt": False} if prefill == "continue" else {}
    return {"messages": [*turns, begun], **continued}


def finish_of(choice: Mapping[str, Any], params: SamplingParams) -> tuple[Finish, str | None]:
    """How a stretch ended; `stop_reason` is vLLM's own, or what was found in a stream."""
    if choice.get("finish_reason") == "length":
        return "length", None
    stop = choice.get("stop_reason")
    return ("stop", stop) if isinstance(stop, str) and stop in params.stop else ("eos", None)


def first_top(choice: Mapping[str, Any]) -> dict[str, float]:
    """Token text -> log-probability at the first position, from either API's shape."""
    logs = choice.get("logprobs") or {}
    if isinstance(logs.get("content"), list) and logs["content"]:
        return {str(item["token"]): float(item["logprob"]) for item in logs["content"][0].get("top_logprobs") or []}
    first = (logs.get("top_logprobs") or [{}])[0] or {}
    return {str(token): float(log) for token, log in first.items()}
