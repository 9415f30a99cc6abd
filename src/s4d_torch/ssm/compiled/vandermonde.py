"""The kernel straight from stored parameters, as an operator of torch.

Plain torch takes some fifty small operations for it: for long sequences that hardly matters, for
short ones it is most of the time.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from s4d_torch.ssm.autodiff import again, gradients
from s4d_torch.ssm.compiled.formulas import as_stored, of_sets, per_channel, stored_system
from s4d_torch.ssm.compiled.operator import Operator
from s4d_torch.ssm.compiled.runtime import LANES, as_read, compiled_module, share
from s4d_torch.ssm.kernel import vandermonde

CODE = f"{__package__}.vandermonde_code"
Stored = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def stored_kernel(
    codes: tuple[int, int], rate: float, length: int, decay: Tensor, frequency: Tensor,
    B: Tensor, C: Tensor, log_dt: Tensor, *, pairs: bool,
) -> Tensor:  # fmt: skip
    """What ``kernel.vandermonde`` gives, in float32; C (..., H, modes, 2) -> (..., H, length).

    ``codes`` are the numbers of the discretisation and the constraint; decay, frequency
    (sets, modes), B (sets, modes, 2), log_dt (H,).
    """
    lead, flat = C.shape[:-3], C.reshape(-1, *C.shape[-3:])
    options = (*codes, int(pairs))
    taps = stored_taps(options, rate, length, flat, decay, frequency, B, log_dt)
    return _as_rows(taps, log_dt.shape[0]).reshape(*lead, -1, length)


def stored_taps(
    options: tuple[int, int, int], rate: float, length: int, C: Tensor, decay: Tensor,
    frequency: Tensor, B: Tensor, log_dt: Tensor,
) -> Tensor:  # fmt: skip
    """The same in groups of channels, (C's, G, length, W); C (C's, H, modes, 2)."""
    stored = (C, decay, frequency, B, log_dt, log_dt.new_empty(0))
    taps: Tensor = _kernel([*options], rate, length, *stored)
    return taps


def _as_rows(taps: Tensor, channels: int) -> Tensor:
    """(C's, G, L, W) -> (C's, H, L)."""
    return taps.transpose(2, 3).flatten(1, 2)[:, :channels]


def make_taps(
    options: list[int], rate: float, length: int, C: Tensor, decay: Tensor, frequency: Tensor,
    B: Tensor, log_dt: Tensor, D: Tensor,
) -> Tensor:  # fmt: skip
    """K (C's, G, length, W), in groups of W channels; those that the last one lacks are zeros.

    D, (H,) or empty, is added to the first tap of the first K.
    """
    decay, frequency, B, C, log_dt = as_stored(decay, frequency, B, C, log_dt)
    (D,) = as_read(decay.dtype, D=(D, (len(log_dt) if len(D) else 0,)))
    K = _empty(length, C)
    stored = (C, decay, frequency, B, log_dt, D)
    _share("kernel_forward", options, rate, length, (*stored, K))
    return K


def _empty(length: int, C: Tensor) -> Tensor:
    return C.new_empty(C.shape[0], -(-C.shape[1] // LANES), length, LANES)


def _fake(options: list[int], rate: float, length: int, C: Tensor, *stored: Tensor) -> Tensor:
    return _empty(length, C)


def taps_backward(
    grad: Tensor, options: list[int], rate: float, C: Tensor, decay: Tensor, frequency: Tensor,
    B: Tensor, log_dt: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of C, decay, frequency, B and log_dt from those of the taps."""
    decay, frequency, B, C, log_dt = as_stored(decay, frequency, B, C, log_dt)
    stored, length = (C, decay, frequency, B, log_dt), grad.shape[2]
    shape = (C.shape[0], -(-C.shape[1] // LANES), length, LANES)
    (grad,) = as_read(decay.dtype, grad=(grad, shape))
    several, channels = C.shape[:2]
    grads = per_channel(decay, B, several, channels)
    of_C, of_dt = torch.empty_like(C), log_dt.new_empty(several, channels)
    _share("kernel_backward", options, rate, length, (*stored, grad, of_C, *grads, of_dt))
    a, b, c, d = (each[0] if several == 1 else each.sum(0) for each in (*grads, of_dt))
    a, b, c = (of_sets(each, len(decay)) for each in (a, b, c))
    return of_C, a, b, c, d


def _fake_backward(grad: Tensor, options: list[int], rate: float, *stored: Tensor) -> Stored:
    a, b, c, d, e = (torch.empty_like(x) for x in stored)
    return a, b, c, d, e


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.options, ctx.rate, ctx.length = inputs[:3]
    ctx.save_for_backward(*inputs[3:])


def _differentiate(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    *stored, D = ctx.saved_tensors
    if again():
        plain = partial(plain_taps, ctx.options, ctx.rate, ctx.length)
        return None, None, None, *gradients(plain, (*stored, D), (grad,))
    grads = _kernel_backward(grad, ctx.options, ctx.rate, *stored)
    return None, None, None, *grads, None


def plain_taps(
    options: list[int], rate: float, length: int, C: Tensor, decay: Tensor, frequency: Tensor,
    B: Tensor, log_dt: Tensor, D: Tensor,
) -> Tensor:  # fmt: skip
    """What :func:`make_taps` gives, in plain torch."""
    rule, constraint, pairs = options
    step, c = stored_system((rule, constraint), rate, decay, frequency, B, C, log_dt)
    K = vandermonde(step, c, length, pairs=bool(pairs)).to(decay.dtype)  # (C's, H, L)
    if len(D):
        K = torch.cat([K[..., :1] + _for_first(D, len(K)), K[..., 1:]], dim=-1)
    K = torch.nn.functional.pad(K, (0, 0, 0, -K.shape[1] % LANES))
    return K.unflatten(1, (-1, LANES)).transpose(2, 3)


def _for_first(D: Tensor, several: int) -> Tensor:
    """(several, H, 1): D, then zeros."""
    return torch.stack([D, *[torch.zeros_like(D)] * (several - 1)])[..., None]


_kernel = Operator("kernel", make_taps, _fake, _keep, _differentiate)
_kernel_backward = Operator("kernel_backward", taps_backward, _fake_backward)


def _share(
    name: str, options: list[int], rate: float, length: int, arrays: tuple[Tensor, ...]
) -> None:
    C, decay = arrays[:2]
    (several, channels), modes = C.shape[:2], decay.shape[1]
    work = modes * (length + 64) * LANES * several
    room = C.new_empty((8 + (length + 2) // 4 * 4) * LANES, dtype=torch.float64)
    run = getattr(compiled_module(CODE), name)
    share(run, -(-channels // LANES), work, (tuple(options), rate), arrays, [room])
