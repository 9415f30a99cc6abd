"""Steps of some gaps, made on the way: rows of a table for one mode, and the adjoint.

    rule zoh         A = e^(r z),  B = (b / z) (e^(r z) - 1)
    rule bilinear    A = 2 w - 1,  B = r b w,  w = 1 / (1 - r z / 2)

with ``z = dt A`` and ``b = dt B`` of the mode, (4 W,), and the gap r. A row has 4 W numbers: A and
B, of each the real parts first.
"""

from s4d_torch.ssm.compiled.code_cache import cached_njit, part
from s4d_torch.ssm.compiled.irregular.complex_math import complex_expm1
from s4d_torch.ssm.compiled.runtime import LANES as W
from s4d_torch.ssm.compiled.vectors import convert, fill, load, store
from s4d_torch.ssm.discretization import ZOH


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
def steps_forward(first, last, rule, modes, gaps, tables):  # type: ignore[no-untyped-def]
    """The tables (G, M, gaps, 4 W) of groups first..last, from modes (G, M, 4 W)."""
    for g in range(first, last):
        for m in range(modes.shape[1]):
            make_rows(rule, modes[g, m], gaps, gaps.shape[0], tables[g, m].reshape(-1))


@cached_njit(nogil=True)
def steps_backward(  # type: ignore[no-untyped-def]
    first, last, rule, modes, gaps, tables, grad_tables, grad_modes
):
    """The adjoint of :func:`steps_forward`; ``grad_modes`` begins as zeros."""
    for g in range(first, last):
        for m in range(modes.shape[1]):
            table, grad = tables[g, m].reshape(-1), grad_tables[g, m].reshape(-1)
            pull_rows(rule, modes[g, m], gaps, gaps.shape[0], table, grad, grad_modes[g, m])
