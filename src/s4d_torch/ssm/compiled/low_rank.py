"""The kernel of a diagonal plus low-rank system, from one step of it, as an operator of torch.

A recurrence over all modes takes fewer operations than matrix powers, and no memory to speak of.
"""

from typing import Any

import torch
from torch import Tensor

from s4d_torch.ssm.autodiff import again, gradients
from s4d_torch.ssm.compiled.operator import Operator
from s4d_torch.ssm.compiled.runtime import LANES, as_read, compiled_module, share
from s4d_torch.ssm.compiled.tables import from_lanes, to_lanes
from s4d_torch.ssm.discretization import DiscreteLowRank
from s4d_torch.ssm.kernel import krylov
from s4d_torch.ssm.pairs import multiplication

CODE = f"{__package__}.low_rank_code"
SEGMENT = 32  # as in low_rank_code.py


def low_rank_kernel(step: DiscreteLowRank, C: Tensor, length: int) -> Tensor:
    """``2 Re(C A_bar^l B_bar)`` for l < length; C (..., H, M) -> (..., H, length), double."""
    lead, C = C.shape[:-2], C.reshape(-1, *C.shape[-2:])
    left, right = step.left.unbind(-1), step.right.conj().unbind(-2)
    read = (2 * each.conj() for each in C)
    rows = torch.stack([step.diagonal, step.B_now, *left, *right, *read], dim=-1)  # (H, M, F)
    system = to_lanes(torch.view_as_real(rows.resolve_conj()).flatten(-2))
    K: Tensor = _kernel(system, len(left), length)  # (C's, G, L, W)
    return K.transpose(2, 3).flatten(1, 2)[:, : C.shape[1]].reshape(*lead, -1, length)


def _ways(system: Tensor, rank: int) -> int:
    """How many rows of C the system has."""
    return system.shape[2] // (2 * LANES) - 2 - 2 * rank


def _as_read(system: Tensor, rank: int) -> Tensor:
    groups, modes, size = system.shape
    if rank < 0 or size % (2 * LANES) or _ways(system, rank) < 1:
        raise ValueError(f"a system of shape {tuple(system.shape)} has no rank {rank} and no C")
    return as_read(torch.float64, system=(system, (groups, modes, size)))[0]


def _empty(system: Tensor, rank: int, length: int) -> Tensor:
    return system.new_empty(_ways(system, rank), system.shape[0], length, LANES)


def _run(system: Tensor, rank: int, length: int) -> Tensor:
    system = _as_read(system, rank)
    K = _empty(system, rank, length)
    modes = system.shape[1]
    room = system.new_empty((2 * modes + rank) * LANES)
    _share("low_rank_forward", rank, length, (system, K), [room])
    return K


def _run_backward(grad_K: Tensor, system: Tensor, rank: int) -> Tensor:
    system = _as_read(system, rank)
    length, modes, ways = grad_K.shape[2], system.shape[1], _ways(system, rank)
    shape = (ways, system.shape[0], length, LANES)
    (grad_K,) = as_read(torch.float64, grad_K=(grad_K, shape))
    grad = torch.zeros_like(system)
    kept = system.new_empty(-(-length // SEGMENT) * 2 * modes * LANES)
    size = (SEGMENT + 2) * 2 * modes + SEGMENT * rank + ways
    room = system.new_empty(size * LANES)
    _share("low_rank_backward", rank, length, (system, grad_K, grad), [kept, room])
    return grad


def _share(
    name: str, rank: int, length: int, arrays: tuple[Tensor, ...], room: list[Tensor]
) -> None:
    groups, modes, _ = arrays[0].shape
    work = 4 * LANES * modes * length
    share(getattr(compiled_module(CODE), name), groups, work, (rank,), arrays, room)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    system, ctx.rank, ctx.length = inputs
    ctx.save_for_backward(system)


def _differentiate(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, None]:
    (system,) = ctx.saved_tensors
    if again():

        def plain(system: Tensor) -> Tensor:
            return _plain(system, ctx.rank, ctx.length)

        (of_system,) = gradients(plain, (system,), (grad,))
        return of_system, None, None
    return _kernel_backward(grad, system, ctx.rank), None, None


def _plain(system: Tensor, rank: int, length: int) -> Tensor:
    """By matrix products; the channels that the last group lacks are zeros all through."""
    channels = system.shape[0] * LANES
    rows = from_lanes(system, channels).unflatten(-1, (-1, 2))  # (H, M, F, 2)
    columns = rows.transpose(1, 2).flatten(2)  # (H, F, 2 M)
    diagonal = torch.view_as_complex(rows[:, :, 0].contiguous())
    left, right = columns[:, 2 : 2 + rank], columns[:, 2 + rank : 2 + 2 * rank]
    A_bar = multiplication(diagonal) - left.mT @ right
    K = krylov(A_bar, columns[:, 1], columns[:, 2 + 2 * rank :].transpose(0, 1), length)
    return K.unflatten(1, (-1, LANES)).transpose(2, 3)


_kernel = Operator("low_rank_kernel", _run, _empty, _keep, _differentiate)
_kernel_backward = Operator(
    "low_rank_kernel_backward", _run_backward, lambda grad, system, rank: torch.empty_like(system)
)
