"""The compiled scan over samples that are not evenly spaced, as an operator of torch.

Where few gaps occur, the steps of each come as tables, from any rule; else they are made on the
way, by the rules that ``steps_code`` knows.
"""

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from s4d_torch.ssm.autodiff import again, gradients
from s4d_torch.ssm.compiled.operator import Operator
from s4d_torch.ssm.compiled.runtime import LANES, as_read, compiled_module, in_large_pages, share
from s4d_torch.ssm.compiled.tables import from_lanes, to_lanes
from s4d_torch.ssm.discretization import BILINEAR, DIRAC, FOH, ZOH

RULES = (BILINEAR, ZOH, FOH, DIRAC)  # those whose steps are made on the way
CHUNKS = 2  # parts of a batch whose gradients are added up apart, for as many threads
SEGMENT = 64  # as in forward_code.py
LARGEST_ANGLE = 1e5  # as in complex_math.py
SMALLEST_STEP = 1e-5  # of a first-order hold, whose formula loses as many digits
TABLES = -1  # in place of a rule


class System(NamedTuple):
    """A system as the operator reads it, all in double precision.

    ``tables`` (G, M, gaps, 4 W): A_bar and B_now of each gap, real and imaginary parts, or 6 W
    with B_before, if it ``looks_back``; or without gaps ``modes`` (H, M, 4), as in ``steps_code``.
    ``C`` (H, M, 2) is the real row that reads a state, ``D`` (H,) the skip. ``rule`` is TABLES, or
    the number of one of RULES.
    """

    rule: int
    looks_back: bool
    tables: Tensor
    modes: Tensor
    C: Tensor
    D: Tensor


def run(
    u: Tensor, system: System, spans: Tensor, gaps: Tensor, which: Tensor, state: Tensor,
    before: Tensor, *, ahead: int = 0,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """u (rows, H), spans (n, 2), gaps and which (rows,), state (n, H, M) complex, before (n, H).

    y (rows, H), and the state just after each span, (n, H, M).
    """
    channels, n = u.shape[1], len(spans)
    parts = torch.view_as_real(state).transpose(0, 1).flatten(1, 2)  # (H, n M, 2)
    start = to_lanes(parts).unflatten(1, (n, -1)).transpose(0, 1).contiguous()
    first = to_lanes(before.T[..., None]).transpose(0, 1).contiguous()  # (n, G, W)
    lanes = (to_lanes(x) for x in (system.modes, system.C, system.D[:, None]))
    given = (system.tables, *lanes, start, first)
    keep = torch.is_grad_enabled() and any(x.requires_grad for x in (u, *given))
    options = [ahead, system.rule, int(system.looks_back), int(keep)]
    y, end, _ = _scan(u, spans, which, gaps, *given, options)
    parts = from_lanes(end.transpose(0, 1).flatten(1, 2), channels)
    parts = parts.unflatten(1, (n, -1)).transpose(0, 1).contiguous()
    return y, torch.view_as_complex(parts)


def safe(rule: int, modes: Tensor, gaps: Tensor, dtype: torch.dtype) -> bool:
    """Whether steps can be made on the way: no mode without any motion, no angle too large.

    A first-order hold only for signals in single precision, and steps that are not tiny.
    """
    z = modes[..., :2].detach()
    still = bool((z == 0).all(-1).any())
    if rule == FOH:
        smallest = float(z.norm(dim=-1).min() * gaps.min())
        if dtype == torch.float64 or not smallest > SMALLEST_STEP:
            return False
    return not still and float(z[..., 1].abs().max() * gaps.max()) < LARGEST_ANGLE


# -- the operator ----------------------------------------------------------------------------------


def _as_read(
    back: int, u: Tensor, spans: Tensor, which: Tensor, gaps: Tensor, **given: Tensor
) -> list[Tensor]:
    """All as compiled code reads it, in the same order."""
    rows, channels = u.shape
    n, groups = spans.shape[0], -(-channels // LANES)
    M = given["C"].shape[1]
    state = (n, groups, M, 2 * LANES)
    shapes = {
        "tables": (groups, M, given["tables"].shape[2], (6 if back else 4) * LANES),
        "modes": (groups, M, 4 * LANES) if given["modes"].shape[1] else (groups, 0, 4 * LANES),
        "C": (groups, M, 2 * LANES),
        "D": (groups, LANES),
        "start": state,
        "before": (n, groups, LANES),
        "grad_end": state,
    }
    (u,) = as_read(u.dtype, u=(u, (rows, channels)))
    indices = as_read(torch.int64, spans=(spans, (n, 2)), which=(which, (rows,)))
    times = as_read(torch.float64, gaps=(gaps, (rows,)))
    doubles = as_read(torch.float64, **{name: (x, shapes[name]) for name, x in given.items()})
    return [u, *indices, *times, *doubles]


def _segments(rows: int, spans: int) -> int:
    """Room for the segments of all spans, wherever they begin and end."""
    return rows // SEGMENT + spans


def _run(
    u: Tensor, spans: Tensor, which: Tensor, gaps: Tensor, tables: Tensor, modes: Tensor, C: Tensor,
    D: Tensor, start: Tensor, before: Tensor, options: list[int],
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """y, the state after each span, and states for the backward pass.

    options = (ahead, rule, looks back, keep).
    """
    named = {"tables": tables, "modes": modes, "C": C, "D": D, "start": start, "before": before}
    ahead, rule, back, keep = options
    read = _as_read(back, u, spans, which, gaps, **named)
    _check_modes(rule, modes, C)
    y, end, kept = _empty_outputs(u, start, keep)
    in_large_pages(y)
    if int(spans[:, 1].sum()) != len(y):
        y.zero_()
    arrays = (*read, y, end, in_large_pages(kept))
    room = _room(8 * SEGMENT + 1, C.shape[1])
    _share("forward", (ahead, rule, back), len(spans), arrays, room)
    return y, end, kept


def _check_modes(rule: int, modes: Tensor, C: Tensor) -> None:
    if rule != TABLES and (rule not in RULES or modes.shape[1] != C.shape[1]):
        raise ValueError(f"steps of rule {rule} cannot be made of modes {tuple(modes.shape)}")


def _room(vectors: int, modes: int) -> tuple[Tensor, ...]:
    """What a thread works in."""
    double = {"dtype": torch.float64, "device": "cpu"}
    ids = torch.empty(SEGMENT, dtype=torch.int64, device="cpu")
    work, state = torch.empty(vectors * LANES, **double), torch.empty(modes, 2 * LANES, **double)  # type: ignore[call-overload]
    times: Tensor = torch.empty(SEGMENT, **double)  # type: ignore[call-overload]
    return work, ids, times, state


def _empty_outputs(u: Tensor, start: Tensor, keep: int) -> tuple[Tensor, Tensor, Tensor]:
    segments = _segments(u.shape[0], start.shape[0]) if keep else 0
    kept = u.new_empty(segments, *start.shape[1:])
    return u.new_empty(u.shape), start.new_empty(start.shape), kept


def _fake(u: Tensor, *given: Any) -> tuple[Tensor, Tensor, Tensor]:
    *_, start, _, options = given
    return _empty_outputs(u, start, options[3])


def _run_backward(
    grad_y: Tensor, grad_end: Tensor, u: Tensor, spans: Tensor, which: Tensor, gaps: Tensor,
    tables: Tensor, modes: Tensor, C: Tensor, D: Tensor, before: Tensor, kept: Tensor,
    options: list[int],
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Of u, tables, modes, C, D, start and before."""
    named = {"tables": tables, "modes": modes, "C": C, "D": D, "before": before}
    ahead, rule, back, _ = options
    *read, grad_end = _as_read(back, u, spans, which, gaps, **named, grad_end=grad_end)
    segments = (_segments(u.shape[0], len(spans)), *grad_end.shape[1:])
    kept, grad_y = as_read(u.dtype, kept=(kept, segments), grad_y=(grad_y, tuple(u.shape)))
    _check_modes(rule, modes, C)
    chunk = -(-len(spans) // CHUNKS)
    chunks = -(-len(spans) // chunk)
    grad_u = in_large_pages(torch.empty_like(read[0]))
    if int(spans[:, 1].sum()) != len(grad_u):
        grad_u.zero_()
    ends = torch.empty_like(grad_end), torch.empty_like(before)
    sums = [u.new_zeros(chunks, *tables.shape)]
    sums += [x.new_zeros(chunks, *x.shape) for x in (modes, C, D)]
    arrays = (*read, kept, grad_y, grad_end, grad_u, *ends, *sums)
    work, *others = _room(8 * SEGMENT + 2, C.shape[1])
    room = work, u.new_empty((10 * SEGMENT + 3) * LANES), *others
    _share("backward", (ahead, chunk, rule, back), chunks, arrays, room)
    a, b, c, d = (x.sum(0, dtype=torch.float64) for x in sums)
    return grad_u, a, b, c, d, *ends


def _fake_backward(*given: Any) -> tuple[Tensor, ...]:
    _, grad_end, u, _, _, _, tables, modes, C, D, before, *_ = given
    a, b, c, d, e, f, g = (torch.empty_like(x) for x in (u, tables, modes, C, D, grad_end, before))
    return a, b, c, d, e, f, g


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.options = inputs
    ctx.save_for_backward(*tensors, output[2])
    ctx.set_materialize_grads(False)


def _differentiate(
    ctx: Any, grad_y: Tensor | None, grad_end: Tensor | None, _: Tensor | None
) -> tuple[Any, ...]:
    u, spans, which, gaps, tables, modes, C, D, start, before, kept = ctx.saved_tensors
    if again():
        inputs = (u, tables, modes, C, D, start, before)
        plain = partial(_plain, spans=spans, which=which, gaps=gaps, options=ctx.options)
        of_u, *others = gradients(plain, inputs, (grad_y, grad_end))
        return of_u, None, None, None, *others, None
    grad_y = torch.zeros_like(u) if grad_y is None else grad_y
    grad_end = torch.zeros_like(start) if grad_end is None else grad_end
    given = (u, spans, which, gaps, tables, modes, C, D, before, kept)
    of_u, *others = _scan_backward(grad_y, grad_end, *given, ctx.options)
    return of_u, None, None, None, *others, None


_scan = Operator("irregular_scan", _run, _fake, _keep, _differentiate)
_scan_backward = Operator("irregular_scan_backward", _run_backward, _fake_backward)


def _plain(
    u: Tensor, tables: Tensor, modes: Tensor, C: Tensor, D: Tensor, start: Tensor, before: Tensor,
    *, spans: Tensor, which: Tensor, gaps: Tensor, options: list[int],
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """y and the states at the ends, one sample after the other: what torch can differentiate."""
    ahead, rule, _, _ = options
    channels, n, longest = u.shape[1], len(spans), int(spans[:, 1].max())
    places = torch.arange(longest)
    inside = places < spans[:, 1:]  # (n, longest)
    places = spans[:, 1:] - 1 - places if ahead else places.expand(n, -1)
    rows = (spans[:, :1] + places).where(inside, 0)
    steps = _plain_steps(rule, tables, modes, gaps, which, channels)
    x = from_lanes(start.transpose(0, 1).flatten(1, 2), channels).unflatten(1, (n, -1))
    x = torch.view_as_complex(x.transpose(0, 1).contiguous())  # (n, H, M)
    late = from_lanes(before.transpose(0, 1), channels)[..., 0].T  # (n, H)
    ys = []
    row = torch.view_as_complex(from_lanes(C, channels).contiguous()).conj()
    skip = from_lanes(D, channels)[:, 0]
    for t in range(longest):
        sample = u[rows[:, t]].double()
        A, now, last = steps(rows[:, t])
        after = A * x + now * sample[..., None] + last * late[..., None]
        here = inside[:, t, None]
        x, late = torch.where(here[..., None], after, x), torch.where(here, sample, late)
        ys.append((after * row).sum(-1).real + skip * sample)
    y = torch.stack(ys, 1)
    if ahead:  # each answer one place further; that of the first sample falls off
        y, rows, inside = y[:, :-1], rows[:, 1:], inside[:, 1:]
    y = torch.zeros_like(u, dtype=y.dtype).index_put((rows[inside],), y[inside])
    end = to_lanes(torch.view_as_real(x).transpose(0, 1).flatten(1, 2))
    return y.to(u.dtype), end.unflatten(1, (n, -1)).transpose(0, 1)


def _plain_steps(
    rule: int, tables: Tensor, modes: Tensor, gaps: Tensor, which: Tensor, channels: int
) -> Any:
    """A function of rows (n,) that gives A, B_now and B_before, (n, H, M)."""
    if rule == TABLES:
        table = torch.view_as_complex(
            from_lanes(tables, channels).unflatten(-1, (-1, 2)).contiguous()
        )  # (H, M, gaps, 2 or 3)

        def look_up(rows: Tensor) -> Any:
            A, now, *before = table[:, :, which[rows]].permute(3, 2, 0, 1).unbind(0)
            return A, now, before[0] if before else torch.zeros_like(now)

        return look_up
    z, b = torch.view_as_complex(
        from_lanes(modes, channels).unflatten(-1, (2, 2)).contiguous()
    ).unbind(-1)

    def make(rows: Tensor) -> Any:
        r = gaps[rows][:, None, None]
        if rule == ZOH:
            power = torch.exp(r * z)
            return power, b / z * (power - 1), torch.zeros_like(power)
        if rule == DIRAC:
            power = torch.exp(r * z)
            return power, b.expand_as(power), torch.zeros_like(power)
        if rule == FOH:
            power = torch.exp(r * z)
            mean = (power - 1) / (r * z)
            return power, b / z * (mean - 1), b / z * (power - mean)
        w = 1 / (1 - 0.5 * r * z)
        return 2 * w - 1, r * b * w, torch.zeros_like(w)

    return make


def _share(
    name: str, options: tuple[int, ...], parts: int, arrays: tuple[Tensor, ...], room: Any
) -> None:
    (rows, _), (groups, modes, _) = arrays[0].shape, arrays[6].shape
    kernel = getattr(compiled_module(f"{__package__}.{name}_code"), f"irregular_{name}")
    share(kernel, parts * groups, 4 * rows * modes * LANES // parts, options, arrays, room)
