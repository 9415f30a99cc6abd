"""A residual block over short sequences as one operation of torch; see ``block_code``.

For short sequences the calls of a block's operations take longer than what they do.
"""

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from s4d_torch.nn.fused.mixing import Mixing, kept_for_gate, plain_branch
from s4d_torch.ssm.autodiff import again, gradients
from s4d_torch.ssm.compiled import vandermonde
from s4d_torch.ssm.compiled.convolution import direct
from s4d_torch.ssm.compiled.runtime import LANES, as_read, compiled_module, share

CODE = f"{__package__}.block_code"
ROWS, CHUNKS = direct.ROWS, direct.CHUNKS
WIDEST = 128  # features; beyond, the linear map is better left to a library of matrix products


class Choices(NamedTuple):
    """What a block does besides its tensors."""

    codes: tuple[int, int, int]
    """of the discretisation, the constraint, and whether modes are pairs"""
    rate: float
    eps: float
    mixing: Mixing


def fits(features: int) -> bool:
    return features % (2 * LANES) == 0 and features <= WIDEST


def run(choices: Choices, x: Tensor, norm: tuple[Tensor, Tensor] | None, *given: Tensor) -> Tensor:
    """x (B, L, H) -> (B, L, H): ``x + dropout(gate(linear(dropout(f(SSM(norm(x)))))))``.

    ``given``: C (ways, H, modes, 2), decay, frequency, B, log_dt, D, as a module stores them; the
    matrix (wide H, H) and bias of the linear map. With wide 2 it is followed by a gate.
    """
    none = x.new_empty(0)
    weight, bias = (none, none) if norm is None else norm
    y: Tensor = _Block.apply(choices, x, weight, bias, *given)  # type: ignore[no-untyped-call]
    return y


class _Block(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, choices: Choices, *given: Tensor) -> Tensor:
        x, weight, bias, C, decay, frequency, B, log_dt, D, matrix, offset = given
        batch, length, H = x.shape
        stored = (C, decay, frequency, B, log_dt, D)
        taps = vandermonde.make_taps(list(choices.codes), choices.rate, length, *stored)
        wide, norm = len(matrix), (len(weight),)
        x, weight, bias, across, offset = as_read(
            torch.float32,
            x=(x.reshape(-1, H), (batch * length, H)),
            weight=(weight, norm),
            bias=(bias, norm),
            matrix=(matrix.T, (H, wide)),
            offset=(offset, (wide,)),
        )
        y, out, v = torch.empty_like(x), x.new_empty(batch, length, H), kept_for_gate(x, wide)
        size = (ROWS + 2 * _rows(length)) * LANES + _rows(length) * (LANES + 2 * H + wide + 2)
        arrays = (x, weight, bias, taps, across, offset, y, v, out.view(-1, H))
        _share("block_forward", choices, length, batch, batch, (), arrays, size)
        ctx.choices, ctx.shape = choices, (batch, length, H)
        ctx.save_for_backward(*given, taps, y, v)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        *given, taps, y, v = ctx.saved_tensors
        if again(grad):
            return None, *gradients(partial(_plain, ctx.choices), given, (grad,))
        x, weight, bias, C, decay, frequency, B, log_dt, D, matrix, _ = given
        choices, (batch, length, H) = ctx.choices, ctx.shape
        wide, norm, rows = len(matrix), (len(weight),), (batch * length, H)
        x, weight, bias, matrix, y, v, grad, taps = as_read(
            torch.float32,
            x=(x.reshape(-1, H), rows),
            weight=(weight, norm),
            bias=(bias, norm),
            matrix=(matrix, (wide, H)),
            y=(y, rows),
            v=(v, (len(v), wide)),
            grad=(grad.reshape(-1, H), rows),
            taps=(taps, tuple(taps.shape)),
        )
        chunk = -(-batch // CHUNKS)
        chunks, grad_x = -(-batch // chunk), torch.empty_like(x)
        of_matrix = x.new_zeros(chunks, wide * H)
        shapes = (2 * H,), tuple(taps.shape), (wide,)
        of_norm, of_taps, of_offset = (
            x.new_zeros(chunks, *shape, dtype=torch.float64) for shape in shapes
        )
        arrays = (x, weight, bias, taps, matrix, y, v, grad)
        grads = (grad_x, of_norm, of_taps, of_matrix, of_offset)
        size = 2 * (ROWS + 2 * _rows(length)) * LANES
        size += _rows(length) * (3 * H + wide + 2)
        _share("block_backward", choices, length, batch, chunks, (chunk,), (*arrays, *grads), size)
        taps_grad = of_taps.sum(0).to(torch.float32)
        stored = (C, decay, frequency, B, log_dt)
        of_stored = vandermonde.taps_backward(taps_grad, list(choices.codes), choices.rate, *stored)
        sums = of_norm.sum(0).to(torch.float32)
        of_weight, of_bias = sums.chunk(2) if len(weight) else (None, None)
        return (
            *(None, grad_x.view(batch, length, H), of_weight, of_bias, *of_stored),
            *(taps_grad[0, :, 0].flatten()[: len(D)], of_matrix.sum(0).view(wide, H)),
            of_offset.sum(0).to(torch.float32),
        )


def _rows(length: int) -> int:
    return -(-length // ROWS) * ROWS


def _share(
    name: str,
    choices: Choices,
    length: int,
    batch: int,
    tasks: int,
    more: tuple[int, ...],
    arrays: tuple[Tensor, ...],
    size: int,
) -> None:
    options = (length, choices.eps, *choices.mixing)
    H, N = arrays[0].shape[1], arrays[4].shape[1]
    work = length * H * (length // 8 + N // 2) * batch // tasks
    work *= 2 if name == "block_backward" else 1
    room = arrays[0].new_empty(size)
    run = getattr(compiled_module(CODE), name)
    share(run, tasks, work, (options, *more), arrays, [room])


def _plain(
    choices: Choices, x: Tensor, weight: Tensor, bias: Tensor, C: Tensor, *others: Tensor
) -> Tensor:
    """The same in torch's own operations."""
    *stored, matrix, offset = others
    h = F.layer_norm(x, x.shape[-1:], weight, bias, choices.eps) if len(weight) else x
    codes = list(choices.codes)
    taps = vandermonde.plain_taps(codes, choices.rate, x.shape[1], C, *stored)
    y = sum(direct.plain(h, each, ahead) for ahead, each in enumerate(taps))
    assert isinstance(y, Tensor)
    return x + plain_branch(choices.mixing, y, matrix, offset)
