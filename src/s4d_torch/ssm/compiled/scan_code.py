"""The scan over time as machine code: diagonal systems in blocks of four samples, by numba.

Four samples at a time, a state s and inputs x_0..x_3 give

    y_j = outputs_j . s + sum_{m<=j} kernel_{j-m} x_m        s <- power s + sum_m x_m inputs_m

so a mode is read and written once for four samples, and A_bar^4 is rounded instead of A_bar.

Vectors run over channels, which lie side by side in memory: W of them are a *group*. The samples of
a segment are taken to a small buffer; then one mode after the other goes through the segment, its
tables and its state in registers, and adds what it sends to the outputs of the segment.

In float32 a slow mode would go astray: its power is rounded the same way at each block, and the sum
of a large state and a small input may not move at all. So inside a segment the state is kept in two
parts, what the start of the segment left and what has come since; at its end they meet in double
precision, the first part multiplied with an exact power (``carry``). Gradients of the state are in
one part, and a factor puts the rounded power right (``drift``), as it does for the first part
before the last block.

A sequence is a *span* of rows of u: its first row and its length. Tasks share nothing but what they
read. The segments of span n are numbered from ``row // SEGMENT + n`` on: no two have one number.

    u, y (rows, H)              spans (n, 2)
    tables (G, M, 18 W)         power, outputs_0..3, inputs_0..3, of each the real parts first
    kernel (G, 4 W)             carry (G, M, 2 W) in double precision, drift (G, M, 2 W)
    start, end (n, G, M, 2 W)   kept (segments, G, M, 2 W): the states at the starts of segments
"""

from s4d_torch.ssm.compiled.code_cache import cached_njit, part
from s4d_torch.ssm.compiled.rows_code import put_rows, take_rows
from s4d_torch.ssm.compiled.runtime import LANES as W
from s4d_torch.ssm.compiled.tables import SEGMENT
from s4d_torch.ssm.compiled.vectors import (
    add_products,
    add_wide,
    dot,
    fill,
    load,
    load_four,
    store,
    store_four,
)

OUTSIDE = "a span of rows lies outside of the rows there are"
OUTPUTS, INPUTS = 2 * W, 10 * W  # places in the tables of one mode, after its power


@part
def run_mode(z, x, blocks, state, y):  # type: ignore[no-untyped-def]
    """One mode through some blocks, its state (2 W,) in one part."""
    a, e = load(z, 0), load(z, W)
    out_r, out_i = load_four(z, OUTPUTS), load_four(z, OUTPUTS + 4 * W)
    in_r, in_i = load_four(z, INPUTS), load_four(z, INPUTS + 4 * W)
    r, i = load(state, 0), load(state, W)
    for t in range(0, 4 * W * blocks, 4 * W):
        samples = load_four(x, t)
        store_four(y, t, add_products(add_products(load_four(y, t), out_r, r), out_i, i))
        u, v = dot(in_r, samples), dot(in_i, samples)
        r, i = (u + a * r) - e * i, (v + a * i) + e * r
    store(state, 0, r)
    store(state, W, i)


@part
def run_mode_in_parts(z, x, begin, end, left, since, y):  # type: ignore[no-untyped-def]
    """The same with a state in two parts: what was left, and what has come since."""
    a, e = load(z, 0), load(z, W)
    out_r, out_i = load_four(z, OUTPUTS), load_four(z, OUTPUTS + 4 * W)
    in_r, in_i = load_four(z, INPUTS), load_four(z, INPUTS + 4 * W)
    lr, li, sr, si = load(left, 0), load(left, W), load(since, 0), load(since, W)
    for t in range(4 * W * begin, 4 * W * end, 4 * W):
        samples = load_four(x, t)
        r, i = lr + sr, li + si
        store_four(y, t, add_products(add_products(load_four(y, t), out_r, r), out_i, i))
        u, v = dot(in_r, samples), dot(in_i, samples)
        lr, li = a * lr - e * li, a * li + e * lr
        sr, si = (u + a * sr) - e * si, (v + a * si) + e * sr
    store(left, 0, lr)
    store(left, W, li)
    store(since, 0, sr)
    store(since, W, si)


@part
def run_segment(  # type: ignore[no-untyped-def]
    kernel, tables, drift, carry, x, n, last, rest, state, left, since, y
):
    """A group through n samples: y, and the state (M, 2 W) after them.

    In the ``last`` segment it is the state before the last block, which may not be full. ``rest``
    says that the state is zero.
    """
    k0, k1, k2, k3 = load_four(kernel, 0)
    blocks, none = (n + 3) // 4, n - n
    whole = blocks - 1 if last else blocks
    part_of = 4 * whole / SEGMENT
    for t in range(0, 4 * W * blocks, 4 * W):
        x0, x1, x2, x3 = load_four(x, t)
        y1, y2 = k0 * x1 + k1 * x0, k0 * x2 + k1 * x1 + k2 * x0
        store_four(y, t, (k0 * x0, y1, y2, k0 * x3 + k1 * x2 + k2 * x1 + k3 * x0))
    for m in range(tables.shape[0]):
        for q in range(2 * W):
            left[q] = state[m, q]
            since[q] = 0
        if rest:
            run_mode(tables[m], x, whole, since, y)
        else:
            run_mode_in_parts(tables[m], x, none, whole, left, since, y)
        for q in range(W):
            r, i, a, e = state[m, q], state[m, W + q], carry[m, q], carry[m, W + q]
            if last:  # with what some blocks of rounded powers have missed
                r, i = left[q], left[W + q]
                a, e = 1 + part_of * drift[m, q], part_of * drift[m, W + q]
            state[m, q] = a * r - e * i + since[q]
            state[m, W + q] = a * i + e * r + since[W + q]
        if last:
            run_mode_in_parts(tables[m], x, whole, blocks, left, since, y)


@cached_njit(nogil=True)
def scan_forward(  # type: ignore[no-untyped-def]
    first, last, ahead, u, spans, tables, kernel, drift, carry, start, y, end, kept, room, state
):
    """Tasks first..last, each a span and a group; ``end`` is the state before the last block.

    ``ahead`` runs from the end of a span to its beginning and leaves each answer one place
    further: a sample hears of those after it, not of itself. ``room`` and ``state`` (M, 2 W), in
    double precision, are to work in.
    """
    G, M = tables.shape[0], tables.shape[1]
    none = first - first  # a number, not a constant: those make functions of their own
    x, out = room[: SEGMENT * W], room[SEGMENT * W : 2 * SEGMENT * W]
    left, since = room[2 * SEGMENT * W :], room[(2 * SEGMENT + 2) * W :]
    for q in range(room.shape[0]):  # channels that a last group lacks stay zero
        room[q] = 0
    for task in range(first, last):
        span, g = task // G, task % G
        row, length = spans[span, 0], spans[span, 1]
        if row < 0 or length < 0 or row + length > u.shape[0]:
            raise ValueError(OUTSIDE)
        segment = row // SEGMENT + span
        step = -1 if ahead else 1
        begin = row + length - 1 if ahead else row
        rest = True
        for m in range(M):
            for q in range(2 * W):
                state[m, q] = start[span, g, m, q]
                rest = rest and state[m, q] == 0
        for t0 in range(0, length, SEGMENT):
            n = min(SEGMENT, length - t0)
            if segment < kept.shape[0]:
                for m in range(M):
                    for q in range(2 * W):
                        kept[segment, g, m, q] = state[m, q]
            take_rows(u, begin + t0 * step, step, n, g * W, x, none)
            for c in range(n * W, (n + 3) // 4 * 4 * W):  # a last block that is not full
                x[c] = 0
            run_segment(
                kernel[g], tables[g], drift[g], carry[g], x, n, t0 + n == length, rest, state,
                left, since, out,
            )  # fmt: skip
            rest = False
            segment += 1
            inside = min(n, length - t0 - ahead)  # the last answer ahead falls off the end
            put_rows(out, begin + (t0 + ahead) * step, step, inside, g * W, y)
        for m in range(M):
            for q in range(2 * W):
                end[span, g, m, q] = state[m, q]
        if ahead and length > 0:
            for h in range(g * W, min(g * W + W, y.shape[1])):
                y[begin, h] = 0


# -- the adjoint -----------------------------------------------------------------------------------


@part
def run_again(z, x, blocks, start, states):  # type: ignore[no-untyped-def]
    """Forward once more, keeping the state before every block."""
    a, e = load(z, 0), load(z, W)
    in_r, in_i = load_four(z, INPUTS), load_four(z, INPUTS + 4 * W)
    r, i = load(start, 0), load(start, W)
    for block in range(blocks):
        store(states, 2 * W * block, r)
        store(states, 2 * W * block + W, i)
        samples = load_four(x, 4 * W * block)
        u, v = dot(in_r, samples), dot(in_i, samples)
        r, i = (u + a * r) - e * i, (v + a * i) + e * r


@part
def run_back(z, d, begin, end, gradient, after, out):  # type: ignore[no-untyped-def]
    """Blocks from the last to the first; ``after`` keeps the gradient of the state after each."""
    a, e = load(z, 0), load(z, W)
    out_r, out_i = load_four(z, OUTPUTS), load_four(z, OUTPUTS + 4 * W)
    in_r, in_i = load_four(z, INPUTS), load_four(z, INPUTS + 4 * W)
    r, i = load(gradient, 0), load(gradient, W)
    for block in range(end - 1, begin - 1, -1):
        t = 4 * W * block
        store(after, 2 * W * block, r)
        store(after, 2 * W * block + W, i)
        grads = load_four(d, t)
        store_four(out, t, add_products(add_products(load_four(out, t), in_r, r), in_i, i))
        u, v = dot(out_r, grads), dot(out_i, grads)
        r, i = (u + a * r) + e * i, (v + a * i) - e * r
    store(gradient, 0, r)
    store(gradient, W, i)


@part
def add_gradients(x, d, states, after, blocks, grad):  # type: ignore[no-untyped-def]
    """The gradients of the tables of one mode: products of states, their gradients and samples."""
    a = e = none = fill(x, 0.0)
    out_r = out_i = in_r = in_i = (none, none, none, none)
    for block in range(blocks):
        r, i = load(states, 2 * W * block), load(states, 2 * W * block + W)
        g, h = load(after, 2 * W * block), load(after, 2 * W * block + W)
        a, e = (a + r * g) + i * h, (e + r * h) - i * g
        grads, samples = load_four(d, 4 * W * block), load_four(x, 4 * W * block)
        out_r, out_i = add_products(out_r, grads, r), add_products(out_i, grads, i)
        in_r, in_i = add_products(in_r, samples, g), add_products(in_i, samples, h)
    add_wide(grad, 0, a)
    add_wide(grad, W, e)
    add_wide(grad, OUTPUTS, out_r)
    add_wide(grad, OUTPUTS + 4 * W, out_i)
    add_wide(grad, INPUTS, in_r)
    add_wide(grad, INPUTS + 4 * W, in_i)


@part
def kernel_back(kernel, x, d, blocks, out, grad):  # type: ignore[no-untyped-def]
    """The adjoint of what samples send to the outputs of their own block."""
    k0, k1, k2, k3 = load_four(kernel, 0)
    w0 = w1 = w2 = w3 = fill(x, 0.0)
    for t in range(0, 4 * W * blocks, 4 * W):
        d0, d1, d2, d3 = load_four(d, t)
        x0, x1, x2, x3 = load_four(x, t)
        e0, e1 = k0 * d0 + k1 * d1 + k2 * d2 + k3 * d3, k0 * d1 + k1 * d2 + k2 * d3
        store_four(out, t, (e0, e1, k0 * d2 + k1 * d3, k0 * d3))
        w0 = w0 + d0 * x0 + d1 * x1 + d2 * x2 + d3 * x3
        w1, w2, w3 = w1 + d1 * x0 + d2 * x1 + d3 * x2, w2 + d2 * x0 + d3 * x1, w3 + d3 * x0
    add_wide(grad, 0, (w0, w1, w2, w3))


@cached_njit(nogil=True)
def scan_backward(  # type: ignore[no-untyped-def]
    first, last, ahead, chunk, u, spans, tables, kernel, drift, kept, grad_y, grad_end,
    grad_u, grad_start, grad_tables, grad_kernel, room, gs,
):  # fmt: skip
    """The adjoint of :func:`scan_forward`; a task is ``chunk`` spans and a group.

    grad_tables (chunks, G, M, 18 W) and grad_kernel (chunks, G, 4 W) are in double precision and
    begin as zeros; they are to be summed over the chunks. A segment is run forward again from the
    state kept at its start, then backward. ``gs`` (M, 2 W) holds the gradient of the state.
    """
    G, M = tables.shape[0], tables.shape[1]
    size, none = SEGMENT * W, first - first
    x, d, out = room[:size], room[size : 2 * size], room[2 * size : 3 * size]
    states, after = room[3 * size :], room[3 * size + size // 2 :]
    for q in range(room.shape[0]):
        room[q] = 0
    for task in range(first, last):
        some, g = task // G, task % G
        for span in range(some * chunk, min((some + 1) * chunk, spans.shape[0])):
            row, length = spans[span, 0], spans[span, 1]
            if row < 0 or length < 0 or row + length > u.shape[0]:
                raise ValueError(OUTSIDE)
            step = -1 if ahead else 1
            begin = row + length - 1 if ahead else row
            count = (length + SEGMENT - 1) // SEGMENT
            if row // SEGMENT + span + count > kept.shape[0]:
                raise ValueError(OUTSIDE)
            for m in range(M):
                for q in range(2 * W):
                    gs[m, q] = grad_end[span, g, m, q] if length == 0 else 0
            for segment in range(count - 1, -1, -1):
                t0 = segment * SEGMENT
                n = min(SEGMENT, length - t0)
                blocks, final = (n + 3) // 4, segment == count - 1
                whole = blocks - 1 if final else blocks
                inside, part_of = min(n, length - t0 - ahead), 4 * whole / SEGMENT
                take_rows(u, begin + t0 * step, step, n, g * W, x, none)
                take_rows(grad_y, begin + (t0 + ahead) * step, step, inside, g * W, d, none)
                for c in range(inside * W, 4 * blocks * W):
                    d[c] = 0
                for c in range(n * W, 4 * blocks * W):
                    x[c] = 0
                kernel_back(kernel[g], x, d, blocks, out, grad_kernel[some, g])
                for m in range(M):
                    z, gradient = tables[g, m], gs[m]
                    run_again(z, x, blocks, kept[row // SEGMENT + span + segment, g, m], states)
                    if final:
                        run_back(z, d, whole, blocks, gradient, after, out)
                        for q in range(2 * W):
                            gs[m, q] += grad_end[span, g, m, q]
                    for q in range(W):  # what a segment of rounded powers has missed
                        r, i, a, e = gs[m, q], gs[m, W + q], drift[g, m, q], drift[g, m, W + q]
                        gs[m, q] += (a * r + e * i) * part_of
                        gs[m, W + q] += (a * i - e * r) * part_of
                    run_back(z, d, none, whole, gradient, after, out)
                    add_gradients(x, d, states, after, blocks, grad_tables[some, g, m])
                put_rows(out, begin + t0 * step, step, n, g * W, grad_u)
            for m in range(M):
                for q in range(2 * W):
                    grad_start[span, g, m, q] = gs[m, q]
