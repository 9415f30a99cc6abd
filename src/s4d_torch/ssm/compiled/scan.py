"""The compiled scan as an operator of torch: autograd, ``torch.compile`` and export know it."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from s4d_torch.ssm.autodiff import again, gradients
from s4d_torch.ssm.compiled.runtime import as_read, compiled_module, in_large_pages, share
from s4d_torch.ssm.compiled.tables import BLOCK, SEGMENT, ScanTables
from s4d_torch.ssm.kernel import toeplitz

GROUP = 16  # as in scan_code.py, which needs numba to be imported


def run_from_rest(u: Tensor, tables: ScanTables) -> Tensor:
    """u (B, L, H) -> y (B, L, H), from a state of zeros; nobody asks for the state at the end."""
    return _run_from_rest(u, tables, 0)


def run_ahead(u: Tensor, tables: ScanTables) -> Tensor:
    """``y_t = sum_s k_s u_(t+1+s)``: the system run from the end, each answer one place further."""
    return _run_from_rest(u, tables, 1)


def _run_from_rest(u: Tensor, tables: ScanTables, ahead: int) -> Tensor:
    begin = u.new_zeros(u.shape[0], u.shape[2], tables.drift.shape[1])
    stops = torch.zeros(u.shape[0], dtype=torch.int64)
    y: Tensor = _scan(u.contiguous(), *tables[:4], begin, stops, ahead)[0]
    return y


def run(
    u: Tensor, tables: ScanTables, state: Tensor | None, lengths: Tensor | None
) -> tuple[Tensor, Tensor]:
    """u (B, L, H), state (B, H, S) real -> y (B, L, H) and the state after each sequence.

    The operator gives the state after whole blocks of four; the samples after them follow here.
    """
    batch, length, channels = u.shape
    size = tables.drift.shape[1]
    begin = u.new_zeros(batch, channels, size) if state is None else _start(state, tables, u.dtype)
    left = length % BLOCK if lengths is None else lengths % BLOCK
    stops = torch.full((batch,), length // BLOCK) if lengths is None else lengths // BLOCK
    y, end, _ = _scan(u.contiguous(), *tables[:4], begin, stops, 0)
    state = end.to(torch.float64).unflatten(-1, (2, -1))  # (B, H, 2, padded M)
    if isinstance(left, Tensor):
        state = _finish_ragged(state, u, tables, lengths, left)
    elif left:
        tail = u[:, length - left :].flip(1)
        state = _times(tables.powers[:, left - 1], state) + _added(tail, tables)
    state = state[..., : tables.modes]
    state = state.transpose(-1, -2).flatten(-2) if tables.pairs else state[..., 0, :]
    return y, state.contiguous()


def _finish_ragged(
    state: Tensor, u: Tensor, tables: ScanTables, lengths: Tensor | None, left: Tensor
) -> Tensor:
    """Up to three samples more for each sequence, of which ``left`` (B,) are left."""
    assert lengths is not None
    back = torch.arange(1, BLOCK, device=u.device)  # the last sample, the one before, ...
    place = (lengths[:, None] - back).clamp(min=0)
    tail = u[torch.arange(u.shape[0], device=u.device)[:, None], place]  # (B, 3, H)
    tail = torch.where((back <= left[:, None])[..., None], tail, 0.0)
    one = torch.zeros_like(tables.powers[:, :1])
    one[..., : one.shape[-1] // 2] = 1
    powers = torch.cat([one, tables.powers], dim=1).transpose(0, 1)[left]  # (B, H, 2 M)
    return _times(powers, state) + _added(tail, tables)


def _times(power: Tensor, state: Tensor) -> Tensor:
    """A planar power (..., 2 M) times states (..., 2, M)."""
    a, e = power.unflatten(-1, (2, -1)).unbind(-2)
    r, i = state.unbind(-2)
    return torch.stack([a * r - e * i, a * i + e * r], dim=-2)


def _added(tail: Tensor, tables: ScanTables) -> Tensor:
    """What the last samples, the last one first, (B, up to 3, H), add to the state."""
    inputs = tables.tables.unflatten(1, (9, 2, -1))[:, 5:].flip(1)  # A_bar^j B for j < 4
    inputs = inputs[:, : tail.shape[1]].to(torch.float64)
    return torch.einsum("bjh,hjpm->bhpm", tail.to(torch.float64), inputs)


def _start(state: Tensor, tables: ScanTables, dtype: torch.dtype) -> Tensor:
    """A real state (B, H, S) in planar form, padded; (B, H, 2 padded M)."""
    missing = tables.drift.shape[1] // 2 - tables.modes
    if tables.pairs:
        parts = state.unflatten(-1, (-1, 2)).transpose(-1, -2)
    else:
        parts = torch.stack([state, torch.zeros_like(state)], dim=-2)
    return torch.nn.functional.pad(parts, (0, missing)).flatten(2).to(dtype)


def _as_read(
    u: Tensor, tables: Tensor, kernel: Tensor, drift: Tensor, stops: Tensor, **more: Tensor
) -> list[Tensor]:
    """All as compiled code reads it, in the same order."""
    batch, length, channels = u.shape
    size = drift.shape[-1]
    segments = -(-length // SEGMENT)
    state = (batch, channels, size)
    shapes = {"start": state, "kept": (batch, channels, segments, size)}
    shapes |= {"grad_y": (batch, length, channels), "grad_end": state}
    read = as_read(
        u.dtype,
        u=(u, (batch, length, channels)),
        tables=(tables, (channels, 9 * size)),
        kernel=(kernel, (channels, 4)),
        drift=(drift, (channels, size)),
        **{name: (x, shapes[name]) for name, x in more.items()},
    )
    return [*read[:4], *as_read(torch.int64, stops=(stops, (batch,))), *read[4:]]


@torch.library.custom_op("s4d_torch::scan", mutates_args=())
def _scan(
    u: Tensor, tables: Tensor, kernel: Tensor, drift: Tensor, carry: Tensor, start: Tensor,
    stops: Tensor, ahead: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """y, the state after ``stops`` blocks, and the states kept for the backward pass."""
    u, tables, kernel, drift, stops, start = _as_read(u, tables, kernel, drift, stops, start=start)
    (carry,) = as_read(torch.float64, carry=(carry, tuple(drift.shape)))
    y, end = in_large_pages(torch.empty_like(u)), torch.empty_like(start)
    kept = in_large_pages(_empty_kept(u, start))
    arrays = (u, tables, kernel, carry, start, stops, y, end, kept)
    _share_scan("scan_forward", ahead, u, drift, arrays)
    return y, end, kept


@_scan.register_fake
def _(u: Tensor, *given: Any) -> tuple[Tensor, Tensor, Tensor]:
    start = given[-3]
    return u.new_empty(u.shape), start.new_empty(start.shape), _empty_kept(u, start)


@torch.library.custom_op("s4d_torch::scan_backward", mutates_args=())
def _scan_backward(
    grad_y: Tensor, grad_end: Tensor, u: Tensor, tables: Tensor, kernel: Tensor, drift: Tensor,
    stops: Tensor, kept: Tensor, ahead: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    u, tables, kernel, drift, stops, kept, grad_y, grad_end = _as_read(
        u, tables, kernel, drift, stops, kept=kept, grad_y=grad_y, grad_end=grad_end
    )
    grad_u, grad_start = in_large_pages(torch.empty_like(u)), torch.empty_like(grad_end)
    batch = u.shape[0]
    grad_tables = tables.new_empty(batch, *tables.shape, dtype=torch.float64)
    grad_kernel = kernel.new_empty(batch, *kernel.shape, dtype=torch.float64)
    given = (grad_y, grad_end, u, tables, kernel, drift, stops, kept)
    arrays = (*given, grad_u, grad_start, grad_tables, grad_kernel)
    _share_scan("scan_backward", ahead, u, drift, arrays)
    return grad_u, _over_batch(grad_tables, u), _over_batch(grad_kernel, u), grad_start


def _over_batch(grad: Tensor, u: Tensor) -> Tensor:
    """The sum over the batch, in the precision of u; a batch of one has nothing to sum."""
    return (grad[0] if len(grad) == 1 else grad.sum(0)).to(u.dtype)


@_scan_backward.register_fake
def _(grad_y: Tensor, grad_end: Tensor, *given: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    u, tables, kernel = (x.new_empty(x.shape) for x in given[:3])
    return u, tables, kernel, grad_end.new_empty(grad_end.shape)


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    u, tables, kernel, drift, _, start, stops, ctx.ahead = inputs
    # the states that are kept begin with the start; itself it matters to second gradients alone
    start = (start,) if start.requires_grad else ()
    ctx.save_for_backward(u, tables, kernel, drift, stops, output[2], *start)
    ctx.set_materialize_grads(False)  # zeros for what is kept would be made in vain


def _differentiate(
    ctx: Any, grad_y: Tensor | None, grad_end: Tensor | None, _: Tensor | None
) -> tuple[Any, ...]:
    # unpacked once: a checkpoint computes each saved tensor again, and no more than once
    u, tables, kernel, drift, stops, kept, *start = ctx.saved_tensors
    if again():
        inputs = (u, tables, kernel, *(start or [kept[:, :, 0].detach()]))
        plain = partial(_plain, drift=drift, stops=stops, ahead=ctx.ahead)
        grad_u, grad_tables, grad_kernel, grad_start = gradients(plain, inputs, (grad_y, grad_end))
        return grad_u, grad_tables, grad_kernel, None, None, grad_start, None, None
    grad_y = torch.zeros_like(u) if grad_y is None else grad_y
    grad_end = torch.zeros_like(kept[:, :, 0]) if grad_end is None else grad_end
    given = (u, tables, kernel, drift, stops, kept)
    first: tuple[Tensor, ...] = _scan_backward(grad_y, grad_end, *given, ctx.ahead)
    return *first[:3], None, None, first[3], None, None


_scan.register_autograd(_differentiate, setup_context=_keep_for_backward)


def _plain(
    u: Tensor, tables: Tensor, kernel: Tensor, start: Tensor, *, drift: Tensor, stops: Tensor,
    ahead: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """y and the state after ``stops`` blocks, in double precision and one block after the other."""
    length = u.shape[1]
    x = (u.flip(1) if ahead else u).double()
    x = torch.nn.functional.pad(x, (0, 0, 0, -length % BLOCK)).unflatten(1, (-1, BLOCK))
    rows = _from_planar(tables.unflatten(1, (9, -1)))  # (H, 9, M)
    power, outputs, inputs = rows[:, 0], rows[:, 1:5], rows[:, 5:]
    # exact again: the drift of a segment, spread over its blocks
    power = power * torch.exp(torch.log1p(_from_planar(drift)) * (BLOCK / SEGMENT))
    states = [_from_planar(start)]  # (B, H, M)
    for more in torch.einsum("bijh,hjm->bihm", x.to(inputs.dtype), inputs).unbind(1):
        states.append(power * states[-1] + more)
    every = torch.stack(states, 1)  # (B, blocks + 1, H, M)
    y = torch.einsum("bihm,hjm->bijh", every[:, :-1], outputs.conj()).real
    y = y + torch.einsum("bikh,hkj->bijh", x, toeplitz(kernel.double()))
    y = y.flatten(1, 2)[:, :length]
    if ahead:
        y = torch.nn.functional.pad(y.flip(1)[:, 1:], (0, 0, 0, 1))
    end = every[torch.arange(u.shape[0]), stops]
    return y.to(u.dtype), torch.cat([end.real, end.imag], -1).to(start.dtype)


def _from_planar(x: Tensor) -> Tensor:
    """(..., 2 M) real -> (..., M) complex."""
    real, imag = x.double().chunk(2, dim=-1)
    return torch.complex(real, imag)


def _empty_kept(u: Tensor, start: Tensor) -> Tensor:
    segments = (u.shape[1] + SEGMENT - 1) // SEGMENT
    return start.new_empty(u.shape[0], u.shape[2], segments, start.shape[2])


def _share_scan(
    name: str, ahead: int, u: Tensor, drift: Tensor, arrays: tuple[Tensor, ...]
) -> None:
    kernel = getattr(compiled_module(f"{__package__}.scan_code"), name)(drift.shape[1] // 2)
    tasks = u.shape[0] * -(-u.shape[2] // GROUP)
    share(kernel, tasks, GROUP * u.shape[1] * drift.shape[1] // 2, (ahead,), arrays)
