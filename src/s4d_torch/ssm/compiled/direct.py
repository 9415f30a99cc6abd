"""The compiled convolution of ``direct_code`` as an operator of torch."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from s4d_torch.ssm import convolution
from s4d_torch.ssm.autodiff import again, gradients
from s4d_torch.ssm.compiled.runtime import as_read, compiled_module, share

WIDTH = 32  # as in direct_code.py
LONGEST = 2048  # samples; beyond, the work that grows with their square is out of all proportion


def convolve(u: Tensor, kernel: Tensor) -> Tensor:
    """``y_t = sum_(s<=t) k_s u_(t-s)``; u, y (B, L, H), kernel (H, L)."""
    return _run(u, kernel, 0)


def convolve_ahead(u: Tensor, kernel: Tensor) -> Tensor:
    """``y_t = sum_s k_s u_(t+1+s)``: what lies strictly ahead."""
    return _run(u, kernel, 1)


def _run(u: Tensor, kernel: Tensor, ahead: int) -> Tensor:
    y: Tensor = _direct(u.contiguous(), kernel[:, : u.shape[1]], ahead)
    return y


def _as_read(u: Tensor, kernel: Tensor, **more: Tensor) -> list[Tensor]:
    _, length, channels = u.shape
    same = {name: (x, u.shape) for name, x in more.items()}
    return as_read(u.dtype, u=(u, u.shape), kernel=(kernel, (channels, length)), **same)


@torch.library.custom_op("s4d_torch::direct", mutates_args=())
def _direct(u: Tensor, kernel: Tensor, ahead: int) -> Tensor:
    u, kernel = _as_read(u, kernel)
    y = torch.empty_like(u)
    _share("direct_forward", ahead, (u, kernel.T.contiguous(), y))
    return y


@_direct.register_fake
def _(u: Tensor, kernel: Tensor, ahead: int) -> Tensor:
    return u.new_empty(u.shape)


@torch.library.custom_op("s4d_torch::direct_backward", mutates_args=())
def _direct_backward(
    grad_y: Tensor, u: Tensor, kernel: Tensor, ahead: int
) -> tuple[Tensor, Tensor]:
    u, kernel, grad_y = _as_read(u, kernel, grad_y=grad_y)
    grad_u, grad_kernel = torch.empty_like(u), torch.empty_like(u)
    taps = kernel.T.contiguous()
    _share("direct_backward", ahead, (grad_y, u, taps, grad_u, grad_kernel))
    return grad_u, grad_kernel.sum(0).T.contiguous()


@_direct_backward.register_fake
def _(grad_y: Tensor, u: Tensor, kernel: Tensor, ahead: int) -> tuple[Tensor, Tensor]:
    return u.new_empty(u.shape), kernel.new_empty(kernel.shape)


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    u, kernel, ctx.ahead = inputs
    ctx.save_for_backward(u, kernel)


def _differentiate(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
    u, kernel = ctx.saved_tensors
    if again():
        of_u, of_kernel = gradients(partial(_plain, ahead=ctx.ahead), (u, kernel), (grad_y,))
        return of_u, of_kernel, None
    return *_direct_backward(grad_y, u, kernel, ctx.ahead), None


def _plain(u: Tensor, kernel: Tensor, ahead: int) -> Tensor:
    """The same by Fourier transforms."""
    x = u.transpose(1, 2)
    if not ahead:
        return convolution.causal(x, kernel).transpose(1, 2)
    y = convolution.causal(x.flip(-1), kernel).flip(-1)
    return torch.nn.functional.pad(y[..., 1:], (0, 1)).transpose(1, 2)


_direct.register_autograd(_differentiate, setup_context=_keep_for_backward)


def _share(name: str, ahead: int, arrays: tuple[Tensor, ...]) -> None:
    batch, length, channels = arrays[0].shape
    kernel = getattr(compiled_module(f"{__package__}.direct_code"), name)
    share(kernel, batch * -(-channels // WIDTH), WIDTH * length * length // 16, (ahead,), arrays)
