"""An official state space in one common form, and the steps that turn it into one of ours."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import pi

import torch
from torch import Tensor

from s4d_torch.nn.method import Method
from s4d_torch.ssm.discretization import bilinear_low_rank
from s4d_torch.ssm.kernel import dense
from s4d_torch.ssm.pairs import from_readout, readout

DSS_EPSILON = 1e-7  # of the official reciprocal


@dataclass(frozen=True)
class System:
    """S copies of (A, B, P) for H channels, in double precision; channel h uses copy h mod S."""

    raw: Tensor  # (S, N), the decay behind ``constraint``
    constraint: str
    decay: Tensor  # (S, N)
    frequency: Tensor  # (S, N), zero for real modes
    B: Tensor  # (S, N) complex
    C: Tensor  # (channels, H, N) complex
    P: Tensor | None  # (rank, S, N) complex
    log_dt: Tensor  # (H, 1), or (H, N) with a step size for each mode
    pairs: bool

    @property
    def A(self) -> Tensor:
        return torch.complex(-self.decay, self.frequency)

    @property
    def channels(self) -> int:
        return self.C.shape[1]

    def each(self, x: Tensor) -> Tensor:
        """(S, ...) -> (H, ...), in the official order of the copies."""
        return x.repeat(self.channels // x.shape[0], *[1] * (x.ndim - 1))


@dataclass(frozen=True)
class Kernel:
    """The method and the parameters of an SSM."""

    method: Method
    d_state: int
    tensors: dict[str, Tensor]


def plain_C(system: System, length: int) -> System:
    """C from the stored ``C (I - A_bar^L)``, on real vectors that stand for conjugate pairs."""
    assert system.P is not None
    if system.log_dt.shape[1] > 1:
        raise ValueError(
            "an S4 layer (DPLR) with a step size for each mode (dt_tie=False) has no counterpart"
        )
    if length == 0:
        return system
    P = system.each(system.P.transpose(0, 1))  # (H, rank, N)
    A, B = system.each(system.A), system.each(system.B)
    A_bar = dense(bilinear_low_rank(A, P, B, system.log_dt.exp()))
    faded = torch.eye(A_bar.shape[-1], dtype=A_bar.dtype) - torch.matrix_power(A_bar, length)
    stored = readout(system.C).transpose(0, 1)  # (H, channels, 2N)
    rows, failed = torch.linalg.solve_ex(faded, stored, left=False)
    if bool(failed.any()) or not bool(torch.isfinite(rows).all()):
        raise ValueError(
            f"C cannot be recovered from C (I - A_bar^{length}), some mode does not fade at all; "
            "is real_transform the one it was trained under?"
        )
    return replace(system, C=from_readout(rows.transpose(0, 1)))


def softmax_C(system: System, length: int) -> System:
    """C for our softmax kernel, which doubles the real part and divides exactly."""
    A = system.each(system.A)
    z = A * system.log_dt.exp()
    z = torch.where(A.real > 0, -z, z)
    size = (A * torch.expm1(z * length)).abs().square()
    exact = size / (size + DSS_EPSILON)
    return replace(system, C=system.C * exact * (0.5 if system.pairs else 1.0))


def band_limited(system: System, limit: float) -> System:
    """C without the modes that turn at or above ``limit`` of half a turn per step."""
    turns = system.log_dt.exp() * system.each(system.frequency).abs() / (2 * pi)
    return replace(system, C=system.C * (turns < 0.5 * limit))


def untied(system: System) -> System:
    """One copy of A, B and P for each channel."""
    P = None if system.P is None else system.each(system.P.transpose(0, 1)).transpose(0, 1)
    return replace(
        system,
        raw=system.each(system.raw),
        decay=system.each(system.decay),
        frequency=system.each(system.frequency),
        B=system.each(system.B),
        P=P,
    )


def one_step_size(system: System) -> System:
    """A step size per mode moved into A and B, where ``dt A`` and ``dt B`` stay what they were."""
    system = untied(system)
    log_dt = system.log_dt.mean(1, keepdim=True)
    ratio = system.log_dt - log_dt
    exp = system.constraint == "exp"
    decay = system.decay * ratio.exp()
    return replace(
        system,
        raw=system.raw + ratio if exp else decay,
        constraint="exp" if exp else "identity",
        decay=decay,
        frequency=system.frequency * ratio.exp(),
        B=system.B * ratio.exp(),
        log_dt=log_dt,
    )


def as_ssm(system: System, disc: str, *, length: int | None, train_B: bool) -> Kernel:
    """The tensors of an SSM; ``init`` only says of what shape they are."""
    channels, H, N = system.C.shape
    structure, init = "diagonal", "lin" if system.pairs else "real"
    kernel, discretization = ("softmax", "zoh") if disc == "dss" else ("vandermonde", disc)
    if system.P is not None:
        rank = system.P.shape[0]
        if rank > 2:
            raise ValueError(f"the low-rank term P has rank {rank}; ranks 1 and 2 can be converted")
        structure, kernel, init = "dplr", "cauchy", "legs" if rank == 1 else "legt"
    method = Method(
        structure=structure,
        kernel=kernel,
        discretization=discretization,
        constraint=system.constraint,
        init=init,
        train_B=train_B,
        n_ssm=1 if system.raw.shape[0] == 1 < H else None,
        bidirectional=channels == 2,
        softmax_length=length if length and kernel == "softmax" else Method.softmax_length,
    )
    stored = torch.view_as_real if system.pairs else torch.real
    C = system.C if channels == 2 else system.C[0]
    tensors = {"raw_decay": system.raw, "raw_B": stored(system.B), "raw_C": stored(C)}
    if system.pairs:
        tensors["frequency"] = system.frequency
    if system.P is not None:
        tensors["raw_P"] = stored(system.P.transpose(0, 1))
    tensors["log_dt"] = system.log_dt[:, 0]
    return Kernel(method, 2 * N if system.pairs else N, tensors)
