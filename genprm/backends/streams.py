"""An answer that comes in pieces, as server-sent events, put together until a stop string is met.

Plain OpenAI-style servers say that a stop string ended the text, not which one, nor whether it was the model's own
end of turn. So no stop string is sent: the text is watched as it comes, and the rest is not waited for.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any


class BrokenStream(Exception):
    """What came is no such stream, or only a part of one."""


class StreamedAnswer:
    """Takes a stream's lines; becomes an answer of the unstreamed shape."""

    def __init__(self, stops: Sequence[str]):
        self._stops = tuple(stops)
        self._text = ""
        self._pieces = 0
        self._finish: str | None = None
        self._stop: str | None = None
        self._usage: dict[str, Any] = {}
        self._ended = False

    @property
    def done(self) -> bool:
        """True where nothing that follows is needed."""
        return self._ended or self._stop is not None

    def line(self, line: str) -> None:
        """Take one line.

        Raises:
            BrokenStream: it is no event, or the server reports a fault in it.
        """
        if not line.startswith("data:"):
            return  # comments that keep the connection alive, event names, empty lines
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            self._ended = True
            return
        try:
            event = json.loads(data)
        except ValueError:
            raise BrokenStream("an event of the stream is no JSON") from None
        if not isinstance(event, dict) or "error" in event:
            raise BrokenStream(f"the stream reports {data[:200]}")
        self._usage = event.get("usage") or self._usage
        for choice in event.get("choices") or []:
            self._piece(choice.get("text") or (choice.get("delta") or {}).get("content") or "")
            self._finish = choice.get("finish_reason") or self._finish

    def whole(self, answer: dict[str, Any]) -> dict[str, Any]:
        """The same for a server that answers at once although it was asked for a stream."""
        choice = answer["choices"][0]
        self._piece(choice.get("text") or (choice.get("message") or {}).get("content") or "")
        self._finish, self._usage = choice.get("finish_reason"), answer.get("usage") or {}
        return self.answer(0)

    def answer(self, prompt_tokens: int) -> dict[str, Any]:
        """What came, in the unstreamed shape.

        Args:
            prompt_tokens: about how many, for a stream that was left before the server said.

        Raises:
            BrokenStream: it ended before its end.
        """
        if self._finish is None and self._stop is None:
            raise BrokenStream("the stream broke off")
        usage = self._usage or {"prompt_tokens": prompt_tokens, "completion_tokens": self._pieces}
        choice = {
            "text": self._text,
            "finish_reason": "stop" if self._stop is not None else self._finish,
            "stop_reason": self._stop,
        }
        return {"choices": [choice], "usage": usage}

    def _piece(self, piece: str) -> None:
        if not piece or self._stop is not None:
            return
        start = max(len(self._text) - max(map(len, self._stops), default=0), 0)
        self._text += piece
        self._pieces += 1
        found = [(self._text.find(stop, start), stop) for stop in self._stops if stop in self._text[start:]]
        if found:
            at, self._stop = min(found)
            self._text = self._text[:at]
