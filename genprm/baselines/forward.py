"""One forward pass over rows of token ids, padded on the right, and what is read from it.

Knows models, no tokenizers and no solutions. Padding stands behind what is read, so a causal model's answer does not
depend on it except in rounding. What leaves here is computed in float32 from the model's hidden states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import BackendUnavailable

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

Item = TypeVar("Item")
Answer = TypeVar("Answer")

# Logits of so many bytes, in float32, are held at once.
LOGIT_BYTES = 512 * 2**20


def pad(rows: Sequence[Sequence[int]], device: torch.device) -> dict[str, torch.Tensor]:
    """Input ids and attention mask of shape (rows, longest), padded on the right with token 0."""
    import torch

    longest = max(map(len, rows))
    ids = torch.zeros((len(rows), longest), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = torch.tensor(row)
        mask[number, : len(row)] = 1
    return {"input_ids": ids.to(device), "attention_mask": mask.to(device)}


def halving(run: Callable[[Sequence[Item]], list[Answer]], items: Sequence[Item], what: str) -> list[Answer]:
    """Run a batch; where the device's memory does not hold it, run it in halves.

    Raises:
        BackendUnavailable: one item alone does not fit.
    """
    import torch

    if not items:
        return []
    try:
        return run(items)
    except torch.OutOfMemoryError as error:
        if len(items) == 1:
            raise BackendUnavailable(f"out of memory for one solution with {what}") from error
    half = len(items) // 2
    return halving(run, items[:half], what) + halving(run, items[half:], what)


class ClassReader:
    """Reads the two classes of a token classifier; class 1 is the good one."""

    def __init__(self, base: PreTrainedModel, head: torch.nn.Module):
        """Wrap a classifier.

        Args:
            base: gives hidden states.
            head: from a hidden state to two logits; computed in float32.
        """
        self._base, self._head = base, head.float().to(base.device)

    def read(self, rows: Sequence[Sequence[int]], places: Sequence[Sequence[int]]) -> list[list[float]]:
        """P(good) at each place of each row."""
        import torch

        with torch.inference_mode():
            hidden = self._base(**pad(rows, self._base.device), use_cache=False).last_hidden_state
            logits = [self._head(hidden[number, list(where)].float()) for number, where in enumerate(places)]
        return [values.softmax(dim=-1)[:, 1].tolist() for values in logits]


class CausalReader:
    """Reads a causal language model's next-token distributions."""

    def __init__(self, model: PreTrainedModel):
        from ..backends.head import ExactHead

        self.model = model
        self._exact = ExactHead(model)
        self._checked = False

    def read_two(
        self, rows: Sequence[Sequence[int]], places: Sequence[Sequence[int]], good: int, bad: int
    ) -> list[list[float]]:
        """P(good) / (P(good) + P(bad)) after each place of each row."""
        import torch

        wanted = sorted({place for where in places for place in where})
        with torch.inference_mode():
            logits = self._logits(rows, wanted)[:, :, [good, bad]]
            probs = logits.softmax(dim=-1)[:, :, 0].tolist()
        column = {place: number for number, place in enumerate(wanted)}
        return [[row[column[place]] for place in where] for row, where in zip(probs, places, strict=True)]

    def read_logs(self, rows: Sequence[Sequence[int]], starts: Sequence[int]) -> list[list[float]]:
        """log P(token | those before it) of the tokens of each row from its start on, in nats."""
        import torch

        # As many rows at once as keep all their logits small; a single one may be larger.
        width = max(map(len, rows)) - min(starts)
        at_once = max(1, LOGIT_BYTES // (4 * width * self.model.config.get_text_config().vocab_size))
        if len(rows) > at_once:
            parts = [slice(first, first + at_once) for first in range(0, len(rows), at_once)]
            return [logs for part in parts for logs in self.read_logs(rows[part], starts[part])]
        first = min(starts)
        logs: list[list[float]] = []
        with torch.inference_mode():
            logits = self._logits(rows, list(range(first - 1, max(map(len, rows)) - 1)))
            for number, (row, start) in enumerate(zip(rows, starts, strict=True)):
                values = logits[number, start - first : len(row) - first]
                chosen = values.gather(1, torch.tensor(row[start:], device=values.device)[:, None])[:, 0]
                logs.append((chosen - values.logsumexp(dim=-1)).tolist())
        return logs

    def _logits(self, rows: Sequence[Sequence[int]], places: list[int]) -> Any:
        """Float32 logits after `places` in every row, of shape (rows, places, vocabulary)."""
        import torch

        keep = torch.tensor(places, device=self.model.device)
        logits = self.model(**pad(rows, self.model.device), logits_to_keep=keep, use_cache=False).logits.float()
        if not self._checked:
            self._exact.check(logits)
            self._checked = True
        return self._exact.exact(logits)
