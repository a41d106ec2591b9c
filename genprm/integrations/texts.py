"""The texts that callers hold: prompts and completions as strings or messages, cut into steps.

Knows message shapes and how a text is split; knows nothing of verifiers or tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ..errors import InputError
from ..formats import kind_of
from ..segment import segment

Splitter = str | Callable[[str], Sequence[str]] | None
"""How a text is cut into steps: a separator, a function, or None for genprm's own segmenter."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Cut:
    """One text cut into pieces, some of which may be blank; the others are the steps."""

    pieces: tuple[str, ...]
    ends: tuple[int, ...]
    """For each piece, the offset in the text behind its last character that is no white space."""

    @property
    def steps(self) -> tuple[str, ...]:
        """What is judged: the pieces that hold something, without white space around them."""
        return tuple(piece.strip() for piece in self.pieces if piece.strip())

    @property
    def step_ends(self) -> list[int]:
        """`ends` of the steps only."""
        return [end for piece, end in zip(self.pieces, self.ends, strict=True) if piece.strip()]

    def spread(self, values: Sequence[T]) -> list[T]:
        """One value a piece: a blank piece states nothing and has the value of the step before it.

        Blank pieces at the beginning have the first step's.

        Args:
            values: one a step; at least one.
        """
        spread: list[T] = []
        used = 0
        for piece in self.pieces:
            used += bool(piece.strip())
            spread.append(values[max(used - 1, 0)])
        return spread


def cut(text: str, splitter: Splitter = None) -> Cut:
    """Cut a text into pieces.

    Raises:
        InputError: a caller's own function gave pieces that do not stand in the text one after another.
    """
    if isinstance(splitter, str):
        pieces = text.split(splitter)
    elif splitter is None:
        pieces = segment(text)
    else:
        pieces = list(splitter(text))
    ends: list[int] = []
    position = 0
    for index, piece in enumerate(pieces):
        if isinstance(splitter, str):
            start = position + (len(splitter) if index else 0)
        else:
            start = text.find(piece, position)
            if start < 0:
                raise InputError(f"the splitter's piece {index} does not stand in the text behind the one before it")
        position = start + len(piece)
        ends.append(start + len(piece.rstrip()))
    return Cut(tuple(pieces), tuple(ends))


def problem_text(prompt: object, field: str = "prompt") -> str:
    """The problem that a prompt puts: a text, or the last user message of a conversation.

    Args:
        prompt: a text, messages as mappings or objects with `role` and `content`, or what has `to_chat_messages`.
        field: the caller's name for it, for errors.

    Raises:
        InputError: it is something else, or no user says anything.
    """
    if isinstance(prompt, str):
        return prompt
    for message in reversed(messages_of(prompt, field)):
        if _part(message, "role") == "user":
            return content_text(_part(message, "content"), field)
    raise InputError("has no user message", field=field)


def completion_text(completion: object, field: str = "completion") -> str:
    """What the policy wrote: a text, or what the assistant's messages say, a blank line between them.

    Messages of other roles, such as a tool's answer, are no steps and left out.

    Raises:
        InputError: it is something else.
    """
    if isinstance(completion, str):
        return completion
    said = [message for message in messages_of(completion, field) if _part(message, "role") == "assistant"]
    texts = [content_text(_part(message, "content"), field) for message in said]
    return "\n\n".join(text for text in texts if text)


def messages_of(value: object, field: str) -> list[Any]:
    """The messages of a conversation.

    Raises:
        InputError: it is no conversation.
    """
    if hasattr(value, "to_chat_messages"):
        value = value.to_chat_messages()
    if hasattr(value, "tolist"):  # a numpy array, as a Parquet row holds
        value = value.tolist()
    if isinstance(value, Mapping):
        value = [value]
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        messages = list(value)
        if messages and all(isinstance(_part(message, "role"), str) for message in messages):
            return messages
    raise InputError(f"must be text or messages with a role, found {kind_of(value)}", field=field)


def content_text(content: object, field: str) -> str:
    """A message's text, also where it is given in parts; none = an empty text.

    Raises:
        InputError: a part is no text.
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    parts = list(content) if isinstance(content, Sequence) else [content]
    texts = [part.get("text") if isinstance(part, Mapping) else part for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise InputError("has a part that is no text, which cannot be judged", field=field)
    return "".join(str(text) for text in texts)


def _part(message: object, name: str) -> Any:
    return message.get(name) if isinstance(message, Mapping) else getattr(message, name, None)
