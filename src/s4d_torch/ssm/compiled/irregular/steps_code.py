"""Steps of some gaps, made on the way: rows of a table for one mode, and the adjoint.

    rule zoh         A = e^(r z),  B = (b / z) (e^(r z) - 1)
    rule bilinear    A = 2 w - 1,  B = r b w,  w = 1 / (1 - r z / 2)
    rule dirac       A = e^(r z),  B = b
    rule foh         A = e^(r z),  B = (b / z) (p - 1),  F = (b / z) (A - p),  p = (A - 1) / (r z)

with ``z = dt A`` and ``b = dt B`` of the mode (for dirac b is B), (4 W,), and the gap r. A row has
4 W numbers, A and B, of each the real parts first, or 6 W with F. Where r z is small, p - 1 has
lost as many digits as that has zeros: enough are left for signals in single precision.
"""

from s4d_torch.ssm.compiled.code_cache import cached_njit, part
from s4d_torch.ssm.compiled.irregular.complex_math import complex_expm1
from s4d_torch.ssm.compiled.runtime import LANES as W
from s4d_torch.ssm.compiled.vectors import convert, fill, load, store
from s4d_torch.ssm.discretization import DIRAC, FOH, ZOH


@part
def make_foh_rows(mode, times, n, table):  # type: ignore[no-untyped-def]
    """The rows of a first-order hold, 6 W numbers each."""
    zr, zi, br, bi = load(mode, 0), load(mode, W), load(mode, 2 * W), load(mode, 3 * W)
    one = fill(mode, 1.0)
    scale = one / (zr * zr + zi * zi)
    hr, hi = zr * scale, (zi - zi - zi) * scale  # 1 / z
    qr, qi = br * hr - bi * hi, br * hi + bi * hr  # b / z
    for t in range(n):
        r, part = fill(mode, times[t]), fill(mode, 1 / times[t])
        er, ei = complex_expm1(zr * r, zi * r)
        pr, pi = part * (er * hr - ei * hi), part * (er * hi + ei * hr)
        er, row = er + one, t * 6 * W
        store(table, row, er)
        store(table, row + W, ei)
        fr, fi = er - pr, ei - pi
        pr = pr - one
        store(table, row + 2 * W, qr * pr - qi * pi)
        store(table, row + 3 * W, qr * pi + qi * pr)
        store(table, row + 4 * W, qr * fr - qi * fi)
        store(table, row + 5 * W, qr * fi + qi * fr)


@part
def pull_foh_rows(mode, times, n, table, grad, grad_mode):  # type: ignore[no-untyped-def]
    """The adjoint of :func:`make_foh_rows`.

    With E = A, h = 1/z: dA/dz = r E, dB/dz = b h^2 (E - 2 p + 1), dF/dz = b h (r E - 2 h (E - p)).
    """
    zr, zi, br, bi = load(mode, 0), load(mode, W), load(mode, 2 * W), load(mode, 3 * W)
    one, none = fill(mode, 1.0), fill(mode, 0.0)
    scale = one / (zr * zr + zi * zi)
    hr, hi = zr * scale, (none - zi) * scale
    # sums of conj(r E) g_A, conj(r E) g_F, conj(E - 2p + 1) g_B - 2 conj(E - p) g_F,
    # and conj(p - 1) g_B + conj(E - p) g_F
    ar = ai = sr = si = kr = ki = lr = li = none
    for t in range(n):
        g = t * 6 * W
        r, part = fill(mode, times[t]), fill(mode, 1 / times[t])
        er, ei = load(table, g), load(table, g + W)
        gar, gai = convert(mode, load(grad, g)), convert(mode, load(grad, g + W))
        gnr, gni = convert(mode, load(grad, g + 2 * W)), convert(mode, load(grad, g + 3 * W))
        gfr, gfi = convert(mode, load(grad, g + 4 * W)), convert(mode, load(grad, g + 5 * W))
        ar, ai = ar + r * (er * gar + ei * gai), ai + r * (er * gai - ei * gar)
        sr, si = sr + r * (er * gfr + ei * gfi), si + r * (er * gfi - ei * gfr)
        less = er - one
        pr, pi = part * (less * hr - ei * hi), part * (less * hi + ei * hr)
        fr, fi = er - pr, ei - pi  # E - p
        pr = pr - one  # p - 1
        lr, li = lr + (pr * gnr + pi * gni), li + (pr * gni - pi * gnr)
        wr, wi = fr * gfr + fi * gfi, fr * gfi - fi * gfr
        lr, li = lr + wr, li + wi
        pr, pi = fr - pr, fi - pi
        kr = kr + (pr * gnr + pi * gni) - (wr + wr)
        ki = ki + (pr * gni - pi * gnr) - (wi + wi)
    hi = none - hi  # conj(h)
    store(grad_mode, 2 * W, load(grad_mode, 2 * W) + (hr * lr - hi * li))
    store(grad_mode, 3 * W, load(grad_mode, 3 * W) + (hr * li + hi * lr))
    sr, si = sr + (hr * kr - hi * ki), si + (hr * ki + hi * kr)
    qr, qi = br * hr + bi * hi, br * hi - bi * hr  # conj(b) conj(h)
    store(grad_mode, 0, load(grad_mode, 0) + ar + (qr * sr - qi * si))
    store(grad_mode, W, load(grad_mode, W) + ai + (qr * si + qi * sr))


@part
def make_rows(rule, mode, times, n, table):  # type: ignore[no-untyped-def]
    """The rows of a table for one mode and n gaps."""
    if rule == FOH:
        make_foh_rows(mode, times, n, table)
        return
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
    if rule == DIRAC:
        for t in range(n):
            r = fill(mode, times[t])
            er, ei = complex_expm1(zr * r, zi * r)
            store(table, t * 4 * W, er + one)
            store(table, t * 4 * W + W, ei)
            store(table, t * 4 * W + 2 * W, br)
            store(table, t * 4 * W + 3 * W, bi)
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
    if rule == FOH:
        pull_foh_rows(mode, times, n, table, grad, grad_mode)
        return
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
    elif rule == DIRAC:
        for t in range(n):
            g = t * 4 * W
            er, ei = load(table, g), load(table, g + W)
            gar, gai = convert(mode, load(grad, g)), convert(mode, load(grad, g + W))
            r = fill(mode, times[t])
            gzr, gzi = gzr + r * (er * gar + ei * gai), gzi + r * (er * gai - ei * gar)
            gbr = gbr + convert(mode, load(grad, g + 2 * W))
            gbi = gbi + convert(mode, load(grad, g + 3 * W))
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
