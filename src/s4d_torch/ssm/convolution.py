"""Convolution of signals with kernels by the fast Fourier transform; channels before time."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.fft import irfft, rfft

from s4d_torch.ssm.autodiff import again, gradients, traced

# Bytes of signal transformed at a time. On a CPU a piece stays in the cache with its spectrum;
# other devices take as much as keeps them busy, little beside a signal that fills their memory.
PIECE, DEVICE_PIECE = 2**22, 2**25


def causal(u: Tensor, kernel: Tensor) -> Tensor:
    """``y_t = sum_s kernel_s u_(t-s)``; u (..., H, L), kernel (H, L') -> (..., H, L)."""
    length = u.shape[-1]
    size = transform_length(length + min(kernel.shape[-1], length) - 1)
    return _circular(u, kernel[..., :length], size)


def bidirectional(u: Tensor, kernels: Tensor) -> Tensor:
    """``y_t = sum_s k0_s u_(t-s) + sum_s k1_s u_(t+1+s)``; kernels (2, H, L'), s >= 0.

    The second kernel looks strictly ahead, so the present sample is counted once.
    """
    length = u.shape[-1]
    past, future = kernels[0, ..., :length], kernels[1, ..., : length - 1]
    size = transform_length(2 * length - 1)
    # lag -1-s of a circular convolution is place size-1-s
    whole = torch.cat([past, past.new_zeros(*past.shape[:-1], size - past.shape[-1])], dim=-1)
    ahead = future.flip(-1)
    whole = whole + torch.cat(
        [ahead.new_zeros(*ahead.shape[:-1], size - ahead.shape[-1]), ahead], dim=-1
    )
    return _circular(u, whole, size)


def _circular(u: Tensor, kernel: Tensor, size: int) -> Tensor:
    """The first L samples of a circular convolution over ``size``; kernel (H, up to size)."""
    large = u.ndim == 3 and u.numel() // u.shape[-1] * size * u.element_size() > 2 * _piece(u)
    if not traced() and large:
        y: Tensor = _InPieces.apply(u, kernel, size)  # type: ignore[no-untyped-call]
        return y
    return _at_once(u, kernel, size)


def _at_once(u: Tensor, kernel: Tensor, size: int) -> Tensor:
    return irfft(rfft(kernel, n=size) * rfft(u, n=size), n=size)[..., : u.shape[-1]]


class _InPieces(torch.autograd.Function):
    """The same, a piece of u at a time; nothing but u and the kernel is kept for the gradients.

    Spectra of a whole batch would be several times as large as u, and go to memory and back. What
    a piece needs belongs to a function of its own, and is gone before the next one comes.
    """

    @staticmethod
    def forward(ctx: Any, u: Tensor, kernel: Tensor, size: int) -> Tensor:
        ctx.save_for_backward(u, kernel)
        ctx.size = size
        response = rfft(kernel, n=size)
        y = _time_first(u)
        for b, some in _pieces(u, size):
            y[b, some] = _filtered(rfft(u[b, some], n=size), response[some], size, u.shape[-1])
        return y

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        u, kernel = ctx.saved_tensors
        size = ctx.size
        if again():
            of_u, of_kernel = gradients(partial(_at_once, size=size), (u, kernel), (grad_y,))
            return of_u, of_kernel, None
        turned = rfft(kernel, n=size).conj_physical_()
        grad_u, grad_response = _time_first(u), torch.zeros_like(turned)
        for b, some in _pieces(u, size):
            spectrum = rfft(grad_y[b, some], n=size)
            grad_response[some] += _heard(u[b, some], spectrum, size)
            grad_u[b, some] = _filtered(spectrum, turned[some], size, u.shape[-1])
            del spectrum
        return grad_u, irfft(grad_response, n=size)[..., : kernel.shape[-1]], None


def _filtered(spectrum: Tensor, response: Tensor, size: int, length: int) -> Tensor:
    """The signal of a spectrum, which is written to, times a response."""
    return irfft(spectrum.mul_(response), n=size)[..., :length]


def _heard(u: Tensor, spectrum: Tensor, size: int) -> Tensor:
    """What gradients with this spectrum have heard of u, over all sequences."""
    return rfft(u, n=size).conj_physical_().mul_(spectrum).sum(0)


def _pieces(u: Tensor, size: int) -> Iterator[tuple[slice, slice]]:
    """Some sequences and some channels, about a piece at a time."""
    batch, channels, _ = u.shape
    rows = max(1, _piece(u) // (size * u.element_size()))
    sequences = max(1, rows // channels)
    for b in range(0, batch, sequences):
        for h in range(0, channels, rows):
            yield slice(b, b + sequences), slice(h, h + rows)


def _piece(u: Tensor) -> int:
    return PIECE if u.is_cpu else DEVICE_PIECE


def _time_first(u: Tensor) -> Tensor:
    """Room for a tensor (B, H, L) that lies in memory as (B, L, H), as layers pass it on."""
    batch, channels, length = u.shape
    return u.new_empty(batch, length, channels).transpose(1, 2)


def transform_length(length: int) -> int:
    """The size of a transform of at least so many samples."""
    if torch.compiler.is_compiling():  # no search: one graph is to serve every length
        return -(-length // 128) * 128
    return fast_length(length)


def fast_length(length: int) -> int:
    """The smallest ``2^a 3^b 5^c >= length``, where an FFT is fast."""
    best = 1 << max(length - 1, 1).bit_length()
    fives = 1
    while fives < best:
        threes = fives
        while threes < best:
            size = threes
            while size < length:
                size *= 2
            best = min(best, size)
            threes *= 3
        fives *= 5
    return best
