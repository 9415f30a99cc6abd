"""Basis functions of HiPPO systems, whole and without their low-rank term.

The numbers behind the figures and the claims; all float64 on the CPU.
"""

import math
from functools import cache

import torch
from torch import Tensor

from s4d_torch.ssm.discretization import DISCRETIZATIONS, phi1
from s4d_torch.ssm.hippo import HIPPO, Modes, diagonalize, legs_basis
from s4d_torch.ssm.kernel import vandermonde


@cache
def legs_modes(d_state: int) -> Modes:
    """The modes of LegS without its low-rank term; kept, since N = 1024 takes a second or two."""
    return diagonalize(HIPPO["legs"](d_state))


def legs_without_low_rank(d_state: int, count: int, t: Tensor, *, window: float = 0.0) -> Tensor:
    """Functions of the basis of ``(A^(N), B/2)``, or means over [t, t + window]; (count, times)."""
    modes = legs_modes(d_state)
    L = modes.Lambda[:, None]
    factor = torch.exp(L * t) * phi1(window * L)
    return ((modes.V[:count] * modes.B) @ factor).real  # twice the real part, with B / 2


def legs_discrete(d_state: int, count: int, dt: float, length: int, rule: str) -> Tensor:
    """The same basis discretised, at :func:`step_times`, divided by dt; (count, length)."""
    modes = legs_modes(d_state)
    step = DISCRETIZATIONS[rule](
        modes.Lambda[None], modes.B[None] / 2, torch.tensor([[dt]], dtype=torch.float64)
    )
    return vandermonde(step, modes.V[:count, None], length)[:, 0] / dt


def step_times(dt: float, length: int) -> Tensor:
    """The middle of each step, (length,)."""
    return (torch.arange(length, dtype=torch.float64) + 0.5) * dt


def mean_legs_basis(count: int, t: Tensor, window: float, points: int = 65) -> Tensor:
    """The LegS basis as the mean over the time from t to t + window; (count, times)."""
    fine = torch.linspace(0, window, points, dtype=torch.float64)
    values = legs_basis(max(count, 2), t[:, None] + fine)[:count]
    return torch.trapezoid(values, fine, dim=-1) / window


def dense_basis(A: Tensor, B: Tensor, dt: float, steps: int, count: int) -> Tensor:
    """``e^(tA) B`` at t = 0, dt, ... steps dt; A (..., N, N), B (N,) -> (..., count, steps + 1)."""
    step = torch.matrix_exp(A * dt)
    x = B.expand(A.shape[:-1])[..., None]
    values = [x[..., :count, 0]]
    for _ in range(steps):
        x = step @ x
        values.append(x[..., :count, 0])
    return torch.stack(values, dim=-1)


def perturbed_legs(sigma: float, draws: Tensor) -> Tensor:
    """``A + P P^T`` for P of deviation sigma; ``draws`` (draws, N) is normal -> (draws, N, N)."""
    P = sigma * draws
    return HIPPO["legs"](draws.shape[-1]).A + P[:, :, None] * P[:, None, :]


def fout_without_low_rank(d_state: int, t: Tensor, count: int) -> Tensor:
    """The basis of FouT's normal part in closed form: ``B_2k (cos, sin)(pi k t)``, for ever."""
    hippo = HIPPO["fout"](d_state)
    k = torch.arange(d_state // 2, dtype=torch.float64)[:, None]
    angle = torch.pi * k * t
    waves = torch.stack([angle.cos(), angle.sin()], dim=1)  # (N/2, 2, times)
    return (hippo.B[0::2, None, None] * waves).flatten(0, 1)[:count]


def rms(x: Tensor) -> float:
    """Root of the mean square."""
    return x.square().mean().sqrt().item()


def leak(d_state: int, frequency: float) -> float:
    """``|r| = w / sqrt(N^2 + w^2)``: what LegS misses of an input of frequency w.

    ``1 - B^T (iw - A)^-1 B`` is the product of ``(iw - n) / (iw + n + 1)`` over n < N. Without the
    low-rank term and with B/2, the response is that of LegS divided by 1 + r.
    """
    return frequency / math.hypot(d_state, frequency)


def echo_time(d_state: int, dt: float) -> float:
    """When the bilinear rule without the low-rank term stops to follow LegS.

    The factor r of :func:`leak` is a delay of ``log(1 + N^2/w^2)``, short for high frequencies.
    The bilinear rule stretches it by ``1 + x^2`` with ``x = w dt/2``; this is the shortest.
    """
    x = torch.logspace(-6, 6, 20001, dtype=torch.float64)
    return ((1 + x.square()) * torch.log1p((d_state * dt / 2 / x).square())).min().item()
