"""From conversations to token ids with a Hugging Face tokenizer and its chat template.

Knows chat templates and their quirks; knows no protocol. Special tokens spelled in messages are broken before the
template is applied, so that no text can end a turn.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import jinja2

from .labels import encode
from .prompting import Message, Prompt
from .text import neutralise

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Templates of reasoning models cut everything before this from past turns.
THINK_END = "</think>"
# Rendered conversations and tokenised prompts that are kept for whoever asks next.
CACHED = 256


class ChatRenderer:
    """Renders prompts for one tokenizer."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, template_kwargs: dict[str, Any] | None = None):
        self.tokenizer = tokenizer
        self.template_kwargs = template_kwargs or {}
        # Votes and stretches of one critique ask for the same conversation again and again.
        self._head = lru_cache(CACHED)(self._render_head)
        self._ids = lru_cache(CACHED)(lambda text: tuple(encode(self.tokenizer, text)))

    @cached_property
    def special(self) -> tuple[str, ...]:
        """Spellings that the tokenizer turns into control tokens."""
        added = [token.content for token in self.tokenizer.added_tokens_decoder.values() if token.special]
        return tuple(dict.fromkeys([*self.tokenizer.all_special_tokens, *added]))

    def clean(self, text: str) -> str:
        """Untrusted text with the spellings of special tokens broken."""
        return neutralise(text, self.special)

    def text(self, prompt: Prompt) -> str:
        """The whole prompt as one string."""
        head = self._head(prompt.messages, prompt.assistant_tag)
        prefix = self.clean(prompt.prefix)
        opening = prefix.split("\n", 1)[0] + "\n"
        if opening.startswith("<think>") and head.endswith(opening):
            # The template has opened the thinking block already.
            prefix = prefix.removeprefix(opening)
        return head + prefix

    def encode(self, prompt: Prompt) -> list[int]:
        """The whole prompt as token ids, with no second templating and no added special tokens."""
        return list(self.ids(self.text(prompt)))

    def ids(self, text: str) -> tuple[int, ...]:
        """Token ids of a rendered prompt."""
        return self._ids(text)

    def _render_head(self, messages: tuple[Message, ...], assistant_tag: bool) -> str:
        turns = []
        for message in messages:
            content = self.clean(message.content)
            if message.role == "assistant":
                content = neutralise(content, [THINK_END])
            turns.append({"role": message.role, "content": content})
        if self.tokenizer.chat_template is None:
            return _plain(turns)
        try:
            return self._apply(turns, assistant_tag)
        except jinja2.TemplateError:
            if turns[0]["role"] != "system":
                raise
            # Some templates have no system role: it then leads the first user turn.
            first = {"role": "user", "content": turns[0]["content"] + "\n\n" + turns[1]["content"]}
            return self._apply([first, *turns[2:]], assistant_tag)

    def _apply(self, turns: list[dict[str, str]], assistant_tag: bool) -> str:
        text = self.tokenizer.apply_chat_template(
            turns, tokenize=False, add_generation_prompt=assistant_tag, **self.template_kwargs
        )
        return str(text)


def _plain(turns: list[dict[str, str]]) -> str:
    """A neutral layout for base models, which have no chat template."""
    names = {"system": "", "user": "User: ", "assistant": "Assistant: "}
    return "".join(f"{names[turn['role']]}{turn['content']}\n\n" for turn in turns) + "Assistant: "
