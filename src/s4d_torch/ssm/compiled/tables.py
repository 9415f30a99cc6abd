"""Systems as the compiled scan reads them: from a discrete step, or from stored parameters.

The latter is an operator of torch, many times faster than what it does in torch's own.
"""

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from s4d_torch.ssm.autodiff import again, gradients
from s4d_torch.ssm.compiled.formulas import as_stored, of_sets, per_channel, stored_system
from s4d_torch.ssm.compiled.operator import Operator
from s4d_torch.ssm.compiled.runtime import LANES, as_read, compiled_module, share
from s4d_torch.ssm.discretization import FOH, Discrete

BLOCK = 4  # samples that the scan takes at a time
SEGMENT = 256  # samples between the states it keeps for the backward pass
ROWS = 18  # of the tables of a mode: power, outputs_0..3, inputs_0..3, real and imaginary parts
ENDS = 5  # of a mode for the ends of a sequence: A_bar, its square and its cube, B_now, B_before

Tables = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


class ScanTables(NamedTuple):
    """A system as the compiled scan reads it, four samples at a time; see ``scan_code``.

    tables (G, M, 18 W), kernel (G, 4 W), drift (G, M, 2 W), and in double precision carry (G, M,
    2 W). Channels come in G groups of W; those that a last group lacks are zeros. ``ends``
    (H, 5, M, 2), also double, is for the two ends of a sequence: the first three powers of A_bar,
    B_now and B_before. ``looks_back`` says whether the latter is more than zeros. A mode is a
    conjugate pair or not.
    """

    tables: Tensor
    kernel: Tensor
    drift: Tensor
    carry: Tensor
    ends: Tensor
    pairs: bool
    looks_back: bool


def to_lanes(x: Tensor) -> Tensor:
    """Channels (H, ..., rows) to groups of them, (G, ..., rows W): neighbours lie side by side."""
    x = torch.nn.functional.pad(x, (*(2 * (x.ndim - 1)) * (0,), 0, -x.shape[0] % LANES))
    return x.unflatten(0, (-1, LANES)).movedim(1, -1).flatten(-2).contiguous()


def from_lanes(x: Tensor, channels: int) -> Tensor:
    """The inverse of :func:`to_lanes`."""
    x = x.unflatten(-1, (-1, LANES)).movedim(-1, 1)
    return x.flatten(0, 1)[:channels]


def make_tables(
    step: Discrete, C: Tensor, direct: Tensor, dtype: torch.dtype, pairs: bool
) -> ScanTables:
    """The tables of ``y = C s + direct u, s <- A_bar s + B_next u``; C (H, M), direct (H,).

    C already holds the factor 2 of conjugate pairs.
    """
    A_bar, B, before = step.A_bar, step.into_state, step.B_before
    A2 = A_bar * A_bar
    powers = torch.stack([torch.ones_like(A_bar), A_bar, A2, A2 * A_bar], dim=-1)  # (H, M, 4)
    outputs = C[..., None] * powers
    inputs = (B[..., None] * powers).flip(-1)
    lagged = (outputs[..., :3] * B[..., None]).real.sum(1)  # C A^j B, j < 3
    power = A2 * A2
    parts = [power.real[..., None], power.imag[..., None]]
    parts += [outputs.real, -outputs.imag, inputs.real, inputs.imag]
    kernel = torch.cat([direct[:, None], lagged], dim=-1)
    power = power.detach()
    carry = torch.view_as_real(power ** (SEGMENT // BLOCK))
    drift = torch.view_as_real(_drift(power, dtype))
    entering = [step.B_now, torch.zeros_like(B) if before is None else before]
    ends = torch.view_as_real(torch.stack([*powers.unbind(-1)[1:], *entering], dim=1))
    tables = torch.cat(parts, dim=-1)
    tables, kernel, drift = (to_lanes(x.to(dtype)) for x in (tables, kernel, drift))
    return ScanTables(tables, kernel, drift, to_lanes(carry), ends, pairs, before is not None)


def _drift(power: Tensor, dtype: torch.dtype) -> Tensor:
    """What a segment of rounded powers has to be multiplied with, less 1."""
    rounded = torch.complex(power.real.to(dtype), power.imag.to(dtype)).to(power.dtype)
    ratio = torch.where(rounded.abs() > 1e-6, power / rounded, torch.ones_like(power))
    return ratio ** (SEGMENT // BLOCK) - 1


# -- straight from stored parameters ---------------------------------------------------------------


def stored_tables(
    codes: tuple[int, int], rate: float, decay: Tensor, frequency: Tensor, B: Tensor, C: Tensor,
    log_dt: Tensor, D: Tensor, *, pairs: bool,
) -> ScanTables:  # fmt: skip
    """What :func:`make_tables` gives, from the parameters as a module stores them.

    ``codes`` are the numbers of the discretisation and the constraint; decay, frequency
    (sets, modes), B (sets, modes, 2), C (H, modes, 2), log_dt, D (H,).
    """
    made: Tables = _tables([*codes, int(pairs)], rate, decay, frequency, B, C, log_dt, D)
    return ScanTables(*made, pairs, codes[0] == FOH)


def _run(
    options: list[int], rate: float, decay: Tensor, frequency: Tensor, B: Tensor, C: Tensor,
    log_dt: Tensor, D: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    stored = as_stored(decay, frequency, B, C, log_dt, D)
    made = _empty_tables(decay, log_dt)
    if log_dt.shape[0] % LANES:
        for x in made[:4]:
            x[-1].zero_()  # the channels that the last group lacks
    run = compiled_module(f"{__package__}.tables_code").tables_forward
    work = decay.shape[1] * 64 * LANES
    share(run, made[0].shape[0], work, (tuple(options), rate), (*stored, *made))
    return made


def _fake(options: list[int], rate: float, decay: Tensor, *stored: Tensor) -> Tables:
    return _empty_tables(decay, stored[-2])


def _run_backward(
    grad_tables: Tensor, grad_kernel: Tensor, grad_ends: Tensor, options: list[int],
    rate: float, decay: Tensor, frequency: Tensor, B: Tensor, C: Tensor, log_dt: Tensor,
    D: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    stored = as_stored(decay, frequency, B, C, log_dt, D)
    sets, modes, channels = *decay.shape, log_dt.shape[0]
    grads = (*per_channel(decay, B, channels), torch.empty_like(C), torch.empty_like(log_dt))
    groups = -(-channels // LANES)
    given = as_read(
        decay.dtype,
        tables=(grad_tables, (groups, modes, ROWS * LANES)),
        kernel=(grad_kernel, (groups, 4 * LANES)),
    )
    given += as_read(torch.float64, ends=(grad_ends, (channels, ENDS, modes, 2)))
    run = compiled_module(f"{__package__}.tables_code").tables_backward
    share(run, groups, modes * 128 * LANES, (tuple(options), rate), (*stored, *given, *grads))
    a, b, c = (of_sets(grad, sets) for grad in grads[:3])
    of_D = from_lanes(grad_kernel, channels)[:, 0].clone()
    return a, b, c, grads[3], grads[4], of_D


def _fake_backward(*given: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    a, b, c, d, e, f = (torch.empty_like(x) for x in given[5:])
    return a, b, c, d, e, f


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.options, ctx.rate = inputs[:2]
    ctx.save_for_backward(*inputs[2:])
    ctx.set_materialize_grads(False)  # most have none
    ctx.shapes = [output[i].shape for i in (0, 1, 4)]


def _differentiate(
    ctx: Any, grad_tables: Any, grad_kernel: Any, _: Any, __: Any, grad_ends: Any
) -> tuple[Any, ...]:
    stored, given = ctx.saved_tensors, [grad_tables, grad_kernel, grad_ends]
    if again():
        plain = partial(_plain, ctx.options, ctx.rate)
        return None, None, *gradients(plain, stored, given)
    dtypes = (stored[0].dtype, stored[0].dtype, torch.float64)
    for i, (shape, dtype) in enumerate(zip(ctx.shapes, dtypes, strict=True)):
        if given[i] is None:
            given[i] = stored[0].new_zeros(shape, dtype=dtype)
    grads = _tables_backward(*given, ctx.options, ctx.rate, *stored)
    return None, None, *grads


def _plain(
    options: list[int], rate: float, decay: Tensor, frequency: Tensor, B: Tensor, C: Tensor,
    log_dt: Tensor, D: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Those that have a gradient: tables, kernel and ends."""
    rule, constraint, pairs = options
    step, c = stored_system((rule, constraint), rate, decay, frequency, B, C, log_dt)
    c = 2 * c if pairs else c
    direct = (c * step.B_now).real.sum(-1) + D.double()
    made = make_tables(step, c, direct, decay.dtype, bool(pairs))
    return made.tables, made.kernel, made.ends


_tables = Operator("scan_tables", _run, _fake, _keep, _differentiate)
_tables_backward = Operator("scan_tables_backward", _run_backward, _fake_backward)


def _empty_tables(decay: Tensor, log_dt: Tensor) -> Tables:
    modes, channels = decay.shape[1], log_dt.shape[0]
    groups, double = -(-channels // LANES), torch.float64
    return (
        decay.new_empty(groups, modes, ROWS * LANES),
        decay.new_empty(groups, 4 * LANES),
        decay.new_empty(groups, modes, 2 * LANES),
        decay.new_empty(groups, modes, 2 * LANES, dtype=double),
        decay.new_empty(channels, ENDS, modes, 2, dtype=double),
    )
