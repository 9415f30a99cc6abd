"""The residual block around a layer: norm, layer, dropout, stochastic depth, residual."""

from typing import Any

import torch
from torch import Tensor, nn

from s4d_torch.nn import validate
from s4d_torch.nn.layer import Layer, SequenceDropout
from s4d_torch.nn.norm import NORMS


class StochasticDepth(nn.Module):
    """In training, drop the whole branch for a random part of the batch and scale up the rest."""

    def __init__(self, p: float) -> None:
        super().__init__()
        validate.fraction("drop_path", p)
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        return x * nn.functional.dropout(torch.ones_like(x[:, :1, :1]), self.p)

    def extra_repr(self) -> str:
        return str(self.p)


class Block(nn.Module):
    """``x + dropout(layer(norm(x)))``, or with post-norm ``norm(x + dropout(layer(x)))``."""

    def __init__(
        self,
        layer: Layer,
        *,
        norm: str = "layer",
        prenorm: bool = True,
        dropout: float = 0.0,
        tie_dropout: bool = False,
        drop_path: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        validate.flag("prenorm", prenorm)
        self.prenorm = prenorm
        self.norm = NORMS[norm](layer.d_model, device=device, dtype=dtype)
        self.layer = layer
        self.dropout = SequenceDropout(dropout, tie_dropout)
        self.drop_path = StochasticDepth(drop_path)

    def forward(
        self,
        x: Tensor,
        state: Tensor | None = None,
        *,
        lengths: Tensor | None = None,
        rate: float = 1.0,
        return_state: bool = True,
        _zero_ends: bool = True,
    ) -> tuple[Tensor, Tensor | None]:
        """x (batch, length, d_model) -> the same shape, and the layer's state."""
        branch = self.norm(x, lengths) if self.prenorm else x
        options: Any = {"rate": rate, "return_state": return_state, "_zero_ends": _zero_ends}
        branch, state = self.layer(branch, state, lengths=lengths, **options)
        x = x + self.drop_path(self.dropout(branch))
        return (x if self.prenorm else self.norm(x, lengths)), state

    def step(self, x: Tensor, state: Tensor, *, rate: float = 1.0) -> tuple[Tensor, Tensor]:
        """One sample: x (batch, d_model)."""
        branch = self.norm.step(x) if self.prenorm else x
        branch, state = self.layer.step(branch, state, rate=rate)
        x = x + self.drop_path(self.dropout(branch[:, None]))[:, 0]
        return (x if self.prenorm else self.norm.step(x)), state

    def extra_repr(self) -> str:
        return f"prenorm={self.prenorm}"
