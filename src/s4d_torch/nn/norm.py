"""Norms over the features of a sequence, each with what it folds to in evaluation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, distributed, nn

from s4d_torch._registry import EntryRegistry
from s4d_torch.nn.batch import mask
from s4d_torch.nn.fused import pointwise
from s4d_torch.ssm.compiled.runtime import LANES


class NormKind(IntEnum):
    """What is left of a norm in evaluation; the numbers are those of the compiled step."""

    NONE = 0
    AFFINE = 1  # scale and shift
    LAYER = 2  # subtract the mean over the features, divide by their deviation, scale and shift


class FoldedNorm(NamedTuple):
    """A norm in evaluation as numbers; ``scale`` and ``shift`` are (features,)."""

    kind: NormKind
    scale: Tensor
    shift: Tensor
    eps: float = 0.0


@dataclass(frozen=True)
class Norm:
    """``module(features, device, dtype)`` makes one, with ``forward(x, lengths)`` and ``step(x)``.

    ``fold`` gives what is left of such a module in evaluation, which is all that compiled steps,
    ONNX, C and JavaScript need of it, with one kind and eps for all norms of a model; a norm that
    is none of :class:`NormKind` has no such form.
    """

    module: Callable[..., Any]
    fold: Callable[[Any], FoldedNorm] | None = None

    @classmethod
    def of(cls, entry: Norm | Callable[..., Any]) -> Norm:
        """An entry, also from a class alone: one with ``step``, or a norm such as nn.RMSNorm."""
        if isinstance(entry, Norm):
            return entry
        if not callable(entry):
            raise TypeError(f"a norm is a Norm or the class of a module, got {entry!r}")
        return cls(entry if hasattr(entry, "step") else partial(SequenceNorm, make=entry))

    @property
    def compiled(self) -> Any:
        return self.fold

    onnx = c = js = compiled

    def __call__(self, features: int, **factory: Any) -> Any:
        return self.module(features, **factory)


class SequenceNorm(nn.Module):
    """A norm over the features of (..., features) at one time; ``lengths`` do not matter to it."""

    def __init__(
        self, features: int, *, make: Callable[..., nn.Module] = nn.LayerNorm, **factory: Any
    ) -> None:
        super().__init__()
        self.features, self.norm = features, make(features, **factory)
        self.in_one_pass = True  # where it can be; not where weights come and go, as with FSDP

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        norm = self.norm
        if type(norm) is nn.LayerNorm and self._fits(norm, x):
            return pointwise.layer_norm(x, norm.weight, norm.bias, norm.eps)
        y: Tensor = norm(x)
        return y

    def _fits(self, norm: nn.LayerNorm, x: Tensor) -> bool:
        """Whether the layer norm can be had in one pass; for few numbers torch's own is faster."""
        return (
            self.in_one_pass
            and self.features % LANES == 0
            and norm.weight is not None
            and norm.bias is not None
            and pointwise.possible(x)
            and pointwise.untouched(norm)
        )

    def step(self, x: Tensor) -> Tensor:
        y: Tensor = self.norm(x)
        return y


def _fold_layer_norm(module: SequenceNorm) -> FoldedNorm:
    norm = module.norm
    assert isinstance(norm, nn.LayerNorm)
    return FoldedNorm(NormKind.LAYER, norm.weight.detach(), norm.bias.detach(), norm.eps)


class SequenceBatchNorm(nn.Module):
    """BatchNorm over batch and time of (batch, length, features).

    In training the statistics are those of the valid positions of a ragged batch; evaluation and
    single steps use the running ones.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(
        self, features: int, *, momentum: float = 0.1, eps: float = 1e-5, **factory: Any
    ) -> None:
        super().__init__()
        self.momentum, self.eps = momentum, eps
        self.processes = 1  # that train together: their batches are one
        self.counts = True  # whether this process's batch is a part of that one
        self.weight = nn.Parameter(torch.ones(features, **factory))
        self.bias = nn.Parameter(torch.zeros(features, **factory))
        self.register_buffer("running_mean", torch.zeros(features, **factory))
        self.register_buffer("running_var", torch.ones(features, **factory))

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        if not self.training or (lengths is None and self.processes == 1):
            return self._batch_norm(x.flatten(0, 1), self.training).unflatten(0, x.shape[:2])
        valid = torch.ones_like(x[..., :1]).bool() if lengths is None else mask(lengths, x)
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
        return self._batch_norm(x, training=False)

    def _batch_norm(self, x: Tensor, training: bool) -> Tensor:
        running, affine = (self.running_mean, self.running_var), (self.weight, self.bias)
        return nn.functional.batch_norm(x, *running, *affine, training, self.momentum, self.eps)

    def extra_repr(self) -> str:
        return f"{self.weight.shape[0]}, eps={self.eps}, momentum={self.momentum}"


def _fold_batch_norm(norm: SequenceBatchNorm) -> FoldedNorm:
    weight, bias, mean, variance = (
        x.detach().double() for x in (norm.weight, norm.bias, norm.running_mean, norm.running_var)
    )
    scale = weight / (variance + norm.eps).sqrt()
    return FoldedNorm(NormKind.AFFINE, scale, bias - mean * scale)


class _SumOverProcesses(torch.autograd.Function):
    """Each process has the sum; so each one's gradient is that of all their losses together."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        total = x.clone(memory_format=torch.contiguous_format)  # it may be an expanded number
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return _SumOverProcesses.forward(ctx, grad)


def _fold_no_norm(module: SequenceNorm) -> FoldedNorm:
    size = module.features
    return FoldedNorm(NormKind.NONE, torch.ones(size), torch.zeros(size))


NORMS: EntryRegistry[Norm] = EntryRegistry("norm", Norm.of)
NORMS.register("layer", Norm(SequenceNorm, _fold_layer_norm))
NORMS.register("batch", Norm(SequenceBatchNorm, _fold_batch_norm))
NORMS.register("none", Norm(partial(SequenceNorm, make=nn.Identity), _fold_no_norm))
