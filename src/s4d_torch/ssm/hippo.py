"""HiPPO matrices: LegS, LegT and FouT, their normal plus low-rank forms, and their diagonal modes.

Each HiPPO matrix is normal up to a term of low rank, ``A = normal - P P^T``, so a unitary ``V``
turns it into ``diag(Lambda) - (V* P)(V* P)*``. All matrices are real and all eigenvalues come in
conjugate pairs; one of each pair is kept. Everything here is float64 on the CPU: it runs once, at
initialisation.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from s4d_torch._registry import Registry
from s4d_torch.ssm.autodiff import at_hand


class Hippo(NamedTuple):
    """A real state space of the HiPPO family and its low-rank term.

    ``A`` (N, N), ``B`` (N,), ``P`` (rank, N), with ``A + P^T P`` normal.
    """

    A: Tensor
    B: Tensor
    P: Tensor

    @property
    def normal(self) -> Tensor:
        """The normal part ``A + P P^T`` (HiPPO-N), (N, N)."""
        return self.A + self.P.mT @ self.P


class Modes(NamedTuple):
    """The diagonal form, one mode of each conjugate pair: ``V* (normal) V = diag(Lambda)``.

    ``Lambda`` (N/2,), ``B = V* B`` (N/2,), ``P = V* P`` (rank, N/2), ``V`` (N, N/2), complex128.
    """

    Lambda: Tensor
    B: Tensor
    P: Tensor
    V: Tensor


HIPPO: Registry[Callable[[int], Hippo]] = Registry("initialization for structure 'dplr'")


@HIPPO.register("legs")
def legs(d_state: int) -> Hippo:
    """Scaled Legendre: ``A_nk = -sqrt(2n+1) sqrt(2k+1)`` below the diagonal, ``-(n+1)`` on it."""
    n = torch.arange(d_state, dtype=torch.float64)
    root = (2 * n + 1).sqrt()
    A = -(torch.tril(torch.outer(root, root), diagonal=-1) + torch.diag(n + 1))
    return Hippo(A, root, (n + 0.5).sqrt()[None])


@HIPPO.register("legt")
def legt(d_state: int) -> Hippo:
    """Translated Legendre, a window of length 2; its low-rank term is the even and the odd half."""
    n = torch.arange(d_state, dtype=torch.float64)
    root = (2 * n + 1).sqrt()
    sign = 1 - 2 * ((n[:, None] - n[None, :]).abs() % 2)  # (-1)^(n-k)
    above = n[:, None] < n[None, :]
    A = -0.5 * torch.outer(root, root) * torch.where(above, sign, torch.ones_like(sign))
    half = root / 2**0.5
    even = n % 2 == 0
    P = torch.stack([torch.where(even, half, 0.0), torch.where(even, 0.0, half)])
    return Hippo(A, 0.5 * root, P)


@HIPPO.register("fout")
def fout(d_state: int) -> Hippo:
    """Truncated Fourier, a window of length 2: 2x2 blocks rotating at ``pi k``, minus ``B B^T``."""
    S = torch.zeros(d_state, d_state, dtype=torch.float64)
    even = torch.arange(0, d_state, 2)
    frequency = torch.pi * torch.arange(d_state // 2, dtype=torch.float64)
    S[even, even + 1] = -frequency
    S[even + 1, even] = frequency
    B = torch.zeros(d_state, dtype=torch.float64)
    B[even] = 2**0.5
    B[0] = 1.0
    return Hippo(S - torch.outer(B, B), B, B[None].clone())


def diagonalize(hippo: Hippo) -> Modes:
    """Stable diagonal form of the normal part, frequencies descending.

    ``normal + shift I`` is skew-symmetric, so ``-i`` times it is Hermitian and its eigensolve is
    exact to rounding. The phase of an eigenvector is the solver's whim; here each is turned so
    that ``V* B`` is real and positive, and results are the same on every machine.
    """
    size = hippo.B.shape[0]
    shift = hippo.normal.diagonal().mean()  # the constant real part: -1/2 for LegS, 0 for the rest
    skew = hippo.normal - shift * torch.eye(size, dtype=torch.float64)
    pairs = _rotating_blocks(skew)
    if pairs is None:
        frequency, V = torch.linalg.eigh(-1j * skew)
        frequency, V = frequency.flip(0)[: size // 2], V.flip(1)[:, : size // 2]
    else:
        frequency, V = pairs
    B = V.mH @ hippo.B.to(V.dtype)
    V = V * (B / B.abs())
    return Modes(
        Lambda=torch.complex(shift.expand_as(frequency), frequency),
        B=V.mH @ hippo.B.to(V.dtype),
        P=(V.mH @ hippo.P.mT.to(V.dtype)).mT,
        V=V,
    )


def _rotating_blocks(skew: Tensor) -> tuple[Tensor, Tensor] | None:
    """Closed form for a matrix that already is a row of 2x2 rotations (FouT), else None.

    FouT has a double eigenvalue 0, where an eigensolver may return any basis; only
    ``(e_2k - i e_2k+1) / sqrt 2`` and its conjugate make a pair.
    """
    size = skew.shape[0]
    even = torch.arange(size - 2, -1, -2)
    frequency = skew[even + 1, even].clone()
    block = torch.zeros_like(skew)
    block[even + 1, even], block[even, even + 1] = frequency, -frequency
    if not (at_hand(skew) and torch.equal(block, skew)):
        return None
    V = torch.zeros(size, size // 2, dtype=torch.complex128)
    column = torch.arange(size // 2)
    V.real[even, column] = 2**-0.5
    V.imag[even + 1, column] = -(2**-0.5)
    return frequency, V


def legs_basis(d_state: int, t: Tensor) -> Tensor:
    """The LegS basis in closed form, ``K_n(t) = L_n(e^-t) e^-t``; ``(d_state, *t.shape)``.

    ``L_n`` are the Legendre polynomials, orthonormal on [0, 1].
    """
    decay = torch.exp(-t.to(torch.float64))
    x = 2 * decay - 1
    polynomials = [torch.ones_like(x), x]
    for n in range(1, d_state - 1):  # (n+1) P_n+1 = (2n+1) x P_n - n P_n-1
        polynomials.append(((2 * n + 1) * x * polynomials[-1] - n * polynomials[-2]) / (n + 1))
    scale = (2 * torch.arange(d_state, dtype=torch.float64) + 1).sqrt()
    stacked = torch.stack(polynomials[:d_state])
    return scale.reshape(-1, *[1] * t.ndim) * stacked * decay
