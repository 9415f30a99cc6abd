"""Random filters over series, pooled as they run, as machine code: no output is ever kept.

A *group* of filters shares one input (a mixture of channels, or its first difference) and the
states of one diagonal system; a filter is a row of C over these states. Samples go through in tiles
that stay in the nearest cache: the states of a tile, then the outputs of eight samples at a time in
registers, compared with the thresholds there and counted.

Vectors run over filters, of which a group has a multiple of W. States are in double precision,
where the smallest step sizes lose no input; outputs are in single precision. Each output is the
same sum in the same order however a series is cut into calls, so a stream counts what a whole
series counts.

    u (rows, D)             spans (n, 2): first row and length of each series
    channels, weights (G, S)        what a group reads; reads (G, 2): difference, backwards
    modes (G, 4 P) float64          A_bar, B_bar: real, imaginary; P >= M is a multiple of W
    heard (G,)                      how many of its modes a system has, the others are silent
    C (G, 2 M, F)                   of each filter: real and imaginary part of a mode, then the next
    thresholds (G, K, F)            counts (n, G, K F) float64, added to
    states (n, G, 2 P) float64      before (n, G) float64: the last mixture of earlier calls
    begun (n,)                      0 where there are none
"""

from s4d_torch.ssm.compiled.code_cache import cached_njit, part
from s4d_torch.ssm.compiled.runtime import LANES as W
from s4d_torch.ssm.compiled.vectors import (
    add_wide,
    convert,
    count_above,
    fill,
    load,
    load_one,
    store,
)

TILE = 64  # samples; their states, and C, are in the nearest cache
STEPS = 8  # samples whose outputs are in registers
OUTSIDE = "a span of rows lies outside of the rows there are"
FULL = "there are more outputs than rows for them"


@part
def mixture(u, row, channels, weights):  # type: ignore[no-untyped-def]
    total = 0.0
    for s in range(channels.shape[0]):
        total += weights[s] * u[row, channels[s]]
    return total


@part
def mix_inputs(u, row, step, n, channels, weights, difference, last, x):  # type: ignore[no-untyped-def]
    """``x_t = sum_s w_s u_(t, c_s)`` or its first difference; returns the last mixture."""
    for t in range(n):
        total = mixture(u, row + step * t, channels, weights)
        x[t] = total - last if difference else total
        last = total
    return last


@part
def run_states(x, n, modes, state, out):  # type: ignore[no-untyped-def]
    """``s_t = A_bar s_(t-1) + B_bar x_t`` for n samples, as rows of ``out`` (TILE 2 P,)."""
    P = modes.shape[0] // 4
    for q in range(0, P, W):
        a, e = load(modes, q), load(modes, P + q)
        b, c = load(modes, 2 * P + q), load(modes, 3 * P + q)
        r, i = load(state, q), load(state, P + q)
        for t in range(n):
            v = load_one(x, t)
            r, i = (b * v + a * r) - e * i, (c * v + a * i) + e * r
            store(out, t * 2 * P + q, convert(out, r))
            store(out, (t * 2 + 1) * P + q, convert(out, i))
        store(state, q, r)
        store(state, P + q, i)


@part
def eight_outputs(states, P, heard, C, f):  # type: ignore[no-untyped-def]
    """``y_t = sum_j C_j s_(t,j)`` of W filters from f on, for eight samples."""
    F = C.shape[1]
    y0 = y1 = y2 = y3 = y4 = y5 = y6 = y7 = fill(C, 0.0)
    for j in range(2 * heard):
        s = (j & 1) * P + (j >> 1)
        c = load(C, j * F + f)
        y0 = y0 + c * load_one(states, s)
        y1 = y1 + c * load_one(states, s + 2 * P)
        y2 = y2 + c * load_one(states, s + 4 * P)
        y3 = y3 + c * load_one(states, s + 6 * P)
        y4 = y4 + c * load_one(states, s + 8 * P)
        y5 = y5 + c * load_one(states, s + 10 * P)
        y6 = y6 + c * load_one(states, s + 12 * P)
        y7 = y7 + c * load_one(states, s + 14 * P)
    return y0, y1, y2, y3, y4, y5, y6, y7


@part
def one_output(states, P, heard, C, f):  # type: ignore[no-untyped-def]
    """The same for one sample."""
    y = fill(C, 0.0)
    for j in range(2 * heard):
        y = y + load(C, j * C.shape[1] + f) * load_one(states, (j & 1) * P + (j >> 1))
    return y


@part
def count_tile(states, n, P, heard, C, thresholds, found):  # type: ignore[no-untyped-def]
    """``found_(k,f)``: how many of n samples lie above each threshold (K, F)."""
    K, F = thresholds.shape
    for q in range(K * F):
        found[q] = 0
    for f in range(0, F, W):
        for t in range(0, n - n % STEPS, STEPS):
            y0, y1, y2, y3, y4, y5, y6, y7 = eight_outputs(states[t * 2 * P :], P, heard, C, f)
            for k in range(f, K * F, F):
                level, count = load(thresholds, k), load(found, k)
                count = count_above(count_above(count, y0, level), y1, level)
                count = count_above(count_above(count, y2, level), y3, level)
                count = count_above(count_above(count, y4, level), y5, level)
                store(found, k, count_above(count_above(count, y6, level), y7, level))
        for t in range(n - n % STEPS, n):
            y = one_output(states[t * 2 * P :], P, heard, C, f)
            for k in range(f, K * F, F):
                store(found, k, count_above(load(found, k), y, load(thresholds, k)))


@cached_njit(nogil=True)
def count_forward(  # type: ignore[no-untyped-def]
    first, last, u, spans, channels, weights, reads, modes, heard, C, thresholds, begun,
    counts, states, before, x, out, found,
):  # fmt: skip
    """Tasks in range, each a series and a group: how many samples lie above each threshold.

    There is room ``x`` (TILE,) float64, ``out`` (TILE 2 P,) and ``found`` (K F,).
    """
    G, K, F = thresholds.shape
    P = modes.shape[1] // 4
    for task in range(first, last):
        n, g = task // G, task % G
        row, length = spans[n, 0], spans[n, 1]
        if row < 0 or length < 1 or row + length > u.shape[0]:
            raise IndexError(OUTSIDE)
        step = 1 - 2 * reads[g, 1]
        row += (length - 1) * reads[g, 1]
        if begun[n] == 0:  # no difference, rather than one to zero
            before[n, g] = mixture(u, row, channels[g], weights[g])
        for t in range(0, length, TILE):
            size = min(TILE, length - t)
            before[n, g] = mix_inputs(
                u, row + step * t, step, size, channels[g], weights[g], reads[g, 0], before[n, g], x
            )
            run_states(x, size, modes[g], states[n, g], out)
            count_tile(out, size, P, heard[g], C[g], thresholds[g], found)
            for k in range(0, K * F, W):
                add_wide(counts[n, g], k, load(found, k))


@cached_njit(nogil=True)
def outputs_forward(  # type: ignore[no-untyped-def]
    first, last, stride, u, spans, channels, weights, reads, modes, heard, C, y, x, out, state
):
    """Every ``stride``-th output of each series, one series after the other, y (G, rows, F).

    Task g runs group g over its spans (G, n, 2), of which those of length 0 are none.
    """
    F, P = C.shape[2], modes.shape[1] // 4
    for g in range(first, last):
        place = 0
        for n in range(spans.shape[1]):
            row, length = spans[g, n, 0], spans[g, n, 1]
            if row < 0 or length < 0 or row + length > u.shape[0]:
                raise IndexError(OUTSIDE)
            if length == 0:
                continue
            step = 1 - 2 * reads[g, 1]
            row += (length - 1) * reads[g, 1]
            before = mixture(u, row, channels[g], weights[g])
            for q in range(2 * P):
                state[q] = 0
            for t in range(0, length, TILE):
                size = min(TILE, length - t)
                before = mix_inputs(
                    u, row + step * t, step, size, channels[g], weights[g], reads[g, 0], before, x
                )
                run_states(x, size, modes[g], state, out)
                for s in range((-t) % stride, size, stride):
                    if place == y.shape[1]:
                        raise IndexError(FULL)
                    for f in range(0, F, W):
                        found = one_output(out[s * 2 * P :], P, heard[g], C[g], f)
                        store(y[g], place * F + f, found)
                    place += 1
