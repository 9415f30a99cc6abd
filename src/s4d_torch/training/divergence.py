"""Divergence: a loss, gradient or weight that is not finite, and where that began."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from s4d_torch.training.distributed import unsharded


class DivergenceError(RuntimeError):
    """The loss or a gradient is not finite; the message names where that began."""


def trace(model: nn.Module, forward: Callable[[], object]) -> tuple[int, str]:
    """The first thing that is not finite: 0 a weight, 1 a layer's output, 2 a gradient
    or a statistic of the data, 3 the loss.

    Processes see different data: that which is nearer to the start of the trouble knows more.
    """
    if weight := first_nonfinite(dict(model.named_parameters())):
        return 0, f"the parameter {weight}"
    grads = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    gradient = first_nonfinite(grads)  # asked for in all processes, which may hold shards
    first: list[str] = []

    def watch(name: str) -> Callable[..., None]:
        def hook(_: nn.Module, __: Any, output: Any) -> None:
            tensor = output[0] if isinstance(output, tuple) else output
            if not first and isinstance(tensor, Tensor) and not torch.isfinite(tensor).all():
                first.append(name or "the whole model")

        return hook

    handles = [module.register_forward_hook(watch(name)) for name, module in model.named_modules()]
    try:
        with torch.no_grad():
            forward()
    finally:
        for handle in handles:
            handle.remove()
    if first:
        return 1, f"the output of {first[0]}"
    if gradient:
        return 2, f"the gradient of {gradient}"
    statistic = first_nonfinite(dict(model.named_buffers()))
    return (2, f"the statistic {statistic}") if statistic else (3, "the loss")


def all_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether all numbers are finite, found out in one go."""
    some = [x for x in tensors if x.is_floating_point() and x.numel()]
    return bool(torch.isfinite(get_total_norm(some, math.inf)))


def first_nonfinite(tensors: Mapping[str, Tensor]) -> str | None:
    """The name of the first tensor that is not finite."""
    bad = (name for name, x in tensors.items() if not torch.isfinite(unsharded(x)).all())
    return next(bad, None)
