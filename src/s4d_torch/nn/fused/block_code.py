"""A whole residual block over short sequences as machine code, one sequence at a time.

    h = norm(x)    y = K * h    z = dropout(f(y))    v = z M + b    out = x + dropout(gate(v))

A sequence of 64 samples and 32 features is 8 kB: all that lies between x and out stays in the fast
cache. Only y and v go to memory, for the adjoint, which computes h and z again.

    x, out (B L, H)    v (B L, N), with N = 2 H before a gate, else H    matrix (H, N)
    taps (ways, G, L, W): the kernel, and for two ways the one that looks ahead
    options = (length, eps, kind of the activation, keys and numbers of both dropouts)

H and N are multiples of 2 W. Buffers have ``rows`` rows, a multiple of ROWS; those after the
sequence are zeros.
"""

import math

from s4d_torch.nn.fused.pointwise_code import activate, sigmoid, slope
from s4d_torch.ssm.compiled.code_cache import cached_njit, part
from s4d_torch.ssm.compiled.convolution.direct_code import ROWS, convolve
from s4d_torch.ssm.compiled.runtime import LANES as W
from s4d_torch.ssm.compiled.vector_math import drop, total
from s4d_torch.ssm.compiled.vectors import add_products, add_wide, fill, load, load_one, store


@part
def multiply(a, row, column, matrix, width, inner, rows, columns, out):  # type: ignore[no-untyped-def]
    """``out_rn += sum_k a[r row + k column] matrix[k width + n]`` for rows in fours.

    Four rows and two vectors of the product are in registers at a time.
    """
    for r in range(0, rows, 4):
        for n in range(0, columns, 2 * W):
            o0 = r * columns + n
            o1, o2, o3 = o0 + columns, o0 + 2 * columns, o0 + 3 * columns
            low = (load(out, o0), load(out, o1), load(out, o2), load(out, o3))
            high = (load(out, o0 + W), load(out, o1 + W), load(out, o2 + W), load(out, o3 + W))
            for k in range(inner):
                p = r * row + k * column
                one, two = load_one(a, p), load_one(a, p + row)
                three, four = load_one(a, p + 2 * row), load_one(a, p + 3 * row)
                low = add_products(low, (one, two, three, four), load(matrix, k * width + n))
                high = add_products(high, (one, two, three, four), load(matrix, k * width + n + W))
            store(out, o0, low[0])
            store(out, o1, low[1])
            store(out, o2, low[2])
            store(out, o3, low[3])
            store(out, o0 + W, high[0])
            store(out, o1 + W, high[1])
            store(out, o2 + W, high[2])
            store(out, o3 + W, high[3])


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


@part
def activate_rows(y, begin, size, kind, key, dropped, z):  # type: ignore[no-untyped-def]
    """``z = dropout(f(y))`` for one sequence, whose numbers begin at ``begin`` of y."""
    for i in range(0, size, W):
        value = activate(y, kind, load(y, begin + i))
        if dropped:
            value = drop(value, key, begin + i, dropped)
        store(z, i, value)


@cached_njit(nogil=True)
def block_forward(  # type: ignore[no-untyped-def]
    first, last, options, x, weight, bias, taps, matrix, offset, y, v, out, room
):
    """Sequences first..last."""
    length, eps, kind, key, dropped, late_key, late_dropped = options
    H, N, gated = x.shape[1], v.shape[1], v.shape[1] > x.shape[1]
    ways, groups = taps.shape[0], taps.shape[1]
    rows = (length + ROWS - 1) // ROWS * ROWS
    one = rows // rows  # a number: a constant would make functions of their own
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
        for t in range(rows):
            for n in range(0, N, W):
                store(u, t * N + n, load(offset, n))
        multiply(z, H, one, matrix, N, H, rows, N, u)
        for t in range(length):
            for i in range(0, H, W):
                value = load(u, t * N + i)
                store(v, (begin + t) * N + i, value)
                if gated:
                    by = load(u, t * N + H + i)
                    store(v, (begin + t) * N + H + i, by)
                    value = value * sigmoid(x, by)
                place = (begin + t) * H + i
                if late_dropped:
                    value = drop(value, late_key, place, late_dropped)
                store(out, place, load(x, place) + value)


@part
def join_back(v, grad, begin, length, key, dropped, d, sums):  # type: ignore[no-untyped-def]
    """Of v from those of out, and their sums over time added to ``sums``."""
    H, N = grad.shape[1], v.shape[1]
    one = fill(v, 1.0)
    for t in range(length):
        for i in range(0, H, W):
            g = load(grad, (begin + t) * H + i)
            if dropped:
                g = drop(g, key, (begin + t) * H + i, dropped)
            if N > H:
                s = sigmoid(v, load(v, (begin + t) * N + H + i))
                by = g * load(v, (begin + t) * N + i) * s * (one - s)
                store(d, t * N + H + i, by)
                store(sums, H + i, load(sums, H + i) + by)
                g = g * s
            store(d, t * N + i, g)
            store(sums, i, load(sums, i) + g)


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
            store(sums, i, load(sums, i) + g * away)
            store(sums, H + i, load(sums, H + i) + g)
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

    matrix is (N, H) here. grad_norm (chunks, 2 H), grad_taps (chunks, ways, G, L, W) in double
    precision, grad_matrix (chunks, N, H) and grad_offset (chunks, N) begin as zeros, to be summed.
    """
    length, eps, kind, key, dropped, late_key, late_dropped = options
    H, N = x.shape[1], v.shape[1]
    ways, groups = taps.shape[0], taps.shape[1]
    rows = (length + ROWS - 1) // ROWS * ROWS
    one = rows // rows  # a number: a constant would make functions of their own
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
            for i in range(0, rows * H, W):
                store(d, i, fill(x, 0.0))
            multiply(u, N, one, matrix, H, N, rows, H, d)
            activate_rows(y, begin * H, length * H, kind, key, dropped, z)
            multiply(u, one, N, z, H, length, N, H, grad_matrix[some])
            for i in range(0, length * H, W):  # of y
                g = load(d, i)
                if dropped:
                    g = drop(g, key, begin * H + i, dropped)
                store(d, i, g * slope(x, kind, load(y, begin * H + i)))
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
