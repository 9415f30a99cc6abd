"""Convolution by Fourier transforms as machine code; the transforms are in ``transform_code``.

A real signal of n = 2 N samples is taken for a complex one of half as many points: even samples are
real parts, odd ones imaginary, z = u_even + i u_odd. With Z' for conj(Z_(N-f)) and phi for
exp(-2 pi i f / N), a convolution with k is

    Z_f <- alpha_f Z_f + beta_f Z'_f,    alpha = K_even + i (1 - phi) K_odd / 2
                                         beta = i (1 + phi) K_odd / 2

and its adjoint ``conj(alpha_f) Z_f + beta_(N-f) Z'_f``. The points N - f of a narrow part are again
one: both go through the rest of the transform, the product and the way back while they are in the
fastest cache. Sequences, and channels, never meet: none hears another, however loud.

    u, y (B L, H)    taps (1 or 2, G, L, W): kernels in groups of W channels
    responses (G, N 4 W): alpha and beta, over a circle of 2 N >= 2 L samples, divided by N
    mirror (N,): the place of N - f beside that of f    phases (N, 2): phi
"""

from s4d_torch.ssm.compiled.code_cache import cached_njit, part
from s4d_torch.ssm.compiled.convolution.transform_code import (
    POINT,
    narrow_joins,
    narrow_parts,
    narrow_splits,
    put,
    take,
    wide_joins,
    wide_splits,
)
from s4d_torch.ssm.compiled.rows_code import put_rows
from s4d_torch.ssm.compiled.runtime import LANES as W
from s4d_torch.ssm.compiled.vectors import fill, load, load_one, store

PAIR = 2 * POINT  # alpha and beta of a point


@part
def times(a, b):  # type: ignore[no-untyped-def]
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


@part
def times_conjugate(a, b):  # type: ignore[no-untyped-def]
    """``a conj(b)``."""
    return a[0] * b[0] + a[1] * b[1], a[1] * b[0] - a[0] * b[1]


@part
def plus(a, b):  # type: ignore[no-untyped-def]
    return a[0] + b[0], a[1] + b[1]


@part
def filter_points(z, response, mirror, first, last):  # type: ignore[no-untyped-def]
    """The product, of points in range and of those they meet."""
    for p in range(first, last):
        q = mirror[p]
        if q >= p:
            a, b = take(z, p * POINT), take(z, q * POINT)
            of_a = times(take(response, p * PAIR), a)
            of_b = times(take(response, q * PAIR), b)
            put(z, p * POINT, plus(of_a, times_conjugate(take(response, p * PAIR + POINT), b)))
            put(z, q * POINT, plus(of_b, times_conjugate(take(response, q * PAIR + POINT), a)))


@part
def correlate_points(z, d, response, total, mirror, first, last):  # type: ignore[no-untyped-def]
    """Its adjoint: of the signal, in d, and what it adds to those of alpha and beta, in total."""
    for p in range(first, last):
        q = mirror[p]
        if q >= p:
            a, b = take(d, p * POINT), take(d, q * POINT)
            x, y = take(z, p * POINT), take(z, q * POINT)
            put(total, p * PAIR, plus(take(total, p * PAIR), times_conjugate(a, x)))
            put(total, p * PAIR + POINT, plus(take(total, p * PAIR + POINT), times(a, y)))
            if q > p:
                put(total, q * PAIR, plus(take(total, q * PAIR), times_conjugate(b, y)))
                put(total, q * PAIR + POINT, plus(take(total, q * PAIR + POINT), times(b, x)))
            of_a = times_conjugate(a, take(response, p * PAIR))
            of_b = times_conjugate(b, take(response, q * PAIR))
            put(d, p * POINT, plus(of_a, times_conjugate(take(response, q * PAIR + POINT), b)))
            put(d, q * POINT, plus(of_b, times_conjugate(take(response, p * PAIR + POINT), a)))


@part
def take_signal(u, row, length, low, points, z):  # type: ignore[no-untyped-def]
    """A sequence as a complex signal, and zeros up to half of its points."""
    channels, none = u.shape[1], fill(z, 0.0)
    if low + W <= channels:
        for t in range(length):
            store(z, t * W, load(u, (row + t) * channels + low))
    else:
        for t in range(length):
            store(z, t * W, none)
            for c in range(channels - low):
                z[t * W + c] = u[row + t, low + c]
    for t in range(length, points):
        store(z, t * W, none)


@cached_njit(nogil=True)
def fourier_responses(  # type: ignore[no-untyped-def]
    first, last, points, turns, mirror, phases, taps, D, responses, z
):
    """alpha and beta of kernels, with D in the first tap; a task is a group of channels."""
    directions, groups, length = taps.shape[:3]
    none, scale, half, one = fill(z, 0.0), fill(z, 1.0 / points), fill(z, 0.5), fill(z, 1.0)
    for g in range(first, last):
        for t in range(2 * points):
            store(z, t * W, none)
        for s in range(length):
            store(z, s * W, load(taps, (g * length + s) * W) * scale)
        for c in range(min(W, len(D) - g * W)):
            z[c] += D[g * W + c] / points
        if directions == 2:  # lag -1 - s lies before the end of the circle
            for s in range(length - 1):
                tap = load(taps, ((groups + g) * length + s) * W)
                store(z, (2 * points - 1 - s) * W, tap * scale)
        wide_splits(z, points, False, turns)
        width, turn, _ = narrow_parts(points)
        for begin in range(0, points, width):
            narrow_splits(z, begin * POINT, width, turns, turn)
        for p in range(points):
            a, b = take(z, p * POINT), take(z, mirror[p] * POINT)
            even = half * (a[0] + b[0]), half * (a[1] - b[1])
            odd = half * (a[1] + b[1]), half * (b[0] - a[0])
            fr, fi = load_one(phases, 2 * p), load_one(phases, 2 * p + 1)
            put(responses[g], p * PAIR, plus(even, times((half * fi, half * (one - fr)), odd)))
            beta = times((none - half * fi, half * (one + fr)), odd)
            put(responses[g], p * PAIR + POINT, beta)


@cached_njit(nogil=True)
def fourier_taps(  # type: ignore[no-untyped-def]
    first, last, points, turns, mirror, phases, totals, grad_taps, z
):
    """The adjoint of :func:`fourier_responses`: totals (chunks, G, N 4 W) -> gradients of taps.

    The first chunk becomes the sum of all. The adjoint of a transform of real numbers is the real
    part of its inverse; two such are one complex signal.
    """
    directions, groups, length = grad_taps.shape[:3]
    none, scale, half, one = fill(z, 0.0), fill(z, 1.0 / points), fill(z, 0.5), fill(z, 1.0)
    for g in range(first, last):
        total = totals[0, g]
        for chunk in range(1, totals.shape[0]):
            for at in range(0, points * PAIR, W):
                store(total, at, load(total, at) + load(totals[chunk, g], at))
        for p in range(points):  # K_odd in the place of beta
            fr, fi = load_one(phases, 2 * p), load_one(phases, 2 * p + 1)
            odd = times_conjugate(take(total, p * PAIR), (half * fi, half * (one - fr)))
            back = none - half * fi, half * (one + fr)
            of_beta = times_conjugate(take(total, p * PAIR + POINT), back)
            put(total, p * PAIR + POINT, plus(odd, of_beta))
        for p in range(points):
            q = mirror[p]
            a, b = take(total, p * PAIR), take(total, q * PAIR)
            c, d = take(total, p * PAIR + POINT), take(total, q * PAIR + POINT)
            real = half * ((a[0] + b[0]) - (c[1] - d[1]))
            put(z, p * POINT, (real, half * ((a[1] - b[1]) + (c[0] + d[0]))))
        width, _, four = narrow_parts(points)
        for begin in range(0, points, width):
            narrow_joins(z, begin * POINT, width, four, turns)
        wide_joins(z, points, False, turns)
        for s in range(length):
            store(grad_taps, (g * length + s) * W, load(z, s * W) * scale)
        if directions == 2:
            for s in range(length - 1):
                place = ((groups + g) * length + s) * W
                store(grad_taps, place, load(z, (2 * points - 1 - s) * W) * scale)


@cached_njit(nogil=True)
def fourier_forward(  # type: ignore[no-untyped-def]
    first, last, length, points, turns, mirror, u, responses, y, z
):
    """``y = k * u``; a task is a group of channels and a sequence, z a signal to work in."""
    batch = u.shape[0] // length
    width, turn, four = narrow_parts(points)
    for task in range(first, last):
        g, row = task // batch, task % batch * length
        take_signal(u, row, length, g * W, points, z)
        wide_splits(z, points, True, turns)
        for one in range(0, points, width):
            other = mirror[one] // width * width
            if other >= one:
                narrow_splits(z, one * POINT, width, turns, turn)
                if other > one:
                    narrow_splits(z, other * POINT, width, turns, turn)
                filter_points(z, responses[g], mirror, one, one + width)
                narrow_joins(z, one * POINT, width, four, turns)
                if other > one:
                    narrow_joins(z, other * POINT, width, four, turns)
        wide_joins(z, points, True, turns)
        put_rows(z, row, 1, length, g * W, y)


@cached_njit(nogil=True)
def fourier_backward(  # type: ignore[no-untyped-def]
    first, last, length, points, chunk, turns, mirror, u, responses, grad_y, grad_u, totals, z, d
):
    """The adjoint of :func:`fourier_forward`; a task is a group and ``chunk`` sequences.

    totals (chunks, G, N 4 W): the gradients of alpha and beta, over the sequences of a chunk.
    """
    batch, chunks = u.shape[0] // length, totals.shape[0]
    width, turn, four = narrow_parts(points)
    for task in range(first, last):
        g, some = task // chunks, task % chunks
        total, none = totals[some, g], fill(z, 0.0)
        for at in range(0, points * PAIR, W):
            store(total, at, none)
        for b in range(chunk * some, min(chunk * (some + 1), batch)):
            take_signal(u, b * length, length, g * W, points, z)
            take_signal(grad_y, b * length, length, g * W, points, d)
            wide_splits(z, points, True, turns)
            wide_splits(d, points, True, turns)
            for one in range(0, points, width):
                other = mirror[one] // width * width
                if other >= one:
                    narrow_splits(z, one * POINT, width, turns, turn)
                    narrow_splits(d, one * POINT, width, turns, turn)
                    if other > one:
                        narrow_splits(z, other * POINT, width, turns, turn)
                        narrow_splits(d, other * POINT, width, turns, turn)
                    correlate_points(z, d, responses[g], total, mirror, one, one + width)
                    narrow_joins(d, one * POINT, width, four, turns)
                    if other > one:
                        narrow_joins(d, other * POINT, width, four, turns)
            wide_joins(d, points, True, turns)
            put_rows(d, b * length, 1, length, g * W, grad_u)
