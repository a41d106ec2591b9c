"""A policy and a judge that read from tables, so that every pick can be worked out by hand."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from genprm.backends.base import Generation, LabelReading, Labels, SamplingParams
from genprm.backends.scripted import ScriptedBackend
from genprm.config import Config, PolicyConfig, SearchConfig, VerifyConfig
from genprm.errors import Unscored
from genprm.policy import Policy
from genprm.prompting import Prompt, load_protocol
from genprm.sandbox.base import OffSandbox
from genprm.search import PrefixJudge, Searcher
from genprm.verifier import GenPRM


class TableBackend(ScriptedBackend):
    """Writes the steps that stand in a table, in their order, and reads rewards from another.

    `writes["A/B"]` are the steps that samples behind A and B write, one after another, beginning again at the end; a
    step `=7` is the final answer 7. `rewards["B"]` is the reward of every step B; a step that is not there is unscored.
    """

    def __init__(self, writes: Mapping[str, Sequence[str]], rewards: Mapping[str, float]):
        super().__init__()
        self.writes, self.rewards = writes, rewards
        self.drawn: Counter[str] = Counter()
        self.judged: Counter[str] = Counter()
        """How often each prefix was judged."""
        self.prompts: list[Prompt] = []

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[TableSlot]:
        yield TableSlot(self)


class TableSlot:
    def __init__(self, backend: TableBackend):
        self._backend = backend

    async def generate(self, prompt: Prompt, params: SamplingParams) -> Generation:
        backend = self._backend
        backend.prompts.append(prompt)
        if not re.search(r"(?:^|\n)Step \d+:$", prompt.prefix):
            return Generation("Looked at.", "stop", params.stop[0], 10, 2)
        path = "/".join(_short(step) for step in re.findall(r"Step \d+: (.*)", prompt.prefix))
        if len(prompt.messages) > 4:
            path = f"rewrite {path}".strip()
        options = backend.writes.get(path, ())
        if not options:
            raise Unscored(f"nothing stands in the table behind {path!r}")
        step = options[backend.drawn[path] % len(options)]
        backend.drawn[path] += 1
        if step.startswith("="):
            return Generation(f" The answer is \\boxed{{{step[1:]}}}.", "eos", None, 10, 3)
        return Generation(f" {step}", "stop", params.stop[0], 10, 3)

    async def read_label(self, prompt: Prompt, labels: Labels, boundary: str) -> LabelReading:
        backend = self._backend
        shown, _, step = prompt.messages[-1].content.rpartition("Step to check: ")
        before = re.findall(r"Step \d+: (.*)", shown)
        backend.judged["/".join(map(_short, [*before, step]))] += 1
        if _short(step) not in backend.rewards:
            raise Unscored("the table has no reward for it")
        yes, no = labels
        reward = backend.rewards[_short(step)]
        return LabelReading({yes: reward, no: 1 - reward}, 1.0, 20)


def _short(step: str) -> str:
    return re.sub(r"The answer is \\boxed\{(.*)\}\.", r"=\1", step)


def searcher(
    writes: Mapping[str, Sequence[str]],
    rewards: Mapping[str, float],
    *,
    policy: Mapping[str, object] | None = None,
    judge: PrefixJudge | None = None,
    mode: str = "direct",
    **search: object,
) -> Searcher:
    """A searcher on one table."""
    backend = TableBackend(writes, rewards)
    config = Config(
        model="table",
        verify=VerifyConfig(mode=mode),
        policy=PolicyConfig.model_validate(policy or {}),
        search=SearchConfig.model_validate(search),
    )
    verifier = GenPRM(backend, load_protocol("compact"), OffSandbox(), config)
    return Searcher(
        Policy(backend, load_protocol("policy"), config.policy), judge or PrefixJudge(verifier), config.search
    )


def backend_of(found: Searcher) -> TableBackend:
    backend = found.policy.backend
    assert isinstance(backend, TableBackend)
    return backend


def short(steps: Sequence[str]) -> str:
    """A solution as a path of the table."""
    return "/".join(map(_short, steps))
