"""Activation, gate with dropout and residual, and layer norm: operations of torch, each one pass.

They are for eager float32 on a CPU. Whoever traces, compiles or transforms is better served by
torch's own: :func:`possible` says which it is.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules import module as every_module

from s4d_torch.nn.activation import GELU, NONE, RELU, SILU, TANH
from s4d_torch.ssm.autodiff import again, gradients
from s4d_torch.ssm.compiled.operator import watched
from s4d_torch.ssm.compiled.runtime import LANES, as_read, available, compiled_module, share

PLAIN: dict[int, Callable[[Tensor], Tensor]] = {
    GELU: F.gelu,
    RELU: F.relu,
    SILU: F.silu,
    TANH: torch.tanh,
    NONE: lambda x: x,
}
KINDS = {nn.GELU: GELU, nn.ReLU: RELU, nn.SiLU: SILU, nn.Tanh: TANH, nn.Identity: NONE}
# Hooks of all modules, as torch keeps them.
LISTENERS = [
    f"_global_{when}_{kind}" for when in ("forward", "backward") for kind in ("hooks", "pre_hooks")
]
CODE = f"{__package__}.pointwise_code"
CHUNK = 256  # rows whose gradients of a norm's weights are added up before all are
WORK = 8  # mode steps of the scan that one number takes, about


def possible(*tensors: Tensor) -> bool:
    """Whether all of these, whose last axis are features, can be read by compiled code here."""
    return (
        all(x.dtype == torch.float32 and x.layout == torch.strided for x in tensors)
        and all(x.shape[-1] >= LANES and x.numel() for x in tensors)
        and available(tensors[0].device, torch.float32)
        and not watched(tensors)
    )


def untouched(*modules: nn.Module) -> bool:
    """Whether nobody listens to calls of these modules, nor calls something else in their place:
    then they need not be called.
    """
    return not any(getattr(every_module, name) for name in LISTENERS) and not any(
        m._forward_hooks
        or m._forward_pre_hooks
        or m._backward_hooks
        or m._backward_pre_hooks
        or "forward" in vars(m)
        for m in modules
    )


def activation_kind(module: nn.Module) -> int | None:
    """The number of an activation that :func:`activate` knows."""
    kind = KINDS.get(type(module))
    tanh_form = kind == GELU and getattr(module, "approximate", "none") != "none"
    return None if tanh_form else kind


def is_gate(module: nn.Module) -> bool | None:
    """Whether a module that follows a linear map is a gate, or none; None is something else."""
    if type(module) is nn.GLU and module.dim == -1:
        return True
    return False if type(module) is nn.Identity else None


def width_of(gate: nn.Module) -> int:
    """How many times as many features as it gives a gate takes; 0 if that is not known."""
    return {True: 2, False: 1, None: 0}[is_gate(gate)]


def activate(x: Tensor, kind: int, p: float = 0.0) -> Tensor:
    """``dropout(f(x))``, with f by its number in ``nn.activation`` and dropout at p < 1."""
    y: Tensor = _Activate.apply(x, kind, *draw(p))  # type: ignore[no-untyped-call]
    return y


def join(v: Tensor, x: Tensor, p: float = 0.0, *, gated: bool) -> Tensor:
    """``x + dropout(GLU(v))``, or without a gate ``x + dropout(v)``; p < 1."""
    y: Tensor = _Join.apply(v, x, gated, *draw(p))  # type: ignore[no-untyped-call]
    return y


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """``nn.functional.layer_norm`` over the last axis, which is a multiple of LANES."""
    y: Tensor = _Norm.apply(x, weight, bias, eps)  # type: ignore[no-untyped-call]
    return y


def draw(p: float) -> tuple[int, int]:
    """A key for this call, from torch's generator, and how many of 2^32 numbers are dropped."""
    if p == 0:
        return 0, 0
    dropped = min(round(p * 2**32), 2**32 - 1)
    return int(torch.empty((), dtype=torch.int64).random_()), dropped


def _share(name: str, options: tuple[Any, ...], tensors: list[Tensor]) -> None:
    rows, features = tensors[0].shape
    share(getattr(compiled_module(CODE), name), rows, features * WORK, options, tuple(tensors))


def _rows(**given: tuple[Tensor, int]) -> list[Tensor]:
    """Signals with so many features as rows that compiled code reads, all of as many rows."""
    (first, features), *_ = given.values()
    count = first.numel() // features
    flat = {name: (x.reshape(-1, n), (count, n)) for name, (x, n) in given.items()}
    return as_read(torch.float32, **flat)


class _Activate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, kind: int, key: int, dropped: int) -> Tensor:
        ctx.save_for_backward(x)
        ctx.options = kind, key, dropped
        return _run_activate(x, kind, key, dropped)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, None, None]:
        (x,) = ctx.saved_tensors
        if again(grad):
            of_x, *_ = gradients(partial(_plain_activate, *ctx.options), (x,), (grad,))
            return of_x, None, None, None
        n = x.shape[-1]
        given = _rows(x=(x, n), grad=(grad, n))
        found = x.new_empty(x.shape)
        _share("activate_backward", ctx.options, [*given, found.view(-1, n)])
        return found, None, None, None


def _run_activate(x: Tensor, kind: int, key: int, dropped: int) -> Tensor:
    n = x.shape[-1]
    (rows,) = _rows(x=(x, n))
    y = x.new_empty(x.shape)  # whole: a view of rows could not be changed in place
    _share("activate_forward", (kind, key, dropped), [rows, y.view(-1, n)])
    return y


def _plain_activate(kind: int, key: int, dropped: int, x: Tensor) -> Tensor:
    return PLAIN[kind](x) * kept(x, key, dropped)


def kept(x: Tensor, key: int, dropped: int) -> Tensor:
    """What dropout multiplies signals like x with."""
    ones = torch.ones_like(x, memory_format=torch.contiguous_format)
    return _run_activate(ones, NONE, key, dropped) if dropped else ones


class _Join(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, v: Tensor, x: Tensor, gated: bool, key: int, dropped: int) -> Tensor:
        n = x.shape[-1]
        ctx.save_for_backward(v)
        ctx.options, ctx.features = (int(gated), key, dropped), n
        rows, residual = _rows(v=(v, 2 * n if gated else n), x=(x, n))
        y = x.new_empty(x.shape)
        _share("join_forward", ctx.options, [rows, residual, y.view(-1, n)])
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, None, None, None]:
        (v,) = ctx.saved_tensors
        if again(grad):
            of_v, *_ = gradients(partial(_plain_branch, *ctx.options), (v,), (grad,))
            return of_v, grad, None, None, None
        rows, grads = _rows(v=(v, v.shape[-1]), grad=(grad, ctx.features))
        found = torch.empty_like(rows)
        _share("join_backward", ctx.options, [rows, grads, found])
        return found.view(v.shape), grad, None, None, None


def _plain_branch(gated: int, key: int, dropped: int, v: Tensor) -> Tensor:
    branch = F.glu(v) if gated else v
    return branch * kept(branch, key, dropped)


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        n = x.shape[-1]
        (rows,) = _rows(x=(x, n))
        affine = as_read(torch.float32, weight=(weight, (n,)), bias=(bias, (n,)))
        y, statistics = x.new_empty(x.shape), rows.new_empty(rows.shape[0], 2)
        _share("norm_forward", (eps,), [rows, *affine, y.view(-1, n), statistics])
        ctx.save_for_backward(x, weight, bias, statistics)
        ctx.eps = eps
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        x, weight, bias, statistics = ctx.saved_tensors
        n = x.shape[-1]
        if again(grad):
            plain = partial(_plain_norm, ctx.eps)
            return *gradients(plain, (x, weight, bias), (grad,)), None
        rows, grads, statistics = _rows(x=(x, n), grad=(grad, n), statistics=(statistics, 2))
        found = torch.empty_like(rows)
        tasks = -(-rows.shape[0] // CHUNK)
        sums = rows.new_zeros(2, tasks, n)
        (scale,) = as_read(torch.float32, weight=(weight, (n,)))
        given = (rows, scale, statistics, grads, found, sums[0], sums[1])
        run = compiled_module(CODE).norm_backward
        share(run, tasks, CHUNK * n * WORK, (CHUNK,), given)
        of_weight, of_bias = sums.sum(1)
        return found.view(x.shape), of_weight, of_bias, None


def _plain_norm(eps: float, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], weight, bias, eps)
