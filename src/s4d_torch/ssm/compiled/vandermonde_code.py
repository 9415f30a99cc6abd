"""The convolution kernel from stored parameters, and its adjoint, one channel at a time.

``K_0 = C B_now`` and ``K_l = C A_bar^(l-1) B_next``, in the two-level form of ``kernel``: with
l - 1 = T i + j the powers are a product of two short tables, kept in double precision. Meant for
float32 kernels; in double precision the powers are taken with more care there.
"""

import math
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from s4d_torch.ssm.compiled import tables_code
from s4d_torch.ssm.compiled.code_cache import cached_njit
from s4d_torch.ssm.compiled.tables_code import decay_of, discretize, store_mode

Kernel = Callable[..., Any]
FAST = {"reassoc", "contract", "arcp", "nsz"}


@njit(nogil=True)
def unit(M):  # type: ignore[no-untyped-def]
    """Ones, planar."""
    one = np.zeros(2 * M)
    for n in range(M):
        one[n] = 1
    return one


@njit(nogil=True, fastmath=FAST)
def geometric(first, ratio, table):  # type: ignore[no-untyped-def]
    """table[k] = first ratio^k; vectors of modes are planar: real parts, then imaginary ones."""
    M = ratio.shape[0] // 2
    for n in range(2 * M):
        table[0, n] = first[n]
    for k in range(1, table.shape[0]):
        last, line = table[k - 1], table[k]
        for n in range(M):
            a, e = ratio[n], ratio[M + n]
            r, i = last[n], last[M + n]
            line[n] = r * a - i * e
            line[M + n] = r * e + i * a


@njit(nogil=True, fastmath=FAST)
def add_product(a, b, scale, out):  # type: ignore[no-untyped-def]
    """``out += scale a b`` for planar vectors."""
    M = a.shape[0] // 2
    for n in range(M):
        r, i, x, y = a[n], a[M + n], scale * b[n], scale * b[M + n]
        out[n] += r * x - i * y
        out[M + n] += r * y + i * x


@njit(nogil=True)
def prepare(rule, constraint, decay, frequency, dt, A_bar, now, later):  # type: ignore[no-untyped-def]
    """A_bar, planar, and the factors of ``dt B`` for the modes of one channel."""
    M = decay.shape[0]
    for n in range(M):
        A = complex(-decay_of(constraint, np.float64(decay[n])), np.float64(frequency[n]))
        a, now[n], later[n] = discretize(rule, A, dt)
        A_bar[n], A_bar[M + n] = a.real, a.imag


@njit(nogil=True, fastmath=FAST)
def multiply(rows, inner, out):  # type: ignore[no-untyped-def]
    """out[i, j] = sum_s rows[i, s] inner[j, s]; the rows come in fours."""
    S, T = rows.shape[1], out.shape[1]
    for i in range(0, rows.shape[0], 4):
        r0, r1, r2, r3 = rows[i], rows[i + 1], rows[i + 2], rows[i + 3]
        for j in range(T):
            line = inner[j]
            y0 = y1 = y2 = y3 = 0.0
            for s in range(S):
                v = line[s]
                y0 += r0[s] * v
                y1 += r1[s] * v
                y2 += r2[s] * v
                y3 += r3[s] * v
            out[i, j], out[i + 1, j], out[i + 2, j], out[i + 3, j] = y0, y1, y2, y3


@njit(nogil=True, fastmath=FAST)
def correlate(grad, inner, sums, late):  # type: ignore[no-untyped-def]
    """sums[i] = sum_j g_ij A^j and late[i] = sum_j j g_ij A^(j-1), planar (I, S); inner (T, S)."""
    count, T = grad.shape
    S = inner.shape[1]
    for i in range(count):
        p, q = sums[i], late[i]
        for s in range(S):
            p[s] = q[s] = 0
        for j in range(0, T, 4):
            g0, g1, g2, g3 = grad[i, j], grad[i, j + 1], grad[i, j + 2], grad[i, j + 3]
            a0, a1, a2, a3 = inner[j], inner[j + 1], inner[j + 2], inner[j + 3]
            b = inner[max(j - 1, 0)]  # counts 0 times for j = 0
            w0, w1, w2, w3 = j * g0, (j + 1) * g1, (j + 2) * g2, (j + 3) * g3
            for s in range(S):
                p[s] += g0 * a0[s] + g1 * a1[s] + g2 * a2[s] + g3 * a3[s]
            for s in range(S):
                q[s] += w0 * b[s] + w1 * a0[s] + w2 * a1[s] + w3 * a2[s]


@njit(nogil=True)
def sum_powers(outer, before, sums, late, T, total, slope):  # type: ignore[no-untyped-def]
    """sum_l g_l A^l and its derivative from the sums of :func:`correlate`."""
    for s in range(total.shape[0]):
        total[s] = slope[s] = 0
    for i in range(outer.shape[0]):
        add_product(outer[i], sums[i], 1.0, total)
        add_product(outer[i], late[i], 1.0, slope)
        add_product(before[i], sums[i], T * i, slope)


def make_kernel_forward(stamp: int) -> Kernel:
    @cached_njit(nogil=True)
    def kernel_forward(  # type: ignore[no-untyped-def]
        low, high, options, rate, decay, frequency, B, C, log_dt, K
    ):
        """Fill K (G, H, L) for channels low..high; options = (rule, constraint, pairs, T)."""
        _ = stamp
        rule, constraint, pairs, T = options
        sets, M = decay.shape
        G, H, L = K.shape
        count = -(-(L - 1) // (4 * T)) * 4  # rows, in fours
        inner = np.zeros((T + 1, 2 * M))
        rows, out = np.zeros((count, 2 * M)), np.zeros((count, T))
        A_bar, one, weight = np.zeros(2 * M), unit(M), np.zeros(2 * M)
        nows, nexts = np.zeros(M, np.complex128), np.zeros(M, np.complex128)
        scale = 2.0 if pairs else 1.0
        for h in range(low, high):
            dt = math.exp(np.float64(log_dt[h])) * rate
            s = h * sets // H
            prepare(rule, constraint, decay[s], frequency[s], dt, A_bar, nows, nexts)
            geometric(one, A_bar, inner)
            step = inner[T]  # A^T, and then its conjugate
            for n in range(M, 2 * M):
                step[n] = -step[n]
            for g in range(G):
                first = 0.0
                for n in range(M):
                    c = scale * complex(np.float64(C[g, h, n, 0]), np.float64(C[g, h, n, 1]))
                    c = c * dt * complex(np.float64(B[s, n, 0]), np.float64(B[s, n, 1]))
                    first += (c * nows[n]).real
                    c = c * nexts[n]
                    weight[n], weight[M + n] = c.real, -c.imag
                if count:
                    geometric(weight, step, rows)
                multiply(rows, inner, out)
                K[g, h, 0] = first
                flat = out.reshape(-1)
                for place in range(1, L):
                    K[g, h, place] = flat[place - 1]

    return kernel_forward


def make_kernel_backward(stamp: int) -> Kernel:
    @cached_njit(nogil=True)
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
        inner, outer = np.zeros((T + 1, 2 * M)), np.zeros((count, 2 * M))
        before = np.zeros((count + 1, 2 * M))  # before[i + 1] = A^(T (i + 1) - 1)
        grad, sums, late = np.zeros((count, T)), np.zeros((count, 2 * M)), np.zeros((count, 2 * M))
        A_bar, one = np.zeros(2 * M), unit(M)
        total, slope = np.zeros(2 * M), np.zeros(2 * M)
        nows, nexts = np.zeros(M, np.complex128), np.zeros(M, np.complex128)
        pulled = np.zeros((3, M), np.complex128)  # gradients of A_bar, B_now and B_next
        scale = 2.0 if pairs else 1.0
        for h in range(low, high):
            dt = math.exp(np.float64(log_dt[h])) * rate
            s = h * sets // H
            prepare(rule, constraint, decay[s], frequency[s], dt, A_bar, nows, nexts)
            geometric(one, A_bar, inner)
            geometric(one, inner[T], outer)
            geometric(inner[T - 1], inner[T], before[1:])
            for n in range(M):
                pulled[0, n] = pulled[1, n] = pulled[2, n] = 0
            flat = grad.reshape(-1)
            for g in range(G):
                for place in range(1, L):
                    flat[place - 1] = g_K[g, h, place]
                correlate(grad, inner, sums, late)
                sum_powers(outer, before, sums, late, T, total, slope)
                first = g_K[g, h, 0]
                for n in range(M):
                    c = scale * complex(np.float64(C[g, h, n, 0]), np.float64(C[g, h, n, 1]))
                    b = dt * complex(np.float64(B[s, n, 0]), np.float64(B[s, n, 1]))
                    g_v = complex(total[n], -total[M + n])
                    bend = complex(slope[n], slope[M + n])
                    pulled[0, n] += (c * b * nexts[n] * bend).conjugate()
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
_stamp = zlib.crc32(Path(str(tables_code.__file__)).read_bytes())
kernel_forward = make_kernel_forward(_stamp)
kernel_backward = make_kernel_backward(_stamp)
