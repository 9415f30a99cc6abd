"""The compiled scan as an operator of torch: autograd, ``torch.compile`` and export know it."""

from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor

from s4d_torch.ssm.autodiff import again, gradients
from s4d_torch.ssm.compiled.operator import Operator
from s4d_torch.ssm.compiled.runtime import LANES, as_read, compiled_module, in_large_pages, share
from s4d_torch.ssm.compiled.tables import BLOCK, ROWS, SEGMENT, ScanTables, from_lanes, to_lanes
from s4d_torch.ssm.kernel import toeplitz
from s4d_torch.ssm.pairs import to_complex

CHUNKS = 8  # parts of a batch whose gradients are added up apart, for as many threads


def run_from_rest(u: Tensor, tables: ScanTables, spans: Tensor | None = None) -> Tensor:
    """u (B, L, H) -> y (B, L, H), from a state of zeros; nobody asks for the state at the end.

    ``spans`` (n, 2) are the sequences in all rows of u, by default its own; beyond them y is 0.
    """
    return _run_from_rest(u, tables, spans, 0)


def run_ahead(u: Tensor, tables: ScanTables, spans: Tensor | None = None) -> Tensor:
    """``y_t = sum_s k_s u_(t+1+s)``: the system run from the end, each answer one place further."""
    return _run_from_rest(u, tables, spans, 1)


def _run_from_rest(u: Tensor, tables: ScanTables, spans: Tensor | None, ahead: int) -> Tensor:
    spans = whole_spans(u) if spans is None else spans
    start = u.new_zeros(spans.shape[0], *_state_shape(tables))
    rows, options = u.flatten(0, 1), [ahead, _learned(u, tables)]
    y: Tensor = _scan(rows, *tables[:4], start, spans, options)[0]
    return y.view(u.shape)


def run(
    u: Tensor, tables: ScanTables, state: Tensor | None, spans: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """u (B, L, H), the carried state of each span -> y (B, L, H) and the state after each.

    The operator gives the state before the last block of four; the samples in it follow here.
    """
    length, channels = u.shape[1:]
    each = whole_spans(u) if spans is None else spans
    n = each.shape[0]
    start = u.new_zeros(n, *_state_shape(tables))
    if state is not None:
        start = _to_start(state, tables).to(u.dtype)
    options = [0, _learned(u, tables, start)]
    y, end, _ = _scan(u.flatten(0, 1), *tables[:4], start, each, options)
    parts = from_lanes(end.transpose(0, 1).flatten(1, 2), channels)  # (H, n M, 2)
    parts = parts.unflatten(1, (n, -1)).transpose(0, 1)  # (n, H, M, 2)
    met = torch.view_as_complex(parts.to(torch.float64).contiguous())
    if spans is None:
        powers, left = torch.view_as_complex(tables.ends), (length - 1) % BLOCK
        if left:
            tail = u[:, length - 1 - left : -1].flip(1)
            met = powers[:, left - 1] * met + _added(tail, tables)
        last = u[:, -1]
    else:
        met, last = _finish_ragged(met, u.flatten(0, 1), tables, spans)
    return y.view(u.shape), _after(met, last.to(torch.float64), tables)


def _finish_ragged(
    met: Tensor, rows: Tensor, tables: ScanTables, spans: Tensor
) -> tuple[Tensor, Tensor]:
    """Up to three samples more for each sequence: what its last sample meets, and that sample."""
    left = (spans[:, 1] - 1) % BLOCK
    back = torch.arange(1, BLOCK + 1, device=rows.device)  # the last sample, the one before, ...
    tail = rows[(spans.sum(1, keepdim=True) - back).clamp(min=0)]  # (n, 4, H)
    last, tail = tail[:, 0], tail[:, 1:]
    tail = torch.where((back[:-1] <= left[:, None])[..., None], tail, 0.0)
    powers = torch.view_as_complex(tables.ends)[:, : BLOCK - 1]  # (H, 3, M)
    powers = torch.cat([torch.ones_like(powers[:, :1]), powers], dim=1)
    return powers.transpose(0, 1)[left] * met + _added(tail, tables), last


def _after(met: Tensor, u: Tensor, tables: ScanTables) -> Tensor:
    """What is carried on after a sample u (B, H), both double, that met a state (B, H, M)."""
    x = torch.view_as_real(met + torch.view_as_complex(tables.ends)[:, 3] * u[..., None])
    state = x.flatten(-2) if tables.pairs else x[..., 0]
    # no view: FSDP warns of modules that return one
    return torch.cat([state, u[..., None]], dim=-1) if tables.looks_back else state.clone()


def _added(tail: Tensor, tables: ScanTables) -> Tensor:
    """What the last samples, the last one first, (B, up to 3, H), add to the state."""
    inputs = from_lanes(tables.tables, tail.shape[2])[..., 10:]  # A_bar^(3-j) B, (H, M, 8)
    inputs = inputs.to(torch.float64).unflatten(-1, (2, 4)).flip(-1)[..., : tail.shape[1]]
    inputs = torch.complex(inputs[..., 0, :], inputs[..., 1, :])
    return torch.einsum("bjh,hmj->bhm", tail.to(inputs.dtype), inputs)


def _to_start(state: Tensor, tables: ScanTables) -> Tensor:
    """A carried state as the first sample meets it and the scan reads it, (B, G, M, 2 W)."""
    ends, batch = torch.view_as_complex(tables.ends), state.shape[0]
    x = state[..., :-1] if tables.looks_back else state
    met = ends[:, 0] * to_complex(x, tables.pairs)
    if tables.looks_back:
        met = met + ends[:, 4] * state[..., -1:]
    parts = torch.view_as_real(met)  # (B, H, M, 2)
    grouped = to_lanes(parts.transpose(0, 1).flatten(1, 2))  # (G, B M, 2 W)
    return grouped.unflatten(1, (batch, -1)).transpose(0, 1).contiguous()


def _state_shape(tables: ScanTables) -> tuple[int, int, int]:
    groups, modes = tables.tables.shape[:2]
    return groups, modes, 2 * LANES


def _learned(u: Tensor, tables: ScanTables, *more: Tensor) -> int:
    """Whether there will be a backward pass, for which states are kept."""
    given = (u, tables.tables, tables.kernel, *more)
    return int(torch.is_grad_enabled() and any(x.requires_grad for x in given))


def whole_spans(u: Tensor, lengths: Tensor | None = None) -> Tensor:
    """(B, 2): the first row of each sequence among all rows of a batch, and its length."""
    batch, length = u.shape[:2]
    if lengths is None:
        if torch.compiler.is_compiling():
            return _whole_spans(batch, length)
        return _kept_spans(batch, length)
    return torch.stack([torch.arange(batch) * length, lengths.to(torch.int64)], dim=1)


def _whole_spans(batch: int, length: int) -> Tensor:
    first = torch.arange(batch) * length
    return torch.stack([first, torch.full_like(first, length)], dim=1)


_kept_spans = lru_cache(_whole_spans)


# -- the operator ----------------------------------------------------------------------------------


def _as_read(
    u: Tensor, tables: Tensor, kernel: Tensor, drift: Tensor, spans: Tensor, **more: Tensor
) -> list[Tensor]:
    """All as compiled code reads it, in the same order."""
    rows, channels = u.shape
    groups, modes = -(-channels // LANES), tables.shape[1]
    state = (spans.shape[0], groups, modes, 2 * LANES)
    shapes = {"start": state, "grad_end": state, "grad_y": (rows, channels)}
    shapes["kept"] = (_segments(rows, spans.shape[0]), groups, modes, 2 * LANES)
    read = as_read(
        u.dtype,
        u=(u, (rows, channels)),
        tables=(tables, (groups, modes, ROWS * LANES)),
        kernel=(kernel, (groups, 4 * LANES)),
        drift=(drift, (groups, modes, 2 * LANES)),
        **{name: (x, shapes[name]) for name, x in more.items()},
    )
    return [*read[:4], *as_read(torch.int64, spans=(spans, (spans.shape[0], 2))), *read[4:]]


def _segments(rows: int, spans: int) -> int:
    """Room for the segments of all spans, wherever they begin and end."""
    return rows // SEGMENT + spans


def _run(
    u: Tensor, tables: Tensor, kernel: Tensor, drift: Tensor, carry: Tensor, start: Tensor,
    spans: Tensor, options: list[int],
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """y, the state before the last block of each span, and states for the backward pass.

    options = (ahead, keep): ``keep`` 0 keeps none.
    """
    u, tables, kernel, drift, spans, start = _as_read(u, tables, kernel, drift, spans, start=start)
    (carry,) = as_read(torch.float64, carry=(carry, tuple(drift.shape)))
    ahead, keep = options
    y, end, kept = _empty_outputs(u, start, keep)
    _fill(y, spans)
    arrays = (u, spans, tables, kernel, drift, carry, start, y, end, in_large_pages(kept))
    modes = tables.shape[1]
    room = (u.new_empty((2 * SEGMENT + 4) * LANES), carry.new_empty(modes, 2 * LANES))
    _share("scan_forward", (ahead,), spans.shape[0], arrays, room)
    return y, end, kept


def _fill(new: Tensor, spans: Tensor) -> Tensor:
    """``new``, to be written by the spans, with zeros where there are none."""
    in_large_pages(new)
    return new if int(spans[:, 1].sum()) == new.shape[0] else new.zero_()


def _empty_outputs(u: Tensor, start: Tensor, keep: int) -> tuple[Tensor, Tensor, Tensor]:
    segments = _segments(u.shape[0], start.shape[0]) if keep else 0
    kept = start.new_empty(segments, *start.shape[1:])
    return u.new_empty(u.shape), start.new_empty(start.shape), kept


def _fake(u: Tensor, *given: Any) -> tuple[Tensor, Tensor, Tensor]:
    *_, start, _, (_, keep) = given
    return _empty_outputs(u, start, keep)


def _run_backward(
    grad_y: Tensor, grad_end: Tensor, u: Tensor, tables: Tensor, kernel: Tensor, drift: Tensor,
    spans: Tensor, kept: Tensor, ahead: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    u, tables, kernel, drift, spans, kept, grad_y, grad_end = _as_read(
        u, tables, kernel, drift, spans, kept=kept, grad_y=grad_y, grad_end=grad_end
    )
    grad_u, grad_start = _fill(torch.empty_like(u), spans), torch.empty_like(grad_end)
    chunk = -(-spans.shape[0] // CHUNKS)
    chunks = -(-spans.shape[0] // chunk)
    grad_tables = tables.new_zeros(chunks, *tables.shape, dtype=torch.float64)
    grad_kernel = kernel.new_zeros(chunks, *kernel.shape, dtype=torch.float64)
    given = (u, spans, tables, kernel, drift, kept, grad_y, grad_end)
    room = (u.new_empty(4 * SEGMENT * LANES), u.new_empty(tables.shape[1], 2 * LANES))
    arrays = (*given, grad_u, grad_start, grad_tables, grad_kernel)
    _share("scan_backward", (ahead, chunk), chunks, arrays, room)
    return grad_u, _in_all(grad_tables, u), _in_all(grad_kernel, u), grad_start


def _in_all(grad: Tensor, u: Tensor) -> Tensor:
    """The sum over the chunks, in the precision of u; one chunk has nothing to sum."""
    return (grad[0] if len(grad) == 1 else grad.sum(0)).to(u.dtype)


def _fake_backward(
    grad_y: Tensor, grad_end: Tensor, *given: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    u, tables, kernel = (x.new_empty(x.shape) for x in given[:3])
    return u, tables, kernel, grad_end.new_empty(grad_end.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    u, tables, kernel, drift, _, start, spans, (ctx.ahead, _) = inputs
    # the start itself matters to second gradients alone
    ctx.save_for_backward(u, tables, kernel, drift, spans, output[2], start)
    ctx.set_materialize_grads(False)  # zeros for what is kept would be made in vain


def _differentiate(
    ctx: Any, grad_y: Tensor | None, grad_end: Tensor | None, _: Tensor | None
) -> tuple[Any, ...]:
    # unpacked once: a checkpoint computes each saved tensor again, and no more than once
    u, tables, kernel, drift, spans, kept, start = ctx.saved_tensors
    if again():
        inputs = (u, tables, kernel, start)
        plain = partial(_plain, drift=drift, spans=spans, ahead=ctx.ahead)
        grad_u, grad_tables, grad_kernel, grad_start = gradients(plain, inputs, (grad_y, grad_end))
        return grad_u, grad_tables, grad_kernel, None, None, grad_start, None, None
    grad_y = torch.zeros_like(u) if grad_y is None else grad_y
    grad_end = torch.zeros_like(start) if grad_end is None else grad_end
    given = (u, tables, kernel, drift, spans, kept)
    first: tuple[Tensor, ...] = _scan_backward(grad_y, grad_end, *given, ctx.ahead)
    return *first[:3], None, None, first[3], None, None


_scan = Operator("scan", _run, _fake, _keep, _differentiate)
_scan_backward = Operator("scan_backward", _run_backward, _fake_backward)


def _plain(
    u: Tensor, tables: Tensor, kernel: Tensor, start: Tensor, *, drift: Tensor, spans: Tensor,
    ahead: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """y and the state before the last block, in double precision and one block after the other."""
    channels, longest = u.shape[1], int(spans[:, 1].max())
    places = torch.arange(longest + -longest % BLOCK)
    inside = places < spans[:, 1:]  # (n, longest)
    places = spans[:, 1:] - 1 - places if ahead else places.expand(len(spans), -1)
    rows = (spans[:, :1] + places).where(inside, 0)
    x = torch.where(inside[..., None], u.double()[rows], 0.0).unflatten(1, (-1, BLOCK))
    table = from_lanes(tables.double(), channels)  # (H, M, 18)
    power = torch.complex(table[..., 0], table[..., 1])
    outputs = torch.complex(table[..., 2:6], -table[..., 6:10])  # (H, M, 4)
    inputs = torch.complex(table[..., 10:14], table[..., 14:])
    # exact again: the drift of a segment, spread over its blocks
    missed = torch.view_as_complex(from_lanes(drift.double(), channels).contiguous())
    power = power * torch.exp(torch.log1p(missed) * (BLOCK / SEGMENT))
    begin = from_lanes(start.double().transpose(0, 1).flatten(1, 2), channels)
    begin = begin.unflatten(1, (len(spans), -1)).transpose(0, 1).contiguous()
    states = [torch.view_as_complex(begin)]  # (n, H, M)
    for more in torch.einsum("bijh,hmj->bihm", x.to(inputs.dtype), inputs).unbind(1):
        states.append(power * states[-1] + more)
    every = torch.stack(states, 1)  # (n, blocks + 1, H, M)
    y = torch.einsum("bihm,hmj->bijh", every[:, :-1], outputs).real
    y = y + torch.einsum("bikh,hkj->bijh", x, toeplitz(from_lanes(kernel.double(), channels)))
    y = y.flatten(1, 2)
    if ahead:  # each answer one place further; that of the first sample falls off
        y, rows, inside = y[:, :-1], rows[:, 1:], inside[:, 1:]
    y = torch.zeros_like(u, dtype=y.dtype).index_put((rows[inside],), y[inside])
    end = every[torch.arange(len(spans)), (spans[:, 1] - 1).clamp(min=0) // BLOCK]  # (n, H, M)
    end = to_lanes(torch.view_as_real(end).transpose(0, 1).flatten(1, 2))
    end = end.unflatten(1, (len(spans), -1)).transpose(0, 1)
    return y.to(u.dtype), end.to(start.dtype)


def _share(
    name: str,
    options: tuple[int, ...],
    parts: int,
    arrays: tuple[Tensor, ...],
    room: tuple[Tensor, Tensor],
) -> None:
    (rows, _), (groups, modes, _) = arrays[0].shape, arrays[2].shape
    kernel = getattr(compiled_module(f"{__package__}.scan_code"), name)
    share(kernel, parts * groups, rows * modes * LANES // parts, options, arrays, room)
