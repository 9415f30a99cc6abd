"""The compiled convolution of ``direct_code`` as an operator of torch: with a kernel that is given,
or straight from stored parameters, for short sequences whose every operation counts.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from s4d_torch.ssm import convolution
from s4d_torch.ssm.autodiff import again, gradients
from s4d_torch.ssm.compiled import vandermonde
from s4d_torch.ssm.compiled.operator import Operator
from s4d_torch.ssm.compiled.runtime import LANES, as_read, compiled_module, share

ROWS = 8  # as in direct_code.py
LONGEST = 2048  # samples; beyond, the work that grows with their square is out of all proportion
CHUNKS = 8  # parts of a batch whose gradients are added up apart, for as many threads


def convolve(u: Tensor, taps: Tensor, ahead: int = 0) -> Tensor:
    """``y_t = sum_(s<=t) k_s u_(t-s)``, or what lies strictly ahead, ``sum_s k_s u_(t+1+s)``.

    u, y (B, L, H), taps (G, L, W) as :func:`as_taps` makes them.
    """
    y: Tensor = _direct(u.contiguous(), taps, ahead)
    return y


def as_taps(kernel: Tensor) -> Tensor:
    """Kernels (..., H, L) in groups of W channels, (..., G, L, W)."""
    padded = torch.nn.functional.pad(kernel, (0, 0, 0, -kernel.shape[-2] % LANES))
    return padded.unflatten(-2, (-1, LANES)).transpose(-1, -2).contiguous()


def convolve_stored(
    codes: tuple[int, int, int], rate: float, u: Tensor, C: Tensor, decay: Tensor,
    frequency: Tensor, B: Tensor, log_dt: Tensor, D: Tensor, *, ahead: int = 0,
) -> Tensor:  # fmt: skip
    """``y = K * u + D u`` with the kernel of stored parameters; C (H, modes, 2).

    ``codes`` are the numbers of the discretisation and the constraint, and whether modes are pairs.
    """
    options = [*codes, ahead]
    y: Tensor = _stored(options, rate, u.contiguous(), C, decay, frequency, B, log_dt, D)[0]
    return y


def _as_kernel(taps: Tensor, channels: int) -> Tensor:
    return taps.transpose(1, 2).flatten(0, 1)[:channels]


def _as_read(u: Tensor, taps: Tensor, **more: Tensor) -> list[Tensor]:
    _, length, channels = u.shape
    same = {name: (x, u.shape) for name, x in more.items()}
    shape = (-(-channels // LANES), length, LANES)
    return as_read(u.dtype, u=(u, u.shape), taps=(taps, shape), **same)


# -- with a kernel that is given -------------------------------------------------------------------


def _run(u: Tensor, taps: Tensor, ahead: int) -> Tensor:
    u, taps = _as_read(u, taps)
    y = torch.empty_like(u)
    if u.shape[1]:
        _share("direct_forward", (ahead,), u, u.shape[0], (taps, _rows(y)), 1)
    return y


def _fake(u: Tensor, taps: Tensor, ahead: int) -> Tensor:
    return u.new_empty(u.shape)


def _run_backward(grad_y: Tensor, u: Tensor, taps: Tensor, ahead: int) -> tuple[Tensor, Tensor]:
    u, taps, grad_y = _as_read(u, taps, grad_y=grad_y)
    chunk = max(1, -(-u.shape[0] // CHUNKS))
    chunks = -(-u.shape[0] // chunk)
    grad_u = torch.empty_like(u)
    grad_taps = taps.new_zeros(chunks, *taps.shape, dtype=torch.float64)
    if u.shape[1]:
        arrays = (taps, _rows(grad_y), _rows(grad_u), grad_taps)
        _share("direct_backward", (ahead, chunk), u, chunks, arrays, 2)
    return grad_u, grad_taps.sum(0).to(taps.dtype)


def _fake_backward(grad_y: Tensor, u: Tensor, taps: Tensor, ahead: int) -> tuple[Tensor, Tensor]:
    return u.new_empty(u.shape), taps.new_empty(taps.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    u, taps, ctx.ahead = inputs
    ctx.save_for_backward(u, taps)


def _differentiate(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
    u, taps = ctx.saved_tensors
    if again():
        of_u, of_taps = gradients(partial(plain, ahead=ctx.ahead), (u, taps), (grad_y,))
        return of_u, of_taps, None
    return *_direct_backward(grad_y, u, taps, ctx.ahead), None


def plain(u: Tensor, taps: Tensor, ahead: int) -> Tensor:
    """The same by Fourier transforms."""
    x, kernel = u.transpose(1, 2), _as_kernel(taps, u.shape[2])
    if not ahead:
        return convolution.causal(x, kernel).transpose(1, 2)
    y = convolution.causal(x.flip(-1), kernel).flip(-1)
    return torch.nn.functional.pad(y[..., 1:], (0, 1)).transpose(1, 2)


_direct = Operator("direct", _run, _fake, _keep, _differentiate)
_direct_backward = Operator("direct_backward", _run_backward, _fake_backward)


def _share(
    name: str,
    options: tuple[int, ...],
    u: Tensor,
    parts: int,
    arrays: tuple[Tensor, ...],
    signals: int,
) -> None:
    """``signals`` are taken to a buffer with ROWS rows of zeros before them, and two without."""
    batch, length, channels = u.shape
    rows = -(-length // ROWS) * ROWS
    room = u.new_empty((signals * (ROWS + rows) + 2 * rows) * LANES)
    tasks = parts * -(-channels // LANES)
    work = LANES * length * length // 8 * signals * batch // max(parts, 1)
    kernel = getattr(compiled_module(f"{__package__}.direct_code"), name)
    share(kernel, tasks, work, (length, *options), (_rows(u), *arrays), [room])


def _rows(u: Tensor) -> Tensor:
    """(B, L, H) -> (B L, H), the same memory."""
    return u.view(-1, u.shape[-1])


# -- straight from stored parameters ---------------------------------------------------------------

Grads = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


def _run_stored(
    options: list[int], rate: float, u: Tensor, C: Tensor, decay: Tensor, frequency: Tensor,
    B: Tensor, log_dt: Tensor, D: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """y, and the taps of the kernel with D for the backward pass."""
    stored = (C[None], decay, frequency, B, log_dt, D)
    taps = vandermonde.make_taps(options[:3], rate, u.shape[1], *stored)[0]
    return _run(u, taps, options[3]), taps


def _fake_stored(
    options: list[int], rate: float, u: Tensor, C: Tensor, *stored: Tensor
) -> tuple[Tensor, Tensor]:
    taps = u.new_empty(-(-u.shape[2] // LANES), u.shape[1], LANES)
    return u.new_empty(u.shape), taps


def _run_stored_backward(
    grad_y: Tensor, taps: Tensor, options: list[int], rate: float, u: Tensor, C: Tensor,
    decay: Tensor, frequency: Tensor, B: Tensor, log_dt: Tensor, D: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    grad_u, grad_taps = _run_backward(grad_y, u, taps, options[3])
    stored = (C[None], decay, frequency, B, log_dt)
    grad_C, a, b, c, d = vandermonde.taps_backward(grad_taps[None], options[:3], rate, *stored)
    return grad_u, grad_C[0], a, b, c, d, grad_taps[:, 0].flatten()[: len(D)]


def _fake_stored_backward(
    grad_y: Tensor, taps: Tensor, options: list[int], rate: float, *given: Tensor
) -> Grads:
    a, b, c, d, e, f, g = (torch.empty_like(x) for x in given)
    return a, b, c, d, e, f, g


def _keep_stored(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.options, ctx.rate, *given = inputs
    ctx.save_for_backward(output[1], *given)
    ctx.set_materialize_grads(False)


def _differentiate_stored(ctx: Any, grad_y: Tensor | None, _: None) -> tuple[Any, ...]:
    taps, *given = ctx.saved_tensors
    if grad_y is None:
        return (None,) * (2 + len(given))
    if again():
        plain = partial(_plain_stored, ctx.options, ctx.rate)
        return None, None, *gradients(plain, given, (grad_y,))
    return None, None, *_stored_backward(grad_y, taps, ctx.options, ctx.rate, *given)


def _plain_stored(options: list[int], rate: float, u: Tensor, C: Tensor, *stored: Tensor) -> Tensor:
    taps = vandermonde.plain_taps(options[:3], rate, u.shape[1], C[None], *stored)[0]
    return plain(u, taps, options[3])


_stored = Operator("direct_stored", _run_stored, _fake_stored, _keep_stored, _differentiate_stored)
_stored_backward = Operator("direct_stored_backward", _run_stored_backward, _fake_stored_backward)
