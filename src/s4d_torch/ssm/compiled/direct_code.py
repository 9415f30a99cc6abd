"""Convolution term by term as machine code: for short sequences less work than anything else.

Everything is made of one operation, the first L samples of the convolution of two signals of some
channels. With ``rev`` for a signal turned round, the gradients of ``y = K * u`` are such
convolutions too:

    grad_u = rev(K * rev(grad_y))        grad_K = rev(rev(grad_y) * u)

A task is one sequence and a group of channels. A row holds one sample of all of them, so that
vectors of channels are multiplied, which lie in memory as they are.
"""

import numpy as np

from s4d_torch.ssm.compiled.code_cache import cached_njit
from s4d_torch.ssm.compiled.scan_code import FAST

WIDTH = 32  # channels of a task; fewer, and the start of each small loop costs more than the loop
ROWS = 8  # of the output at once; signals begin after as many rows of zeros, and end on a multiple
TAPS = 4  # rows of the kernel at once: a loaded sample then serves four products


@cached_njit(nogil=True, fastmath=FAST)
def convolve(taps, padded, length, out):  # type: ignore[no-untyped-def]
    """``out_t = sum_(s<=t) taps_s x_(t-s)`` for t < length, a multiple of ROWS.

    All are flat, in rows of WIDTH; x begins at row ``ROWS`` of ``padded``.
    """
    W = WIDTH
    for t in range(0, length, ROWS):
        y = out[t * W : (t + ROWS) * W]
        for h in range(ROWS * W):
            y[h] = 0
        for s in range(0, t + ROWS, TAPS):
            k = taps[s * W : (s + TAPS) * W]
            x = padded[(ROWS + t - s - TAPS + 1) * W : (ROWS + t - s + ROWS) * W]
            for h in range(W):
                a, b, c, d = k[h], k[W + h], k[2 * W + h], k[3 * W + h]
                x0, x1, x2, x3 = x[h], x[W + h], x[2 * W + h], x[3 * W + h]
                x4, x5, x6, x7 = x[4 * W + h], x[5 * W + h], x[6 * W + h], x[7 * W + h]
                x8, x9, x10 = x[8 * W + h], x[9 * W + h], x[10 * W + h]
                y[h] += a * x3 + b * x2 + c * x1 + d * x0
                y[W + h] += a * x4 + b * x3 + c * x2 + d * x1
                y[2 * W + h] += a * x5 + b * x4 + c * x3 + d * x2
                y[3 * W + h] += a * x6 + b * x5 + c * x4 + d * x3
                y[4 * W + h] += a * x7 + b * x6 + c * x5 + d * x4
                y[5 * W + h] += a * x8 + b * x7 + c * x6 + d * x5
                y[6 * W + h] += a * x9 + b * x8 + c * x7 + d * x6
                y[7 * W + h] += a * x10 + b * x9 + c * x8 + d * x7


@cached_njit(nogil=True, fastmath=FAST)
def take(signal, low, high, turned, rows):  # type: ignore[no-untyped-def]
    """Channels of ``signal`` (L, H) to flat ``rows``; ``turned``: from the end to the beginning."""
    length = signal.shape[0]
    for t in range(length):
        source = length - 1 - t if turned else t
        for h in range(low, high):
            rows[t * WIDTH + h - low] = signal[source, h]


@cached_njit(nogil=True, fastmath=FAST)
def put(rows, low, high, turned, signal):  # type: ignore[no-untyped-def]
    """The inverse of :func:`take`."""
    length = signal.shape[0]
    for t in range(length):
        target = length - 1 - t if turned else t
        for h in range(low, high):
            signal[target, h] = rows[t * WIDTH + h - low]


@cached_njit(nogil=True, fastmath=FAST)
def direct_forward(first, last, ahead, u, kernel, y):  # type: ignore[no-untyped-def]
    """``y = K * u`` for tasks in range; u, y (B, L, H), kernel (L, H).

    ``ahead`` runs from the end to the beginning and leaves each answer one place further.
    """
    length, channels = u.shape[1], u.shape[2]
    groups = (channels + WIDTH - 1) // WIDTH
    whole = (length + ROWS - 1) // ROWS * ROWS
    x = np.zeros((ROWS + whole) * WIDTH, u.dtype)
    taps, out = np.zeros(whole * WIDTH, u.dtype), np.zeros(whole * WIDTH, u.dtype)
    for task in range(first, last):
        b, low = task // groups, task % groups * WIDTH
        high = min(low + WIDTH, channels)
        take(kernel, low, high, 0, taps)
        take(u[b], low, high, ahead, x[ROWS * WIDTH :])
        convolve(taps, x, whole, out)
        put(out, low, high, ahead, y[b, : length - ahead])
        if ahead:
            for h in range(low, high):
                y[b, length - 1, h] = 0


@cached_njit(nogil=True, fastmath=FAST)
def direct_backward(first, last, ahead, grad_y, u, kernel, grad_u, grad_kernel):  # type: ignore[no-untyped-def]
    """The adjoint of :func:`direct_forward`; grad_kernel (B, L, H), to be summed over the batch."""
    length, channels = u.shape[1], u.shape[2]
    groups = (channels + WIDTH - 1) // WIDTH
    whole = (length + ROWS - 1) // ROWS * ROWS
    begin = ROWS * WIDTH
    x, d = np.zeros(begin + whole * WIDTH, u.dtype), np.zeros(begin + whole * WIDTH, u.dtype)
    taps, out = np.zeros(whole * WIDTH, u.dtype), np.zeros(whole * WIDTH, u.dtype)
    for task in range(first, last):
        b, low = task // groups, task % groups * WIDTH
        high = min(low + WIDTH, channels)
        take(kernel, low, high, 0, taps)
        take(u[b], low, high, ahead, x[begin:])
        # rev(grad_y); what ahead turned round and moved on by one is now in order, one row later
        take(grad_y[b, : length - ahead], low, high, 1 - ahead, d[begin + ahead * WIDTH :])
        convolve(taps, d, whole, out)
        put(out, low, high, 1 - ahead, grad_u[b])
        convolve(d[begin:], x, whole, out)
        put(out, low, high, 1, grad_kernel[b])
