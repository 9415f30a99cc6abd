"""Convolution term by term as machine code: for short sequences less work than anything else.

Everything is made of one operation, the first L samples of the convolution of two signals of some
channels. With ``rev`` for a signal turned round, the gradients of ``y = K * u`` are such
convolutions too:

    grad_u = rev(K * rev(grad_y))        grad_K = rev(rev(grad_y) * u)

A signal is taken to a buffer in rows of W channels, which are multiplied as vectors.

    u, y (B L, H)    taps (G, L, W): the kernel in groups of W channels
"""

from s4d_torch.ssm.compiled.code_cache import cached_njit, part
from s4d_torch.ssm.compiled.rows_code import put_rows, take_rows
from s4d_torch.ssm.compiled.runtime import LANES as W
from s4d_torch.ssm.compiled.vectors import (
    add_products,
    add_wide,
    fill,
    load,
    load_four,
    store,
    store_four,
)

ROWS = 8  # of the output at once; signals begin after as many rows of zeros, and end on a multiple


@part
def convolve(taps, padded, rows, out):  # type: ignore[no-untyped-def]
    """``out_t = sum_(s<=t) taps_s x_(t-s)`` for t < rows, a multiple of ROWS.

    x begins at row ROWS of ``padded``; all end with zeros.
    """
    none = fill(taps, 0.0)
    for t in range(0, rows, 8):
        low = high = (none, none, none, none)  # y_t .. y_(t+3), y_(t+4) .. y_(t+7)
        for s in range(0, t + 8, 4):
            k0, k1, k2, k3 = load_four(taps, s * W)
            place = (ROWS + t - s - 3) * W  # of x_(t-s-3)
            x0, x1, x2, x3 = load_four(padded, place)
            x4, x5, x6, x7 = load_four(padded, place + 4 * W)
            x8, x9 = load(padded, place + 8 * W), load(padded, place + 9 * W)
            x10 = load(padded, place + 10 * W)
            low = add_products(low, (x3, x4, x5, x6), k0)
            high = add_products(high, (x7, x8, x9, x10), k0)
            low = add_products(low, (x2, x3, x4, x5), k1)
            high = add_products(high, (x6, x7, x8, x9), k1)
            low = add_products(low, (x1, x2, x3, x4), k2)
            high = add_products(high, (x5, x6, x7, x8), k2)
            low = add_products(low, (x0, x1, x2, x3), k3)
            high = add_products(high, (x4, x5, x6, x7), k3)
        store_four(out, t * W, low)
        store_four(out, (t + 4) * W, high)


@part
def copy_taps(taps, g, k):  # type: ignore[no-untyped-def]
    for s in range(taps.shape[1]):
        store(k, s * W, load(taps, (g * taps.shape[1] + s) * W))


@cached_njit(nogil=True)
def direct_forward(first, last, length, ahead, u, taps, y, room):  # type: ignore[no-untyped-def]
    """``y = K * u`` for tasks in range, each a group and a sequence of ``length`` rows.

    ``ahead`` runs from the end to the beginning and leaves each answer one place further. There is
    ``room`` for a signal with ROWS rows of zeros before it, and two without.
    """
    batch = u.shape[0] // length
    rows = (length + ROWS - 1) // ROWS * ROWS
    for q in range(room.shape[0]):
        room[q] = 0
    x, k = room[: (ROWS + rows) * W], room[(ROWS + rows) * W : (ROWS + 2 * rows) * W]
    out = room[(ROWS + 2 * rows) * W :]
    step = 1 - 2 * ahead
    for task in range(first, last):
        g, b = task // batch, task % batch
        if task == first or b == 0:
            copy_taps(taps, g, k)
        row = b * length + (length - 1) * ahead  # where it begins
        take_rows(u, row, step, length, g * W, x, ROWS * W)
        convolve(k, x, rows, out)
        put_rows(out, row - ahead, step, length - ahead, g * W, y)
        if ahead:
            for h in range(g * W, min(g * W + W, y.shape[1])):
                y[row, h] = 0


@cached_njit(nogil=True)
def direct_backward(  # type: ignore[no-untyped-def]
    first, last, length, ahead, chunk, u, taps, grad_y, grad_u, grad_taps, room
):
    """The adjoint of :func:`direct_forward`; a task is a group and ``chunk`` sequences.

    grad_taps (chunks, G, L, W) is in double precision and begins as zeros, to be summed over the
    chunks.
    """
    batch, chunks = u.shape[0] // length, grad_taps.shape[0]
    rows = (length + ROWS - 1) // ROWS * ROWS
    begin, size = ROWS * W, (ROWS + rows) * W
    for q in range(room.shape[0]):
        room[q] = 0
    x, d = room[:size], room[size : 2 * size]
    k, out = room[2 * size : 2 * size + rows * W], room[2 * size + rows * W :]
    step = 1 - 2 * ahead
    for task in range(first, last):
        g, some = task // chunks, task % chunks
        copy_taps(taps, g, k)
        for b in range(some * chunk, min((some + 1) * chunk, batch)):
            row, end = b * length, b * length + length - 1
            if ahead:
                row, end = end, row
            take_rows(u, row, step, length, g * W, x, begin)
            # rev(grad_y); what ahead moved on by one comes a row later
            take_rows(grad_y, end, -step, length - ahead, g * W, d, begin + ahead * W)
            convolve(k, d, rows, out)
            put_rows(out, end, -step, length, g * W, grad_u)
            convolve(d[begin:], x, rows, out)
            for t in range(length):
                add_wide(grad_taps[some, g], (length - 1 - t) * W, load(out, t * W))
