"""From stored parameters to the tables of the compiled scan, and back, in one pass over the modes.

The same mathematics as ``constraint``, ``discretization`` and ``tables.make_tables``, written out
for one mode at a time; the tests hold both to each other. For short sequences the many small tensor
operations of that path take longer than the scan itself. A rule or constraint without code here
takes that path.

Gradients of complex values are ``dL/d(re) + i dL/d(im)``: through ``w = f(v)`` they pull back as
``conj(f'(v)) g``.
"""

import math

import numpy as np

from s4d_torch.ssm.compiled.code_cache import cached_njit
from s4d_torch.ssm.constraint import EXP, FLOOR, RELU, SOFTPLUS
from s4d_torch.ssm.discretization import BILINEAR, ZOH


@cached_njit(nogil=True, inline="always")
def decay_of(constraint, raw):  # type: ignore[no-untyped-def]
    if constraint == EXP:
        return math.exp(raw)
    if constraint == RELU:
        return max(raw, 0.0) + FLOOR
    if constraint == SOFTPLUS:
        return max(raw, 0.0) + math.log1p(math.exp(-abs(raw)))
    return raw


@cached_njit(nogil=True, inline="always")
def decay_slope(constraint, raw, decay):  # type: ignore[no-untyped-def]
    if constraint == EXP:
        return decay
    if constraint == RELU:
        return 1.0 if raw > 0 else 0.0
    if constraint == SOFTPLUS:
        return 1 / (1 + math.exp(-raw))
    return 1.0


@cached_njit(nogil=True)
def reciprocal(z):  # type: ignore[no-untyped-def]
    """``1 / z`` without the care for overflow that makes a complex division slow."""
    scale = 1 / (z.real * z.real + z.imag * z.imag)
    return complex(z.real * scale, -z.imag * scale)


@cached_njit(nogil=True)
def phi(z, exp_z):  # type: ignore[no-untyped-def]
    """``phi1, phi2`` and their derivatives: ``phi1 = (e^z - 1)/z``, ``phi2 = (phi1 - 1)/z``."""
    if z.real * z.real + z.imag * z.imag < 0.25:
        first = second = third = 0j  # sum z^k/(k+1)!, z^k/(k+2)!, z^k/(k+3)!
        term = complex(1.0, 0.0)
        for k in range(15):
            first += term / (k + 1)
            second += term / ((k + 1) * (k + 2))
            third += term / ((k + 1) * (k + 2) * (k + 3))
            term = term * z / (k + 1)
    else:
        w = reciprocal(z)
        first = (exp_z - 1) * w
        second = (first - 1) * w
        third = (second - 0.5) * w
    # phi1' = phi1 - phi2, phi2' = phi2 - 2 phi3
    return first, second, first - second, second - 2 * third


@cached_njit(nogil=True)
def discretize(rule, A, dt):  # type: ignore[no-untyped-def]
    """``A_bar``, and the factors of ``dt B`` that enter now and later."""
    if rule == BILINEAR:
        w = reciprocal(1 - 0.5 * dt * A)
        return 2 * w - 1, w, (2 * w - 1) * w
    z = dt * A
    size = math.exp(z.real)
    a = complex(size * math.cos(z.imag), size * math.sin(z.imag))
    first, second, _, _ = phi(z, a)
    if rule == ZOH:
        return a, first, a * first
    return a, second, first * first


@cached_njit(nogil=True)
def pull_back(rule, A, dt, g_a, g_now, g_later):  # type: ignore[no-untyped-def]
    """The gradient with respect to ``dt A`` from those of :func:`discretize`."""
    if rule == BILINEAR:
        w = reciprocal(1 - 0.5 * dt * A)
        g_w = 2 * g_a + g_now + (4 * w - 1).conjugate() * g_later
        return 0.5 * (w * w).conjugate() * g_w
    z = dt * A
    size = math.exp(z.real)
    a = complex(size * math.cos(z.imag), size * math.sin(z.imag))
    first, _, slope1, slope2 = phi(z, a)
    if rule == ZOH:
        g = a.conjugate() * (g_a + first.conjugate() * g_later)
        return g + slope1.conjugate() * (g_now + a.conjugate() * g_later)
    g = a.conjugate() * g_a + slope2.conjugate() * g_now
    return g + (2 * first * slope1).conjugate() * g_later


@cached_njit(nogil=True)
def store_mode(  # type: ignore[no-untyped-def]
    rule, constraint, A, B, dt, now, later, g_a, g_now, g_next, raw, g_decay, g_frequency, g_B, n
):
    """From gradients of A_bar, B_now, B_next to those of the stored A and B; returns that of dt."""
    g_bt = now.conjugate() * g_now + later.conjugate() * g_next  # of dt B
    bt = (dt * B).conjugate()
    g_z = pull_back(rule, A, dt, g_a, bt * g_now, bt * g_next)
    g_decay[n] -= dt * g_z.real * decay_slope(constraint, raw, -A.real)
    g_frequency[n] += dt * g_z.imag
    g_B[n, 0] += dt * g_bt.real
    g_B[n, 1] += dt * g_bt.imag
    return (B.conjugate() * g_bt).real + (A.conjugate() * g_z).real


@cached_njit(nogil=True)
def through_powers(g, ac, n, M):  # type: ignore[no-untyped-def]
    """The gradient of A_bar from those of its first three powers; ``ac`` is its conjugate."""
    g1, g2 = complex(g[0, n], g[0, M + n]), complex(g[1, n], g[1, M + n])
    return g1 + ac * (2 * g2 + 3 * ac * complex(g[2, n], g[2, M + n]))


@cached_njit(nogil=True)
def tables_forward(  # type: ignore[no-untyped-def]
    low, high, options, rate, decay, frequency, B, C, log_dt, D, tables, kernel, drift, carry, first
):
    """Fill the tables of channels low..high; see ``tables.ScanTables`` for their layout.

    options = (rule, constraint, pairs); decay, frequency (sets, modes); B (sets, modes, 2),
    C (H, modes, 2) and log_dt, D (H,), as stored.
    """
    rule, constraint, pairs = options
    sets, modes = decay.shape
    channels = log_dt.shape[0]
    M = tables.shape[1] // 18
    S = 2 * M
    steps = 64  # blocks in a segment
    for h in range(low, high):
        dt = math.exp(np.float64(log_dt[h])) * rate
        s = h * sets // channels
        for q in range(9 * S):
            tables[h, q] = 0
        for q in range(S):
            drift[h, q] = carry[h, q] = first[h, 0, q] = first[h, 1, q] = first[h, 2, q] = 0
        k0 = k1 = k2 = k3 = 0.0
        for n in range(modes):
            A = complex(-decay_of(constraint, np.float64(decay[s, n])), np.float64(frequency[s, n]))
            a, now, later = discretize(rule, A, dt)
            b0 = dt * complex(np.float64(B[s, n, 0]), np.float64(B[s, n, 1]))
            b = b0 * later
            c = complex(np.float64(C[h, n, 0]), np.float64(C[h, n, 1]))
            if pairs:
                c = 2 * c
            k0 += (c * b0 * now).real
            a2 = a * a
            power = a2 * a2
            tables[h, n], tables[h, M + n] = power.real, power.imag
            first[h, 0, n], first[h, 0, M + n] = a.real, a.imag
            first[h, 1, n], first[h, 1, M + n] = a2.real, a2.imag
            third = a2 * a
            first[h, 2, n], first[h, 2, M + n] = third.real, third.imag
            v = c
            r = b
            for j in range(4):
                tables[h, (1 + j) * S + n], tables[h, (1 + j) * S + M + n] = v.real, -v.imag
                tables[h, (8 - j) * S + n], tables[h, (8 - j) * S + M + n] = r.real, r.imag
                v = v * a
                r = r * a
            cb = c * b
            k1 += cb.real
            k2 += (cb * a).real
            k3 += (cb * a2).real
            whole = power
            for _ in range(6):  # power^steps
                whole = whole * whole
            carry[h, n], carry[h, M + n] = whole.real, whole.imag
            rounded = complex(tables[h, n], tables[h, M + n])
            if rounded.real * rounded.real + rounded.imag * rounded.imag > 1e-12:
                # (power / rounded)^steps - 1, of a ratio that is 1 to rounding
                error = (power - rounded) * reciprocal(rounded)
                turn = steps * error + 0.5 * steps * (steps - 1) * error * error
                drift[h, n], drift[h, M + n] = turn.real, turn.imag
        kernel[h, 0], kernel[h, 1], kernel[h, 2], kernel[h, 3] = k0 + D[h], k1, k2, k3


@cached_njit(nogil=True)
def tables_backward(  # type: ignore[no-untyped-def]
    low, high, options, rate, decay, frequency, B, C, log_dt, D, g_tables, g_kernel, g_first,
    g_decay, g_frequency, g_B, g_C, g_log_dt,
):  # fmt: skip
    """The adjoint of :func:`tables_forward`: gradients in float64, for channels low..high."""
    rule, constraint, pairs = options
    sets, modes = decay.shape
    channels = log_dt.shape[0]
    M = g_tables.shape[1] // 18
    S = 2 * M
    o = np.zeros(4, np.complex128)
    r = np.zeros(4, np.complex128)
    for h in range(low, high):
        dt = math.exp(np.float64(log_dt[h])) * rate
        s = h * sets // channels
        k0, k1, k2, k3 = g_kernel[h, 0], g_kernel[h, 1], g_kernel[h, 2], g_kernel[h, 3]
        g_dt = 0.0
        for n in range(modes):
            A = complex(-decay_of(constraint, np.float64(decay[s, n])), np.float64(frequency[s, n]))
            a, now, later = discretize(rule, A, dt)
            b0 = complex(np.float64(B[s, n, 0]), np.float64(B[s, n, 1]))
            c = complex(np.float64(C[h, n, 0]), np.float64(C[h, n, 1]))
            scale = 2.0 if pairs else 1.0
            ac, cc, bc = a.conjugate(), scale * c.conjugate(), (dt * b0 * later).conjugate()
            for j in range(4):
                o[j] = complex(g_tables[h, (1 + j) * S + n], -g_tables[h, (1 + j) * S + M + n])
                r[j] = complex(g_tables[h, (8 - j) * S + n], g_tables[h, (8 - j) * S + M + n])
            g_power = complex(g_tables[h, n], g_tables[h, M + n])
            kc = k1 + ac * (k2 + ac * k3)
            g_c = o[0] + ac * (o[1] + ac * (o[2] + ac * o[3])) + bc * kc
            g_b = r[0] + ac * (r[1] + ac * (r[2] + ac * r[3])) + cc * kc
            g_a = (
                cc * (o[1] + ac * (2 * o[2] + 3 * ac * o[3]))
                + bc * (r[1] + ac * (2 * r[2] + 3 * ac * r[3]))
                + cc * bc * (k2 + 2 * ac * k3)
                + 4 * ac * ac * ac * g_power
                + through_powers(g_first[h], ac, n, M)
            )
            g_c += (dt * b0 * now).conjugate() * k0
            g_dt += store_mode(
                rule, constraint, A, b0, dt, now, later, g_a, cc * k0, g_b,
                np.float64(decay[s, n]), g_decay[s], g_frequency[s], g_B[s], n,
            )  # fmt: skip
            g_C[h, n, 0] = scale * g_c.real
            g_C[h, n, 1] = scale * g_c.imag
        g_log_dt[h] = g_dt * dt
