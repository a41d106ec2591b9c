"""Keys and values of finished sequences, kept so that a later prompt computes only what is new in it.

A critique asks again and again with its own text grown a little; steps of one solution begin alike. Entries are
looked up by the longest common beginning of token ids. Only for models whose whole state is attention keys and values.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers.cache_utils import DynamicCache, DynamicLayer

Ids = NDArray[np.int64]
GROWTH = 128


@dataclass(slots=True)
class RowState:
    """One sequence's keys and values: a list over layers of tensors (heads, tokens, head size)."""

    ids: Ids
    keys: list[torch.Tensor]
    values: list[torch.Tensor]

    @property
    def nbytes(self) -> int:
        """Bytes held by keys and values."""
        return sum(tensor.numel() * tensor.element_size() for tensor in (*self.keys, *self.values))

    def first(self, length: int) -> RowState:
        """The state after the first `length` tokens, sharing memory."""
        keys = [tensor[:, :length] for tensor in self.keys]
        return RowState(self.ids[:length], keys, [tensor[:, :length] for tensor in self.values])


class PrefixStore:
    """Recently used row states within a budget of bytes."""

    def __init__(self, budget: int):
        self.budget = budget
        self.used = 0
        self._rows: OrderedDict[int, RowState] = OrderedDict()
        self._numbers = count()

    def add(self, state: RowState) -> None:
        """Keep a state; drop the ones that it begins with the whole of, and the oldest over budget."""
        for key, other in list(self._rows.items()):
            if len(other.ids) <= len(state.ids) and common_prefix(other.ids, state.ids) == len(other.ids):
                self._drop(key)
        self._rows[next(self._numbers)] = state
        self.used += state.nbytes
        while self.used > self.budget and self._rows:
            self._drop(next(iter(self._rows)))

    def longest(self, ids: Ids, spare: int = 1) -> RowState | None:
        """The longest kept beginning of `ids`, short of its last `spare` tokens, whose logits are to be computed."""
        best, best_key = 0, None
        for key, state in self._rows.items():
            length = min(common_prefix(state.ids, ids), len(ids) - spare)
            if length > best:
                best, best_key = length, key
        if best_key is None:
            return None
        self._rows.move_to_end(best_key)
        return self._rows[best_key].first(best)

    def clear(self) -> None:
        """Forget everything."""
        self._rows.clear()
        self.used = 0

    def _drop(self, key: int) -> None:
        self.used -= self._rows.pop(key).nbytes


class GrowingLayer(DynamicLayer):  # type: ignore[misc]
    """A cache layer that writes into spare room, where the stock one copies everything for each new token."""

    def __init__(self) -> None:
        super().__init__()
        self._key_room: torch.Tensor | None = None
        self._value_room: torch.Tensor | None = None

    def fill(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Start from given keys and values of shape (batch, heads, tokens, head size)."""
        self.device, self.dtype = keys.device, keys.dtype
        self._key_room, self._value_room = keys, values
        self.keys, self.values = keys, values
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append and return all keys and values so far."""
        if not self.is_initialized:
            self.fill(key_states[:, :, :0], value_states[:, :, :0])
        assert self._key_room is not None
        assert self._value_room is not None
        old = self.get_seq_length()
        new = old + key_states.shape[-2]
        if new > self._key_room.shape[-2]:
            self._key_room = _with_room(self._key_room[:, :, :old], new + GROWTH)
            self._value_room = _with_room(self._value_room[:, :, :old], new + GROWTH)
        self._key_room[:, :, old:new] = key_states
        self._value_room[:, :, old:new] = value_states
        self.keys, self.values = self._key_room[:, :, :new], self._value_room[:, :, :new]
        return self.keys, self.values

    def get_seq_length(self) -> int:
        """Tokens held, zero included."""
        return 0 if self.keys is None else int(self.keys.shape[-2])

    def select(self, rows: torch.Tensor) -> None:
        """Keep only these rows of the batch."""
        assert self._key_room is not None
        assert self._value_room is not None
        length = self.get_seq_length()
        self._key_room = self._key_room.index_select(0, rows)
        self._value_room = self._value_room.index_select(0, rows)
        self.keys, self.values = self._key_room[:, :, :length], self._value_room[:, :, :length]


class BatchCache(DynamicCache):  # type: ignore[misc]
    """The cache of one batch; rows are left-padded to a common length."""

    def __init__(self) -> None:
        super().__init__()
        self.layer_class_to_replicate = GrowingLayer

    @classmethod
    def of_rows(cls, rows: Sequence[RowState | None], room: int) -> BatchCache:
        """Left-pad row states into one cache with room for `room` further tokens; None = an empty row."""
        cache = cls()
        filled = [row for row in rows if row is not None]
        if not filled:
            return cache
        length = max(len(row.ids) for row in filled)
        for number in range(len(filled[0].keys)):
            layer = GrowingLayer()
            heads, _, size = filled[0].keys[number].shape
            like = filled[0].keys[number]
            shape = (len(rows), heads, length + room)
            keys = torch.zeros((*shape, size), dtype=like.dtype, device=like.device)
            values = torch.zeros((*shape, filled[0].values[number].shape[-1]), dtype=like.dtype, device=like.device)
            for index, row in enumerate(rows):
                if row is not None:
                    keys[index, :, length - len(row.ids) : length] = row.keys[number]
                    values[index, :, length - len(row.ids) : length] = row.values[number]
            layer.fill(keys, values)
            layer.keys, layer.values = keys[:, :, :length], values[:, :, :length]
            cache.layers.append(layer)
        return cache

    def row(self, index: int, ids: Ids, where: torch.Tensor) -> RowState:
        """Copy one row out; `where` are the positions that hold its tokens, in order."""
        keys = [layer.keys[index].index_select(1, where) for layer in self.layers]
        values = [layer.values[index].index_select(1, where) for layer in self.layers]
        return RowState(ids, keys, values)

    def select(self, rows: torch.Tensor) -> None:
        """Keep only these rows of the batch."""
        for layer in self.layers:
            layer.select(rows)


def common_prefix(left: Ids, right: Ids) -> int:
    """Length of the common beginning of two id arrays."""
    size = min(len(left), len(right))
    differing = np.flatnonzero(left[:size] != right[:size])
    return int(differing[0]) if len(differing) else size


def _with_room(tensor: torch.Tensor, length: int) -> torch.Tensor:
    batch, heads, used, size = tensor.shape
    grown = torch.zeros((batch, heads, length, size), dtype=tensor.dtype, device=tensor.device)
    grown[:, :, :used] = tensor
    return grown
