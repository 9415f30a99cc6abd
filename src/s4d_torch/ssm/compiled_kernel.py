"""The convolution kernel from stored parameters, and its adjoint, one channel at a time.

``K_0 = C B_now`` and ``K_l = C A_bar^(l-1) B_next``, in the two-level form of ``kernel``: with
l - 1 = T i + j the powers are a product of two short tables, kept in double precision. Meant for
float32 kernels; in double precision the powers are taken with more care there.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from s4d_torch.ssm import compiled_blocks
from s4d_torch.ssm.compiled_blocks import decay_of, discretize, store_mode

Kernel = Callable[..., Any]
FAST = {"reassoc", "contract", "arcp", "nsz"}


@njit(nogil=True)
def fill_powers(A_bar, inner, outer, before):  # type: ignore[no-untyped-def]
    """inner[j] = A^j (T, 2M planar), outer[i] = A^(T i) (I, M), before[i] = A^(T i - 1), i > 0."""
    T, count, M = inner.shape[0], outer.shape[0], A_bar.shape[0]
    for n in range(M):
        a = A_bar[n]
        p = complex(1.0, 0.0)
        last = p
        for j in range(T):
            inner[j, n], inner[j, M + n] = p.real, p.imag
            last = p
            p = p * a
        step = p  # A^T
        p = complex(1.0, 0.0)
        for i in range(count):
            outer[i, n] = p
            p = p * step
        p = last
        for i in range(1, count):
            before[i, n] = p
            p = p * step


@njit(nogil=True)
def prepare(rule, constraint, decay, frequency, dt, A_bar, now, later):  # type: ignore[no-untyped-def]
    """A_bar and the factors of ``dt B`` for the modes of one channel."""
    for n in range(decay.shape[0]):
        A = complex(-decay_of(constraint, np.float64(decay[n])), np.float64(frequency[n]))
        A_bar[n], now[n], later[n] = discretize(rule, A, dt)


@njit(nogil=True, fastmath=FAST)
def multiply(rows, inner, out):  # type: ignore[no-untyped-def]
    """out[i, j] = sum_s rows[i, s] inner[j, s]; inner comes transposed, (S, T)."""
    count, S = rows.shape
    T = inner.shape[1]
    for i in range(count):
        line = out[i]
        line[:] = 0
        for s in range(0, S, 4):
            r0, r1, r2, r3 = rows[i, s], rows[i, s + 1], rows[i, s + 2], rows[i, s + 3]
            c0, c1, c2, c3 = inner[s], inner[s + 1], inner[s + 2], inner[s + 3]
            for j in range(T):
                line[j] += r0 * c0[j] + r1 * c1[j] + r2 * c2[j] + r3 * c3[j]


@njit(nogil=True, fastmath=FAST)
def correlate(grad, inner, sums, late):  # type: ignore[no-untyped-def]
    """sums[i] = sum_j g_ij A^j and late[i] = sum_j j g_ij A^(j-1), planar (I, S); inner (T, S)."""
    count, T = grad.shape
    S = inner.shape[1]
    for i in range(count):
        p, q = sums[i], late[i]
        p[:] = 0
        q[:] = 0
        for j in range(0, T, 4):
            g0, g1, g2, g3 = grad[i, j], grad[i, j + 1], grad[i, j + 2], grad[i, j + 3]
            a0, a1, a2, a3 = inner[j], inner[j + 1], inner[j + 2], inner[j + 3]
            b = inner[max(j - 1, 0)]  # counts 0 times for j = 0
            w0, w1, w2, w3 = j * g0, (j + 1) * g1, (j + 2) * g2, (j + 3) * g3
            for s in range(S):
                p[s] += g0 * a0[s] + g1 * a1[s] + g2 * a2[s] + g3 * a3[s]
            for s in range(S):
                q[s] += w0 * b[s] + w1 * a0[s] + w2 * a1[s] + w3 * a2[s]


def make_kernel_forward(stamp: int) -> Kernel:
    @njit(nogil=True, cache=True)
    def kernel_forward(  # type: ignore[no-untyped-def]
        low, high, options, rate, decay, frequency, B, C, log_dt, K
    ):
        """Fill K (G, H, L) for channels low..high; options = (rule, constraint, pairs, T)."""
        _ = stamp
        rule, constraint, pairs, T = options
        sets, M = decay.shape
        G, H, L = K.shape
        S = -(-2 * M // 4) * 4
        count = max(-(-(L - 1) // T), 1)
        inner, transposed = np.zeros((T, 2 * M)), np.zeros((S, T))
        outer, before = np.zeros((count, M), np.complex128), np.zeros((count, M), np.complex128)
        rows, out = np.zeros((count, S)), np.zeros((count, T))
        A_bar = np.zeros(M, np.complex128)
        nows, nexts = np.zeros_like(A_bar), np.zeros_like(A_bar)
        scale = 2.0 if pairs else 1.0
        for h in range(low, high):
            dt = math.exp(np.float64(log_dt[h])) * rate
            s = h * sets // H
            prepare(rule, constraint, decay[s], frequency[s], dt, A_bar, nows, nexts)
            fill_powers(A_bar, inner, outer, before)
            for q in range(2 * M):
                for j in range(T):
                    transposed[q, j] = inner[j, q]
            for g in range(G):
                first = 0.0
                for n in range(M):
                    c = scale * complex(np.float64(C[g, h, n, 0]), np.float64(C[g, h, n, 1]))
                    c = c * dt * complex(np.float64(B[s, n, 0]), np.float64(B[s, n, 1]))
                    first += (c * nows[n]).real
                    weight = c * nexts[n]
                    for i in range(count):
                        w = weight * outer[i, n]
                        rows[i, n], rows[i, M + n] = w.real, -w.imag
                multiply(rows, transposed, out)
                K[g, h, 0] = first
                flat = out.reshape(-1)
                for place in range(1, L):
                    K[g, h, place] = flat[place - 1]

    return kernel_forward


def make_kernel_backward(stamp: int) -> Kernel:
    @njit(nogil=True, cache=True)
    def kernel_backward(  # type: ignore[no-untyped-def]
        low, high, options, rate, decay, frequency, B, C, log_dt, g_K,
        g_decay, g_frequency, g_B, g_C, g_log_dt,
    ):  # fmt: skip
        """The adjoint of :func:`kernel_forward`: gradients in float64, for channels low..high."""
        _ = stamp
        rule, constraint, pairs, T = options
        sets, M = decay.shape
        G, H, L = g_K.shape
        count = max(-(-(L - 1) // T), 1)
        inner = np.zeros((T, 2 * M))
        outer, before = np.zeros((count, M), np.complex128), np.zeros((count, M), np.complex128)
        grad, sums, late = np.zeros((count, T)), np.zeros((count, 2 * M)), np.zeros((count, 2 * M))
        A_bar = np.zeros(M, np.complex128)
        nows, nexts = np.zeros_like(A_bar), np.zeros_like(A_bar)
        pulled = np.zeros((3, M), np.complex128)  # gradients of A_bar, B_now and B_next
        scale = 2.0 if pairs else 1.0
        for h in range(low, high):
            dt = math.exp(np.float64(log_dt[h])) * rate
            s = h * sets // H
            prepare(rule, constraint, decay[s], frequency[s], dt, A_bar, nows, nexts)
            fill_powers(A_bar, inner, outer, before)
            pulled[:] = 0
            flat = grad.reshape(-1)
            for g in range(G):
                for place in range(1, L):
                    flat[place - 1] = g_K[g, h, place]
                correlate(grad, inner, sums, late)
                first = g_K[g, h, 0]
                for n in range(M):
                    c = scale * complex(np.float64(C[g, h, n, 0]), np.float64(C[g, h, n, 1]))
                    b = dt * complex(np.float64(B[s, n, 0]), np.float64(B[s, n, 1]))
                    total = slope = 0j  # sum_l g_l A^l and its derivative
                    for i in range(count):
                        p = complex(sums[i, n], sums[i, M + n])
                        total += outer[i, n] * p
                        slope += outer[i, n] * complex(late[i, n], late[i, M + n])
                        slope += T * i * before[i, n] * p
                    g_v = total.conjugate()
                    pulled[0, n] += (c * b * nexts[n] * slope).conjugate()
                    pulled[1, n] += c.conjugate() * first
                    pulled[2, n] += c.conjugate() * g_v
                    g_c = nows[n].conjugate() * first + nexts[n].conjugate() * g_v
                    g_c = scale * b.conjugate() * g_c
                    g_C[g, h, n, 0], g_C[g, h, n, 1] = g_c.real, g_c.imag
            g_dt = 0.0
            for n in range(M):
                raw = np.float64(decay[s, n])
                A = complex(-decay_of(constraint, raw), np.float64(frequency[s, n]))
                b = complex(np.float64(B[s, n, 0]), np.float64(B[s, n, 1]))
                g_dt += store_mode(
                    rule, constraint, A, b, dt, nows[n], nexts[n], pulled[0, n], pulled[1, n],
                    pulled[2, n], raw, g_decay[s], g_frequency[s], g_B[s], n,
                )  # fmt: skip
            g_log_dt[h] = g_dt * dt

    return kernel_backward


# numba's cache on disk knows when this file changes, not when one it calls into does: the content
# of that one is part of the key.
_stamp = zlib.crc32(Path(str(compiled_blocks.__file__)).read_bytes())
kernel_forward = make_kernel_forward(_stamp)
kernel_backward = make_kernel_backward(_stamp)
