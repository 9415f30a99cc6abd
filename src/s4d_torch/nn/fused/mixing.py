"""What follows a state space in a layer as one operation of torch; see ``mixing_code``.

For signals that are too long for a block in one operation: see ``short_block``.
"""

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from s4d_torch.nn.fused import pointwise
from s4d_torch.nn.fused.pointwise import PLAIN, WORK, kept
from s4d_torch.ssm.autodiff import again, gradients
from s4d_torch.ssm.compiled.runtime import LANES, as_read, compiled_module, share

CODE = f"{__package__}.mixing_code"
BLOCK = 64  # as in mixing_code.py
# Parts of the rows whose gradients are added up apart: for as many threads, and so that few enough
# numbers of single precision are added one after the other.
CHUNKS, LONGEST = 8, 2**13
WIDEST = 256  # features; beyond, the linear map is better left to a library of matrix products


class Mixing(NamedTuple):
    """What happens besides the linear map; dropouts are a key and a number of 2^32 each."""

    activation: int
    key: int = 0
    dropped: int = 0
    late_key: int = 0
    late_dropped: int = 0


def fits(features: int) -> bool:
    return features % (2 * LANES) == 0 and features <= WIDEST


def draw(activation: int, early: float, late: float) -> Mixing:
    """With new random numbers for both dropouts, at these p < 1."""
    return Mixing(activation, *pointwise.draw(early), *pointwise.draw(late))


def run(mixing: Mixing, y: Tensor, x: Tensor, matrix: Tensor, offset: Tensor) -> Tensor:
    """``x + dropout(gate(linear(dropout(f(y)))))``: y, x (..., H) -> the same shape.

    matrix (N, H) and offset (N,) are those of the linear map; with N = 2 H a gate follows it.
    """
    learns = torch.is_grad_enabled()
    out: Tensor = _Mix.apply(mixing, learns, y, x, matrix, offset)  # type: ignore[no-untyped-call]
    return out


def kept_for_gate(x: Tensor, wide: int, learns: bool = True) -> Tensor:
    """Where the linear map of rows x (R, H) is written for the adjoint of a gate.

    (R, wide), or no row where there is none: a sum needs nothing for its adjoint.
    """
    return x.new_empty(len(x) if learns and wide > x.shape[1] else 0, wide)


class _Mix(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, mixing: Mixing, learns: bool, y: Tensor, x: Tensor, matrix: Tensor, offset: Tensor
    ) -> Tensor:
        (N, H), count = matrix.shape, x.numel() // x.shape[-1]
        rows, residual, across, bias = as_read(
            torch.float32,
            y=(y.reshape(-1, H), (count, H)),
            x=(x.reshape(-1, H), (count, H)),
            matrix=(matrix.T, (H, N)),
            offset=(offset, (N,)),
        )
        v, out = kept_for_gate(rows, N, learns), x.new_empty(x.shape)
        arrays = (rows, residual, across, bias, v, out.view(-1, H))
        _share("mixing_forward", (tuple(mixing),), -(-count // BLOCK), BLOCK, arrays, H + N)
        ctx.mixing = mixing
        ctx.save_for_backward(y, matrix, offset, v)
        return out  # whole: a view of rows could not be changed in place

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        y, matrix, offset, v = ctx.saved_tensors
        if again(grad):
            plain = partial(plain_branch, ctx.mixing)
            of_y, *of_linear = gradients(plain, (y, matrix, offset), (grad,))
            return None, None, of_y, grad, *of_linear
        (N, H), count = matrix.shape, y.numel() // y.shape[-1]
        rows, matrix, v, grads = as_read(
            torch.float32,
            y=(y.reshape(-1, H), (count, H)),
            matrix=(matrix, (N, H)),
            v=(v, (len(v), N)),
            grad=(grad.reshape(-1, H), (count, H)),
        )
        chunk = min(-(-count // (BLOCK * CHUNKS)), LONGEST // BLOCK)
        chunks, found = -(-count // (BLOCK * chunk)), torch.empty_like(rows)
        of_matrix = rows.new_zeros(chunks, N * H)
        of_offset = rows.new_zeros(chunks, N, dtype=torch.float64)
        arrays = (rows, matrix, v, grads, found, of_matrix, of_offset)
        options = (tuple(ctx.mixing), chunk)
        _share("mixing_backward", options, chunks, 2 * chunk * BLOCK, arrays, 2 * H + N)
        of_matrix, of_offset = of_matrix.sum(0).view(N, H), of_offset.sum(0).to(torch.float32)
        return None, None, found.view(y.shape), grad, of_matrix, of_offset


def _share(
    name: str,
    options: tuple[Any, ...],
    tasks: int,
    rows: int,
    arrays: tuple[Tensor, ...],
    wide: int,
) -> None:
    """Over all tasks of so many rows each, with room for a block of ``wide`` numbers a row."""
    H, N = arrays[0].shape[1], arrays[-1 if name == "mixing_backward" else 3].shape[-1]
    room = arrays[0].new_empty(BLOCK * wide)
    run = getattr(compiled_module(CODE), name)
    share(run, tasks, rows * H * (WORK + N // 2), options, arrays, [room])


def plain_branch(mixing: Mixing, y: Tensor, matrix: Tensor, offset: Tensor) -> Tensor:
    """What is added, in torch's own operations."""
    z = PLAIN[mixing.activation](y) * kept(y, mixing.key, mixing.dropped)
    v = F.linear(z, matrix, offset)
    branch = F.glu(v) if len(matrix) > y.shape[-1] else v
    return branch * kept(branch, mixing.late_key, mixing.late_dropped)
