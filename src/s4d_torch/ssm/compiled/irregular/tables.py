"""The steps of the gaps that occur as tables, from the modes of a system: an operator of torch."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from s4d_torch.ssm.autodiff import again, gradients
from s4d_torch.ssm.compiled.operator import Operator
from s4d_torch.ssm.compiled.runtime import LANES, as_read, compiled_module, share
from s4d_torch.ssm.compiled.tables import to_lanes
from s4d_torch.ssm.discretization import DIRAC, ZOH


def make_tables(rule: int, modes: Tensor, gaps: Tensor) -> Tensor:
    """Modes (H, M, 4), as in ``steps_code``, gaps (n,) -> A_bar and B_now, (G, M, n, 4 W)."""
    tables: Tensor = _tables(to_lanes(modes), gaps, rule)
    return tables


def _as_read(modes: Tensor, gaps: Tensor, **more: Tensor) -> list[Tensor]:
    groups, count, _ = modes.shape
    shape = (groups, count, gaps.shape[0], 4 * LANES)
    same = {name: (x, shape) for name, x in more.items()}
    given = {"modes": (modes, (groups, count, 4 * LANES)), "gaps": (gaps, (gaps.shape[0],))}
    return as_read(torch.float64, **given, **same)


def _run(modes: Tensor, gaps: Tensor, rule: int) -> Tensor:
    modes, gaps = _as_read(modes, gaps)
    tables = _fake(modes, gaps, rule)
    _share("steps_forward", rule, (modes, gaps, tables))
    return tables


def _fake(modes: Tensor, gaps: Tensor, rule: int) -> Tensor:
    return modes.new_empty(*modes.shape[:2], gaps.shape[0], modes.shape[2])


def _run_backward(
    grad_tables: Tensor, modes: Tensor, gaps: Tensor, tables: Tensor, rule: int
) -> Tensor:
    modes, gaps, tables, grad = _as_read(modes, gaps, tables=tables, grad=grad_tables)
    grad_modes = torch.zeros_like(modes)
    _share("steps_backward", rule, (modes, gaps, tables, grad, grad_modes))
    return grad_modes


def _fake_backward(grad_tables: Tensor, modes: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(modes)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    modes, gaps, ctx.rule = inputs
    ctx.save_for_backward(modes, gaps, output)


def _differentiate(ctx: Any, grad_tables: Tensor) -> tuple[Any, ...]:
    modes, gaps, tables = ctx.saved_tensors
    if again():
        plain = partial(_plain, gaps=gaps, rule=ctx.rule)
        return *gradients(plain, (modes,), (grad_tables,)), None, None
    return _tables_backward(grad_tables, modes, gaps, tables, ctx.rule), None, None


_tables = Operator("irregular_tables", _run, _fake, _keep, _differentiate)
_tables_backward = Operator("irregular_tables_backward", _run_backward, _fake_backward)


def _plain(modes: Tensor, *, gaps: Tensor, rule: int) -> Tensor:
    parts = modes.unflatten(-1, (4, LANES))
    z, b = (torch.complex(parts[..., i, :], parts[..., i + 1, :])[:, :, None] for i in (0, 2))
    r = gaps[:, None]
    if rule == ZOH:
        A = torch.exp(r * z)
        B = b / z * (A - 1)
    elif rule == DIRAC:
        A = torch.exp(r * z)
        B = b.expand_as(A)
    else:
        w = 1 / (1 - 0.5 * r * z)
        A, B = 2 * w - 1, r * b * w
    return torch.stack([A.real, A.imag, B.real, B.imag], dim=-2).flatten(-2)


def _share(name: str, rule: int, arrays: tuple[Tensor, ...]) -> None:
    groups, modes, _ = arrays[0].shape
    kernel = getattr(compiled_module(f"{__package__}.steps_code"), name)
    share(kernel, groups, 16 * modes * arrays[1].shape[0] * LANES, (rule,), arrays)
