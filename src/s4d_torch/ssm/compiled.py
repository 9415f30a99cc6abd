"""The scan over time as machine code: a diagonal system in blocks of four samples, by numba.

Four samples at a time, a state s and inputs x_0..x_3 give

    y_j = outputs_j . s + sum_{m<=j} kernel_{j-m} x_m        s <- power s + sum_m x_m inputs_m

so a mode is read and written once for four samples, and A_bar^4 is rounded instead of A_bar. What
the rounding of A_bar^4 still does to a slow mode over thousands of samples is put right once in
every segment (``drift``). Vectors of modes are planar: all real parts, then all imaginary ones.

A task is one sequence and a group of channels. It reads and writes (batch, length, channels) as it
is, through a small transposed buffer. Tasks do not share anything, so threads can take any of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numba import njit

BLOCK = 4
SEGMENT = 256  # samples between the states kept for the backward pass
GROUP = 16  # channels of a task: one cache line of float32

# Everything but the licence to assume that there are no NaN and infinities.
FAST = {"reassoc", "contract", "arcp", "nsz"}

Kernel = Callable[..., Any]


@lru_cache
def scan_forward(modes: int) -> Kernel:
    """``run(first, last, ahead, u, tables, kernel, drift, start, stops, y, end, kept)``.

    u, y (B, L, H); tables (H, 9 S) = power, outputs_0..3, inputs_0..3 with S = 2 modes; kernel
    (H, 4); drift (H, S); start, end (B, H, S); stops (B,) the block after which ``end`` is taken;
    kept (B, H, segments, S), the states at the starts of segments. ``ahead`` runs from the end of
    the sequence to its beginning and leaves each answer one place further: a sample hears of those
    after it, not of itself.
    """
    M, S = modes, 2 * modes

    @njit(nogil=True, cache=True, fastmath=FAST)
    def run(first, last, ahead, u, tables, kernel, drift, start, stops, y, end, kept):  # type: ignore[no-untyped-def]
        length, channels = u.shape[1], u.shape[2]
        groups = (channels + GROUP - 1) // GROUP
        x = np.zeros((GROUP, SEGMENT), u.dtype)
        out = np.zeros((GROUP, SEGMENT), u.dtype)
        states = np.zeros((GROUP, S), u.dtype)
        z = np.zeros(10 * S, u.dtype)  # the tables of one channel, then its state
        for task in range(first, last):
            b, low = task // groups, task % groups * GROUP
            high = min(low + GROUP, channels)
            states[: high - low] = start[b, low:high]
            for segment in range((length + SEGMENT - 1) // SEGMENT):
                t0 = segment * SEGMENT
                n = min(SEGMENT, length - t0)
                for t in range(n):
                    place = length - 1 - t0 - t if ahead else t0 + t
                    for h in range(low, high):
                        x[h - low, t] = u[b, place, h]
                for t in range(n, SEGMENT):
                    for c in range(high - low):
                        x[c, t] = 0
                for h in range(low, high):
                    c = h - low
                    z[: 9 * S] = tables[h]
                    z[9 * S :] = states[c]
                    kept[b, h, segment] = states[c]
                    k0, k1, k2, k3 = kernel[h, 0], kernel[h, 1], kernel[h, 2], kernel[h, 3]
                    for t in range(0, n, 4):
                        if (t0 + t) // 4 == stops[b]:
                            end[b, h] = z[9 * S :]
                        x0, x1, x2, x3 = x[c, t], x[c, t + 1], x[c, t + 2], x[c, t + 3]
                        y0 = k0 * x0
                        y1 = k0 * x1 + k1 * x0
                        y2 = k0 * x2 + k1 * x1 + k2 * x0
                        y3 = k0 * x3 + k1 * x2 + k2 * x1 + k3 * x0
                        for q in range(M):
                            r, i = z[9 * S + q], z[9 * S + M + q]
                            y0 += z[S + q] * r + z[S + M + q] * i
                            y1 += z[2 * S + q] * r + z[2 * S + M + q] * i
                            y2 += z[3 * S + q] * r + z[3 * S + M + q] * i
                            y3 += z[4 * S + q] * r + z[4 * S + M + q] * i
                            a, e = z[q], z[M + q]
                            z[9 * S + q] = (
                                a * r
                                - e * i
                                + z[5 * S + q] * x0
                                + z[6 * S + q] * x1
                                + z[7 * S + q] * x2
                                + z[8 * S + q] * x3
                            )
                            z[9 * S + M + q] = (
                                a * i
                                + e * r
                                + z[5 * S + M + q] * x0
                                + z[6 * S + M + q] * x1
                                + z[7 * S + M + q] * x2
                                + z[8 * S + M + q] * x3
                            )
                        out[c, t], out[c, t + 1], out[c, t + 2], out[c, t + 3] = y0, y1, y2, y3
                    if t0 + n == 4 * stops[b] == length:
                        end[b, h] = z[9 * S :]
                    for q in range(M):
                        r, i = z[9 * S + q], z[9 * S + M + q]
                        a, e = drift[h, q], drift[h, M + q]
                        states[c, q] = r + (a * r - e * i)
                        states[c, M + q] = i + (a * i + e * r)
                for t in range(n):
                    place = length - 2 - t0 - t if ahead else t0 + t
                    if place >= 0:
                        for h in range(low, high):
                            y[b, place, h] = out[h - low, t]
            if ahead:
                for h in range(low, high):
                    y[b, length - 1, h] = 0

    return run


@lru_cache
def scan_backward(modes: int) -> Kernel:
    """The adjoint of :func:`scan_forward`, for tasks in range.

    ``run(first, last, ahead, grad_y, grad_end, u, tables, kernel, drift, stops, kept, grad_u,
    grad_start, grad_tables, grad_kernel)``, with grad_tables (B, H, 9 S) and grad_kernel (B, H, 4)
    in float64, to be summed over the batch. A segment is run forward again from the state kept at
    its start, then backward; ``g`` is the gradient with respect to the state.
    """
    M, S = modes, 2 * modes
    blocks = SEGMENT // BLOCK

    @njit(nogil=True, cache=True, fastmath=FAST)
    def run(  # type: ignore[no-untyped-def]
        first,
        last,
        ahead,
        grad_y,
        grad_end,
        u,
        tables,
        kernel,
        drift,
        stops,
        kept,
        grad_u,
        grad_start,
        grad_tables,
        grad_kernel,
    ):
        length, channels = u.shape[1], u.shape[2]
        groups = (channels + GROUP - 1) // GROUP
        segments = (length + SEGMENT - 1) // SEGMENT
        x = np.zeros((GROUP, SEGMENT), u.dtype)
        d = np.zeros((GROUP, SEGMENT), u.dtype)
        out = np.zeros((GROUP, SEGMENT), u.dtype)
        gs = np.zeros((GROUP, S), u.dtype)
        z = np.zeros(10 * S, u.dtype)  # the tables of one channel, then the gradient of its state
        states = np.zeros((blocks + 1) * S, u.dtype)  # at the boundaries of blocks
        g = np.zeros(blocks * S, u.dtype)  # gradients at the ends of blocks
        sums = np.zeros(9 * S, u.dtype)
        for task in range(first, last):
            b, low = task // groups, task % groups * GROUP
            high = min(low + GROUP, channels)
            gs[:] = 0
            grad_tables[b, low:high] = 0
            grad_kernel[b, low:high] = 0
            if stops[b] * 4 == length:
                gs[: high - low] = grad_end[b, low:high]
            for segment in range(segments - 1, -1, -1):
                t0 = segment * SEGMENT
                n = min(SEGMENT, length - t0)
                count = (n + 3) // 4
                for t in range(n):
                    place = length - 1 - t0 - t if ahead else t0 + t
                    for h in range(low, high):
                        x[h - low, t] = u[b, place, h]
                        d[h - low, t] = 0 if place < ahead else grad_y[b, place - ahead, h]
                for t in range(n, 4 * count):
                    for c in range(high - low):
                        x[c, t] = 0
                        d[c, t] = 0
                for h in range(low, high):
                    c = h - low
                    z[: 9 * S] = tables[h]
                    # forward again, keeping the state before each block
                    states[:S] = kept[b, h, segment]
                    for k in range(count):
                        t = 4 * k
                        x0, x1, x2, x3 = x[c, t], x[c, t + 1], x[c, t + 2], x[c, t + 3]
                        o = k * S
                        for q in range(M):
                            r, i, a, e = states[o + q], states[o + M + q], z[q], z[M + q]
                            states[o + S + q] = (
                                a * r
                                - e * i
                                + z[5 * S + q] * x0
                                + z[6 * S + q] * x1
                                + z[7 * S + q] * x2
                                + z[8 * S + q] * x3
                            )
                            states[o + S + M + q] = (
                                a * i
                                + e * r
                                + z[5 * S + M + q] * x0
                                + z[6 * S + M + q] * x1
                                + z[7 * S + M + q] * x2
                                + z[8 * S + M + q] * x3
                            )
                    # the correction of drift, then blocks from the last to the first
                    z[9 * S :] = gs[c]
                    if segment < segments - 1:
                        for q in range(M):
                            r, i, a, e = gs[c, q], gs[c, M + q], drift[h, q], drift[h, M + q]
                            z[9 * S + q] += a * r + e * i
                            z[9 * S + M + q] += a * i - e * r
                    k0, k1, k2, k3 = kernel[h, 0], kernel[h, 1], kernel[h, 2], kernel[h, 3]
                    w0 = w1 = w2 = w3 = u.dtype.type(0)
                    for k in range(count - 1, -1, -1):
                        t = 4 * k
                        x0, x1, x2, x3 = x[c, t], x[c, t + 1], x[c, t + 2], x[c, t + 3]
                        d0, d1, d2, d3 = d[c, t], d[c, t + 1], d[c, t + 2], d[c, t + 3]
                        e0 = k0 * d0 + k1 * d1 + k2 * d2 + k3 * d3
                        e1 = k0 * d1 + k1 * d2 + k2 * d3
                        e2 = k0 * d2 + k1 * d3
                        e3 = k0 * d3
                        w0 += d0 * x0 + d1 * x1 + d2 * x2 + d3 * x3
                        w1 += d1 * x0 + d2 * x1 + d3 * x2
                        w2 += d2 * x0 + d3 * x1
                        w3 += d3 * x0
                        o = k * S
                        for q in range(S):  # apart: a store in the loop below would undo its SIMD
                            g[o + q] = z[9 * S + q]
                        for q in range(M):
                            r, i, a, e = z[9 * S + q], z[9 * S + M + q], z[q], z[M + q]
                            e0 += z[5 * S + q] * r + z[5 * S + M + q] * i
                            e1 += z[6 * S + q] * r + z[6 * S + M + q] * i
                            e2 += z[7 * S + q] * r + z[7 * S + M + q] * i
                            e3 += z[8 * S + q] * r + z[8 * S + M + q] * i
                            z[9 * S + q] = (
                                a * r
                                + e * i
                                + z[S + q] * d0
                                + z[2 * S + q] * d1
                                + z[3 * S + q] * d2
                                + z[4 * S + q] * d3
                            )
                            z[9 * S + M + q] = (
                                a * i
                                - e * r
                                + z[S + M + q] * d0
                                + z[2 * S + M + q] * d1
                                + z[3 * S + M + q] * d2
                                + z[4 * S + M + q] * d3
                            )
                        out[c, t], out[c, t + 1], out[c, t + 2], out[c, t + 3] = e0, e1, e2, e3
                        if (t0 + t) // 4 == stops[b]:
                            for q in range(S):
                                z[9 * S + q] += grad_end[b, h, q]
                    gs[c] = z[9 * S :]
                    # the gradients of the tables: products of states, gradients and samples
                    sums[:] = 0
                    for k in range(count):
                        t, o = 4 * k, k * S
                        x0, x1, x2, x3 = x[c, t], x[c, t + 1], x[c, t + 2], x[c, t + 3]
                        d0, d1, d2, d3 = d[c, t], d[c, t + 1], d[c, t + 2], d[c, t + 3]
                        for q in range(S):
                            v, w = states[o + q], g[o + q]
                            sums[S + q] += d0 * v
                            sums[2 * S + q] += d1 * v
                            sums[3 * S + q] += d2 * v
                            sums[4 * S + q] += d3 * v
                            sums[5 * S + q] += x0 * w
                            sums[6 * S + q] += x1 * w
                            sums[7 * S + q] += x2 * w
                            sums[8 * S + q] += x3 * w
                        for q in range(M):
                            r, i, a, e = states[o + q], states[o + M + q], g[o + q], g[o + M + q]
                            sums[q] += r * a + i * e
                            sums[M + q] += r * e - i * a
                    for q in range(9 * S):
                        grad_tables[b, h, q] += sums[q]
                    grad_kernel[b, h, 0] += w0
                    grad_kernel[b, h, 1] += w1
                    grad_kernel[b, h, 2] += w2
                    grad_kernel[b, h, 3] += w3
                for t in range(n):
                    place = length - 1 - t0 - t if ahead else t0 + t
                    for h in range(low, high):
                        grad_u[b, place, h] = out[h - low, t]
            grad_start[b, low:high] = gs[: high - low]

    return run
