"""Stored parameters straight to the tables of the compiled scan, or to the kernel, by one operator.

Plain torch takes some fifty small operations for it: for long sequences that hardly matters, for
short ones it is most of the time.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from s4d_torch.ssm.compiled.scan import Blocks, compiled_module, padded, share
from s4d_torch.ssm.kernel import block_length

RULES = ("bilinear", "zoh", "foh")
CONSTRAINTS = ("exp", "relu", "softplus", "identity")


def supports(discretization: str, constraint: str) -> bool:
    """Whether this rule and this constraint have compiled code; others go through torch."""
    return discretization in RULES and constraint in CONSTRAINTS


def stored_blocks(
    discretization: str,
    constraint: str,
    rate: float,
    raw_decay: Tensor,
    frequency: Tensor | None,
    raw_B: Tensor,
    raw_C: Tensor,
    log_dt: Tensor,
    D: Tensor,
) -> Blocks:
    """What ``DiagonalSystem.blocks`` gives, from the parameters as a module stores them.

    raw_decay, frequency (sets, modes), raw_B (sets, modes, 2), raw_C (H, modes, 2), log_dt, D (H,);
    real modes have no frequency and no last axis.
    """
    options, stored = _as_pairs(discretization, constraint, raw_decay, frequency, raw_B, raw_C)
    return Blocks(*_blocks(options, rate, *stored, log_dt, D))


def stored_kernel(
    discretization: str,
    constraint: str,
    rate: float,
    length: int,
    raw_decay: Tensor,
    frequency: Tensor | None,
    raw_B: Tensor,
    raw_C: Tensor,
    log_dt: Tensor,
) -> Tensor:
    """What ``kernel.vandermonde`` gives, in float32; raw_C (..., H, modes, 2)."""
    options, stored = _as_pairs(discretization, constraint, raw_decay, frequency, raw_B, raw_C)
    *shared, C = stored
    lead = C.shape[:-3]
    options.append(max(4, block_length(length)))
    K: Tensor = _kernel(options, rate, length, *shared, C.reshape(-1, *C.shape[-3:]), log_dt)
    return K.reshape(*lead, *K.shape[1:])


def _as_pairs(
    discretization: str,
    constraint: str,
    raw_decay: Tensor,
    frequency: Tensor | None,
    raw_B: Tensor,
    raw_C: Tensor,
) -> tuple[list[int], tuple[Tensor, Tensor, Tensor, Tensor]]:
    """The options as numbers, and real modes written as pairs with no imaginary part."""
    pairs = frequency is not None
    if frequency is None:
        frequency = torch.zeros_like(raw_decay)
        raw_B, raw_C = (torch.stack([x, torch.zeros_like(x)], dim=-1) for x in (raw_B, raw_C))
    options = [RULES.index(discretization), CONSTRAINTS.index(constraint), int(pairs)]
    return options, (raw_decay, frequency, raw_B, raw_C)


@torch.library.custom_op("s4d_torch::blocks", mutates_args=())
def _blocks(
    options: list[int],
    rate: float,
    decay: Tensor,
    frequency: Tensor,
    B: Tensor,
    C: Tensor,
    log_dt: Tensor,
    D: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    stored = [x.contiguous() for x in (decay, frequency, B, C, log_dt, D)]
    made = _empty_blocks(decay, log_dt)
    run = compiled_module("s4d_torch.ssm.compiled.blocks_code").blocks_forward
    share(run, log_dt.shape[0], decay.shape[1] * 64, (tuple(options), rate), (*stored, *made))
    return made


@_blocks.register_fake
def _(
    options: list[int],
    rate: float,
    decay: Tensor,
    frequency: Tensor,
    B: Tensor,
    C: Tensor,
    log_dt: Tensor,
    D: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _empty_blocks(decay, log_dt)


@torch.library.custom_op("s4d_torch::blocks_backward", mutates_args=())
def _blocks_backward(
    grad_tables: Tensor,
    grad_kernel: Tensor,
    options: list[int],
    rate: float,
    decay: Tensor,
    frequency: Tensor,
    B: Tensor,
    C: Tensor,
    log_dt: Tensor,
    D: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    stored = [x.contiguous() for x in (decay, frequency, B, C, log_dt, D)]
    grads = [torch.zeros_like(x, dtype=torch.float64) for x in stored[:5]]
    given = (grad_tables.contiguous(), grad_kernel.contiguous())
    run = compiled_module("s4d_torch.ssm.compiled.blocks_code").blocks_backward
    channels, sets = log_dt.shape[0], decay.shape[0]
    # channels that share a set would write to the same place: then one thread does it all
    work = decay.shape[1] * 128 if sets == channels else 0
    share(run, channels, work, (tuple(options), rate), (*stored, *given, *grads))
    a, b, c, d, e = (grad.to(decay.dtype) for grad in grads)
    return a, b, c, d, e


@_blocks_backward.register_fake
def _(
    grad_tables: Tensor,
    grad_kernel: Tensor,
    options: list[int],
    rate: float,
    decay: Tensor,
    frequency: Tensor,
    B: Tensor,
    C: Tensor,
    log_dt: Tensor,
    D: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    a, b, c, d, e = (torch.empty_like(x) for x in (decay, frequency, B, C, log_dt))
    return a, b, c, d, e


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.options, ctx.rate = inputs[:2]
    ctx.save_for_backward(*inputs[2:])


def _differentiate(
    ctx: Any, grad_tables: Tensor, grad_kernel: Tensor, *_: Tensor
) -> tuple[Any, ...]:
    grads = _blocks_backward(grad_tables, grad_kernel, ctx.options, ctx.rate, *ctx.saved_tensors)
    return None, None, *grads, grad_kernel[:, 0]


_blocks.register_autograd(_differentiate, setup_context=_keep_for_backward)


def _empty_blocks(decay: Tensor, log_dt: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    channels, size = log_dt.shape[0], 2 * padded(decay.shape[1])
    return (
        decay.new_empty(channels, 9 * size),
        decay.new_empty(channels, 4),
        decay.new_empty(channels, size),
        decay.new_empty(channels, size, dtype=torch.float64),
    )


# -- the kernel ----------------------------------------------------------------------------------


@torch.library.custom_op("s4d_torch::kernel", mutates_args=())
def _kernel(
    options: list[int],
    rate: float,
    length: int,
    decay: Tensor,
    frequency: Tensor,
    B: Tensor,
    C: Tensor,
    log_dt: Tensor,
) -> Tensor:
    stored = [x.contiguous() for x in (decay, frequency, B, C, log_dt)]
    K = C.new_empty(*C.shape[:2], length)
    run = compiled_module("s4d_torch.ssm.compiled.kernel_code").kernel_forward
    work = decay.shape[1] * length * C.shape[0]
    share(run, log_dt.shape[0], work, (tuple(options), rate), (*stored, K))
    return K


@_kernel.register_fake
def _(
    options: list[int],
    rate: float,
    length: int,
    decay: Tensor,
    frequency: Tensor,
    B: Tensor,
    C: Tensor,
    log_dt: Tensor,
) -> Tensor:
    return C.new_empty(*C.shape[:2], length)


@torch.library.custom_op("s4d_torch::kernel_backward", mutates_args=())
def _kernel_backward(
    grad: Tensor,
    options: list[int],
    rate: float,
    decay: Tensor,
    frequency: Tensor,
    B: Tensor,
    C: Tensor,
    log_dt: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    stored = [x.contiguous() for x in (decay, frequency, B, C, log_dt)]
    grads = [torch.zeros_like(x, dtype=torch.float64) for x in stored]
    run = compiled_module("s4d_torch.ssm.compiled.kernel_code").kernel_backward
    channels, sets = log_dt.shape[0], decay.shape[0]
    work = decay.shape[1] * grad.shape[2] * C.shape[0] if sets == channels else 0
    share(run, channels, work, (tuple(options), rate), (*stored, grad.contiguous(), *grads))
    a, b, c, d, e = (x.to(decay.dtype) for x in grads)
    return a, b, c, d, e


@_kernel_backward.register_fake
def _(
    grad: Tensor,
    options: list[int],
    rate: float,
    decay: Tensor,
    frequency: Tensor,
    B: Tensor,
    C: Tensor,
    log_dt: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    a, b, c, d, e = (torch.empty_like(x) for x in (decay, frequency, B, C, log_dt))
    return a, b, c, d, e


def _keep_stored(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.options, ctx.rate, _, *stored = inputs
    ctx.save_for_backward(*stored)


def _differentiate_kernel(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return None, None, None, *_kernel_backward(grad, ctx.options, ctx.rate, *ctx.saved_tensors)


_kernel.register_autograd(_differentiate_kernel, setup_context=_keep_stored)
