"""Kernels to 50 digits, straight from the definitions, for the parameters a module stores.

Diagonal systems use mpmath alone. A DPLR system takes one step at a time, in integers that are
fixed-point numbers of 170 bits: mpmath would need hours for a length of 16384.
"""

from __future__ import annotations

from collections.abc import Sequence

import mpmath
import numpy as np
import torch
from mpmath import mp, mpc, mpf

from s4d_torch import SSM
from s4d_torch.ssm.constraint import BEST_OFFSET, FLOOR

DIGITS = 50
BITS = 170
CONSTRAINTS = {
    "exp": mpmath.exp,
    "relu": lambda raw: max(raw, mpf(0)) + mpf(FLOOR),
    "softplus": lambda raw: mpmath.log1p(mpmath.exp(raw)),
    "identity": lambda raw: raw,
    "best": lambda raw: 1 / (raw * raw + mpf(BEST_OFFSET)),
}


def exact(x: torch.Tensor) -> list[mpf]:
    return [mpf(value) for value in x.detach().double().flatten().tolist()]


def parts(raw: torch.Tensor) -> list[mpc]:
    return [mpc(re, im) for re, im in zip(exact(raw[..., 0]), exact(raw[..., 1]), strict=True)]


def discretize(rule: str, A: mpc, B: mpc, dt: mpf) -> tuple[mpc, mpc, mpc]:
    """``A_bar``, and what a sample adds to the output now and to the state for later."""
    z = dt * A
    if rule == "bilinear":
        A_bar, B_bar = (1 + z / 2) / (1 - z / 2), dt * B / (1 - z / 2)
        return A_bar, B_bar, A_bar * B_bar
    A_bar = mpmath.exp(z)
    if rule == "dirac":
        return A_bar, B, A_bar * B
    if rule == "zoh":
        B_bar = B * mpmath.expm1(z) / A
        return A_bar, B_bar, A_bar * B_bar
    assert rule == "foh"
    now = B * (mpmath.expm1(z) - z) / (A * z)  # integral of e^(A(dt-s)) s/dt
    before = B * mpmath.expm1(z) / A - now  # integral of e^(A(dt-s)) (1 - s/dt)
    return A_bar, now, A_bar * now + before


def diagonal_kernel(ssm: SSM, places: Sequence[int]) -> np.ndarray:
    """K of channel 0 at the given places."""
    with mp.workdps(DIGITS):
        method = ssm.method
        decay = [CONSTRAINTS[method.constraint](raw) for raw in exact(ssm.raw_decay[0])]
        if method.pairs:
            frequency, B, C = exact(ssm.frequency[0]), parts(ssm.raw_B[0]), parts(ssm.raw_C[0])
        else:
            frequency = [mpf(0)] * len(decay)
            B, C = exact(ssm.raw_B[0]), exact(ssm.raw_C[0])
        dt = mpmath.exp(exact(ssm.log_dt[:1])[0])
        kernel = [mpf(0)] * len(places)
        for re, im, b, c in zip(decay, frequency, B, C, strict=True):
            A = mpc(-re, im / dt if method.dt_scales == "decay" else im)
            A_bar, now, later = discretize(method.discretization, A, b, dt)
            weight = (2 if method.pairs else 1) * c
            if method.kernel == "softmax":
                weight /= mpmath.expm1(dt * A * method.softmax_length)
            for k, place in enumerate(places):
                term = weight * (now if place == 0 else later * A_bar ** (place - 1))
                kernel[k] += term.real
        return np.array([float(value) for value in kernel])


def low_rank_kernel(ssm: SSM, length: int) -> np.ndarray:
    """K of channel 0 of a DPLR system, all places, by the recurrence."""
    with mp.workdps(DIGITS):
        decay = [CONSTRAINTS[ssm.method.constraint](raw) for raw in exact(ssm.raw_decay[0])]
        A = [mpc(-re, im) for re, im in zip(decay, exact(ssm.frequency[0]), strict=True)]
        B, C = parts(ssm.raw_B[0]), parts(ssm.raw_C[0])
        P = [parts(row) for row in ssm.raw_P[0]]
        dt = mpmath.exp(exact(ssm.log_dt[:1])[0])
        d = [1 / (1 - dt / 2 * a) for a in A]
        core = mpmath.matrix(len(P), len(P))
        for i, p in enumerate(P):
            for j, q in enumerate(P):
                inner = mpmath.fsum(x.conjugate() * y * e for x, y, e in zip(p, q, d, strict=True))
                core[i, j] = (1 if i == j else 0) + dt * inner.real
        W = core**-1 * dt

        def solve(v: list[mpc]) -> list[mpc]:
            """``(I - dt/2 A)^-1 v``."""
            seen = [
                mpmath.fsum((x.conjugate() * e * s).real for x, e, s in zip(p, d, v, strict=True))
                for p in P
            ]
            weights = [mpmath.fsum(W[i, j] * seen[j] for j in range(len(P))) for i in range(len(P))]
            return [
                d[n] * (v[n] - mpmath.fsum(P[i][n] * weights[i] for i in range(len(P))))
                for n in range(len(v))
            ]

        state = solve([dt * b for b in B])
        left = [
            [
                2 * d[n] * mpmath.fsum(P[j][n] * W[j, i] for j in range(len(P)))
                for n in range(len(A))
            ]
            for i in range(len(P))
        ]
        right = [[x.conjugate() * e for x, e in zip(p, d, strict=True)] for p in P]
        return _iterate([2 * e - 1 for e in d], left, right, state, [2 * c for c in C], length)


def _iterate(
    diagonal: list[mpc],
    left: list[list[mpc]],
    right: list[list[mpc]],
    state: list[mpc],
    output: list[mpc],
    length: int,
) -> np.ndarray:
    """``Re(output s)`` while ``s <- diagonal s - left Re(right s)``, in fixed point."""

    def fixed(values: list[mpc]) -> tuple[np.ndarray, np.ndarray]:
        scale = mpf(2) ** BITS
        return (
            np.array([int(mpmath.nint(v.real * scale)) for v in values], dtype=object),
            np.array([int(mpmath.nint(v.imag * scale)) for v in values], dtype=object),
        )

    (ar, ai), (sr, si), (cr, ci) = fixed(diagonal), fixed(state), fixed(output)
    lefts, rights = [fixed(row) for row in left], [fixed(row) for row in right]
    kernel = np.empty(length)
    for step in range(length):
        kernel[step] = float(mpf((np.dot(cr, sr) - np.dot(ci, si)) >> BITS) / mpf(2) ** BITS)
        low = [(np.dot(rr, sr) - np.dot(ri, si)) >> BITS for rr, ri in rights]
        nr, ni = ar * sr - ai * si, ar * si + ai * sr
        for (lr, li), seen in zip(lefts, low, strict=True):
            nr, ni = nr - lr * seen, ni - li * seen
        sr, si = nr >> BITS, ni >> BITS
    return kernel
