"""The scan over samples that are not evenly spaced, as machine code; in double precision.

    x_k = A_k x_(k-1) + B_k u_k + F_k u_(k-1)        y_k = Re(C x_k) + D u_k

where A, B and F, of a rule that looks at the sample before, belong to the gap before sample k. They
come from tables, one row for each gap that occurs, or are made on the way, for a segment of samples
and one mode at a time, from ``z = dt A`` and ``b = dt B``. A state with one factor per sample has
no power that could be rounded once for many of them: so all is double.

Vectors run over channels, W of them a group. A sequence is a span of rows of u, its first row and
its length, run from its end if it looks ahead. Tasks are spans and groups, and share nothing but
what they read. The segments of span n are numbered from ``row // SEGMENT + n`` on.

    u, y (rows, H)              spans (n, 2);  which (rows,): the row of its gap in the tables
    tables (G, M, gaps, 6 W)    A, B, F, of each the real parts first; 4 W if there is no F
    gaps (rows,)                modes (G, M, 4 W): z and b
    C (G, M, 2 W)               as the row that reads a state;  D (G, W)
    start, end (n, G, M, 2 W)   before (n, G, W): the sample before the first
    kept (segments, G, M, 2 W)  the states at the starts of segments
"""

from s4d_torch.ssm.compiled.code_cache import cached_njit, part
from s4d_torch.ssm.compiled.complex_math import complex_expm1
from s4d_torch.ssm.compiled.rows_code import take_rows
from s4d_torch.ssm.compiled.runtime import LANES as W
from s4d_torch.ssm.compiled.vectors import add_wide, convert, fill, load, store
from s4d_torch.ssm.discretization import ZOH

SEGMENT = 64  # with a table of some gaps it stays in the fastest cache
OUTSIDE = "a span of rows lies outside of the rows there are"
NO_GAP = "a sample names a gap that is not in the tables"


@part
def take_wide(source, row, step, n, low, buffer):  # type: ignore[no-untyped-def]
    """Rows row, row + step, ... of W channels from ``low`` on into a buffer of doubles.

    What the last group of channels lacks is left as it is.
    """
    channels = source.shape[1]
    if low + W <= channels:
        for t in range(n):
            place = (row + t * step) * channels + low
            store(buffer, t * W, convert(buffer, load(source, place)))
    else:
        for t in range(n):
            for c in range(channels - low):
                buffer[t * W + c] = source[row + t * step, low + c]


@part
def put_narrow(buffer, row, step, n, low, target):  # type: ignore[no-untyped-def]
    """The inverse of :func:`take_wide`."""
    channels = target.shape[1]
    if low + W <= channels:
        for t in range(n):
            place = (row + t * step) * channels + low
            store(target, place, convert(target, load(buffer, t * W)))
    else:
        for t in range(n):
            for c in range(channels - low):
                target[row + t * step, low + c] = buffer[t * W + c]


@part
def make_rows(rule, mode, times, n, table):  # type: ignore[no-untyped-def]
    """The rows of a table for one mode and n gaps."""
    zr, zi, br, bi = load(mode, 0), load(mode, W), load(mode, 2 * W), load(mode, 3 * W)
    one, none = fill(mode, 1.0), fill(mode, 0.0)
    if rule == ZOH:  # B = (b / z) (e^(r z) - 1)
        scale = one / (zr * zr + zi * zi)
        qr, qi = (br * zr + bi * zi) * scale, (bi * zr - br * zi) * scale
        for t in range(n):
            r = fill(mode, times[t])
            er, ei = complex_expm1(zr * r, zi * r)
            store(table, t * 4 * W, er + one)
            store(table, t * 4 * W + W, ei)
            store(table, t * 4 * W + 2 * W, qr * er - qi * ei)
            store(table, t * 4 * W + 3 * W, qr * ei + qi * er)
        return
    for t in range(n):  # bilinear: w = 1 / (1 - r z / 2), A = 2 w - 1, B = r b w
        r, half = fill(mode, times[t]), fill(mode, 0.5 * times[t])
        dr, di = one - half * zr, none - half * zi
        scale = one / (dr * dr + di * di)
        wr, wi = dr * scale, none - di * scale
        store(table, t * 4 * W, wr + wr - one)
        store(table, t * 4 * W + W, wi + wi)
        store(table, t * 4 * W + 2 * W, r * (br * wr - bi * wi))
        store(table, t * 4 * W + 3 * W, r * (br * wi + bi * wr))


@part
def run_mode(table, ids, n, back, x, c, state, y):  # type: ignore[no-untyped-def]
    """One mode through n samples; x begins one sample earlier. Its state (2 W,) goes along."""
    cr, ci = load(c, 0), load(c, W)
    r, i = load(state, 0), load(state, W)
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
        store(y, t * W, (load(y, t * W) + cr * r) + ci * i)
    store(state, 0, r)
    store(state, W, i)


@part
def run_two_modes(table, other, ids, n, x, c, state, y):  # type: ignore[no-untyped-def]
    """Two modes of a rule that looks at one sample: those are read, and answers written, once."""
    cr, ci, fr, fi = load(c, 0), load(c, W), load(c, 2 * W), load(c, 3 * W)
    r, i, p, q = load(state, 0), load(state, W), load(state, 2 * W), load(state, 3 * W)
    for t in range(n):
        z = ids[t] * 4 * W
        u = load(x, (t + 1) * W)
        br, bi = load(table, z + 2 * W) * u, load(table, z + 3 * W) * u
        a, e = load(table, z), load(table, z + W)
        r, i = (br - e * i) + a * r, (bi + e * r) + a * i
        br, bi = load(other, z + 2 * W) * u, load(other, z + 3 * W) * u
        a, e = load(other, z), load(other, z + W)
        p, q = (br - e * q) + a * p, (bi + e * p) + a * q
        sums = (load(y, t * W) + cr * r) + ci * i
        store(y, t * W, (sums + fr * p) + fi * q)
    store(state, 0, r)
    store(state, W, i)
    store(state, 2 * W, p)
    store(state, 3 * W, q)


@part
def name_gaps(which, row, step, n, gaps, ids):  # type: ignore[no-untyped-def]
    """The rows of tables of ``gaps`` for n samples; False if one is not there."""
    for t in range(n):
        ids[t] = which[row + t * step]
        if ids[t] < 0 or ids[t] >= gaps:
            return False
    return True


@cached_njit(nogil=True)
def irregular_forward(  # type: ignore[no-untyped-def]
    first, last, ahead, rule, back, u, spans, which, gaps, tables, modes, C, D, start, before,
    y, end, kept, room, ids, times, state,
):  # fmt: skip
    """Tasks first..last, each a span and a group; ``rule`` below 0 takes the tables.

    ``ahead`` runs from the end of a span and leaves each answer one place further. ``room``, in
    double precision, ``ids``, ``times`` (SEGMENT,) and ``state`` (M, 2 W) are to work in.
    """
    G, M = C.shape[0], C.shape[1]
    x, out = room[: (SEGMENT + 1) * W], room[(SEGMENT + 1) * W : (2 * SEGMENT + 1) * W]
    own = room[(2 * SEGMENT + 1) * W :]
    for q in range((2 * SEGMENT + 1) * W):
        room[q] = 0
    for task in range(first, last):
        span, g = task // G, task % G
        row, length = spans[span, 0], spans[span, 1]
        if row < 0 or length < 0 or row + length > u.shape[0]:
            raise ValueError(OUTSIDE)
        step = -1 if ahead else 1
        begin = row + length - 1 if ahead else row
        segment = row // SEGMENT + span
        for m in range(M):
            for q in range(2 * W):
                state[m, q] = start[span, g, m, q]
        for q in range(W):
            x[q] = before[span, g, q]
        for t0 in range(0, length, SEGMENT):
            n = min(SEGMENT, length - t0)
            if segment < kept.shape[0]:
                for m in range(M):
                    for q in range(2 * W):
                        kept[segment, g, m, q] = state[m, q]
            take_wide(u, begin + t0 * step, step, n, g * W, x[W:])
            for t in range(n):
                store(out, t * W, load(D[g], 0) * load(x, (t + 1) * W))
            if rule < 0:
                if not name_gaps(which, begin + t0 * step, step, n, tables.shape[2], ids):
                    raise ValueError(NO_GAP)
            else:
                for t in range(n):
                    ids[t], times[t] = t, gaps[begin + (t0 + t) * step]
            m = M - M
            while m < M:
                if rule < 0 and not back and m + 1 < M:
                    pair = tables[g, m].reshape(-1), tables[g, m + 1].reshape(-1)
                    run_two_modes(*pair, ids, n, x, C[g, m:], state[m:], out)
                    m += 2
                    continue
                table = own
                if rule < 0:
                    table = tables[g, m].reshape(-1)
                else:
                    make_rows(rule, modes[g, m], times, n, own)
                run_mode(table, ids, n, back, x, C[g, m], state[m], out)
                m += 1
            for q in range(W):
                x[q] = x[n * W + q]
            segment += 1
            inside = min(n, length - t0 - ahead)  # the last answer ahead falls off the end
            put_narrow(out, begin + (t0 + ahead) * step, step, inside, g * W, y)
        for m in range(M):
            for q in range(2 * W):
                end[span, g, m, q] = state[m, q]
        if ahead and length > 0:
            for h in range(g * W, min(g * W + W, y.shape[1])):
                y[begin, h] = 0


# -- the adjoint -----------------------------------------------------------------------------------


@part
def run_again(table, ids, n, back, x, start, states):  # type: ignore[no-untyped-def]
    """Forward once more, keeping the state before every sample, and the one after the last."""
    r, i = load(start, 0), load(start, W)
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
def pull_rows(rule, mode, times, n, table, grad, grad_mode):  # type: ignore[no-untyped-def]
    """From the gradients of rows of :func:`make_rows` to those of z and b, which are added to."""
    zr, zi, br, bi = load(mode, 0), load(mode, W), load(mode, 2 * W), load(mode, 3 * W)
    one, none = fill(mode, 1.0), fill(mode, 0.0)
    gzr, gzi = load(grad_mode, 0), load(grad_mode, W)
    gbr, gbi = load(grad_mode, 2 * W), load(grad_mode, 3 * W)
    if rule == ZOH:
        # sums of conj(r E) g_A, conj(r E) g_B and conj(E - 1) g_B, with E = e^(r z)
        ar = ai = sr = si = lr = li = none
        for t in range(n):
            g = t * 4 * W
            er, ei = load(table, g), load(table, g + W)
            gar, gai = convert(mode, load(grad, g)), convert(mode, load(grad, g + W))
            gnr, gni = convert(mode, load(grad, g + 2 * W)), convert(mode, load(grad, g + 3 * W))
            r = fill(mode, times[t])
            ar, ai = ar + r * (er * gar + ei * gai), ai + r * (er * gai - ei * gar)
            sr, si = sr + r * (er * gnr + ei * gni), si + r * (er * gni - ei * gnr)
            er = er - one
            lr, li = lr + (er * gnr + ei * gni), li + (er * gni - ei * gnr)
        # B = (b / z) (E - 1):  g_b = conj(1/z) L,  g_z = A + conj(b/z) S - conj(b/z^2) L
        scale = one / (zr * zr + zi * zi)
        wr, wi = zr * scale, zi * scale  # conj(1 / z)
        lr, li = lr * wr - li * wi, lr * wi + li * wr
        gbr, gbi = gbr + lr, gbi + li
        sr, si = sr - lr, si - li
        qr, qi = br * wr + bi * wi, br * wi - bi * wr  # conj(b) conj(1 / z)
        gzr, gzi = gzr + ar + (qr * sr - qi * si), gzi + ai + (qr * si + qi * sr)
    else:
        half = fill(mode, 0.5)
        for t in range(n):
            g = t * 4 * W
            wr, wi = half * (load(table, g) + one), half * load(table, g + W)
            gar, gai = convert(mode, load(grad, g)), convert(mode, load(grad, g + W))
            gnr, gni = convert(mode, load(grad, g + 2 * W)), convert(mode, load(grad, g + 3 * W))
            r = fill(mode, times[t])
            vr, vi = r * (br * gnr + bi * gni), r * (br * gni - bi * gnr)  # conj(r b) g_B
            vr, vi = vr + gar + gar, vi + gai + gai
            sr, si = wr * wr - wi * wi, wr * wi + wr * wi  # w^2
            scale = half * r
            gzr, gzi = gzr + scale * (sr * vr + si * vi), gzi + scale * (sr * vi - si * vr)
            gbr, gbi = gbr + r * (wr * gnr + wi * gni), gbi + r * (wr * gni - wi * gnr)
    store(grad_mode, 0, gzr)
    store(grad_mode, W, gzi)
    store(grad_mode, 2 * W, gbr)
    store(grad_mode, 3 * W, gbi)


@cached_njit(nogil=True)
def irregular_backward(  # type: ignore[no-untyped-def]
    first, last, ahead, chunk, rule, back, u, spans, which, gaps, tables, modes, C, D, before, kept,
    grad_y, grad_end, grad_u, grad_start, grad_before, grad_tables, grad_modes, grad_C, grad_D,
    room, narrow, ids, times, gs,
):  # fmt: skip
    """The adjoint of :func:`irregular_forward`; a task is ``chunk`` spans and a group.

    Gradients of tables, in the precision of u, and of modes, C and D, (chunks, ...), begin as zeros
    and are to be summed over the chunks. A segment is run forward again from the state kept at its
    start, then backward.
    """
    G, M, none = C.shape[0], C.shape[1], first - first
    size = SEGMENT * W
    x, out, own = room[: size + W], room[size + W : 2 * size + 2 * W], room[2 * size + 2 * W :]
    exact, d = narrow[: size + W], narrow[size + W : 2 * size + W]  # x as it came
    states = narrow[2 * size + W : 4 * size + 3 * W]
    grad_own = narrow[4 * size + 3 * W :]
    for q in range(2 * size + 2 * W):
        room[q] = 0
    for q in range(4 * size + 3 * W):
        narrow[q] = 0
    for task in range(first, last):
        some, g = task // G, task % G
        for span in range(some * chunk, min((some + 1) * chunk, spans.shape[0])):
            row, length = spans[span, 0], spans[span, 1]
            count = (length + SEGMENT - 1) // SEGMENT
            if row < 0 or length < 0 or row + length > u.shape[0]:
                raise ValueError(OUTSIDE)
            if row // SEGMENT + span + count > kept.shape[0]:
                raise ValueError(OUTSIDE)
            step = -1 if ahead else 1
            begin = row + length - 1 if ahead else row
            for m in range(M):
                for q in range(2 * W):
                    gs[m, q] = grad_end[span, g, m, q]
            for q in range(W):
                out[q] = 0
            for segment in range(count - 1, -1, -1):
                t0 = segment * SEGMENT
                n = min(SEGMENT, length - t0)
                inside = min(n, length - t0 - ahead)
                take_wide(u, begin + t0 * step, step, n, g * W, x[W:])
                for q in range(W):
                    x[q] = before[span, g, q]
                if t0 > 0:
                    take_wide(u, begin + (t0 - 1) * step, step, 1, g * W, x)
                for t in range(0, (n + 1) * W, W):
                    store(exact, t, convert(exact, load(x, t)))
                take_rows(grad_y, begin + (t0 + ahead) * step, step, inside, g * W, d, none)
                for c in range(inside * W, n * W):
                    d[c] = 0
                # what the sample after this segment has sent back to the last one in it
                for q in range(W):
                    late = out[q]
                    out[q] = 0
                    out[n * W + q] = late
                total = load(grad_D[some, g], 0)
                for t in range(n):
                    dy = convert(x, load(d, t * W))
                    total = total + dy * load(x, (t + 1) * W)
                    own_part = load(D[g], 0) * dy
                    if t == n - 1:
                        own_part = own_part + load(out, n * W)
                    store(out, (t + 1) * W, own_part)
                store(grad_D[some, g], 0, total)
                if rule < 0:
                    if not name_gaps(which, begin + t0 * step, step, n, tables.shape[2], ids):
                        raise ValueError(NO_GAP)
                else:
                    for t in range(n):
                        ids[t], times[t] = t, gaps[begin + (t0 + t) * step]
                for m in range(M):
                    begun = kept[row // SEGMENT + span + segment, g, m]
                    if rule < 0:
                        table, grad = tables[g, m].reshape(-1), grad_tables[some, g, m].reshape(-1)
                    else:
                        table, grad = own, grad_own
                        make_rows(rule, modes[g, m], times, n, own)
                        for q in range(n * 4 * W):
                            grad[q] = 0
                    run_again(table, ids, n, back, x, begun, states)
                    run_back(
                        table, ids, n, back, exact, d, C[g, m], states, gs[m], out,
                        grad_C[some, g, m], grad,
                    )  # fmt: skip
                    if rule >= 0:
                        pull_rows(rule, modes[g, m], times, n, own, grad, grad_modes[some, g, m])
                put_narrow(out[W:], begin + t0 * step, step, n, g * W, grad_u)
            for q in range(W):
                grad_before[span, g, q] = out[q]
            for m in range(M):
                for q in range(2 * W):
                    grad_start[span, g, m, q] = gs[m, q]
