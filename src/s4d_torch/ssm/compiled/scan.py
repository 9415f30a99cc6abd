"""The compiled scan as operators of torch: autograd, ``torch.compile`` and export see through them.

One operator turns stored parameters into tables, another runs the scan with them.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from s4d_torch.ssm.compiled.runtime import compiled_module, in_large_pages, share

BLOCK, SEGMENT, GROUP = 4, 256, 16  # as in scan_code.py, which needs numba to be imported


Tables = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


class ScanTables(NamedTuple):
    """A system as the compiled scan reads it, four samples at a time; see ``scan_code``.

    tables (H, 9 S) = power, outputs, inputs; kernel (H, 4); drift (H, S); carry (H, S) and powers
    (H, 3, S), the first three of A_bar, in double precision. Vectors over S = 2 M are planar, and M
    is padded to a power of two, so that few sizes have to be compiled; ``modes`` is how many there
    are, each of them a conjugate pair or not.
    """

    tables: Tensor
    kernel: Tensor
    drift: Tensor
    carry: Tensor
    powers: Tensor
    modes: int
    pairs: bool


def padded(modes: int) -> int:
    """The number of modes that is compiled for: the next power of two, at least 8."""
    return max(8, 1 << (modes - 1).bit_length())


def make_tables(
    A_bar: Tensor, B: Tensor, C: Tensor, direct: Tensor, dtype: torch.dtype, pairs: bool
) -> ScanTables:
    """The tables of ``y = C s + direct u, s <- A_bar s + B u``; A_bar, B, C (H, M), direct (H,).

    C already holds the factor 2 of conjugate pairs.
    """
    A2 = A_bar * A_bar
    powers = torch.stack([torch.ones_like(A_bar), A_bar, A2, A2 * A_bar], dim=1)  # (H, 4, M)
    outputs = C[:, None] * powers
    lagged = (outputs[:, :3] * B[:, None]).real.sum(-1)  # C A^j B, j < 3
    power = A2 * A2
    columns = torch.cat([power[:, None], (powers * B[:, None]).flip(1)], dim=1)
    columns, rows = _planar(columns), _planar(outputs.conj())  # (H, 5 or 4, 2, padded M)
    tables = torch.cat([columns[:, :1], rows, columns[:, 1:]], dim=1)
    kernel = torch.cat([direct[:, None], lagged], dim=1)
    tables = tables.flatten(1).to(dtype)
    power = power.detach()
    carry = _planar(power ** (SEGMENT // BLOCK)).flatten(1)
    first = _planar(powers[:, 1:]).flatten(2)
    made = (tables, kernel.to(dtype), _drift(power, dtype), carry, first)
    return ScanTables(*made, A_bar.shape[1], pairs)


def _planar(x: Tensor) -> Tensor:
    """(..., M) complex -> (..., 2, padded M) real."""
    parts = torch.stack([x.real, x.imag], dim=-2)
    return torch.nn.functional.pad(parts, (0, padded(x.shape[-1]) - x.shape[-1]))


def _drift(power: Tensor, dtype: torch.dtype) -> Tensor:
    """What a segment of rounded powers has to be multiplied with, less 1."""
    rounded = torch.complex(power.real.to(dtype), power.imag.to(dtype)).to(power.dtype)
    ratio = torch.where(rounded.abs() > 1e-6, power / rounded, torch.ones_like(power))
    return _planar(ratio ** (SEGMENT // BLOCK) - 1).flatten(1).to(dtype)


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


@torch.library.custom_op("s4d_torch::scan", mutates_args=())
def _scan(
    u: Tensor, tables: Tensor, kernel: Tensor, drift: Tensor, carry: Tensor, start: Tensor,
    stops: Tensor, ahead: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """y, the state after ``stops`` blocks, and the states kept for the backward pass."""
    y, end = in_large_pages(torch.empty_like(u)), torch.empty_like(start)
    kept = in_large_pages(_empty_kept(u, start))
    given = [x.contiguous() for x in (tables, kernel, carry, start)]
    arrays = (u, *given, stops, y, end, kept)
    _share_scan("scan_forward", ahead, u, drift, arrays)
    return y, end, kept


@_scan.register_fake
def _(u: Tensor, *given: Any) -> tuple[Tensor, Tensor, Tensor]:
    start = given[-3]
    return torch.empty_like(u), torch.empty_like(start), _empty_kept(u, start)


@torch.library.custom_op("s4d_torch::scan_backward", mutates_args=())
def _scan_backward(
    grad_y: Tensor, grad_end: Tensor, u: Tensor, tables: Tensor, kernel: Tensor, drift: Tensor,
    stops: Tensor, kept: Tensor, ahead: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    grad_u, grad_start = in_large_pages(torch.empty_like(u)), torch.empty_like(kept[:, :, 0])
    batch = u.shape[0]
    grad_tables = tables.new_empty(batch, *tables.shape, dtype=torch.float64)
    grad_kernel = kernel.new_empty(batch, *kernel.shape, dtype=torch.float64)
    arrays = (
        *(grad_y.contiguous(), grad_end.contiguous(), u, tables.contiguous(), kernel.contiguous()),
        *(drift, stops, kept, grad_u, grad_start, grad_tables, grad_kernel),
    )
    _share_scan("scan_backward", ahead, u, drift, arrays)
    return grad_u, _over_batch(grad_tables, u), _over_batch(grad_kernel, u), grad_start


def _over_batch(grad: Tensor, u: Tensor) -> Tensor:
    """The sum over the batch, in the precision of u; a batch of one has nothing to sum."""
    return (grad[0] if len(grad) == 1 else grad.sum(0)).to(u.dtype)


@_scan_backward.register_fake
def _(grad_y: Tensor, grad_end: Tensor, *given: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    u, tables, kernel, kept = (*given[:3], given[5])
    start = torch.empty_like(kept[:, :, 0])
    return torch.empty_like(u), torch.empty_like(tables), torch.empty_like(kernel), start


def _keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    u, tables, kernel, drift, _, _, stops, ctx.ahead = inputs
    ctx.save_for_backward(u, tables, kernel, drift, stops, output[2])
    ctx.set_materialize_grads(False)  # zeros for what is kept would be made in vain


def _differentiate(
    ctx: Any, grad_y: Tensor | None, grad_end: Tensor | None, _: Tensor | None
) -> tuple[Any, ...]:
    u, kept = ctx.saved_tensors[0], ctx.saved_tensors[-1]
    grad_y = torch.zeros_like(u) if grad_y is None else grad_y
    grad_end = torch.zeros_like(kept[:, :, 0]) if grad_end is None else grad_end
    grads = _scan_backward(grad_y, grad_end, *ctx.saved_tensors, ctx.ahead)
    grad_u, grad_tables, grad_kernel, grad_start = grads
    return grad_u, grad_tables, grad_kernel, None, None, grad_start, None, None


_scan.register_autograd(_differentiate, setup_context=_keep_for_backward)


def _empty_kept(u: Tensor, start: Tensor) -> Tensor:
    segments = (u.shape[1] + SEGMENT - 1) // SEGMENT
    return start.new_empty(u.shape[0], u.shape[2], segments, start.shape[2])


def _share_scan(
    name: str, ahead: int, u: Tensor, drift: Tensor, arrays: tuple[Tensor, ...]
) -> None:
    kernel = getattr(compiled_module(f"{__package__}.scan_code"), name)(drift.shape[1] // 2)
    tasks = u.shape[0] * -(-u.shape[2] // GROUP)
    share(kernel, tasks, GROUP * u.shape[1] * drift.shape[1] // 2, (ahead,), arrays)


# -- tables from stored parameters -----------------------------------------------------------------


def stored_tables(
    codes: tuple[int, int], rate: float, decay: Tensor, frequency: Tensor, B: Tensor, C: Tensor,
    log_dt: Tensor, D: Tensor, *, pairs: bool,
) -> ScanTables:  # fmt: skip
    """What :func:`make_tables` gives, from the parameters as a module stores them.

    ``codes`` are the numbers of the discretisation and the constraint; decay, frequency
    (sets, modes), B (sets, modes, 2), C (H, modes, 2), log_dt, D (H,).
    """
    made: Tables = _tables([*codes, int(pairs)], rate, decay, frequency, B, C, log_dt, D)
    return ScanTables(*made, decay.shape[1], pairs)


@torch.library.custom_op("s4d_torch::scan_tables", mutates_args=())
def _tables(
    options: list[int], rate: float, decay: Tensor, frequency: Tensor, B: Tensor, C: Tensor,
    log_dt: Tensor, D: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    stored = [x.contiguous() for x in (decay, frequency, B, C, log_dt, D)]
    made = _empty_tables(decay, log_dt)
    run = compiled_module(f"{__package__}.tables_code").tables_forward
    share(run, log_dt.shape[0], decay.shape[1] * 64, (tuple(options), rate), (*stored, *made))
    return made


@_tables.register_fake
def _(options: list[int], rate: float, decay: Tensor, *stored: Tensor) -> Tables:
    return _empty_tables(decay, stored[-2])


@torch.library.custom_op("s4d_torch::scan_tables_backward", mutates_args=())
def _tables_backward(
    grad_tables: Tensor, grad_kernel: Tensor, grad_powers: Tensor, options: list[int],
    rate: float, decay: Tensor, frequency: Tensor, B: Tensor, C: Tensor, log_dt: Tensor,
    D: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    stored = [x.contiguous() for x in (decay, frequency, B, C, log_dt, D)]
    grads = [torch.zeros_like(x, dtype=torch.float64) for x in stored[:5]]
    given = [x.contiguous() for x in (grad_tables, grad_kernel, grad_powers)]
    run = compiled_module(f"{__package__}.tables_code").tables_backward
    channels, sets = log_dt.shape[0], decay.shape[0]
    # channels that share a set would write to the same place: then one thread does it all
    work = decay.shape[1] * 128 if sets == channels else 0
    share(run, channels, work, (tuple(options), rate), (*stored, *given, *grads))
    a, b, c, d, e = (grad.to(decay.dtype) for grad in grads)
    return a, b, c, d, e


@_tables_backward.register_fake
def _(*given: Any) -> Tables:
    a, b, c, d, e = (torch.empty_like(x) for x in given[5:10])
    return a, b, c, d, e


def _keep_stored(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.options, ctx.rate = inputs[:2]
    ctx.save_for_backward(*inputs[2:])


def _differentiate_tables(
    ctx: Any, grad_tables: Tensor, grad_kernel: Tensor, _: Tensor, __: Tensor, grad_powers: Tensor
) -> tuple[Any, ...]:
    given = (grad_tables, grad_kernel, grad_powers)
    grads = _tables_backward(*given, ctx.options, ctx.rate, *ctx.saved_tensors)
    return None, None, *grads, grad_kernel[:, 0]


_tables.register_autograd(_differentiate_tables, setup_context=_keep_stored)


def _empty_tables(decay: Tensor, log_dt: Tensor) -> Tables:
    channels, size = log_dt.shape[0], 2 * padded(decay.shape[1])
    return (
        decay.new_empty(channels, 9 * size),
        decay.new_empty(channels, 4),
        decay.new_empty(channels, size),
        decay.new_empty(channels, size, dtype=torch.float64),
        decay.new_empty(channels, 3, size, dtype=torch.float64),
    )
