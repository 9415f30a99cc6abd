"""The convolution kernel from stored parameters, and its adjoint, a group of channels at a time.

``K_0 = C B_now`` and ``K_l = Re sum_n w_n A_n^(l-1)`` with ``w = C B_next``. Powers are taken one
after the other, four at a time with a step of A^4, in double precision: the sum is rounded once.
Meant for float32 kernels; in double precision the powers are taken with more care in ``kernel``.

    K, g_K (C's, G, L, W)    in groups of W channels, whose numbers lie side by side
"""

import math

import numpy as np

from s4d_torch.ssm.compiled.code_cache import cached_njit, part
from s4d_torch.ssm.compiled.runtime import LANES as W
from s4d_torch.ssm.compiled.tables_code import decay_of, discretize, store_mode
from s4d_torch.ssm.compiled.vectors import add_products, fill, load, load_four, store, store_four


@part
def add_powers(ratio, weight, blocks, K):  # type: ignore[no-untyped-def]
    """``K_l += Re(w a^l)`` for l < 4 blocks; ratio, weight (2 W,), K (4 blocks, W)."""
    a, e = load(ratio, 0), load(ratio, W)
    p0, q0 = load(weight, 0), load(weight, W)
    p1, q1 = p0 * a - q0 * e, p0 * e + q0 * a
    p2, q2 = p1 * a - q1 * e, p1 * e + q1 * a
    p3, q3 = p2 * a - q2 * e, p2 * e + q2 * a
    a, e = a * a - e * e, a * e + e * a
    a, e = a * a - e * e, a * e + e * a
    r, i = fill(K, 1.0), fill(K, 0.0)  # a^(4 block); i with its sign turned
    real, imag = (p0, p1, p2, p3), (q0, q1, q2, q3)
    for place in range(0, 4 * W * blocks, 4 * W):
        store_four(K, place, add_products(add_products(load_four(K, place), real, r), imag, i))
        r, i = r * a + i * e, i * a - r * e


@part
def sum_powers(ratio, grad, blocks, total, slope):  # type: ignore[no-untyped-def]
    """``sum_l g_l a^l`` and its derivative, by Horner's rule over blocks of four; (2 W,) each."""
    a, e = load(ratio, 0), load(ratio, W)
    b, f = a * a - e * e, a * e + e * a
    c, h = b * a - f * e, b * e + f * a
    p, q = b * b - f * f, b * f + f * b  # a^4: what a block counts less than the next
    four = fill(grad, 4.0)
    c4, h4 = four * c, four * h  # its derivative
    tr = ti = sr = si = fill(grad, 0.0)
    for block in range(blocks - 1, -1, -1):
        g0, g1, g2, g3 = load_four(grad, 4 * W * block)
        d2, d3 = g2 + g2, g3 + g3 + g3
        ur, ui = (g1 + d2 * a + d3 * b) + tr * c4, (d2 * e + d3 * f) + tr * h4
        ur, ui = ur - ti * h4, ui + ti * c4
        sr, si = (ur + sr * p) - si * q, (ui + sr * q) + si * p
        ur, ui = g0 + g1 * a + g2 * b + g3 * c, g1 * e + g2 * f + g3 * h
        tr, ti = (ur + tr * p) - ti * q, (ui + tr * q) + ti * p
    store(total, 0, tr)
    store(total, W, ti)
    store(slope, 0, sr)
    store(slope, W, si)


@cached_njit(nogil=True)
def kernel_forward(  # type: ignore[no-untyped-def]
    low, high, options, rate, C, decay, frequency, B, log_dt, D, K, room
):
    """Fill K for groups low..high; options = (rule, constraint, pairs).

    The first tap of the first K holds D as well, which may be empty. ``room`` is in double
    precision, to work in: eight vectors, and the taps of a group but for the first in whole blocks.
    """
    ratio, weight, wide = room[: 2 * W], room[2 * W : 4 * W], room[8 * W :]
    rule, constraint, pairs = options
    sets, modes = decay.shape
    channels = log_dt.shape[0]
    length = K.shape[2]
    blocks = (length + 2) // 4
    scale = 2.0 if pairs else 1.0
    for k in range(K.shape[0]):
        for g in range(low, high):
            for q in range(4 * W * blocks):
                wide[q] = 0
            first = K[k, g, 0]
            for lane in range(W):
                first[lane] = D[g * W + lane] if k == 0 and g * W + lane < D.shape[0] else 0
            for n in range(modes):
                for q in range(2 * W):
                    ratio[q] = weight[q] = 0
                for h in range(g * W, min(g * W + W, channels)):
                    lane, s = h - g * W, h * sets // channels
                    dt = math.exp(np.float64(log_dt[h])) * rate
                    raw = np.float64(decay[s, n])
                    A = complex(-decay_of(constraint, raw), np.float64(frequency[s, n]))
                    a, now, later = discretize(rule, A, dt)
                    b = dt * complex(np.float64(B[s, n, 0]), np.float64(B[s, n, 1]))
                    c = scale * complex(np.float64(C[k, h, n, 0]), np.float64(C[k, h, n, 1]))
                    first[lane] += (c * b * now).real
                    w = c * b * later
                    ratio[lane], ratio[W + lane] = a.real, a.imag
                    weight[lane], weight[W + lane] = w.real, w.imag
                add_powers(ratio, weight, blocks, wide)
            for l in range(length - 1):  # noqa: E741
                for lane in range(W):
                    K[k, g, l + 1, lane] = wide[l * W + lane]


@cached_njit(nogil=True)
def kernel_backward(  # type: ignore[no-untyped-def]
    low, high, options, rate, C, decay, frequency, B, log_dt, g_K,
    g_C, g_decay, g_frequency, g_B, g_log_dt, room,
):  # fmt: skip
    """The adjoint of :func:`kernel_forward`: gradients for each C and each channel."""
    ratio, total, slope = room[: 2 * W], room[2 * W : 4 * W], room[4 * W : 6 * W]
    g_dt, wide = room[6 * W :], room[8 * W :]
    rule, constraint, pairs = options
    sets, modes = decay.shape
    channels = log_dt.shape[0]
    length = g_K.shape[2]
    blocks = (length + 2) // 4
    scale = 2.0 if pairs else 1.0
    for k in range(g_K.shape[0]):
        for g in range(low, high):
            for l in range(4 * blocks):  # noqa: E741
                for lane in range(W):
                    wide[l * W + lane] = g_K[k, g, l + 1, lane] if l + 1 < length else 0
            for lane in range(W):
                g_dt[lane] = 0
            for n in range(modes):
                for q in range(2 * W):
                    ratio[q] = 0
                for h in range(g * W, min(g * W + W, channels)):
                    s = h * sets // channels
                    dt = math.exp(np.float64(log_dt[h])) * rate
                    raw = np.float64(decay[s, n])
                    A = complex(-decay_of(constraint, raw), np.float64(frequency[s, n]))
                    a, now, later = discretize(rule, A, dt)
                    ratio[h - g * W], ratio[W + h - g * W] = a.real, a.imag
                sum_powers(ratio, wide, blocks, total, slope)
                for h in range(g * W, min(g * W + W, channels)):
                    lane, s = h - g * W, h * sets // channels
                    dt = math.exp(np.float64(log_dt[h])) * rate
                    raw = np.float64(decay[s, n])
                    A = complex(-decay_of(constraint, raw), np.float64(frequency[s, n]))
                    a, now, later = discretize(rule, A, dt)
                    b = complex(np.float64(B[s, n, 0]), np.float64(B[s, n, 1]))
                    c = scale * complex(np.float64(C[k, h, n, 0]), np.float64(C[k, h, n, 1]))
                    first = np.float64(g_K[k, g, 0, lane])
                    g_w = complex(total[lane], -total[W + lane])
                    bend = complex(slope[lane], slope[W + lane])
                    g_a = (c * dt * b * later * bend).conjugate()
                    g_dt[lane] += dt * store_mode(
                        rule, constraint, A, b, dt, now, later, g_a, c.conjugate() * first,
                        c.conjugate() * g_w, raw, g_decay[k, h], g_frequency[k, h], g_B[k, h], n,
                    )  # fmt: skip
                    g_c = now.conjugate() * first + later.conjugate() * g_w
                    g_c = scale * (dt * b).conjugate() * g_c
                    g_C[k, h, n, 0], g_C[k, h, n, 1] = g_c.real, g_c.imag
            for h in range(g * W, min(g * W + W, channels)):
                g_log_dt[k, h] = g_dt[h - g * W]
