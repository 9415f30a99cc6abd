"""What a model carries from one call to the next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class ModelState(NamedTuple):
    """What a model carries along: a state per layer and, for mean pooling, a running sum.

    ``layers`` each (batch, d_model, state_size), just after the last sample; ``total`` (batch,
    d_model) and ``samples`` (batch,). A model of pairs has two neighbouring rows for each of them.
    The state of a single layer is a tensor (batch, d_model, state_size), with torch's own
    ``state.detach()``, ``state[indices]`` and ``state.masked_fill(mask[:, None, None], 0)``.
    """

    layers: tuple[Tensor, ...]
    total: Tensor
    samples: Tensor

    def detach(self) -> ModelState:
        """The same numbers without their history: gradients end here."""
        return self._each(Tensor.detach)

    def select(self, indices: Tensor | Sequence[int]) -> ModelState:
        """The rows with these indices, in this order, or those where a bool mask is True."""
        chosen = torch.as_tensor(indices, device=self.samples.device)
        if chosen.ndim != 1 or chosen.is_floating_point():
            raise ValueError(
                f"indices must be a row of integers or a bool mask, got {chosen.dtype} of shape "
                f"{tuple(chosen.shape)}"
            )
        rows = self._rows(chosen) if chosen.dtype == torch.bool else chosen.long()
        return self._each(lambda x: x[rows])

    def zero(self, mask: Tensor | Sequence[bool]) -> ModelState:
        """New sequences begin where ``mask`` (batch,) is True; the others go on."""
        begins = self._rows(torch.as_tensor(mask, device=self.samples.device))
        return self._each(
            lambda x: torch.where(begins.view(-1, *[1] * (x.ndim - 1)), torch.zeros_like(x), x)
        )

    def _rows(self, mask: Tensor) -> Tensor:
        rows = tuple(self.samples.shape)
        if mask.dtype != torch.bool or mask.shape != rows:
            raise ValueError(
                f"mask must be torch.bool of shape {rows}, one for each sequence, got {mask.dtype} "
                f"of shape {tuple(mask.shape)}"
            )
        return mask

    def _each(self, change: Callable[[Tensor], Tensor]) -> ModelState:
        layers = tuple(change(x) for x in self.layers)
        return ModelState(layers, change(self.total), change(self.samples))
