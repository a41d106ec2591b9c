"""Batched decoding on a Hugging Face causal model: left padding, stop strings, a seed for each request, reused keys.

Synchronous and single-threaded; one call = one lock-step batch, whose results depend on its requests alone. Knows
token ids only. `backends.transformers` puts it behind the asynchronous seam.
"""

from __future__ import annotations

import inspect
import random
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from ..labels import Path
from .base import Finish, SamplingParams
from .head import ExactHead
from .kv import BatchCache, Ids, PrefixStore, RowState, common_prefix
from .sampling import sample

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# A shared beginning shorter than this is not worth a forward pass of its own.
MIN_SHARED = 32
CONTEXT_TOKENS = 8

Tree = Mapping[Path, Collection[int]]


@dataclass(slots=True)
class Written:
    """What one row wrote."""

    text: str
    finish: Finish
    stop: str | None
    tokens: int


@dataclass(slots=True)
class _Row:
    """One sequence while it decodes."""

    prompt: Ids
    params: SamplingParams
    draw: random.Random
    ids: list[int] = field(default_factory=list)
    done: Written | None = None


@dataclass(slots=True)
class _Batch:
    """Rows that decode together, left-padded to `length`."""

    rows: list[_Row]
    cache: BatchCache
    mask: torch.Tensor
    length: int

    def state(self, index: int) -> RowState:
        """What one row's keys hold: its prompt and its own tokens but the last, which has no keys yet."""
        row = self.rows[index]
        where = self.mask[index, : self.length].nonzero()[:, 0]
        ids = np.concatenate([row.prompt, np.asarray(row.ids[: len(where) - len(row.prompt)], dtype=np.int64)])
        useful = len(ids) if row.done is None else min(len(ids), len(row.prompt) + row.done.tokens)
        return self.cache.row(index, ids[:useful], where[:useful])


class Engine:
    """A causal model, its tokenizer and the keys and values it remembers."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        prefix_bytes: int,
        prefill_tokens: int,
        end_tokens: Sequence[int],
    ):
        self.model, self.tokenizer = model, tokenizer
        self.device = model.device
        self.store = PrefixStore(prefix_bytes)
        self.prefill_tokens = prefill_tokens
        self.end_tokens = frozenset(end_tokens)
        self.computed_tokens = 0
        """Tokens that went through the model so far, padding not counted."""
        # transformers 5.24 renamed the argument and warns of the old name.
        parameters = inspect.signature(model.forward).parameters
        self._cache_name = "cache" if "cache" in parameters else "past_key_values"
        self._head = ExactHead(model)
        self._check_head()

    # ------------------------------------------------------------------ forward

    def _forward(
        self, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, cache: BatchCache, keep: int = 0
    ) -> torch.Tensor:
        """Float32 logits (batch, positions, vocabulary) of the last position, or exact ones of the last `keep`."""
        output = self.model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            use_cache=True,
            logits_to_keep=max(keep, 1),
            **{self._cache_name: cache},
        )
        logits: torch.Tensor = output.logits.float()
        return self._head.exact(logits) if keep else logits

    def _check_head(self) -> None:
        probe = torch.tensor([[1, 2, 3, 4]], device=self.device)
        with torch.inference_mode():
            positions = torch.arange(4, device=self.device)[None]
            self._head.check(self._forward(probe, torch.ones_like(probe), positions, BatchCache()))

    def prefill(self, prompts: Sequence[Ids]) -> list[tuple[RowState, torch.Tensor]]:
        """State and last logits of each prompt; identical prompts are computed once.

        Args:
            prompts: token ids, each at least one long.

        Returns:
            A list over prompts of the state after the whole prompt and float32 logits of shape (1, vocabulary).
        """
        unique = {ids.tobytes(): ids for ids in prompts}
        self._share(list(unique.values()))
        done = dict(zip(unique, self._prefill_all(list(unique.values())), strict=True))
        return [done[ids.tobytes()] for ids in prompts]

    def _prefill_all(self, prompts: Sequence[Ids], keep: int = 0) -> list[tuple[RowState, torch.Tensor]]:
        """States and logits, in passes of rows whose remainders are about as long."""
        cached = [self.store.longest(ids, max(keep, 1)) for ids in prompts]
        rest = [len(ids) - _length(state) for ids, state in zip(prompts, cached, strict=True)]
        waiting = sorted(range(len(prompts)), key=lambda index: -rest[index])
        done: dict[int, tuple[RowState, torch.Tensor]] = {}
        while waiting:
            # Longest remainder first, so that the rows of one pass are padded little.
            widest = rest[waiting[0]]
            size = max(1, self.prefill_tokens // widest)
            batch = [index for index in waiting[:size] if rest[index] * 4 >= widest]
            waiting = waiting[len(batch) :]
            states = self._prefill_batch([prompts[i] for i in batch], [cached[i] for i in batch], keep)
            done.update(zip(batch, states, strict=True))
        return [done[index] for index in range(len(prompts))]

    def _share(self, prompts: list[Ids]) -> None:
        """Compute each beginning that several prompts share once, before they are computed side by side.

        Prompts form a tree: instructions, then problems, then earlier steps. It is walked from the root, and the
        beginnings of one level are computed in one pass.
        """
        groups = [prompts]
        while groups := [group for group in groups if len(group) > 1]:
            beginnings: list[Ids] = []
            deeper: list[list[Ids]] = []
            for group in groups:
                shared = min(common_prefix(group[0], ids) for ids in group[1:])
                shared = min(shared, min(len(ids) for ids in group) - 1)
                if shared - _length(self.store.longest(group[0][: shared + 1])) >= MIN_SHARED:
                    beginnings.append(group[0][:shared])
                branches: dict[int, list[Ids]] = {}
                for ids in group:
                    if len(ids) > shared + 1:
                        branches.setdefault(int(ids[shared]), []).append(ids)
                deeper += branches.values()
            if beginnings:
                for state, _ in self._prefill_all(beginnings):
                    self.store.add(state)
            groups = deeper

    def _prefill_batch(
        self, prompts: list[Ids], cached: list[RowState | None], keep: int
    ) -> list[tuple[RowState, torch.Tensor]]:
        known = [_length(state) for state in cached]
        fresh = [len(ids) - have for ids, have in zip(prompts, known, strict=True)]
        before, width = max(known), max(fresh)
        self.computed_tokens += sum(fresh)
        ids = torch.zeros((len(prompts), width), dtype=torch.long)
        mask = torch.zeros((len(prompts), before + width), dtype=torch.long)
        positions = torch.zeros((len(prompts), width), dtype=torch.long)
        for row, (tokens, have, new) in enumerate(zip(prompts, known, fresh, strict=True)):
            ids[row, width - new :] = torch.from_numpy(tokens[have:])
            mask[row, before - have : before] = 1
            mask[row, before + width - new :] = 1
            positions[row, width - new :] = torch.arange(have, have + new)
        cache = BatchCache.of_rows(cached, width)
        device = self.device
        logits = self._forward(ids.to(device), mask.to(device), positions.to(device), cache, keep)
        where = [mask[row].nonzero()[:, 0].to(self.device) for row in range(len(prompts))]
        return [(cache.row(row, prompts[row], where[row]), logits[row]) for row in range(len(prompts))]

    # ------------------------------------------------------------------ label reads

    @torch.inference_mode()
    def read_nodes(self, prompts: Sequence[Ids], trees: Sequence[Tree]) -> list[dict[Path, dict[int, float]]]:
        """Natural logs of full-vocabulary probabilities at every node of a decision tree behind each prompt.

        The prompt is computed together with one path through the tree, since a pass gives the logits of all its
        positions; nodes off that path take a second pass, on the keys of the first.

        Args:
            prompts: token ids.
            trees: for each prompt, node (a path of tokens behind the prompt) -> the tokens asked for there.
        """
        found: list[dict[Path, dict[int, float]]] = [{} for _ in prompts]
        chains = [max((path for path in tree if _on_one_path(path, tree)), key=len) for tree in trees]
        keep = 1 + max(len(chain) for chain in chains)
        rows = [_joined(ids, chain) for ids, chain in zip(prompts, chains, strict=True)]
        self._share(list({ids.tobytes(): ids for ids in prompts}.values()))
        for place, (state, logits) in enumerate(self._prefill_all(rows, keep)):
            self.store.add(state)
            chain = chains[place]
            for depth in range(len(chain) + 1):
                node = chain[:depth]
                found[place][node] = _log_probs(logits[depth - len(chain) - 1], trees[place][node])
        rest = [(place, node) for place, tree in enumerate(trees) for node in tree if node not in found[place]]
        states = self._prefill_all([_joined(prompts[place], node) for place, node in rest], 1)
        for (place, node), (_, logits) in zip(rest, states, strict=True):
            found[place][node] = _log_probs(logits[-1], trees[place][node])
        return found

    # ------------------------------------------------------------------ generation

    @torch.inference_mode()
    def generate(
        self, prompts: Sequence[Ids], params: Sequence[SamplingParams], max_batch: int | None = None
    ) -> list[Written]:
        """Continue every prompt until it stops; a row that is done makes room for the next.

        Args:
            prompts: token ids.
            params: for each prompt.
            max_batch: how many decode together; None = all.
        """
        rows = [_Row(ids, wanted, random.Random(wanted.seed)) for ids, wanted in zip(prompts, params, strict=True)]
        size = max_batch or len(rows)
        waiting = deque(rows)
        batch = _Batch([], BatchCache(), torch.zeros((0, 0), dtype=torch.long, device=self.device), 0)
        while True:
            going = [index for index, row in enumerate(batch.rows) if row.done is None]
            # Taking rows in copies the keys of all, so it waits until a quarter of the places are free.
            if waiting and size - len(going) >= max(size // 4, 1):
                batch = self._admit(batch, going, waiting, size)
                continue
            if not going:
                break
            if len(going) <= len(batch.rows) * 3 // 4:
                self._shrink(batch, going)
            self._step(batch)
        self._remember(batch)
        return [row.done for row in rows if row.done is not None]

    def _admit(self, batch: _Batch, going: list[int], waiting: deque[_Row], size: int) -> _Batch:
        """A batch of the rows still going and as many new ones as there is room for."""
        self._remember(batch)
        old = [(batch.rows[index], batch.state(index)) for index in going]
        fresh = [waiting.popleft() for _ in range(min(size - len(going), len(waiting)))]
        states = self.prefill([row.prompt for row in fresh])
        for row, (_, logits) in zip(fresh, states, strict=True):
            self._advance(row, logits[-1])
        rows = [row for row, _ in old] + fresh
        held = [*(state for _, state in old), *(state for state, _ in states)]
        room = max(row.params.max_tokens for row in rows)
        length = max(_length(state) for state in held)
        mask = torch.zeros((len(rows), length + room), dtype=torch.long, device=self.device)
        for index, state in enumerate(held):
            mask[index, length - _length(state) : length] = 1
        return _Batch(rows, BatchCache.of_rows(held, room), mask, length)

    def _step(self, batch: _Batch) -> None:
        """One more token for every row; rows that are done are carried along until the batch shrinks."""
        ids = torch.tensor([[row.ids[-1]] for row in batch.rows], device=self.device)
        at = torch.tensor([[len(row.prompt) + len(row.ids) - 1] for row in batch.rows], device=self.device)
        batch.mask[:, batch.length] = 1
        batch.length += 1
        self.computed_tokens += len(batch.rows)
        logits = self._forward(ids, batch.mask[:, : batch.length], at, batch.cache)
        for row, row_logits in zip(batch.rows, logits, strict=True):
            if row.done is None:
                self._advance(row, row_logits[-1])
            else:
                row.ids.append(row.ids[-1])  # keeps in step with the batch; not part of its text

    def _shrink(self, batch: _Batch, going: list[int]) -> None:
        self._remember(batch)
        rows = torch.tensor(going, device=self.device)
        batch.cache.select(rows)
        batch.mask = batch.mask[rows]
        batch.rows = [batch.rows[index] for index in going]

    def _remember(self, batch: _Batch) -> None:
        """Keep the keys of rows that are done."""
        for index, row in enumerate(batch.rows):
            if row.done is not None:
                self.store.add(batch.state(index))

    def _advance(self, row: _Row, logits: torch.Tensor) -> None:
        """Sample one token and see whether the row is done."""
        token = sample(logits, row.params, row.draw)
        if token in self.end_tokens:
            row.done = Written(self._text(row), "eos", None, len(row.ids) + 1)
            row.ids.append(token)
            return
        row.ids.append(token)
        if row.params.stop:
            window = max(map(len, row.params.stop)) + CONTEXT_TOKENS
            tail = self.tokenizer.decode(row.ids[-window:])
            if any(stop in tail for stop in row.params.stop):
                text = self._text(row)
                hits = [(text.find(stop), stop) for stop in row.params.stop if stop in text]
                if hits:
                    start, stop = min(hits)
                    row.done = Written(text[:start], "stop", stop, len(row.ids))
                    return
        if len(row.ids) >= row.params.max_tokens:
            row.done = Written(self._text(row), "length", None, len(row.ids))

    def _text(self, row: _Row) -> str:
        """The row's own text, decoded behind the end of its prompt: some tokenizers drop a leading space otherwise."""
        context = row.prompt[-CONTEXT_TOKENS:].tolist()
        before = self.tokenizer.decode(context)
        whole = self.tokenizer.decode([*context, *row.ids])
        text = whole[len(before) :] if whole.startswith(before) else self.tokenizer.decode(row.ids)
        return str(text).rstrip("\ufffd")


def _log_probs(logits: torch.Tensor, tokens: Collection[int]) -> dict[int, float]:
    """Natural logs of the probabilities of some tokens among all."""
    wanted = list(tokens)
    total = torch.logsumexp(logits.double(), dim=-1)
    picked = logits[torch.tensor(wanted, device=logits.device)].double() - total
    return dict(zip(wanted, picked.tolist(), strict=True))


def _on_one_path(path: Path, tree: Tree) -> bool:
    return all(path[:depth] in tree for depth in range(len(path)))


def _joined(ids: Ids, path: Path) -> Ids:
    return np.concatenate([ids, np.asarray(path, dtype=np.int64)])


def _length(state: RowState | None) -> int:
    return 0 if state is None else len(state.ids)
