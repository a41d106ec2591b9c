"""Independent programs: written from the problem alone, executed, and their variables captured by the host.

A program never sees a solution, so it cannot repeat the mistake of a step that it is compared with. What it printed
counts for nothing but its answer: variables are read by an epilogue of the host's own, run in the program's session
behind it, whose line is marked with a word that the program could not know when it was written. Programs of a problem
are written once and shared by all steps, votes and candidates. Knows the engine and the sandbox by their seams.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field, TypeAdapter

from ..backends.base import Backend, SamplingParams
from ..cache import VerdictCache
from ..config import EvidenceConfig
from ..critique import OPEN_CODE, derive_seed
from ..errors import Unscored
from ..prompting import FENCE, Protocol
from ..sandbox.base import Sandbox
from ..types import CheckStatus, Record, Solution
from .reading import read_value
from .values import Value

MAX_VARIABLES = 60
MAX_TEXT = 120
MAX_SHOWN = 1_700
"""Characters of the epilogue's line; the sandbox shows the host about 2,000."""
KEPT_PROBLEMS = 2_000
"""Problems whose programs stay in memory."""

# Runs behind the program in its session. Values of exact built-in types and of sympy only: an object of a class of the
# program's own could do anything when it is printed.
_EPILOGUE = """
def _():
    import json, sys
    found = []
    left = [LIMIT]
    def plain(v):
        t = type(v)
        if t is bool: return str(v)
        if t is int: return str(v) if v.bit_length() < 400 else None
        if t in (float, complex, str): return repr(v) if t is not str else v
        if t.__module__ in ('fractions', 'decimal'): return str(v)
        if t.__module__ == 'numpy' and getattr(v, 'ndim', 1) == 0: return plain(v.item())
        if t.__module__.split('.')[0] == 'sympy': return str(v)
        if t in (list, tuple, set, frozenset) and 0 < len(v) <= 12:
            inner = [plain(x) for x in v]
            if None in inner: return None
            return ('{%s}' if t in (set, frozenset) else '(%s)') % ', '.join(inner)
        return None
    def keep(name, v):
        try:
            text = plain(v)
        except Exception:
            return
        if text is None or len(text) > MAXTEXT or len(found) >= MAXVARS: return
        cost = len(name) + len(text) + 8
        if left[0] < cost: return
        left[0] -= cost
        found.append([name, text])
    names = [n for n in globals() if not n.startswith('_')]
    names.sort(key=lambda n: n != 'answer')
    for n in names:
        v = globals()[n]
        keep(n[:40], v)
        if type(v) is dict and len(v) <= 12:
            for k, x in list(v.items()):
                if type(k) in (str, int): keep((n + '.' + str(k))[:40], x)
    sys.stdout.write('\\nMARK' + json.dumps(found) + '\\n')
_()
"""


class Program(Record):
    """One program and what came of it."""

    source: str
    status: CheckStatus
    output: str
    answer: Value | None = None
    """The variable `answer`, else the last line that was printed; None where the program did not end well."""
    values: dict[str, Value] = Field(default_factory=dict)
    """Variables by name, captured by the host."""
    completion_tokens: int = 0
    prompt_tokens: int = 0


_PROGRAMS = TypeAdapter(Program)


@dataclass(slots=True)
class _Known:
    """The programs of one problem."""

    programs: list[Program] = field(default_factory=list)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Solver:
    """Writes and runs programs, each once."""

    def __init__(
        self,
        backend: Backend,
        sandbox: Sandbox,
        protocol: Protocol,
        settings: EvidenceConfig,
        *,
        seats: asyncio.Semaphore,
        seed: int = 0,
        cache: VerdictCache | None = None,
    ):
        """Prepare.

        Args:
            backend: whose model writes.
            sandbox: where programs run.
            protocol: how a problem is put to the model; its first code part says how long a program may be.
            settings: how programs are sampled.
            seats: bound on what is under way, shared with critiques.
            seed: of all sampling.
            cache: keeps programs from run to run; None = memory only.
        """
        self._backend, self._sandbox, self._protocol = backend, sandbox, protocol
        self._settings, self._seed, self._cache, self._seats = settings, seed, cache, seats
        self._part = next(part for part in protocol.manifest.parts if part.kind == "code")
        self._known: OrderedDict[str, _Known] = OrderedDict()
        sampling = [settings.temperature, settings.top_p, seed]
        made_by = [backend.model, protocol.ref.sha256, sampling, sandbox.level == "off"]
        self._base = json.dumps(made_by)

    async def programs(self, problem: str, count: int) -> tuple[Sequence[Program], Sequence[Program]]:
        """The first `count` programs of a problem, and those of them that had to be written now."""
        known = self._known.setdefault(problem, _Known())
        self._known.move_to_end(problem)
        while len(self._known) > KEPT_PROBLEMS:
            self._known.popitem(last=False)
        async with known.lock:
            missing = range(len(known.programs), count)
            made = await asyncio.gather(*(self._program(problem, number) for number in missing))
            known.programs += [program for program, _ in made]
            return known.programs[:count], [program for program, fresh in made if fresh]

    async def _program(self, problem: str, number: int) -> tuple[Program, bool]:
        key = hashlib.sha256(f"program\0{self._base}\0{number}\0{problem}".encode("utf-8", "surrogatepass")).hexdigest()
        if self._cache is not None and (kept := self._cache.get(key)) is not None:
            return _PROGRAMS.validate_json(kept), False
        program = await self._write(problem, number)
        # An engine or sandbox that failed says nothing of the program: it is tried again the next time.
        if self._cache is not None and program.status != "unavailable":
            self._cache.put(key, program.model_dump_json())
        return program, True

    async def _write(self, problem: str, number: int) -> Program:
        prompt = self._protocol.conversation(Solution(id="", problem=problem, steps=("",)), 0)
        digest = hashlib.sha256(problem.encode("utf-8", "surrogatepass")).hexdigest()
        greedy = self._settings.temperature == 0
        params = SamplingParams(
            self._part.max_tokens,
            (FENCE,),
            self._settings.temperature,
            1.0 if greedy else self._settings.top_p,
            0,
            None if greedy else derive_seed(self._seed, digest, number),
        )
        async with self._seats, self._backend.slot() as slot:
            try:
                written = await slot.generate(prompt.extended(OPEN_CODE), params)
            except Unscored as error:
                return Program(source="", status="unavailable", output=error.reason)
            counted: dict[str, Any] = {
                "completion_tokens": written.completion_tokens,
                "prompt_tokens": written.prompt_tokens,
            }
            source = written.text.strip("\n")
            if written.finish in ("length", "context") or not source.strip():
                return Program(source=source, status="error", output="[not run: the program is incomplete]", **counted)
            return (await run_program(self._sandbox, source)).model_copy(update=counted)


async def run_program(sandbox: Sandbox, source: str) -> Program:
    """Run a program and capture its variables."""
    session = sandbox.open()
    try:
        check = await session.run(source)
        if check.status != "ok":
            return Program(source=source, status=check.status, output=check.output)
        mark = secrets.token_hex(8)
        code = _EPILOGUE.replace("MARK", mark).replace("LIMIT", str(MAX_SHOWN))
        epilogue = await session.run(code.replace("MAXTEXT", str(MAX_TEXT)).replace("MAXVARS", str(MAX_VARIABLES)))
    finally:
        session.close()
    values = captured(epilogue.output, mark)
    answer = values.get("answer")
    if answer is None:
        printed = [line for line in check.output.splitlines() if line.strip()]
        answer = read_value(_last_value(printed[-1])) if printed else None
    if answer is not None and answer.kind == "text":
        answer = None
    return Program(source=source, status="ok", output=check.output, answer=answer, values=values)


def captured(output: str, mark: str) -> dict[str, Value]:
    """The variables in an epilogue's output: one marked line, or none."""
    lines = [line for line in output.splitlines() if line.startswith(mark)]
    if len(lines) != 1:
        return {}
    try:
        pairs = json.loads(lines[0].removeprefix(mark))
        found = {str(name): read_value(str(text)) for name, text in pairs}
    except (ValueError, TypeError):
        return {}
    return {name: value for name, value in found.items() if value.kind != "text"}


def _last_value(line: str) -> str:
    """What a printed line says: all of it where it is a value, else what stands behind its last colon or sign."""
    if read_value(line).kind != "text":
        return line
    tail = line.replace("=", ":").rpartition(":")[2].strip()
    return tail if tail and read_value(tail).kind != "text" else line.split()[-1].strip(".$,")
