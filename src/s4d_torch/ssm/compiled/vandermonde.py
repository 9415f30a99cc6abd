"""The kernel straight from stored parameters, as an operator of torch.

Plain torch takes some fifty small operations for it: for long sequences that hardly matters, for
short ones it is most of the time.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from s4d_torch.ssm.autodiff import again, gradients
from s4d_torch.ssm.compiled.formulas import as_stored, stored_system
from s4d_torch.ssm.compiled.runtime import as_read, compiled_module, share
from s4d_torch.ssm.kernel import block_length, vandermonde

CODE = f"{__package__}.vandermonde_code"


def stored_kernel(
    codes: tuple[int, int], rate: float, length: int, decay: Tensor, frequency: Tensor,
    B: Tensor, C: Tensor, log_dt: Tensor, *, pairs: bool,
) -> Tensor:  # fmt: skip
    """What ``kernel.vandermonde`` gives, in float32; C (..., H, modes, 2).

    ``codes`` are the numbers of the discretisation and the constraint; decay, frequency
    (sets, modes), B (sets, modes, 2), log_dt (H,).
    """
    lead, flat = C.shape[:-3], C.reshape(-1, *C.shape[-3:])
    options = [*codes, int(pairs), max(4, block_length(length))]
    K: Tensor = _kernel(options, rate, length, decay, frequency, B, flat, log_dt)
    return K.reshape(*lead, *K.shape[1:])


def _as_read(options: list[int], decay: Tensor, *others: Tensor) -> list[Tensor]:
    *_, T = options
    if T < 4 or T % 4:
        raise ValueError(f"powers are taken in fours, got blocks of {T}")
    return as_stored(decay, *others)


@torch.library.custom_op("s4d_torch::kernel", mutates_args=())
def _kernel(
    options: list[int], rate: float, length: int, decay: Tensor, frequency: Tensor, B: Tensor,
    C: Tensor, log_dt: Tensor,
) -> Tensor:  # fmt: skip
    stored = _as_read(options, decay, frequency, B, C, log_dt)
    K = C.new_empty(*C.shape[:2], length)
    run = compiled_module(CODE).kernel_forward
    work = decay.shape[1] * length * C.shape[0]
    share(run, log_dt.shape[0], work, (tuple(options), rate), (*stored, K))
    return K


@_kernel.register_fake
def _(options: list[int], rate: float, length: int, *stored: Tensor) -> Tensor:
    C = stored[3]
    return C.new_empty(*C.shape[:2], length)


@torch.library.custom_op("s4d_torch::kernel_backward", mutates_args=())
def _kernel_backward(
    grad: Tensor, options: list[int], rate: float, decay: Tensor, frequency: Tensor, B: Tensor,
    C: Tensor, log_dt: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    stored = _as_read(options, decay, frequency, B, C, log_dt)
    (grad,) = as_read(decay.dtype, grad=(grad, (*C.shape[:2], grad.shape[-1])))
    grads = [torch.zeros_like(x, dtype=torch.float64) for x in stored]
    run = compiled_module(CODE).kernel_backward
    channels, sets = log_dt.shape[0], decay.shape[0]
    work = decay.shape[1] * grad.shape[2] * C.shape[0] if sets == channels else 0
    share(run, channels, work, (tuple(options), rate), (*stored, grad, *grads))
    a, b, c, d, e = (x.to(decay.dtype) for x in grads)
    return a, b, c, d, e


@_kernel_backward.register_fake
def _(*given: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    a, b, c, d, e = (torch.empty_like(x) for x in given[3:])
    return a, b, c, d, e


def _keep_stored(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.options, ctx.rate, _, *stored = inputs
    ctx.save_for_backward(*stored)


def _differentiate_kernel(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    stored = ctx.saved_tensors
    if again():
        plain = partial(_plain, ctx.options, ctx.rate, grad.shape[-1])
        return None, None, None, *gradients(plain, stored, (grad,))
    return None, None, None, *_kernel_backward(grad, ctx.options, ctx.rate, *stored)


def _plain(options: list[int], rate: float, length: int, *stored: Tensor) -> Tensor:
    rule, constraint, pairs, _ = options
    step, C = stored_system((rule, constraint), rate, *stored)
    return vandermonde(step, C, length, pairs=bool(pairs)).to(stored[0].dtype)


_kernel.register_autograd(_differentiate_kernel, setup_context=_keep_stored)
