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

from s4d_torch.ssm.compiled.code_cache import cached_njit, part
from s4d_torch.ssm.compiled.runtime import LANES as W
from s4d_torch.ssm.compiled.tables import SEGMENT
from s4d_torch.ssm.constraint import BEST, BEST_OFFSET, EXP, FLOOR, RELU, SOFTPLUS
from s4d_torch.ssm.discretization import BILINEAR, DIRAC, FOH, ZOH


@part
def decay_of(constraint, raw):  # type: ignore[no-untyped-def]
    if constraint == EXP:
        return math.exp(raw)
    if constraint == RELU:
        return max(raw, 0.0) + FLOOR
    if constraint == SOFTPLUS:
        return max(raw, 0.0) + math.log1p(math.exp(-abs(raw)))
    if constraint == BEST:
        return 1 / (raw * raw + BEST_OFFSET)
    return raw


@part
def decay_slope(constraint, raw, decay):  # type: ignore[no-untyped-def]
    if constraint == EXP:
        return decay
    if constraint == RELU:
        return 1.0 if raw > 0 else 0.0
    if constraint == SOFTPLUS:
        return 1 / (1 + math.exp(-raw))
    if constraint == BEST:
        return -2 * raw * decay * decay
    return 1.0


@part
def reciprocal(z):  # type: ignore[no-untyped-def]
    """``1 / z`` without the care for overflow that makes a complex division slow."""
    scale = 1 / (z.real * z.real + z.imag * z.imag)
    return complex(z.real * scale, -z.imag * scale)


@part
def phi(z, exp_z):  # type: ignore[no-untyped-def]
    """``phi1, phi2`` and their derivatives: ``phi1 = (e^z - 1)/z``, ``phi2 = (phi1 - 1)/z``."""
    if z.real * z.real + z.imag * z.imag < 0.25:
        r, i = 1.0, 0.0  # 6 phi3 = 1 + z/4 (1 + z/5 (1 + z/6 ...))
        for k in range(17, 3, -1):
            scale = 1.0 / k
            r, i = 1 + scale * (r * z.real - i * z.imag), scale * (r * z.imag + i * z.real)
        third = complex(r / 6, i / 6)
        second = 0.5 + z * third
        first = 1 + z * second
    else:
        w = reciprocal(z)
        first = (exp_z - 1) * w
        second = (first - 1) * w
        third = (second - 0.5) * w
    # phi1' = phi1 - phi2, phi2' = phi2 - 2 phi3
    return first, second, first - second, second - 2 * third


@part
def discretize(rule, A, dt):  # type: ignore[no-untyped-def]
    """``A_bar``, and the factors of ``dt B`` that enter now and later."""
    if rule == BILINEAR:
        w = reciprocal(1 - 0.5 * dt * A)
        return 2 * w - 1, w, (2 * w - 1) * w
    z = dt * A
    size = math.exp(z.real)
    a = complex(size * math.cos(z.imag), size * math.sin(z.imag))
    if rule == DIRAC:  # B enters as it is
        return a, complex(1 / dt, 0.0), a / dt
    first, second, _, _ = phi(z, a)
    if rule == ZOH:
        return a, first, a * first
    return a, second, first * first


@part
def pull_back(rule, A, dt, g_a, g_now, g_later):  # type: ignore[no-untyped-def]
    """The gradient with respect to ``dt A`` from those of :func:`discretize`."""
    if rule == BILINEAR:
        w = reciprocal(1 - 0.5 * dt * A)
        g_w = 2 * g_a + g_now + (4 * w - 1).conjugate() * g_later
        return 0.5 * (w * w).conjugate() * g_w
    z = dt * A
    size = math.exp(z.real)
    a = complex(size * math.cos(z.imag), size * math.sin(z.imag))
    if rule == DIRAC:
        return a.conjugate() * (g_a + g_later / dt)
    first, _, slope1, slope2 = phi(z, a)
    if rule == ZOH:
        g = a.conjugate() * (g_a + first.conjugate() * g_later)
        return g + slope1.conjugate() * (g_now + a.conjugate() * g_later)
    g = a.conjugate() * g_a + slope2.conjugate() * g_now
    return g + (2 * first * slope1).conjugate() * g_later


@part
def store_mode(  # type: ignore[no-untyped-def]
    rule, constraint, A, B, dt, now, later, g_a, g_now, g_next, raw, g_decay, g_frequency, g_B, n
):
    """From gradients of A_bar, B_now, B_next to those of the stored A and B; returns that of dt.

    Those of A and B are for this channel alone, which may share them with others.
    """
    g_bt = now.conjugate() * g_now + later.conjugate() * g_next  # of dt B
    bt = (dt * B).conjugate()
    g_z = pull_back(rule, A, dt, g_a, bt * g_now, bt * g_next)
    g_decay[n] = -dt * g_z.real * decay_slope(constraint, raw, -A.real)
    g_frequency[n] = dt * g_z.imag
    g_B[n, 0] = dt * g_bt.real
    g_B[n, 1] = dt * g_bt.imag
    of_A = (A.conjugate() * g_z).real
    return of_A if rule == DIRAC else of_A + (B.conjugate() * g_bt).real


@part
def before_of(rule, a, now, later):  # type: ignore[no-untyped-def]
    """The factor of ``dt B`` that enters from the sample before: nothing, for most rules."""
    return later - a * now if rule == FOH else complex(0.0, 0.0)


@part
def outputs_at(z, lane, j):  # type: ignore[no-untyped-def]
    return complex(z[lane + (2 + j) * W], -z[lane + (6 + j) * W])


@part
def inputs_at(z, lane, j):  # type: ignore[no-untyped-def]
    return complex(z[lane + (10 + j) * W], z[lane + (14 + j) * W])


@part
def through_powers(g, ac, n):  # type: ignore[no-untyped-def]
    """The gradient of A_bar from those of its first three powers; ``ac`` is its conjugate."""
    g1, g2 = complex(g[0, n, 0], g[0, n, 1]), complex(g[1, n, 0], g[1, n, 1])
    return g1 + ac * (2 * g2 + 3 * ac * complex(g[2, n, 0], g[2, n, 1]))


@cached_njit(nogil=True)
def tables_forward(  # type: ignore[no-untyped-def]
    low, high, options, rate, decay, frequency, B, C, log_dt, D, tables, kernel, drift, carry, ends
):
    """Fill the tables of groups low..high; see ``tables.ScanTables`` for their layout.

    options = (rule, constraint, pairs); decay, frequency (sets, modes); B (sets, modes, 2),
    C (H, modes, 2) and log_dt, D (H,), as stored.
    """
    rule, constraint, pairs = options
    sets, modes = decay.shape
    channels = log_dt.shape[0]
    steps = SEGMENT // 4  # blocks in a segment
    for h in range(low * W, min(high * W, channels)):
        g, lane = h // W, h % W
        dt = math.exp(np.float64(log_dt[h])) * rate
        s = h * sets // channels
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
            third, power = a2 * a, a2 * a2
            before = b0 * before_of(rule, a, now, later)
            ends[h, 0, n, 0], ends[h, 0, n, 1] = a.real, a.imag
            ends[h, 1, n, 0], ends[h, 1, n, 1] = a2.real, a2.imag
            ends[h, 2, n, 0], ends[h, 2, n, 1] = third.real, third.imag
            ends[h, 3, n, 0], ends[h, 3, n, 1] = (b0 * now).real, (b0 * now).imag
            ends[h, 4, n, 0], ends[h, 4, n, 1] = before.real, before.imag
            z = tables[g, n]
            z[lane], z[W + lane] = power.real, power.imag
            v, r = c, b
            for j in range(4):
                z[(2 + j) * W + lane], z[(6 + j) * W + lane] = v.real, -v.imag
                z[(13 - j) * W + lane], z[(17 - j) * W + lane] = r.real, r.imag
                v, r = v * a, r * a
            cb = c * b
            k1 += cb.real
            k2 += (cb * a).real
            k3 += (cb * a2).real
            whole = power
            for _ in range(6):  # power^steps
                whole = whole * whole
            carry[g, n, lane], carry[g, n, W + lane] = whole.real, whole.imag
            rounded = complex(np.float64(z[lane]), np.float64(z[W + lane]))
            turn = complex(0.0, 0.0)
            if rounded.real * rounded.real + rounded.imag * rounded.imag > 1e-12:
                # (power / rounded)^steps - 1, of a ratio that is 1 to rounding
                error = (power - rounded) * reciprocal(rounded)
                turn = steps * error + 0.5 * steps * (steps - 1) * error * error
            drift[g, n, lane], drift[g, n, W + lane] = turn.real, turn.imag
        kernel[g, lane], kernel[g, W + lane] = k0 + D[h], k1
        kernel[g, 2 * W + lane], kernel[g, 3 * W + lane] = k2, k3


@cached_njit(nogil=True)
def tables_backward(  # type: ignore[no-untyped-def]
    low, high, options, rate, decay, frequency, B, C, log_dt, D, g_tables, g_kernel, g_ends,
    g_decay, g_frequency, g_B, g_C, g_log_dt,
):  # fmt: skip
    """The adjoint of :func:`tables_forward`: gradients for each channel of groups low..high."""
    rule, constraint, pairs = options
    sets, modes = decay.shape
    channels = log_dt.shape[0]
    for h in range(low * W, min(high * W, channels)):
        g, lane = h // W, h % W
        dt = math.exp(np.float64(log_dt[h])) * rate
        s = h * sets // channels
        k0, k1 = g_kernel[g, lane], g_kernel[g, W + lane]
        k2, k3 = g_kernel[g, 2 * W + lane], g_kernel[g, 3 * W + lane]
        g_dt = 0.0
        for n in range(modes):
            A = complex(-decay_of(constraint, np.float64(decay[s, n])), np.float64(frequency[s, n]))
            a, now, later = discretize(rule, A, dt)
            b0 = complex(np.float64(B[s, n, 0]), np.float64(B[s, n, 1]))
            c = complex(np.float64(C[h, n, 0]), np.float64(C[h, n, 1]))
            scale = 2.0 if pairs else 1.0
            ac, cc, bc = a.conjugate(), scale * c.conjugate(), (dt * b0 * later).conjugate()
            z = g_tables[g, n]
            # outputs_j are stored as their conjugates; A_bar^j B are inputs_(3-j)
            o0, r0 = outputs_at(z, lane, 0), inputs_at(z, lane, 3)
            o1, r1 = outputs_at(z, lane, 1), inputs_at(z, lane, 2)
            o2, r2 = outputs_at(z, lane, 2), inputs_at(z, lane, 1)
            o3, r3 = outputs_at(z, lane, 3), inputs_at(z, lane, 0)
            g_power = complex(z[lane], z[W + lane])
            kc = k1 + ac * (k2 + ac * k3)
            g_c = o0 + ac * (o1 + ac * (o2 + ac * o3)) + bc * kc
            g_b = r0 + ac * (r1 + ac * (r2 + ac * r3)) + cc * kc
            g_a = (
                cc * (o1 + ac * (2 * o2 + 3 * ac * o3))
                + bc * (r1 + ac * (2 * r2 + 3 * ac * r3))
                + cc * bc * (k2 + 2 * ac * k3)
                + 4 * ac * ac * ac * g_power
                + through_powers(g_ends[h], ac, n)
            )
            g_c += (dt * b0 * now).conjugate() * k0
            g_now = cc * k0 + complex(g_ends[h, 3, n, 0], g_ends[h, 3, n, 1])
            if rule == FOH:  # B_before = B_next - A_bar B_now
                g_before = complex(g_ends[h, 4, n, 0], g_ends[h, 4, n, 1])
                g_b += g_before
                g_now -= ac * g_before
                g_a -= (dt * b0 * now).conjugate() * g_before
            g_dt += store_mode(
                rule, constraint, A, b0, dt, now, later, g_a, g_now, g_b,
                np.float64(decay[s, n]), g_decay[h], g_frequency[h], g_B[h], n,
            )  # fmt: skip
            g_C[h, n, 0] = scale * g_c.real
            g_C[h, n, 1] = scale * g_c.imag
        g_log_dt[h] = g_dt * dt
