"""What the deterministic fake writes as a policy or solver: the problem's own arithmetic, with seeded mistakes.

The longest chain of + - * over whole numbers in the problem, or the sum of all its numbers, is worked off one operation
a step, multiplications first. By the seed some steps miss by one, so that samples differ and a judge that recomputes
finds the mistake. Where a critique stands in the conversation, no mistake is made. Its solutions mean nothing.
"""

from __future__ import annotations

import hashlib
import operator
import re

from ..prompting import Prompt

MISTAKES = 0.35
"""Share of steps that miss by one."""
# A forced marker at the end of an answer: a solution is being written.
_OPENED = re.compile(r"(?:^|\n)Step (\d+):$")
_CHAIN = re.compile(r"\d+(?:\s*[-+*]\s*\d+)+")
_RESULT = re.compile(r"= (-?\d+)")
_APPLY = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def opened_step(prompt: Prompt) -> int | None:
    """The number of the step that is to be written; None where the prompt asks for something else."""
    match = _OPENED.search(prompt.prefix)
    return None if match is None else int(match[1])


def write_step(prompt: Prompt, number: int, seed: int | None) -> tuple[str, bool]:
    """Text of the step behind its marker, and whether the solution ends with it."""
    users = [message.content for message in prompt.messages if message.role == "user"]
    mended = len(users) > 1 and "critique" in users[-1]
    numbers, signs = _chain(users[-2] if mended else users[-1])
    for result in _RESULT.findall(prompt.prefix):
        if signs:
            _fold(numbers, signs, int(result))
    if not signs:
        return f" The answer is \\boxed{{{numbers[0]}}}.", True
    at = _next(signs)
    left, sign, right = numbers[at], signs[at], numbers[at + 1]
    value = _APPLY[sign](left, right)
    if not mended and seed is not None and hashlib.sha256(f"{seed}\0{number}".encode()).digest()[0] < 256 * MISTAKES:
        value += 1
    return f" {left} {sign} {right} = {value}.", False


def write_program(problem: str) -> str:
    """A program that works off the problem's arithmetic, without mistakes and with a variable for each result."""
    numbers, signs = _chain(problem)
    lines: list[str] = []
    while signs:
        at = _next(signs)
        value = _APPLY[signs[at]](numbers[at], numbers[at + 1])
        lines.append(f"x{len(lines) + 1} = {numbers[at]} {signs[at]} {numbers[at + 1]}")
        _fold(numbers, signs, value)
    return "\n".join([*lines, f"answer = {numbers[0]}", "print(answer)"])


def _chain(problem: str) -> tuple[list[int], list[str]]:
    """Numbers and the signs between them."""
    chains = _CHAIN.findall(problem)
    text = max(chains, key=len) if chains else " + ".join(re.findall(r"\d+", problem)) or "0"
    return [int(found) for found in re.findall(r"\d+", text)], re.findall(r"[-+*]", text)


def _next(signs: list[str]) -> int:
    return signs.index("*") if "*" in signs else 0


def _fold(numbers: list[int], signs: list[str], result: int) -> None:
    at = _next(signs)
    numbers[at : at + 2] = [result]
    del signs[at]
