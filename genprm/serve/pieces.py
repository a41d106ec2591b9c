"""One text that holds a problem and its steps, as callers of scalar PRMs send it, taken apart.

Such callers render a chat template themselves, or write the problem in front of the steps, and end each step with a
separator at which a scalar PRM would be read. The rules, in order:

1. `serve.problem_pattern`, where it is set, tells the problem; what follows its match is the steps.
2. Chat turns (ChatML, Llama 3, `[INST]`): the last user turn is the problem, what the assistant said is the steps.
3. What stands before the last `Step 1` ahead of the first separator, as Math-Shepherd writes it.
4. What stands before the first blank line ahead of the first separator.

Where none of them applies the text is refused: nothing is guessed. Every step must end in the separator, as in the
scalar PRM's own use; white space around a step is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..config import ServeConfig
from ..errors import InputError
from ..formats import kind_of, shown
from ..records import parse_record
from ..types import Solution


class Turns(NamedTuple):
    """How one family of chat templates marks turns."""

    user: re.Pattern[str]
    assistant: re.Pattern[str]
    end: re.Pattern[str]


CHATS = (
    Turns(
        re.compile(r"<\|im_start\|>user\n(.*?)<\|im_end\|>", re.DOTALL),
        re.compile(r"<\|im_start\|>assistant\n"),
        re.compile(r"(?:\s*(?:<\|im_end\|>|<\|endoftext\|>))+\s*$"),
    ),
    Turns(
        re.compile(r"<\|start_header_id\|>user<\|end_header_id\|>\n\n(.*?)<\|eot_id\|>", re.DOTALL),
        re.compile(r"<\|start_header_id\|>assistant<\|end_header_id\|>\n\n"),
        re.compile(r"(?:\s*(?:<\|eot_id\|>|<\|end_of_text\|>))+\s*$"),
    ),
    Turns(
        re.compile(r"\[INST\](.*?)\[/INST\]", re.DOTALL),
        re.compile(r"\[/INST\]"),
        re.compile(r"(?:\s*</s>)+\s*$"),
    ),
)
_FIRST_STEP = re.compile(r"\bStep 1\s*[:.)]")
_BLANK_LINE = re.compile(r"\n[^\S\n]*\n")


def solution_of_text(value: object, separators: Sequence[str], settings: ServeConfig, field: str) -> Solution:
    """Take one text apart.

    Args:
        value: the text.
        separators: what may end each step; the first of them that the text holds does.
        settings: says how the problem is told, if not by the usual rules.
        field: the caller's name for the text, for errors.

    Raises:
        InputError: it is no text, holds no separator, or does not tell the problem from the first step.
    """
    if not isinstance(value, str):
        said = "token ids cannot be judged: send text" if isinstance(value, list | int) else f"found {kind_of(value)}"
        raise InputError(f"must be text; {said}", field=field)
    separator = next((item for item in separators if item in value), None)
    if separator is None:
        known = " or ".join(repr(item) for item in separators)
        raise InputError(f"has no step that ends in {known}", field=field)
    problem, solution = _told_apart(value, separator, settings, field)
    return solution_of_parts(problem, solution, separator, field)


def solution_of_messages(messages: object, separator: str) -> Solution:
    """The user's message is the problem, the assistant's one the steps; a system message is left out.

    Raises:
        InputError: there are other messages, or one of them is no text.
    """
    if not isinstance(messages, list) or not messages:
        raise InputError("must be a list of messages", field="messages")
    said: dict[str, tuple[str, str]] = {}
    for place, message in enumerate(messages):
        where = f"messages[{place}]"
        role = message.get("role") if isinstance(message, dict) else None
        if role not in ("system", "developer", "user", "assistant"):
            raise InputError("needs the role system, user or assistant", field=where)
        if role in said and role in ("user", "assistant"):
            raise InputError(f"is a second {role} message: one problem and one solution are judged", field=where)
        said[role] = (_content(message.get("content"), f"{where}.content"), f"{where}.content")
    if "user" not in said or "assistant" not in said:
        raise InputError(
            "need a user message with the problem and an assistant message with the steps", field="messages"
        )
    text, field = said["assistant"]
    if separator not in text:
        raise InputError(f"has no step that ends in {separator!r}", field=field)
    return solution_of_parts(said["user"][0], text, separator, field)


def solution_of_parts(problem: str, solution: str, separator: str, field: str) -> Solution:
    """A solution whose steps end in the separator.

    Raises:
        InputError: text follows the last separator, or a part is empty.
    """
    *steps, rest = solution.split(separator)
    if rest.strip():
        message = f"must end each step in {separator!r}; {len(rest.strip())} characters follow the last one"
        raise InputError(message, field=field)
    try:
        return parse_record({"problem": problem.strip(), "steps": [step.strip() for step in steps]})
    except InputError as error:
        raise InputError(error.message, field=f"{field}, {error.field}" if error.field else field) from None


def _told_apart(text: str, separator: str, settings: ServeConfig, field: str) -> tuple[str, str]:
    if settings.problem_pattern is not None:
        match = re.compile(settings.problem_pattern, re.DOTALL).match(text)
        if match is None:
            raise InputError(f"does not begin as serve.problem_pattern says: {shown(text)}", field=field)
        return match["problem"] or "", text[match.end() :]
    for chat in CHATS:
        answers = list(chat.assistant.finditer(text))
        questions = [match for match in chat.user.finditer(text) if answers and match.start() < answers[-1].start()]
        if questions:
            return questions[-1][1], chat.end.sub("", text[answers[-1].end() :])
    head = text.partition(separator)[0]
    steps = list(_FIRST_STEP.finditer(head))
    if steps and head[: steps[-1].start()].strip():
        return text[: steps[-1].start()], text[steps[-1].start() :]
    lead = len(head) - len(head.lstrip())
    blank = _BLANK_LINE.search(head, lead)
    if blank is not None:
        return text[: blank.start()], text[blank.end() :]
    message = "does not tell the problem from the first step: put a blank line or `Step 1:` between them"
    raise InputError(f"{message}, send chat turns, or set serve.problem_pattern", field=field)


def _content(content: Any, field: str) -> str:
    """A message's text, also where it is given in parts."""
    if isinstance(content, list):
        parts = [
            part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None for part in content
        ]
        if all(isinstance(part, str) for part in parts):
            return "".join(str(part) for part in parts)
    if not isinstance(content, str):
        raise InputError(f"must be text, found {kind_of(content)}", field=field)
    return content
