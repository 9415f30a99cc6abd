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
from s4d_torch.ssm.compiled.irregular.steps_code import make_rows
from s4d_torch.ssm.compiled.runtime import LANES as W
from s4d_torch.ssm.compiled.vectors import convert, load, store

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
def read_gaps(rule, which, gaps, row, step, n, count, ids, times):  # type: ignore[no-untyped-def]
    """The rows of tables for n samples: of ``count`` that there are, or of those made for them."""
    for t in range(n):
        if rule >= 0:
            ids[t], times[t] = t, gaps[row + t * step]
            continue
        ids[t] = which[row + t * step]
        if ids[t] < 0 or ids[t] >= count:
            raise ValueError(NO_GAP)


@part
def run_segment(  # type: ignore[no-untyped-def]
    rule, back, tables, modes, C, ids, times, n, x, own, state, out
):
    """All modes of a group through n samples."""
    M = C.shape[0]
    m = M - M
    while m < M:
        if rule < 0 and not back and m + 1 < M:
            pair = tables[m].reshape(-1), tables[m + 1].reshape(-1)
            run_two_modes(*pair, ids, n, x, C[m:], state[m:], out)
            m += 2
            continue
        table = own
        if rule < 0:
            table = tables[m].reshape(-1)
        else:
            make_rows(rule, modes[m], times, n, own)
        run_mode(table, ids, n, back, x, C[m], state[m], out)
        m += 1


@cached_njit(nogil=True)
def irregular_forward(  # type: ignore[no-untyped-def]
    first, last, ahead, rule, back, u, spans, which, gaps, tables, modes, C, D, start, before,
    y, end, kept, room, ids, times, state,
):  # fmt: skip
    """Tasks first..last, each a span and a group; ``rule`` below 0 takes the tables.

    ``ahead`` runs from the end of a span and leaves each answer one place further. ``room``, in
    double precision, ``ids``, ``times`` (SEGMENT,) and ``state`` (M, 2 W) are to work in.
    """
    G, M, step = C.shape[0], C.shape[1], -1 if ahead else 1
    x, out = room[: (SEGMENT + 1) * W], room[(SEGMENT + 1) * W : (2 * SEGMENT + 1) * W]
    own = room[(2 * SEGMENT + 1) * W :]
    for q in range((2 * SEGMENT + 1) * W):
        room[q] = 0
    for task in range(first, last):
        span, g = task // G, task % G
        row, length = spans[span, 0], spans[span, 1]
        if row < 0 or length < 0 or row + length > u.shape[0]:
            raise ValueError(OUTSIDE)
        begin = row + length - 1 if ahead else row
        segment = row // SEGMENT + span
        for m in range(M):
            for q in range(2 * W):
                state[m, q] = start[span, g, m, q]
        for q in range(W):
            x[q] = before[span, g, q]
        for t0 in range(0, length, SEGMENT):
            n, here = min(SEGMENT, length - t0), begin + t0 * step
            if segment < kept.shape[0]:
                for m in range(M):
                    for q in range(2 * W):
                        kept[segment, g, m, q] = state[m, q]
            take_wide(u, here, step, n, g * W, x[W:])
            for t in range(n):
                store(out, t * W, load(D[g], 0) * load(x, (t + 1) * W))
            read_gaps(rule, which, gaps, here, step, n, tables.shape[2], ids, times)
            run_segment(rule, back, tables[g], modes[g], C[g], ids, times, n, x, own, state, out)
            for q in range(W):
                x[q] = x[n * W + q]
            segment += 1
            inside = min(n, length - t0 - ahead)  # the last answer ahead falls off the end
            put_narrow(out, here + ahead * step, step, inside, g * W, y)
        for m in range(M):
            for q in range(2 * W):
                end[span, g, m, q] = state[m, q]
        if ahead and length > 0:
            for h in range(g * W, min(g * W + W, y.shape[1])):
                y[begin, h] = 0
