"""A whole residual block over short sequences as machine code, one sequence at a time.

    h = norm(x)    y = K * h    z = dropout(f(y))    v = z M + b    out = x + dropout(gate(v))

A sequence of 64 samples and 32 features is 8 kB: all that lies between x and out stays in the fast
cache. Only y and v go to memory, for the adjoint, which computes h and z again. What follows y is
that of ``mixing_code``.

    x, out (B L, H)    v (B L, N), with N = 2 H before a gate, else (0, H)    matrix (H, N)
    taps (ways, G, L, W): the kernel, and for two ways the one that looks ahead
    options = (length, eps, kind of the activation, keys and numbers of both dropouts)

H and N are multiples of 2 W. Buffers have ``rows`` rows, a multiple of ROWS; those after the
sequence are zeros.
"""

import math

from s4d_torch.nn.fused.mixing_code import (
    activate_back,
    activate_rows,
    join_back,
    join_rows,
    mix_back,
    mix_rows,
)
from s4d_torch.ssm.compiled.code_cache import cached_njit, part
from s4d_torch.ssm.compiled.convolution.direct_code import ROWS, convolve
from s4d_torch.ssm.compiled.runtime import LANES as W
from s4d_torch.ssm.compiled.vector_math import total
from s4d_torch.ssm.compiled.vectors import add_wide, fill, load, load_one, store


@part
def normalize(x, first, length, eps, weight, bias, h, statistics):  # type: ignore[no-untyped-def]
    """Layer norm of the rows of one sequence; without weights h is x."""
    H = x.shape[1]
    for t in range(length):
        begin, sums = (first + t) * H, fill(x, 0.0)
        if weight.shape[0]:
            for i in range(0, H, W):
                sums = sums + load(x, begin + i)
            mean = total(sums) / H
            middle, sums = fill(x, mean), fill(x, 0.0)
            for i in range(0, H, W):
                away = load(x, begin + i) - middle
                sums = sums + away * away
            scale = 1 / math.sqrt(total(sums) / H + eps)
            statistics[2 * t], statistics[2 * t + 1] = mean, scale
            factor = fill(x, scale)
            for i in range(0, H, W):
                away = (load(x, begin + i) - middle) * factor
                store(h, t * H + i, away * load(weight, i) + load(bias, i))
        else:
            for i in range(0, H, W):
                store(h, t * H + i, load(x, begin + i))


@part
def take(source, H, low, length, turned, target, place):  # type: ignore[no-untyped-def]
    """W features from ``low`` on of the rows of a buffer to rows of their own, or ``turned``."""
    for t in range(length):
        row = length - 1 - t if turned else t
        store(target, place + t * W, load(source, row * H + low))


@part
def add(source, H, low, length, turned, target):  # type: ignore[no-untyped-def]
    """Rows of W features, or ``turned`` ones, onto those of a buffer."""
    for t in range(length):
        place = (length - 1 - t if turned else t) * H + low
        store(target, place, load(target, place) + load(source, t * W))


@cached_njit(nogil=True)
def block_forward(  # type: ignore[no-untyped-def]
    first, last, options, x, weight, bias, taps, matrix, offset, y, v, out, room
):
    """Sequences first..last."""
    length, eps, kind, key, dropped, late_key, late_dropped = options
    H, N = x.shape[1], v.shape[1]
    ways, groups = taps.shape[0], taps.shape[1]
    rows = (length + ROWS - 1) // ROWS * ROWS
    for q in range(room.shape[0]):
        room[q] = 0
    padded, k = room[: (ROWS + rows) * W], room[(ROWS + rows) * W :]
    convolved, h = k[rows * W :], k[2 * rows * W :]
    z, u = h[rows * H :], h[2 * rows * H :]
    statistics = u[rows * N :]
    for b in range(first, last):
        begin = b * length
        normalize(x, begin, length, eps, weight, bias, h, statistics)
        for i in range(0, length * H, W):
            store(z, i, fill(x, 0.0))
        for way in range(ways):
            for g in range(groups):
                for s in range(length):
                    store(k, s * W, load(taps, ((way * groups + g) * length + s) * W))
                take(h, H, g * W, length, way, padded, ROWS * W)
                convolve(k, padded, rows, convolved)
                add(convolved, H, g * W, length - way, way, z)
        for i in range(0, length * H, W):
            store(y, begin * H + i, load(z, i))
        activate_rows(y, begin * H, length * H, kind, key, dropped, z)
        mix_rows(z, rows, matrix, offset, u)
        join_rows(u, begin, length, x, late_key, late_dropped, v, out)


@part
def norm_back(x, begin, length, weight, statistics, d, grad, grad_x, sums):  # type: ignore[no-untyped-def]
    """Of x: those of out, and of h (``d``) through the norm; sums (2 H,) of weight and bias."""
    H = x.shape[1]
    for t in range(length):
        middle, factor = load_one(statistics, 2 * t), load_one(statistics, 2 * t + 1)
        along = across = fill(x, 0.0)  # sums of the gradient, and of it times the output
        for i in range(0, H, W):
            away = (load(x, (begin + t) * H + i) - middle) * factor
            g = load(d, t * H + i)
            add_wide(sums, i, g * away)
            add_wide(sums, H + i, g)
            g = g * load(weight, i)
            along, across = along + g, across + g * away
        along, across = fill(x, total(along) / H), fill(x, total(across) / H)
        for i in range(0, H, W):
            place = (begin + t) * H + i
            away = (load(x, place) - middle) * factor
            g = load(d, t * H + i) * load(weight, i)
            store(grad_x, place, load(grad, place) + (g - along - away * across) * factor)


@cached_njit(nogil=True)
def block_backward(  # type: ignore[no-untyped-def]
    first, last, options, chunk, x, weight, bias, taps, matrix, y, v, grad,
    grad_x, grad_norm, grad_taps, grad_matrix, grad_offset, room,
):  # fmt: skip
    """The adjoint of :func:`block_forward`; a task is ``chunk`` sequences.

    matrix is (N, H) here. What is to be summed begins as zeros: grad_matrix (chunks, N, H), and in
    double precision grad_norm (chunks, 2 H), grad_taps (chunks, ways, G, L, W) and grad_offset
    (chunks, N).
    """
    length, eps, kind, key, dropped, late_key, late_dropped = options
    H, N = x.shape[1], v.shape[1]
    ways, groups = taps.shape[0], taps.shape[1]
    rows = (length + ROWS - 1) // ROWS * ROWS
    for q in range(room.shape[0]):
        room[q] = 0
    size = (ROWS + rows) * W
    padded, turned, k = room[:size], room[size : 2 * size], room[2 * size :]
    convolved, h = k[rows * W :], k[2 * rows * W :]
    z, d, u = h[rows * H :], h[2 * rows * H :], h[3 * rows * H :]
    statistics = u[rows * N :]
    for some in range(first, last):
        for b in range(some * chunk, min((some + 1) * chunk, x.shape[0] // length)):
            begin = b * length
            join_back(v, grad, begin, length, late_key, late_dropped, u, grad_offset[some])
            activate_rows(y, begin * H, length * H, kind, key, dropped, z)
            mix_back(u, z, length, matrix, d, grad_matrix[some])
            activate_back(y, begin * H, length * H, kind, key, dropped, d)
            for i in range(0, length * H, W):
                store(z, i, fill(x, 0.0))
            normalize(x, begin, length, eps, weight, bias, h, statistics)
            for way in range(ways):
                for g in range(groups):
                    for s in range(length):
                        store(k, s * W, load(taps, ((way * groups + g) * length + s) * W))
                    take(h, H, g * W, length, way, padded, ROWS * W)
                    # turned round; what looks ahead is in order, and comes a row later
                    for i in range(0, W * way, W):
                        store(turned, ROWS * W + i, fill(x, 0.0))
                    take(d, H, g * W, length - way, 1 - way, turned, (ROWS + way) * W)
                    convolve(k, turned, rows, convolved)
                    add(convolved, H, g * W, length, 1 - way, z)
                    convolve(turned[ROWS * W :], padded, rows, convolved)
                    for t in range(length):
                        add_wide(
                            grad_taps[some, way, g], (length - 1 - t) * W, load(convolved, t * W)
                        )
            if weight.shape[0]:
                norm_back(x, begin, length, weight, statistics, z, grad, grad_x, grad_norm[some])
            else:
                for i in range(0, length * H, W):
                    store(grad_x, begin * H + i, load(z, i) + load(grad, begin * H + i))
