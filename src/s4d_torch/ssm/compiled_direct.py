"""Convolution term by term as machine code: for short sequences less work than anything else.

Everything is made of one row operation, the first L samples of the convolution of two rows. With
``rev`` for a row turned round, the gradients of ``y = K * u`` are such convolutions too:

    grad_u = rev(K * rev(grad_y))        grad_K = rev(rev(grad_y) * u)

A task is one sequence and a group of channels, as in ``compiled``.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from s4d_torch.ssm.compiled import FAST, GROUP, gather, scatter

TAPS = 8  # samples of the kernel taken at once; each output is then read and written once for them


@njit(nogil=True, cache=True, fastmath=FAST)
def convolve(taps, padded, length, out):  # type: ignore[no-untyped-def]
    """``out_t = sum_(s<=t) taps_s x_(t-s)`` for t < length; x begins at ``padded[TAPS]``.

    The ``TAPS`` samples before x, and the taps from length to a multiple of TAPS, are zeros.
    """
    for t in range(length):
        out[t] = 0
    for s in range(0, length, TAPS):
        a, b, c, d = taps[s], taps[s + 1], taps[s + 2], taps[s + 3]
        e, f, g, h = taps[s + 4], taps[s + 5], taps[s + 6], taps[s + 7]
        rest, x = out[s:length], padded[1 : length - s + TAPS]
        for t in range(length - s):
            late = a * x[t + 7] + b * x[t + 6] + c * x[t + 5] + d * x[t + 4]
            early = e * x[t + 3] + f * x[t + 2] + g * x[t + 1] + h * x[t]
            rest[t] += late + early


@njit(nogil=True, cache=True, fastmath=FAST)
def direct_forward(first, last, ahead, u, kernel, y):  # type: ignore[no-untyped-def]
    """``y = K * u`` for tasks in range; u, y (B, L, H), kernel (H, at least L to a multiple of 8).

    ``ahead`` runs from the end to the beginning and leaves each answer one place further.
    """
    length, channels = u.shape[1], u.shape[2]
    groups = (channels + GROUP - 1) // GROUP
    x = np.zeros((GROUP, TAPS + length + 3), u.dtype)
    out = np.zeros((GROUP, length + TAPS), u.dtype)
    for task in range(first, last):
        b, low = task // groups, task % groups * GROUP
        high = min(low + GROUP, channels)
        gather(u, b, 0, length, low, high, ahead, 0, x[:, TAPS:])
        for h in range(low, high):
            convolve(kernel[h], x[h - low], length, out[h - low])
        scatter(out, b, 0, length, low, high, ahead, ahead, y)
        if ahead:
            for h in range(low, high):
                y[b, length - 1, h] = 0


@njit(nogil=True, cache=True, fastmath=FAST)
def direct_backward(first, last, ahead, grad_y, u, kernel, grad_u, grad_kernel):  # type: ignore[no-untyped-def]
    """The adjoint of :func:`direct_forward`; grad_kernel (B, H, L), to be summed over the batch."""
    length, channels = u.shape[1], u.shape[2]
    groups = (channels + GROUP - 1) // GROUP
    size = (length + TAPS - 1) // TAPS * TAPS
    x = np.zeros((GROUP, TAPS + length + 3), u.dtype)
    d = np.zeros((GROUP, length + 3), u.dtype)
    turned = np.zeros(TAPS + size, u.dtype)  # the gradient of the output, from its end
    out = np.zeros((GROUP, length + TAPS), u.dtype)
    row = np.zeros(length, u.dtype)
    for task in range(first, last):
        b, low = task // groups, task % groups * GROUP
        high = min(low + GROUP, channels)
        gather(u, b, 0, length, low, high, ahead, 0, x[:, TAPS:])
        gather(grad_y, b, 0, length, low, high, ahead, ahead, d)
        for h in range(low, high):
            c = h - low
            for t in range(length):
                turned[TAPS + t] = d[c, length - 1 - t]
            convolve(kernel[h], turned, length, row)
            for t in range(length):
                out[c, t] = row[length - 1 - t]
            convolve(turned[TAPS:], x[c], length, row)
            for t in range(length):
                grad_kernel[b, h, t] = row[length - 1 - t]
        scatter(out, b, 0, length, low, high, ahead, 0, grad_u)
