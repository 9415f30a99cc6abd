"""Systems as the compiled scan reads them: from a discrete step, or from stored parameters.

The latter is an operator of torch, many times faster than what it does in torch's own.
"""

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from s4d_torch.ssm.autodiff import again, gradients
from s4d_torch.ssm.compiled.formulas import as_stored, stored_system
from s4d_torch.ssm.compiled.runtime import as_read, compiled_module, share

BLOCK, SEGMENT = 4, 256  # as in scan_code.py, which needs numba to be imported

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
    return ScanTables(*made, decay.shape[1], pairs)


@torch.library.custom_op("s4d_torch::scan_tables", mutates_args=())
def _tables(
    options: list[int], rate: float, decay: Tensor, frequency: Tensor, B: Tensor, C: Tensor,
    log_dt: Tensor, D: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    stored = as_stored(decay, frequency, B, C, log_dt, D)
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
    stored = as_stored(decay, frequency, B, C, log_dt, D)
    grads = [torch.zeros_like(x, dtype=torch.float64) for x in stored[:5]]
    channels, size = log_dt.shape[0], 2 * padded(decay.shape[1])
    shapes = {"tables": (grad_tables, (channels, 9 * size)), "kernel": (grad_kernel, (channels, 4))}
    given = as_read(decay.dtype, **shapes)
    given += as_read(torch.float64, powers=(grad_powers, (channels, 3, size)))
    run = compiled_module(f"{__package__}.tables_code").tables_backward
    sets = decay.shape[0]
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
    given, stored = (grad_tables, grad_kernel, grad_powers), ctx.saved_tensors
    if again():
        plain = partial(_plain, ctx.options, ctx.rate)
        return None, None, *gradients(plain, stored, given)
    grads = _tables_backward(*given, ctx.options, ctx.rate, *stored)
    return None, None, *grads, grad_kernel[:, 0]


def _plain(
    options: list[int], rate: float, decay: Tensor, frequency: Tensor, B: Tensor, C: Tensor,
    log_dt: Tensor, D: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Those that have a gradient: tables, kernel and powers."""
    rule, constraint, pairs = options
    step, c = stored_system((rule, constraint), rate, decay, frequency, B, C, log_dt)
    c = 2 * c if pairs else c
    direct = (c * step.B_now).real.sum(-1) + D.double()
    made = make_tables(step.A_bar, step.into_state, c, direct, decay.dtype, bool(pairs))
    return made.tables, made.kernel, made.powers


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
