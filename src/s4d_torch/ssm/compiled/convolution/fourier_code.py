"""Convolution by Fourier transforms as machine code: any length in about the time of a copy or two.

Vectors run over channels, which lie side by side in memory, so a transform needs no shuffling: each
of its points is a vector of W real parts and one of W imaginary parts. Two sequences of a batch are
the real and the imaginary part of one signal z. Kernels k are real, so

    k * (u_0 + i u_1) = k * u_0 + i k * u_1
    conj(z) ⋆ w = u_0 ⋆ y_0 + u_1 ⋆ y_1 + i (...)    for w = y_0 + i y_1

and neither needs to be taken apart. A transform of n = 2^m points goes from natural order to one
that is turned round digit by digit (``split``), the inverse back from there (``join``): between
them only products point by point, for which any order does. Both are in steps of radix 4, the wide
ones over all points, then one narrow part after the other, which stays in the fastest cache; its
last step, the product and the first step back are one (``filter_points``).

    u, y (B L, H)    taps (G, n, W): the kernel around the circle, in groups of W channels
    responses (G, n, 2 W): its transform    turns: exp(-2 pi i p r / s), p < s / 4, r = 1, 2, 3, for
    s = n, n / 4, ...
"""

from s4d_torch.ssm.compiled.code_cache import cached_njit, part
from s4d_torch.ssm.compiled.runtime import LANES as W
from s4d_torch.ssm.compiled.vectors import fill, load, load_one, store

POINT = 2 * W
NARROW = 128  # points at most that the fastest cache holds


@part
def split(z, begin, size, turns, turn):  # type: ignore[no-untyped-def]
    """A step forward of one part: four of a quarter of its size."""
    step = size // 4 * POINT
    for p in range(size // 4):
        at = begin + p * POINT
        ar, ai = load(z, at), load(z, at + W)
        br, bi = load(z, at + step), load(z, at + step + W)
        cr, ci = load(z, at + 2 * step), load(z, at + 2 * step + W)
        dr, di = load(z, at + 3 * step), load(z, at + 3 * step + W)
        er, ei, fr, fi = ar + cr, ai + ci, ar - cr, ai - ci
        gr, gi, hr, hi = br + dr, bi + di, br - dr, bi - di
        store(z, at, er + gr)
        store(z, at + W, ei + gi)
        q = turn + 6 * p
        r, i, wr, wi = fr + hi, fi - hr, load_one(turns, q), load_one(turns, q + 1)
        store(z, at + step, r * wr - i * wi)
        store(z, at + step + W, r * wi + i * wr)
        r, i, wr, wi = er - gr, ei - gi, load_one(turns, q + 2), load_one(turns, q + 3)
        store(z, at + 2 * step, r * wr - i * wi)
        store(z, at + 2 * step + W, r * wi + i * wr)
        r, i, wr, wi = fr - hi, fi + hr, load_one(turns, q + 4), load_one(turns, q + 5)
        store(z, at + 3 * step, r * wr - i * wi)
        store(z, at + 3 * step + W, r * wi + i * wr)


@part
def split_half(z, size, turns):  # type: ignore[no-untyped-def]
    """The first step, of a signal whose second half is zeros, which are not read."""
    step = size // 4 * POINT
    for p in range(size // 4):
        at = p * POINT
        ar, ai = load(z, at), load(z, at + W)
        br, bi = load(z, at + step), load(z, at + step + W)
        store(z, at, ar + br)
        store(z, at + W, ai + bi)
        q = 6 * p
        r, i, wr, wi = ar + bi, ai - br, load_one(turns, q), load_one(turns, q + 1)
        store(z, at + step, r * wr - i * wi)
        store(z, at + step + W, r * wi + i * wr)
        r, i, wr, wi = ar - br, ai - bi, load_one(turns, q + 2), load_one(turns, q + 3)
        store(z, at + 2 * step, r * wr - i * wi)
        store(z, at + 2 * step + W, r * wi + i * wr)
        r, i, wr, wi = ar - bi, ai + br, load_one(turns, q + 4), load_one(turns, q + 5)
        store(z, at + 3 * step, r * wr - i * wi)
        store(z, at + 3 * step + W, r * wi + i * wr)


@part
def join(z, begin, size, turns, turn, half):  # type: ignore[no-untyped-def]
    """A step back: the adjoint of :func:`split`; with ``half``, the second half is not wanted."""
    step = size // 4 * POINT
    for p in range(size // 4):
        at, q = begin + p * POINT, turn + 6 * p
        ar, ai = load(z, at), load(z, at + W)
        r, i = load(z, at + step), load(z, at + step + W)
        wr, wi = load_one(turns, q), load_one(turns, q + 1)
        br, bi = r * wr + i * wi, i * wr - r * wi
        r, i = load(z, at + 2 * step), load(z, at + 2 * step + W)
        wr, wi = load_one(turns, q + 2), load_one(turns, q + 3)
        cr, ci = r * wr + i * wi, i * wr - r * wi
        r, i = load(z, at + 3 * step), load(z, at + 3 * step + W)
        wr, wi = load_one(turns, q + 4), load_one(turns, q + 5)
        dr, di = r * wr + i * wi, i * wr - r * wi
        er, ei, fr, fi = ar + cr, ai + ci, ar - cr, ai - ci
        gr, gi, hr, hi = br + dr, bi + di, br - dr, bi - di
        store(z, at, er + gr)
        store(z, at + W, ei + gi)
        store(z, at + step, fr - hi)
        store(z, at + step + W, fi + hr)
        if not half:
            store(z, at + 2 * step, er - gr)
            store(z, at + 2 * step + W, ei - gi)
            store(z, at + 3 * step, fr + hi)
            store(z, at + 3 * step + W, fi - hr)


@part
def last_split(z, begin, end, four):  # type: ignore[no-untyped-def]
    """The last step forward of narrow parts: their points by four, or by two, without turns."""
    if four:
        for at in range(begin, end, 4 * POINT):
            ar, ai = load(z, at), load(z, at + W)
            br, bi = load(z, at + POINT), load(z, at + POINT + W)
            cr, ci = load(z, at + 2 * POINT), load(z, at + 2 * POINT + W)
            dr, di = load(z, at + 3 * POINT), load(z, at + 3 * POINT + W)
            er, ei, fr, fi = ar + cr, ai + ci, ar - cr, ai - ci
            gr, gi, hr, hi = br + dr, bi + di, br - dr, bi - di
            store(z, at, er + gr)
            store(z, at + W, ei + gi)
            store(z, at + POINT, fr + hi)
            store(z, at + POINT + W, fi - hr)
            store(z, at + 2 * POINT, er - gr)
            store(z, at + 2 * POINT + W, ei - gi)
            store(z, at + 3 * POINT, fr - hi)
            store(z, at + 3 * POINT + W, fi + hr)
    else:
        for at in range(begin, end, 2 * POINT):
            ar, ai = load(z, at), load(z, at + W)
            br, bi = load(z, at + POINT), load(z, at + POINT + W)
            store(z, at, ar + br)
            store(z, at + W, ai + bi)
            store(z, at + POINT, ar - br)
            store(z, at + POINT + W, ai - bi)


@part
def first_join(z, begin, end, four):  # type: ignore[no-untyped-def]
    """The first step back: the same with i for -i."""
    if four:
        for at in range(begin, end, 4 * POINT):
            ar, ai = load(z, at), load(z, at + W)
            br, bi = load(z, at + POINT), load(z, at + POINT + W)
            cr, ci = load(z, at + 2 * POINT), load(z, at + 2 * POINT + W)
            dr, di = load(z, at + 3 * POINT), load(z, at + 3 * POINT + W)
            er, ei, fr, fi = ar + cr, ai + ci, ar - cr, ai - ci
            gr, gi, hr, hi = br + dr, bi + di, br - dr, bi - di
            store(z, at, er + gr)
            store(z, at + W, ei + gi)
            store(z, at + POINT, fr - hi)
            store(z, at + POINT + W, fi + hr)
            store(z, at + 2 * POINT, er - gr)
            store(z, at + 2 * POINT + W, ei - gi)
            store(z, at + 3 * POINT, fr + hi)
            store(z, at + 3 * POINT + W, fi - hr)
    else:
        last_split(z, begin, end, four)


@part
def filter_points(z, k, begin, end):  # type: ignore[no-untyped-def]
    """``z <- k z``."""
    for at in range(begin, end, POINT):
        r, i, kr, ki = load(z, at), load(z, at + W), load(k, at), load(k, at + W)
        store(z, at, r * kr - i * ki)
        store(z, at + W, r * ki + i * kr)


@part
def correlate_points(z, d, k, total, begin, end):  # type: ignore[no-untyped-def]
    """``total <- total + conj(z) d`` and ``d <- conj(k) d``."""
    for at in range(begin, end, POINT):
        r, i, kr, ki = load(d, at), load(d, at + W), load(k, at), load(k, at + W)
        zr, zi = load(z, at), load(z, at + W)
        store(total, at, (load(total, at) + zr * r) + zi * i)
        store(total, at + W, (load(total, at + W) + zr * i) - zi * r)
        store(d, at, r * kr + i * ki)
        store(d, at + W, i * kr - r * ki)


@part
def wide_splits(z, size, half, turns):  # type: ignore[no-untyped-def]
    """Steps forward until parts are narrow: how wide they are then, and where their turns begin."""
    turn, width = 0, size
    if half:
        split_half(z, size, turns)
        turn, width = size // 4 * 6, size // 4
    while width > NARROW:
        for begin in range(0, size * POINT, width * POINT):
            split(z, begin, width, turns, turn)
        turn += width // 4 * 6
        width //= 4
    return width, turn


@part
def narrow_splits(z, begin, width, turns, turn):  # type: ignore[no-untyped-def]
    """The other steps forward, of one part; whether the last was of four points."""
    size = width
    while size > 4:
        for at in range(begin, begin + width * POINT, size * POINT):
            split(z, at, size, turns, turn)
        turn += size // 4 * 6
        size //= 4
    last_split(z, begin, begin + width * POINT, size == 4)
    return size == 4


@part
def narrow_joins(z, begin, width, four, turns):  # type: ignore[no-untyped-def]
    """Back again."""
    first_join(z, begin, begin + width * POINT, four)
    size, turn = 4 if four else 2, len(turns)
    while size < width:
        size *= 4
        turn -= size // 4 * 6
        for at in range(begin, begin + width * POINT, size * POINT):
            join(z, at, size, turns, turn, False)


@part
def wide_joins(z, size, width, turn, turns):  # type: ignore[no-untyped-def]
    """From parts of ``width`` points to the first half of the signal."""
    while width < size:
        width *= 4
        turn -= width // 4 * 6
        for begin in range(0, size * POINT, width * POINT):
            join(z, begin, width, turns, turn, width == size)


@part
def take_pair(u, b, batch, length, low, size, z):  # type: ignore[no-untyped-def]
    """Sequences b and b + 1, if there is one, as a signal; zeros up to half of the transform."""
    channels, none = u.shape[1], fill(z, 0.0)
    row, other = b * length, (b + 1) * length
    whole, two = low + W <= channels, b + 1 < batch
    for t in range(length):
        at = t * POINT
        if whole:
            store(z, at, load(u, (row + t) * channels + low))
            store(z, at + W, load(u, (other + t) * channels + low) if two else none)
        else:
            store(z, at, none)
            store(z, at + W, none)
            for c in range(channels - low):
                z[at + c] = u[row + t, low + c]
                if two:
                    z[at + W + c] = u[other + t, low + c]
    for at in range(length * POINT, size // 2 * POINT, W):
        store(z, at, none)


@part
def put_pair(z, b, batch, length, low, y):  # type: ignore[no-untyped-def]
    """The inverse of :func:`take_pair`."""
    channels = y.shape[1]
    row, other = b * length, (b + 1) * length
    whole, two = low + W <= channels, b + 1 < batch
    for t in range(length):
        at = t * POINT
        if whole:
            store(y, (row + t) * channels + low, load(z, at))
            if two:
                store(y, (other + t) * channels + low, load(z, at + W))
        else:
            for c in range(channels - low):
                y[row + t, low + c] = z[at + c]
                if two:
                    y[other + t, low + c] = z[at + W + c]


@cached_njit(nogil=True)
def fourier_responses(first, last, size, turns, taps, D, responses):  # type: ignore[no-untyped-def]
    """The transforms of kernels, over ``size``; a task is a group of channels."""
    directions, groups, length = taps.shape[:3]
    for g in range(first, last):
        z, none, scale = responses[g], fill(taps, 0.0), fill(taps, 1.0 / size)
        for at in range(0, size * POINT, W):
            store(z, at, none)
        for s in range(length):
            store(z, s * POINT, load(taps, (g * length + s) * W) * scale)
        for c in range(min(W, len(D) - g * W)):
            z[c] += D[g * W + c] / size
        if directions == 2:  # lag -1 - s is at the place before the end
            for s in range(length - 1):
                tap = load(taps, ((groups + g) * length + s) * W)
                store(z, (size - 1 - s) * POINT, tap * scale)
        width, turn = wide_splits(z, size, False, turns)
        for begin in range(0, size * POINT, width * POINT):
            narrow_splits(z, begin, width, turns, turn)


@cached_njit(nogil=True)
def fourier_taps(first, last, size, turns, totals, grad_taps):  # type: ignore[no-untyped-def]
    """The adjoint of :func:`fourier_responses`, from what chunks have correlated; ``totals``,
    (chunks, G, size 2 W), is written to.
    """
    directions, groups, length = grad_taps.shape[:3]
    for g in range(first, last):
        z = totals[0, g]
        for chunk in range(1, totals.shape[0]):
            for at in range(0, size * POINT, W):
                store(z, at, load(z, at) + load(totals[chunk, g], at))
        width, turn = size, 0
        while width > NARROW:
            turn += width // 4 * 6
            width //= 4
        for begin in range(0, size * POINT, width * POINT):
            narrow_joins(z, begin, width, width in (4, 16, 64), turns)
        while width < size:
            width *= 4
            turn -= width // 4 * 6
            for begin in range(0, size * POINT, width * POINT):
                join(z, begin, width, turns, turn, False)
        scale, none = fill(grad_taps, 1.0 / size), fill(grad_taps, 0.0)
        for s in range(length):
            store(grad_taps, (g * length + s) * W, load(z, s * POINT) * scale)
        if directions == 2:
            for s in range(length - 1):
                place = ((groups + g) * length + s) * W
                store(grad_taps, place, load(z, (size - 1 - s) * POINT) * scale)
            store(grad_taps, ((groups + g) * length + length - 1) * W, none)


@cached_njit(nogil=True)
def fourier_forward(  # type: ignore[no-untyped-def]
    first, last, length, size, turns, u, responses, y, z
):
    """``y = k * u``; a task is a group of channels and two sequences, z a signal to work in."""
    batch = u.shape[0] // length
    pairs = (batch + 1) // 2
    for task in range(first, last):
        g, b = task // pairs, 2 * (task % pairs)
        take_pair(u, b, batch, length, g * W, size, z)
        width, turn = wide_splits(z, size, True, turns)
        for begin in range(0, size * POINT, width * POINT):
            four = narrow_splits(z, begin, width, turns, turn)
            filter_points(z, responses[g], begin, begin + width * POINT)
            narrow_joins(z, begin, width, four, turns)
        wide_joins(z, size, width, turn, turns)
        put_pair(z, b, batch, length, g * W, y)


@cached_njit(nogil=True)
def fourier_backward(  # type: ignore[no-untyped-def]
    first, last, length, size, chunk, turns, u, responses, grad_y, grad_u, totals, z, d
):
    """The adjoint of :func:`fourier_forward`; a task is a group of channels and ``chunk`` pairs.

    totals (chunks, G, size 2 W): the transformed gradients of kernels, over the pairs of a chunk.
    """
    batch, chunks = u.shape[0] // length, totals.shape[0]
    for task in range(first, last):
        g, some = task // chunks, task % chunks
        total, none = totals[some, g], fill(z, 0.0)
        for at in range(0, size * POINT, W):
            store(total, at, none)
        for b in range(2 * chunk * some, min(2 * chunk * (some + 1), batch), 2):
            take_pair(u, b, batch, length, g * W, size, z)
            take_pair(grad_y, b, batch, length, g * W, size, d)
            wide_splits(z, size, True, turns)
            width, turn = wide_splits(d, size, True, turns)
            for begin in range(0, size * POINT, width * POINT):
                narrow_splits(z, begin, width, turns, turn)
                four = narrow_splits(d, begin, width, turns, turn)
                correlate_points(z, d, responses[g], total, begin, begin + width * POINT)
                narrow_joins(d, begin, width, four, turns)
            wide_joins(d, size, width, turn, turns)
            put_pair(d, b, batch, length, g * W, grad_u)
