"""The scan over time as machine code: a diagonal system in blocks of four samples, by numba.

Four samples at a time, a state s and inputs x_0..x_3 give

    y_j = outputs_j . s + sum_{m<=j} kernel_{j-m} x_m        s <- power s + sum_m x_m inputs_m

so a mode is read and written once for four samples, and A_bar^4 is rounded instead of A_bar.

In float32 a slow mode would still go astray: its power is rounded the same way at each block, and
the sum of a large state and a small input may not move at all. So inside a segment the state is
kept in two parts, what the start of the segment left and what has come since; at its end they meet
in double precision, the first part multiplied with an exact power (``carry``). Gradients of the
state are in one part, and a factor puts the rounded power right (``drift``).

Vectors of modes are planar: all real parts, then all imaginary ones.

A task is one sequence and a group of channels. It reads and writes (batch, length, channels) as it
is, through a small transposed buffer. Tasks do not share anything, so threads can take any of them.

The loops over modes become vector code only because LLVM knows the number of modes M and sees all
that such a loop touches in one array, or two. Hence the flat ``z``, the copies, and a function for
each M; the parts below are inlined into it. Copies are loops: a slice on the left takes numba
seconds to compile.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numba import njit

from s4d_torch.ssm.compiled.code_cache import cached_njit

BLOCK = 4
SEGMENT = 256  # samples between the states kept for the backward pass
GROUP = 16  # channels of a task: one cache line of float32

# Everything but the licence to assume that there are no NaN and infinities.
FAST = {"reassoc", "contract", "arcp", "nsz"}

Kernel = Callable[..., Any]
part = njit(inline="always")


@part
def gather(source, b, t0, n, low, high, ahead, further, buffer):  # type: ignore[no-untyped-def]
    """Samples t0..t0+n of channels low..high into rows; ``ahead`` counts from the end.

    ``further`` is how many places the answers lie before the samples they answer.
    """
    length = source.shape[1]
    for t in range(n):
        place = length - 1 - t0 - t - further if ahead else t0 + t
        for h in range(low, high):
            buffer[h - low, t] = source[b, place, h] if place >= 0 else 0
    for t in range(n, (n + 3) // 4 * 4):  # a last block that is not full
        for c in range(high - low):
            buffer[c, t] = 0


@part
def scatter(buffer, b, t0, n, low, high, ahead, further, target):  # type: ignore[no-untyped-def]
    """The reverse of :func:`gather`."""
    length = target.shape[1]
    for t in range(n):
        place = length - 1 - t0 - t - further if ahead else t0 + t
        if place >= 0:
            for h in range(low, high):
                target[b, place, h] = buffer[h - low, t]


@part
def correct(g, drift, M):  # type: ignore[no-untyped-def]
    """``g <- conj(1 + drift) g``: what a segment of rounded powers has missed."""
    for q in range(M):
        r, i, a, e = g[q], g[M + q], drift[q], drift[M + q]
        g[q] = r + (a * r + e * i)
        g[M + q] = i + (a * i - e * r)


def segment_runner(two_parts: bool) -> Kernel:
    """``run(z, x, kernel, n, stop, end, out, M)``: n samples of one channel.

    Its state, left and since, is z[9 S : 10 S] + z[10 S :]; without ``two_parts`` nothing was left,
    which saves a quarter of the work. ``end`` takes the state before block ``stop``.
    """

    @part
    def run(z, x, kernel, n, stop, end, out, M):  # type: ignore[no-untyped-def]
        S = 2 * M
        k0, k1, k2, k3 = kernel[0], kernel[1], kernel[2], kernel[3]
        for t in range(0, n, 4):
            if t == 4 * stop:
                for q in range(S):
                    end[q] = z[9 * S + q] + z[10 * S + q]
            x0, x1, x2, x3 = x[t], x[t + 1], x[t + 2], x[t + 3]
            y0 = k0 * x0
            y1 = k0 * x1 + k1 * x0
            y2 = k0 * x2 + k1 * x1 + k2 * x0
            y3 = k0 * x3 + k1 * x2 + k2 * x1 + k3 * x0
            for q in range(M):
                a, e = z[q], z[M + q]
                sr, si = z[10 * S + q], z[10 * S + M + q]
                r, i = sr, si
                if two_parts:
                    lr, li = z[9 * S + q], z[9 * S + M + q]
                    r, i = lr + sr, li + si
                    z[9 * S + q] = a * lr - e * li
                    z[9 * S + M + q] = a * li + e * lr
                y0 += z[S + q] * r + z[S + M + q] * i
                y1 += z[2 * S + q] * r + z[2 * S + M + q] * i
                y2 += z[3 * S + q] * r + z[3 * S + M + q] * i
                y3 += z[4 * S + q] * r + z[4 * S + M + q] * i
                u0 = z[5 * S + q] * x0 + z[6 * S + q] * x1
                u1 = z[7 * S + q] * x2 + z[8 * S + q] * x3
                v0 = z[5 * S + M + q] * x0 + z[6 * S + M + q] * x1
                v1 = z[7 * S + M + q] * x2 + z[8 * S + M + q] * x3
                z[10 * S + q] = a * sr - e * si + u0 + u1
                z[10 * S + M + q] = a * si + e * sr + v0 + v1
            out[t], out[t + 1], out[t + 2], out[t + 3] = y0, y1, y2, y3

    return run


run_segment, run_first = segment_runner(two_parts=True), segment_runner(two_parts=False)


@part
def join(state, carry, since, M):  # type: ignore[no-untyped-def]
    """``s <- carry s + since`` in double precision, at the end of a whole segment."""
    for q in range(M):
        r, i, a, e = state[q], state[M + q], carry[q], carry[M + q]
        state[q] = a * r - e * i + since[q]
        state[M + q] = a * i + e * r + since[M + q]


@lru_cache
def scan_forward(modes: int) -> Kernel:
    """``run(first, last, ahead, u, tables, kernel, carry, start, stops, y, end, kept)``.

    u, y (B, L, H); tables (H, 9 S) = power, outputs_0..3, inputs_0..3 with S = 2 modes; kernel
    (H, 4); carry (H, S) in double precision; start, end (B, H, S); stops (B,) the block before
    which ``end`` is taken; kept (B, H, segments, S), the states at the starts of segments.
    ``ahead`` runs from the end of the sequence to its beginning and leaves each answer one place
    further: a sample hears of those after it, not of itself.
    """
    M, S = modes, 2 * modes

    @cached_njit(nogil=True, fastmath=FAST)
    def run(first, last, ahead, u, tables, kernel, carry, start, stops, y, end, kept):  # type: ignore[no-untyped-def]
        length, channels = u.shape[1], u.shape[2]
        groups = (channels + GROUP - 1) // GROUP
        x = np.zeros((GROUP, SEGMENT), u.dtype)
        out = np.zeros((GROUP, SEGMENT), u.dtype)
        states = np.zeros((GROUP, S), np.float64)
        z = np.zeros(11 * S, u.dtype)  # the tables of one channel, then its state in two parts
        for task in range(first, last):
            b, low = task // groups, task % groups * GROUP
            high = min(low + GROUP, channels)
            rest = True
            for c in range(high - low):
                for q in range(S):
                    states[c, q] = start[b, low + c, q]
                    rest = rest and states[c, q] == 0
            for segment in range((length + SEGMENT - 1) // SEGMENT):
                t0 = segment * SEGMENT
                n = min(SEGMENT, length - t0)
                gather(u, b, t0, n, low, high, ahead, 0, x)
                for h in range(low, high):
                    c = h - low
                    for q in range(9 * S):
                        z[q] = tables[h, q]
                    for q in range(S):
                        z[9 * S + q] = states[c, q]
                        z[10 * S + q] = 0
                        kept[b, h, segment, q] = states[c, q]
                    stop = stops[b] - t0 // 4
                    if rest and segment == 0:
                        run_first(z, x[c], kernel[h], n, stop, end[b, h], out[c], M)
                    else:
                        run_segment(z, x[c], kernel[h], n, stop, end[b, h], out[c], M)
                    if t0 + n == 4 * stops[b] == length:
                        for q in range(S):
                            end[b, h, q] = z[9 * S + q] + z[10 * S + q]
                    join(states[c], carry[h], z[10 * S :], M)
                scatter(out, b, t0, n, low, high, ahead, ahead, y)
            if ahead:
                for h in range(low, high):
                    y[b, length - 1, h] = 0

    return run


@part
def run_again(z, x, count, states, M):  # type: ignore[no-untyped-def]
    """Forward once more, keeping the state at every boundary of blocks."""
    S = 2 * M
    for k in range(count):
        t, o = 4 * k, k * S
        x0, x1, x2, x3 = x[t], x[t + 1], x[t + 2], x[t + 3]
        for q in range(M):
            r, i, a, e = states[o + q], states[o + M + q], z[q], z[M + q]
            u0 = z[5 * S + q] * x0 + z[6 * S + q] * x1
            u1 = z[7 * S + q] * x2 + z[8 * S + q] * x3
            v0 = z[5 * S + M + q] * x0 + z[6 * S + M + q] * x1
            v1 = z[7 * S + M + q] * x2 + z[8 * S + M + q] * x3
            states[o + S + q] = a * r - e * i + u0 + u1
            states[o + S + M + q] = a * i + e * r + v0 + v1


@part
def run_back(z, d, kernel, count, stop, grad_end, g, out, M):  # type: ignore[no-untyped-def]
    """Blocks from the last to the first; z[9 S:] is the gradient of the state, g keeps it."""
    S = 2 * M
    k0, k1, k2, k3 = kernel[0], kernel[1], kernel[2], kernel[3]
    for k in range(count - 1, -1, -1):
        t, o = 4 * k, k * S
        d0, d1, d2, d3 = d[t], d[t + 1], d[t + 2], d[t + 3]
        e0 = k0 * d0 + k1 * d1 + k2 * d2 + k3 * d3
        e1 = k0 * d1 + k1 * d2 + k2 * d3
        e2 = k0 * d2 + k1 * d3
        e3 = k0 * d3
        for q in range(S):  # apart: a store in the loop below would undo its SIMD
            g[o + q] = z[9 * S + q]
        for q in range(M):
            r, i, a, e = z[9 * S + q], z[9 * S + M + q], z[q], z[M + q]
            e0 += z[5 * S + q] * r + z[5 * S + M + q] * i
            e1 += z[6 * S + q] * r + z[6 * S + M + q] * i
            e2 += z[7 * S + q] * r + z[7 * S + M + q] * i
            e3 += z[8 * S + q] * r + z[8 * S + M + q] * i
            u0 = z[S + q] * d0 + z[2 * S + q] * d1
            u1 = z[3 * S + q] * d2 + z[4 * S + q] * d3
            v0 = z[S + M + q] * d0 + z[2 * S + M + q] * d1
            v1 = z[3 * S + M + q] * d2 + z[4 * S + M + q] * d3
            z[9 * S + q] = a * r + e * i + u0 + u1
            z[9 * S + M + q] = a * i - e * r + v0 + v1
        out[t], out[t + 1], out[t + 2], out[t + 3] = e0, e1, e2, e3
        if k == stop:
            for q in range(S):
                z[9 * S + q] += grad_end[q]


@part
def add_products(x, d, states, g, count, sums, grad_tables, grad_kernel, M):  # type: ignore[no-untyped-def]
    """The gradients of the tables: products of states, their gradients and samples."""
    S = 2 * M
    for q in range(9 * S):
        sums[q] = 0
    w0 = w1 = w2 = w3 = x[0] * 0
    for k in range(count):
        t, o = 4 * k, k * S
        x0, x1, x2, x3 = x[t], x[t + 1], x[t + 2], x[t + 3]
        d0, d1, d2, d3 = d[t], d[t + 1], d[t + 2], d[t + 3]
        w0 += d0 * x0 + d1 * x1 + d2 * x2 + d3 * x3
        w1 += d1 * x0 + d2 * x1 + d3 * x2
        w2 += d2 * x0 + d3 * x1
        w3 += d3 * x0
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
        grad_tables[q] += sums[q]
    grad_kernel[0] += w0
    grad_kernel[1] += w1
    grad_kernel[2] += w2
    grad_kernel[3] += w3


@part
def begin_gradients(grad_end, at_end, b, low, high, gs, grad_tables, grad_kernel, M):  # type: ignore[no-untyped-def]
    """Of the state: what comes from its end, if that is the end of the sequence; else zeros."""
    for h in range(low, high):
        for q in range(2 * M):
            gs[h - low, q] = grad_end[b, h, q] if at_end else 0
        for q in range(18 * M):
            grad_tables[b, h, q] = 0
        for q in range(4):
            grad_kernel[b, h, q] = 0


@lru_cache
def scan_backward(modes: int) -> Kernel:
    """The adjoint of :func:`scan_forward`, for tasks in range.

    grad_tables (B, H, 9 S) and grad_kernel (B, H, 4) are float64, to be summed over the batch. A
    segment is run forward again from the state kept at its start, then backward.
    """
    M, S = modes, 2 * modes
    blocks = SEGMENT // BLOCK

    @cached_njit(nogil=True, fastmath=FAST)
    def run(  # type: ignore[no-untyped-def]
        first, last, ahead, grad_y, grad_end, u, tables, kernel, drift, stops, kept,
        grad_u, grad_start, grad_tables, grad_kernel,
    ):  # fmt: skip
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
            at_end = stops[b] * 4 == length
            begin_gradients(grad_end, at_end, b, low, high, gs, grad_tables, grad_kernel, M)
            for segment in range(segments - 1, -1, -1):
                t0 = segment * SEGMENT
                n = min(SEGMENT, length - t0)
                count = (n + 3) // 4
                gather(u, b, t0, n, low, high, ahead, 0, x)
                gather(grad_y, b, t0, n, low, high, ahead, ahead, d)
                for h in range(low, high):
                    c = h - low
                    if segment < segments - 1:
                        correct(gs[c], drift[h], M)
                    for q in range(9 * S):
                        z[q] = tables[h, q]
                    for q in range(S):
                        z[9 * S + q] = gs[c, q]
                        states[q] = kept[b, h, segment, q]
                    run_again(z, x[c], count, states, M)
                    stop = stops[b] - t0 // 4
                    run_back(z, d[c], kernel[h], count, stop, grad_end[b, h], g, out[c], M)
                    for q in range(S):
                        gs[c, q] = z[9 * S + q]
                    add_products(
                        x[c], d[c], states, g, count, sums, grad_tables[b, h], grad_kernel[b, h], M
                    )
                scatter(out, b, t0, n, low, high, ahead, 0, grad_u)
            for h in range(low, high):
                for q in range(S):
                    grad_start[b, h, q] = gs[h - low, q]

    return run
