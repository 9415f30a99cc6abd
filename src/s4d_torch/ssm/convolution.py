"""Convolution of signals with kernels by the fast Fourier transform; channels before time."""

from __future__ import annotations

import torch
from torch import Tensor


def causal(u: Tensor, kernel: Tensor) -> Tensor:
    """``y_t = sum_s kernel_s u_(t-s)``; u (..., H, L), kernel (H, L') -> (..., H, L)."""
    length = u.shape[-1]
    size = fast_length(length + min(kernel.shape[-1], length) - 1)
    spectrum = torch.fft.rfft(kernel[..., :length], n=size) * torch.fft.rfft(u, n=size)
    return torch.fft.irfft(spectrum, n=size)[..., :length]


def bidirectional(u: Tensor, kernels: Tensor) -> Tensor:
    """``y_t = sum_s k0_s u_(t-s) + sum_s k1_s u_(t+1+s)``; kernels (2, H, L'), s >= 0.

    The second kernel looks strictly ahead, so the present sample is counted once.
    """
    length = u.shape[-1]
    past, future = kernels[0, ..., :length], kernels[1, ..., : length - 1]
    size = fast_length(2 * length - 1)
    # lag -1-s of a circular convolution is place size-1-s
    whole = torch.cat([past, past.new_zeros(*past.shape[:-1], size - past.shape[-1])], dim=-1)
    ahead = future.flip(-1)
    whole = whole + torch.cat(
        [ahead.new_zeros(*ahead.shape[:-1], size - ahead.shape[-1]), ahead], dim=-1
    )
    spectrum = torch.fft.rfft(whole, n=size) * torch.fft.rfft(u, n=size)
    return torch.fft.irfft(spectrum, n=size)[..., :length]


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
