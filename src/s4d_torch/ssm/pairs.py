"""Conjugate pairs: half of the complex modes stand for a real vector of twice their number.

A real system of size N has N/2 pairs of modes; the half that is kept, ``a + ib``, is stored as the
real numbers ``(a_0, b_0, a_1, b_1, ...)``. Real modes (``pairs=False``) are stored as they are.
"""

import torch
from torch import Tensor


def to_real(x: Tensor, pairs: bool = True) -> Tensor:
    """A complex vector of modes (..., M) as a real one: (..., 2M), or (..., M) for real modes."""
    return torch.view_as_real(x).flatten(-2) if pairs else x.real


def to_complex(x: Tensor, pairs: bool = True) -> Tensor:
    """The inverse of :func:`to_real`."""
    if pairs:
        return torch.view_as_complex(x.contiguous().unflatten(-1, (-1, 2)))
    return torch.complex(x, torch.zeros_like(x))


def readout(x: Tensor, pairs: bool = True) -> Tensor:
    """The real row that reads ``2 Re(x s)`` (``Re(x s)`` for real modes) off ``to_real(s)``."""
    if not pairs:
        return x.real
    return torch.stack([2 * x.real, -2 * x.imag], dim=-1).flatten(-2)


def from_readout(row: Tensor) -> Tensor:
    """The complex row of which ``row`` is the :func:`readout`, over pairs."""
    return torch.complex(0.5 * row[..., 0::2], -0.5 * row[..., 1::2])


def multiplication(x: Tensor) -> Tensor:
    """The real matrix of ``s -> x s`` on pairs: 2x2 rotations on the diagonal, (..., 2M, 2M)."""
    size = 2 * x.shape[-1]
    even = torch.arange(0, size, 2, device=x.device)
    matrix = x.real.new_zeros(*x.shape[:-1], size, size)
    matrix[..., even, even] = x.real
    matrix[..., even, even + 1] = -x.imag
    matrix[..., even + 1, even] = x.imag
    matrix[..., even + 1, even + 1] = x.real
    return matrix
