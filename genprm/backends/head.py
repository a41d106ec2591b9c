"""A half-precision model's output layer, computed in float32 for label reads.

In bfloat16 a logit of 20 is rounded to the nearest 1/8, which moves a probability by up to 0.016. The hidden state
behind it is the same, so the layer alone is computed again. Only where it is a plain matrix product: a model that
scales or caps its logits afterwards keeps its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# A float32 copy of a small layer is kept; of a large one, blocks are converted as they are needed.
KEEP_BYTES = 256 * 2**20
BLOCK_ROWS = 16384


class ExactHead:
    """Remembers the output layer's last input and multiplies it anew."""

    def __init__(self, model: PreTrainedModel):
        head = model.get_output_embeddings()
        plain = isinstance(head, torch.nn.Linear) and head.bias is None
        self.wanted = plain and head.weight.dtype in (torch.bfloat16, torch.float16)
        self._hidden: torch.Tensor | None = None
        if not self.wanted:
            return
        self._weight: torch.Tensor = head.weight.detach()
        if self._weight.numel() * 4 <= KEEP_BYTES:
            self._weight = self._weight.float()
        self._handle = head.register_forward_pre_hook(self._note)

    def _note(self, _module: Any, inputs: tuple[torch.Tensor, ...]) -> None:
        self._hidden = inputs[0].detach()

    def check(self, logits: torch.Tensor) -> None:
        """Compare with the model's own logits for the same input; where they differ, leave them alone for good."""
        if self.wanted and not torch.allclose(self.exact(logits), logits, atol=0.05, rtol=0.02):
            self._handle.remove()
            self.wanted = False

    def exact(self, logits: torch.Tensor) -> torch.Tensor:
        """Float32 logits of the positions that the model has just computed, of shape (batch, positions, vocabulary)."""
        if not self.wanted or self._hidden is None:
            return logits
        hidden = self._hidden[:, -logits.shape[1] :].float()
        if self._weight.dtype == torch.float32:
            return hidden @ self._weight.T
        return torch.cat([hidden @ block.float().T for block in torch.split(self._weight, BLOCK_ROWS)], dim=-1)
