"""What follows a state space in a layer, as machine code, a few rows at a time.

    z = dropout(f(y))    v = z M + b    out = x + dropout(gate(v))

Of BLOCK rows all that lies between y and out stays in the fast cache. Only v goes to memory, for
the adjoint of a gate; z is computed there again.

    y, x, out (R, H)    v (R, N), with N = 2 H before a gate, else (0, H)    matrix (H, N)
    options = (kind of the activation, keys and numbers of both dropouts)

H and N are multiples of 2 W. Matrices are multiplied here and not by torch's library, which on some
CPUs uses half of a register, and goes through memory once for each of these steps.
"""

from s4d_torch.nn.fused.pointwise_code import activate, sigmoid, slope
from s4d_torch.ssm.compiled.code_cache import cached_njit, part
from s4d_torch.ssm.compiled.runtime import LANES as W
from s4d_torch.ssm.compiled.vector_math import drop
from s4d_torch.ssm.compiled.vectors import add_products, add_wide, fill, load, load_one, store

BLOCK = 64  # rows


@part
def multiply(a, row, column, matrix, width, inner, rows, columns, out):  # type: ignore[no-untyped-def]
    """``out_rn += sum_k a[r row + k column] matrix[k width + n]`` for rows in fours.

    Four rows and two vectors of the product are in registers at a time. They begin at zero: what is
    added up over many calls would lose the last digits of each product.
    """
    nothing = fill(out, 0.0)
    for n in range(0, columns, 2 * W):
        for r in range(0, rows, 4):
            o0 = r * columns + n
            o1, o2, o3 = o0 + columns, o0 + 2 * columns, o0 + 3 * columns
            low = high = (nothing, nothing, nothing, nothing)
            for k in range(inner):
                p = r * row + k * column
                one, two = load_one(a, p), load_one(a, p + row)
                three, four = load_one(a, p + 2 * row), load_one(a, p + 3 * row)
                low = add_products(low, (one, two, three, four), load(matrix, k * width + n))
                high = add_products(high, (one, two, three, four), load(matrix, k * width + n + W))
            store(out, o0, load(out, o0) + low[0])
            store(out, o1, load(out, o1) + low[1])
            store(out, o2, load(out, o2) + low[2])
            store(out, o3, load(out, o3) + low[3])
            store(out, o0 + W, load(out, o0 + W) + high[0])
            store(out, o1 + W, load(out, o1 + W) + high[1])
            store(out, o2 + W, load(out, o2 + W) + high[2])
            store(out, o3 + W, load(out, o3 + W) + high[3])


@part
def activate_rows(y, begin, size, kind, key, dropped, z):  # type: ignore[no-untyped-def]
    """``z = dropout(f(y))`` for the numbers of y from ``begin`` on."""
    for i in range(0, size, W):
        value = activate(y, kind, load(y, begin + i))
        if dropped:
            value = drop(value, key, begin + i, dropped)
        store(z, i, value)


@part
def mix_rows(z, rows, matrix, offset, u):  # type: ignore[no-untyped-def]
    """``u = z M + b``; rows are a multiple of four."""
    H, N = matrix.shape
    one = rows // rows  # a number: a constant would make functions of their own
    for t in range(rows):
        for n in range(0, N, W):
            store(u, t * N + n, load(offset, n))
    multiply(z, H, one, matrix, N, H, rows, N, u)


@part
def join_rows(u, begin, rows, x, key, dropped, v, out):  # type: ignore[no-untyped-def]
    """``out = x + dropout(gate(u))`` for rows from ``begin`` on; u is kept in v, if v has rows."""
    H, N = x.shape[1], v.shape[1]
    for t in range(rows):
        for i in range(0, H, W):
            value = load(u, t * N + i)
            if v.shape[0]:
                store(v, (begin + t) * N + i, value)
            if N > H:
                by = load(u, t * N + H + i)
                if v.shape[0]:
                    store(v, (begin + t) * N + H + i, by)
                value = value * sigmoid(x, by)
            place = (begin + t) * H + i
            if dropped:
                value = drop(value, key, place, dropped)
            store(out, place, load(x, place) + value)


@part
def join_back(v, grad, begin, rows, key, dropped, d, sums):  # type: ignore[no-untyped-def]
    """Of v from those of out, and their sums over rows added to ``sums``, in double precision."""
    H, N = grad.shape[1], v.shape[1]
    one = fill(grad, 1.0)
    for t in range(rows):
        for i in range(0, H, W):
            g = load(grad, (begin + t) * H + i)
            if dropped:
                g = drop(g, key, (begin + t) * H + i, dropped)
            if N > H:
                s = sigmoid(grad, load(v, (begin + t) * N + H + i))
                by = g * load(v, (begin + t) * N + i) * s * (one - s)
                store(d, t * N + H + i, by)
                add_wide(sums, H + i, by)
                g = g * s
            store(d, t * N + i, g)
            add_wide(sums, i, g)


@part
def mix_back(u, z, rows, matrix, d, grad_matrix):  # type: ignore[no-untyped-def]
    """Of z in ``d``, from those of v in ``u``, and of the matrix, (N, H) here, added to its own.

    What follows the rows in u and d, up to a multiple of four, is read and written to no effect.
    """
    N, H = matrix.shape
    one, fours = rows // rows, (rows + 3) // 4 * 4
    for i in range(0, fours * H, W):
        store(d, i, fill(matrix, 0.0))
    multiply(u, N, one, matrix, H, N, fours, H, d)
    multiply(u, one, N, z, H, rows, N, H, grad_matrix)


@part
def activate_back(y, begin, size, kind, key, dropped, d):  # type: ignore[no-untyped-def]
    """Of y, from those of z in ``d`` and in their place."""
    for i in range(0, size, W):
        g = load(d, i)
        if dropped:
            g = drop(g, key, begin + i, dropped)
        store(d, i, g * slope(y, kind, load(y, begin + i)))


@cached_njit(nogil=True)
def mixing_forward(first, last, options, y, x, matrix, offset, v, out, room):  # type: ignore[no-untyped-def]
    """Blocks first..last."""
    kind, key, dropped, late_key, late_dropped = options
    H = x.shape[1]
    z, u = room, room[BLOCK * H :]
    for block in range(first, last):
        begin = block * BLOCK
        rows = min(BLOCK, x.shape[0] - begin)
        activate_rows(y, begin * H, rows * H, kind, key, dropped, z)
        mix_rows(z, (rows + 3) // 4 * 4, matrix, offset, u)
        join_rows(u, begin, rows, x, late_key, late_dropped, v, out)


@cached_njit(nogil=True)
def mixing_backward(  # type: ignore[no-untyped-def]
    first, last, options, chunk, y, matrix, v, grad, grad_y, grad_matrix, grad_offset, room
):
    """The adjoint; a task is ``chunk`` blocks. matrix is (N, H) here.

    grad_matrix (chunks, N, H), and grad_offset (chunks, N) in double precision, begin as zeros, to
    be summed.
    """
    kind, key, dropped, late_key, late_dropped = options
    H = y.shape[1]
    z, d, u = room, room[BLOCK * H :], room[2 * BLOCK * H :]
    for some in range(first, last):
        for begin in range(
            some * chunk * BLOCK, min((some + 1) * chunk * BLOCK, y.shape[0]), BLOCK
        ):
            rows = min(BLOCK, y.shape[0] - begin)
            join_back(v, grad, begin, rows, late_key, late_dropped, u, grad_offset[some])
            activate_rows(y, begin * H, rows * H, kind, key, dropped, z)
            mix_back(u, z, rows, matrix, d, grad_matrix[some])
            activate_back(y, begin * H, rows * H, kind, key, dropped, d)
            for i in range(0, rows * H, W):
                store(grad_y, begin * H + i, load(d, i))
