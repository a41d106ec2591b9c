"""The outcome reward: a solution's own final answer, compared with the reference answer.

Knows how final answers are written, and how to ask the process in answer_worker.py within a time limit. Knows nothing
of algebra, and imports none of it: comparing `9^{9^{9^9}}` can take for ever, so it happens where it can be killed.
What was not decided, for whatever reason, is `correct=None` and never `False`.

One process serves the whole interpreter, from any thread; it starts with the first comparison and ends with the
interpreter. A forked child starts its own. No signals are used, so all of this works off the main thread.
"""

from __future__ import annotations

import asyncio
import atexit
import itertools
import json
import os
import re
import select
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from .errors import UnavailableError
from .types import Outcome

TIME_LIMIT = 5.0
"""Wall-clock seconds for one comparison; waiting for the process to start or to be free does not count."""
START_LIMIT = 120.0
"""Wall-clock seconds for the process to load its libraries."""

_BOXED = re.compile(r"\\(?:boxed|fbox)\s*\{")
_HASHES = re.compile(r"####[ \t]*(?!\d+[.)][ \t]+[A-Za-z])(?P<answer>[-+$€£\\(\[{.\d][^\n]*)")
_HEADING = re.compile(r"^#+[ \t]*(?:final[ \t]+)?answer[ \t]*:?[ \t]*\r?\n\s*(?P<answer>\S[^\n]*)", re.I | re.M)
_ANSWER_IS = re.compile(
    r"\banswer\b(?:[ \t]+to[^.\n]{0,80}?)?\**[ \t]*(?:\bis\b|=|:)[ \t]*:?(?=(?P<answer>[^\n]{0,500}))", re.I
)
# Possessive, or "1,234x" would give back "1".
_VALUE = re.compile(
    r"[-+\u2212]?[ \t]*[$€£]?[ \t]*(?<![\w.^{])(?:\d++(?:(?:,|\{,\})\d{3})*+(?:\.\d++)?+|\.\d++)"
    r"(?:[ \t]*/[ \t]*\d++)?+(?:[ \t]*\\?%)?+(?![\w^{\\]|\s+(?:hundred|thousand|million|billion|trillion|dozen)\b)"
)
_MATH = re.compile(r"\$\$(.+?)\$\$|(?<![\\\d])\$(?!\d[\d,.]*[ \t]+[A-Za-z])(.+?)(?<!\\)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")
_CALCULATOR = re.compile(r"<<[^<>\n]*>>")


def extract_answer(text: str) -> str | None:
    """Find the final answer that a solution states.

    Of these, the first that the text has, and of that the last occurrence: `\\boxed{..}` with balanced braces;
    `#### x`; a heading `# Answer` and the line below it; "answer is x" or "answer: x", where x is mathematics, a number
    or a single word. Failing all, the last sentence is taken at its word where it leaves no choice: it has one number
    and no other mathematics, or ends in `= NUMBER` after plain arithmetic or a name. There is no search for "the last
    number" beyond that, for it would call solutions wrong that merely end in a remark.

    Args:
        text: The whole solution, or its end.

    Returns:
        The answer as it is written, without what surrounds it; None if none is stated.
    """
    if boxes := [match.end() for match in _BOXED.finditer(text)]:
        closing = _closing_braces(text)
        for start in reversed(boxes):
            if inner := text[start : closing.get(start - 1, start)].strip():
                return inner
    if hashes := [bare for match in _HASHES.finditer(text) if (bare := _bare(match["answer"]))]:
        return hashes[-1]
    for pattern in (_HEADING, _ANSWER_IS):
        stated = [found for match in pattern.finditer(text) if (found := _stated(match["answer"])) is not None]
        if stated:
            return stated[-1]
    return _concluded(text)


def compare(answer: str, reference: str, *, time_limit: float = TIME_LIMIT) -> bool | None:
    """Whether an answer equals the reference: numbers, LaTeX, sets, intervals, units that are words, single words.

    A reference that is a worked solution is used by its `\\boxed{..}` or `#### x`.

    Returns:
        None where it cannot be decided: not parsable, prose, too large, or out of time.

    Raises:
        UnavailableError: The comparing process does not start.
    """
    if _BOXED.search(reference) or _HASHES.search(reference):
        reference = extract_answer(reference) or reference
    return _worker.ask(answer, reference, time_limit)


def judge_outcome(steps: Sequence[str], reference: str, *, time_limit: float = TIME_LIMIT) -> Outcome:
    """Compare the answer that the steps state with the reference; see `extract_answer` and `compare`."""
    answer = extract_answer("\n".join(steps))
    return Outcome(answer=answer, correct=None if answer is None else compare(answer, reference, time_limit=time_limit))


async def judge_outcome_async(steps: Sequence[str], reference: str, *, time_limit: float = TIME_LIMIT) -> Outcome:
    """`judge_outcome` without blocking the event loop."""
    # A thread of our own: comparisons that wait for each other must not fill the loop's shared pool.
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_executor(), lambda: judge_outcome(steps, reference, time_limit=time_limit))


def _closing_braces(text: str) -> dict[int, int]:
    """Where each brace that is closed is closed; escaped braces do not count."""
    pairs: dict[int, int] = {}
    opened: list[int] = []
    for match in re.finditer(r"\\.|[{}]", text, re.DOTALL):
        if match[0] == "{":
            opened.append(match.start())
        elif match[0] == "}" and opened:
            pairs[opened.pop()] = match.start()
    return pairs


def _bare(text: str) -> str:
    text = text.strip().strip("*").strip().rstrip(".").strip()
    inner = _MATH.fullmatch(text)
    return next(filter(None, inner.groups())).strip() if inner else text


def _stated(rest: str) -> str | None:
    rest = rest.strip().lstrip("*: ").strip()
    if math := _MATH.match(rest):
        return next(filter(None, math.groups())).strip().rstrip(".").strip() or None
    clause = _SENTENCE_END.split(rest, maxsplit=1)[0].strip().rstrip(".!*").strip()
    number = _VALUE.match(clause)
    if number and re.fullmatch(r"[.,;:!?*)]*(?:[ \t]+[A-Za-z(]{2,}.*)?", clause[number.end() :]):
        return number[0].strip()
    if len(re.findall(r"(?<!\\)\b[^\W\d_]{2,}", clause)) > 3:
        return _concluded(clause)
    mathematical = len(clause) <= 200 and re.search(r"[\d\\^=]", clause)
    return clause if mathematical or re.fullmatch(r"\(?[^\W\d_]+\)?", clause) else None


def _concluded(text: str) -> str | None:
    sentences = [part for part in _SENTENCE_END.split(_CALCULATOR.sub("", text)) if part.strip()]
    if not sentences:
        return None
    last = re.sub(r"\\[()\[\]]|\*\*", "", sentences[-1].replace(r"\$", "$"))
    numbers = [match[0].strip() for match in _VALUE.finditer(last)]
    if not numbers or len(last) > 500:
        return None
    equation = rf"(?:^|\W)(?:[^\W\d]\w*|[\d\s+*/().,$×÷-]+)=\s*{re.escape(numbers[-1])}(?:\s+[A-Za-z]+)*[\s.!$*]*$"
    alone = len(re.findall(r"\d+(?:[.,]\d+)*", last)) == 1 and not re.search(r"[\\^_{}+*/<>=]", last)
    return numbers[-1] if alone or re.search(equation, last.replace(" =", "=")) else None


class _Worker:
    """The comparing process: started when needed, one question at a time, killed when late."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""
        self._ids = itertools.count()

    def ask(self, answer: str, reference: str, time_limit: float) -> bool | None:
        with self._lock:
            process = self._process
            if process is None or process.poll() is not None:
                self._stop()
                process = self._start()
            number = next(self._ids)
            # Escaped ASCII: a lone surrogate in a model's text must not break the pipe's encoding.
            question = json.dumps({"id": number, "answer": answer, "reference": reference}).encode() + b"\n"
            reply = self._exchange(process, question, time_limit)
            if reply is None or reply.get("id") != number:
                self._stop()
                return None
            correct = reply.get("correct")
            return correct if isinstance(correct, bool) else None

    def close(self) -> None:
        with self._lock:
            self._stop()

    def disown(self) -> None:
        """In a forked child: the process is the parent's; only our copies of its pipes are ours to close."""
        if (process := self._process) is not None:
            process.returncode = 0  # not ours to wait for, and no reason for a warning
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def _start(self) -> subprocess.Popen[bytes]:
        # `-P` and an appended path: a file `sympy.py` in the user's folder must not be imported in place of the real
        # one, and genprm is found even where it runs from a checkout.
        code = "import sys; sys.path.append(sys.argv[1]); from genprm.answer_worker import main; main()"
        self._process = process = subprocess.Popen(
            [sys.executable, "-P", "-c", code, str(Path(__file__).parents[1])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )
        hello = self._exchange(process, b"", START_LIMIT)
        if hello is None or not hello.get("ready"):
            if hello is not None:
                reason = hello.get("fatal")
            else:
                # Its output ends a moment before it can be waited for.
                with suppress(subprocess.TimeoutExpired):
                    process.wait(1)
                hung = f"it said nothing for {START_LIMIT:g} seconds"
                reason = hung if process.returncode is None else f"it ended with status {process.returncode}"
            self._stop()
            raise UnavailableError(f"the process that compares answers does not start: {reason}")
        return process

    def _exchange(
        self, process: subprocess.Popen[bytes], question: bytes, time_limit: float
    ) -> dict[str, object] | None:
        """Send a line and read one; None if the process is late or dead."""
        assert process.stdin is not None
        assert process.stdout is not None
        deadline = time.monotonic() + time_limit
        unsent = memoryview(question)
        os.set_blocking(process.stdin.fileno(), False)
        while b"\n" not in self._unread:
            left = deadline - time.monotonic()
            poll = select.poll()
            poll.register(process.stdout, select.POLLIN)
            if unsent:
                poll.register(process.stdin, select.POLLOUT)
            if left <= 0 or not (events := poll.poll(left * 1000)):
                return None
            try:
                for descriptor, _ in events:
                    if descriptor == process.stdin.fileno():
                        unsent = unsent[os.write(descriptor, unsent) :]
                    elif chunk := os.read(descriptor, 65536):
                        self._unread += chunk
                    else:
                        return None
            except OSError:
                return None
        line, self._unread = self._unread.split(b"\n", 1)
        reply = json.loads(line)
        return reply if isinstance(reply, dict) else None

    def _stop(self) -> None:
        process, self._process, self._unread = self._process, None, b""
        if process is not None:
            process.kill()
            with process:  # closes the pipes and waits
                pass


_worker = _Worker()
_pool: ThreadPoolExecutor | None = None


def _executor() -> ThreadPoolExecutor:
    global _pool
    if _pool is None:
        _pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="genprm-outcome")
    return _pool


def _close() -> None:
    _worker.close()


def _after_fork() -> None:
    # Afresh, lock and all: the thread that may have held it does not exist here.
    global _pool, _worker
    _worker.disown()
    _worker, _pool = _Worker(), None


atexit.register(_close)
os.register_at_fork(after_in_child=_after_fork)
