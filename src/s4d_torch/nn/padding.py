"""Right-padded batches: where sequences are, and zeros where they have ended."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def mask(lengths: Tensor | Sequence[int], x: Tensor) -> Tensor:
    """True where x (batch, length, ...) is inside its sequence; (batch, length, 1).

    Pairs have lengths (batch, 2), x (batch, 2, length, ...) and a mask (batch, 2, length, 1).
    """
    lengths = torch.as_tensor(lengths, device=x.device)
    place = torch.arange(x.shape[lengths.ndim], device=x.device)
    return (place < lengths[..., None])[..., None]


def zero_ends(x: Tensor, lengths: Tensor | Sequence[int] | None) -> Tensor:
    """x (batch, length, features) with zeros where sequences have ended."""
    return x if lengths is None else torch.where(mask(lengths, x), x, 0.0)
