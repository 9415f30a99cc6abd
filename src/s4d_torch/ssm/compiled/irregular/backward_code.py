"""The adjoint of the scan over samples that are not evenly spaced; see ``forward_code``."""

from s4d_torch.ssm.compiled.code_cache import cached_njit, part
from s4d_torch.ssm.compiled.irregular.forward_code import (
    OUTSIDE,
    SEGMENT,
    put_narrow,
    read_gaps,
    take_wide,
)
from s4d_torch.ssm.compiled.irregular.steps_code import make_rows, pull_rows
from s4d_torch.ssm.compiled.rows_code import take_rows
from s4d_torch.ssm.compiled.runtime import LANES as W
from s4d_torch.ssm.compiled.vectors import add_wide, convert, load, store


@part
def run_again(table, ids, n, back, x, start, states):  # type: ignore[no-untyped-def]
    """Forward once more, keeping the state before every sample, and the one after the last."""
    r, i = convert(x, load(start, 0)), convert(x, load(start, W))
    store(states, 0, convert(states, r))
    store(states, W, convert(states, i))
    row = 6 * W if back else 4 * W
    for t in range(n):
        z = ids[t] * row
        u = load(x, (t + 1) * W)
        br, bi = load(table, z + 2 * W) * u, load(table, z + 3 * W) * u
        if back:
            v = load(x, t * W)
            br, bi = br + load(table, z + 4 * W) * v, bi + load(table, z + 5 * W) * v
        a, e = load(table, z), load(table, z + W)
        r, i = (br - e * i) + a * r, (bi + e * r) + a * i
        store(states, (2 * t + 2) * W, convert(states, r))
        store(states, (2 * t + 3) * W, convert(states, i))


@part
def run_back(  # type: ignore[no-untyped-def]
    table, ids, n, back, x, d, c, states, gradient, out, grad_c, grad
):
    """From the last sample to the first: gradients of the samples, of C, and of table rows.

    ``out`` begins one sample early, as x does. ``grad`` is what is added to, row by row: products
    in the precision of the signal, as are x, d and the states.
    """
    cr, ci = load(c, 0), load(c, W)
    gr, gi = load(gradient, 0), load(gradient, W)
    dr = di = load(d, 0) - load(d, 0)
    row = 6 * W if back else 4 * W
    for t in range(n - 1, -1, -1):
        z, dy, u = ids[t] * row, load(d, t * W), load(x, (t + 1) * W)
        dr, di = dr + dy * load(states, (2 * t + 2) * W), di + dy * load(states, (2 * t + 3) * W)
        wide = convert(c, dy)
        gr, gi = gr + cr * wide, gi + ci * wide
        p, q = convert(grad, gr), convert(grad, gi)
        r, i = load(states, 2 * t * W), load(states, (2 * t + 1) * W)
        store(grad, z, (load(grad, z) + p * r) + q * i)
        store(grad, z + W, (load(grad, z + W) + q * r) - p * i)
        store(grad, z + 2 * W, load(grad, z + 2 * W) + p * u)
        store(grad, z + 3 * W, load(grad, z + 3 * W) + q * u)
        du = load(out, (t + 1) * W) + load(table, z + 2 * W) * gr
        store(out, (t + 1) * W, du + load(table, z + 3 * W) * gi)
        if back:
            v = load(x, t * W)
            store(grad, z + 4 * W, load(grad, z + 4 * W) + p * v)
            store(grad, z + 5 * W, load(grad, z + 5 * W) + q * v)
            dv = load(out, t * W) + load(table, z + 4 * W) * gr
            store(out, t * W, dv + load(table, z + 5 * W) * gi)
        a, e = load(table, z), load(table, z + W)
        gr, gi = a * gr + e * gi, a * gi - e * gr
    store(gradient, 0, gr)
    store(gradient, W, gi)
    add_wide(grad_c, 0, dr)
    add_wide(grad_c, W, di)


@part
def read_segment(  # type: ignore[no-untyped-def]
    u, before, row, t0, step, n, low, x, exact
):
    """n samples and the one before them, in double precision and as they came."""
    take_wide(u, row + t0 * step, step, n, low, x[W:])
    for q in range(W):
        x[q] = before[q]
    if t0 > 0:
        take_wide(u, row + (t0 - 1) * step, step, n - n + 1, low, x)
    for t in range(0, (n + 1) * W, W):
        store(exact, t, convert(exact, load(x, t)))


@part
def skip_back(D, x, d, n, out, grad_D):  # type: ignore[no-untyped-def]
    """The adjoint of ``y = D u``; ``out`` begins with what a later segment has sent back."""
    late, skip, total = load(out, 0), load(D, 0), load(grad_D, 0)
    for t in range(n):
        dy = convert(x, load(d, t * W))
        total = total + dy * load(x, (t + 1) * W)
        store(out, (t + 1) * W, skip * dy)
    store(out, n * W, load(out, n * W) + late)
    store(out, 0, late - late)
    store(grad_D, 0, total)


@part
def segment_back(  # type: ignore[no-untyped-def]
    rule, back, tables, modes, C, ids, times, n, x, exact, d, begun, states, own, grad_own, gs, out,
    grad_tables, grad_modes, grad_C,
):  # fmt: skip
    """All modes of a group from the last of n samples to the first."""
    for m in range(C.shape[0]):
        table, grad = own, grad_own
        if rule < 0:
            table, grad = tables[m].reshape(-1), grad_tables[m].reshape(-1)
        else:
            make_rows(rule, modes[m], times, n, own)
            for q in range(n * (6 if back else 4) * W):
                grad[q] = 0
        run_again(table, ids, n, back, x, begun[m], states)
        run_back(table, ids, n, back, exact, d, C[m], states, gs[m], out, grad_C[m], grad)
        if rule >= 0:
            pull_rows(rule, modes[m], times, n, own, grad, grad_modes[m])


@cached_njit(nogil=True)
def irregular_backward(  # type: ignore[no-untyped-def]
    first, last, ahead, chunk, rule, back, u, spans, which, gaps, tables, modes, C, D, before, kept,
    grad_y, grad_end, grad_u, grad_start, grad_before, grad_tables, grad_modes, grad_C, grad_D,
    room, narrow, ids, times, gs,
):  # fmt: skip
    """A task is ``chunk`` spans and a group.

    Gradients of tables, in the precision of u, and of modes, C and D, (chunks, ...), begin as zeros
    and are to be summed over the chunks. A segment is run forward again from the state kept at its
    start, then backward.
    """
    G, none, step = C.shape[0], first - first, -1 if ahead else 1
    size = SEGMENT * W
    x, out, own = room[: size + W], room[size + W : 2 * size + 2 * W], room[2 * size + 2 * W :]
    exact, d = narrow[: size + W], narrow[size + W : 2 * size + W]  # x as it came
    states, grad_own = narrow[2 * size + W : 4 * size + 3 * W], narrow[4 * size + 3 * W :]
    room[: 2 * size + 2 * W] = 0
    narrow[: 4 * size + 3 * W] = 0
    for task in range(first, last):
        some, g = task // G, task % G
        for span in range(some * chunk, min((some + 1) * chunk, spans.shape[0])):
            row, length = spans[span, 0], spans[span, 1]
            count, place = (length + SEGMENT - 1) // SEGMENT, row // SEGMENT + span
            if row < 0 or length < 0 or row + length > u.shape[0] or place + count > kept.shape[0]:
                raise ValueError(OUTSIDE)
            begin = row + length - 1 if ahead else row
            gs[:] = grad_end[span, g]
            out[:W] = 0
            for segment in range(count - 1, -1, -1):
                t0 = segment * SEGMENT
                n, here = min(SEGMENT, length - t0), begin + t0 * step
                inside = min(n, length - t0 - ahead)
                read_segment(u, before[span, g], begin, t0, step, n, g * W, x, exact)
                take_rows(grad_y, here + ahead * step, step, inside, g * W, d, none)
                d[inside * W : n * W] = 0
                skip_back(D[g], x, d, n, out, grad_D[some, g])
                read_gaps(rule, which, gaps, here, step, n, tables.shape[2], ids, times)
                segment_back(
                    rule, back, tables[g], modes[g], C[g], ids, times, n, x, exact, d,
                    kept[place + segment, g], states, own, grad_own, gs, out,
                    grad_tables[some, g], grad_modes[some, g], grad_C[some, g],
                )  # fmt: skip
                put_narrow(out[W:], here, step, n, g * W, grad_u)
            grad_before[span, g] = out[:W]
            grad_start[span, g] = gs
