"""The residual block around a layer: norm, layer, dropout, stochastic depth, residual."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, distributed, nn

from s4d_torch._registry import Registry
from s4d_torch.nn import validate
from s4d_torch.nn.layer import Layer, SequenceDropout, mask


class SequenceNorm(nn.Module):
    """LayerNorm over the features of (..., features); ``lengths`` do not matter to it."""

    def __init__(
        self,
        features: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features, device=device, dtype=dtype)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        y: Tensor = self.norm(x)
        return y

    def step(self, x: Tensor) -> Tensor:
        y: Tensor = self.norm(x)
        return y


class SequenceBatchNorm(nn.Module):
    """BatchNorm over batch and time of (batch, length, features).

    In training the statistics are those of the valid positions of a ragged batch; evaluation and
    single steps use the running ones.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(
        self,
        features: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        self.momentum, self.eps = momentum, eps
        self.processes = 1  # that train together: their batches are one
        self.counts = True  # whether this process's batch is a part of that one
        self.weight = nn.Parameter(torch.ones(features, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros(features, device=device, dtype=dtype))
        self.register_buffer("running_mean", torch.zeros(features, device=device, dtype=dtype))
        self.register_buffer("running_var", torch.ones(features, device=device, dtype=dtype))

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        alone = self.processes == 1
        if not self.training or (lengths is None and alone):
            y = nn.functional.batch_norm(
                x.flatten(0, 1),
                self.running_mean,
                self.running_var,
                self.weight,
                self.bias,
                self.training,
                self.momentum,
                self.eps,
            )
            return y.unflatten(0, x.shape[:2])
        valid = (
            torch.ones_like(x[..., :1], dtype=torch.bool) if lengths is None else mask(lengths, x)
        )
        valid = valid & self.counts
        wide = x.to(torch.promote_types(x.dtype, torch.float32))  # bfloat16 has no digits for sums
        count = self._of_all(valid.sum().to(wide.dtype))
        mean = self._of_all(torch.where(valid, wide, 0.0).sum((0, 1))) / count
        centred = torch.where(valid, wide - mean, 0.0)
        variance = self._of_all(centred.square().sum((0, 1))) / count
        with torch.no_grad():
            unbiased = variance * count / (count - 1).clamp(min=1)
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
            self.running_var.lerp_(unbiased.to(self.running_var.dtype), self.momentum)
        y = centred * ((variance + self.eps).rsqrt() * self.weight) + self.bias
        return y.to(x.dtype)

    def _of_all(self, x: Tensor) -> Tensor:
        """The sum over all processes that train this model together; gradients go back to all."""
        if self.processes == 1:
            return x
        total: Tensor = _SumOverProcesses.apply(x)  # type: ignore[no-untyped-call]
        return total

    def step(self, x: Tensor) -> Tensor:
        return nn.functional.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
        )

    def extra_repr(self) -> str:
        return f"{self.weight.shape[0]}, eps={self.eps}, momentum={self.momentum}"


class _SumOverProcesses(torch.autograd.Function):
    """Each process has the sum; so each one's gradient is that of all their losses together."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        total = x.clone()
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        total = grad.clone(memory_format=torch.contiguous_format)  # it may be an expanded number
        distributed.all_reduce(total)
        return total


class NoNorm(nn.Module):
    """The norm that does nothing."""

    def __init__(
        self,
        features: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        return x

    def step(self, x: Tensor) -> Tensor:
        return x


Norm = SequenceNorm | SequenceBatchNorm | NoNorm
NORMS: Registry[Callable[..., Norm]] = Registry("norm")
NORMS.register("layer", SequenceNorm)
NORMS.register("batch", SequenceBatchNorm)
NORMS.register("none", NoNorm)


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
        zero_padding: bool = True,
    ) -> tuple[Tensor, Tensor | None]:
        """x (batch, length, d_model) -> the same shape, and the layer's state."""
        branch = self.norm(x, lengths) if self.prenorm else x
        branch, state = self.layer(
            branch,
            state,
            lengths=lengths,
            rate=rate,
            return_state=return_state,
            zero_padding=zero_padding,
        )
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
