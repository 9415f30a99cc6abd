"""The plan of a model as the flat arrays of the compiled step; ``step_code`` has their layout."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from s4d_torch.nn.norm import FoldedNorm
from s4d_torch.nn.plan import AffinePlan, ModelPlan, SystemPlan
from s4d_torch.ssm.compiled.runtime import compiled_module
from s4d_torch.ssm.pairs import to_complex

TINY = 1e-200  # a mode that inputs hardly reach is scaled by this, not by its B

Array = Any


class StepTables(NamedTuple):
    """The constant arrays of ``step_code``; ``scale`` and ``unscale`` are for states."""

    plan: Array
    weights: Array
    cells: Array
    reads: Array
    scale: Array
    unscale: Array


class SystemTables(NamedTuple):
    """One system in scaled modes: taps (block, H), cell (H, M, 4 + 4 rank), read (H, M, 2)."""

    taps: Tensor
    cell: Tensor
    read: Tensor
    scale: Tensor


@torch.no_grad()
def make_tables(
    plan: ModelPlan, rows: int, block: int, lanes: int, dtype: torch.dtype
) -> StepTables:
    """``rows`` sequences, ``block`` samples between two runs of a mode, ``lanes`` in a group."""
    systems = [system_tables(layer.past, block) for layer in plan.blocks]
    flat = [part.double().flatten() for part in _weights(plan, systems, lanes)]
    return StepTables(
        plan=_options(plan, rows, block, dtype),
        weights=torch.cat(flat).to(dtype).numpy(),
        cells=torch.stack([_grouped(system.cell, lanes) for system in systems]).numpy(),
        reads=torch.stack([_grouped(system.read, lanes) for system in systems]).numpy(),
        scale=torch.stack([_parts(1 / system.scale) for system in systems]).numpy(),
        unscale=torch.stack([_parts(system.scale) for system in systems]).numpy(),
    )


def system_tables(plan: SystemPlan, block: int) -> SystemTables:
    pairs = plan.kind != "real"
    rows = plan.tables(block)[0]  # (H, block, S)
    lagged = (rows[:, : block - 1] * plan.input[:, None]).sum(-1)
    taps = torch.cat([plan.direct[:, None], lagged], dim=1).T
    B = to_complex(plan.input.contiguous(), pairs)
    scale = torch.where(B.abs() < TINY, torch.full_like(B, TINY), B)
    cell = [_parts(to_complex(plan.diagonal, pairs)), _row(rows[:, block - 1], scale, pairs)]
    if plan.kind == "low rank":
        for left, right in zip(plan.left.unbind(-1), plan.right.unbind(-2), strict=True):
            cell += [_parts(to_complex(left.contiguous()) / scale), _row(right, scale, pairs)]
    return SystemTables(taps, torch.cat(cell, dim=-1), _row(rows[:, 0], scale, pairs), scale)


def _parts(x: Tensor) -> Tensor:
    """(H, M) complex -> (H, M, 2)."""
    return torch.view_as_real(x.resolve_conj())


def _row(row: Tensor, scale: Tensor, pairs: bool) -> Tensor:
    """A real row over the state -> the one over real and imaginary parts of scaled modes."""
    weights = to_complex(row.contiguous(), pairs).conj()
    return _parts((weights * scale).conj())


def _grouped(x: Tensor, lanes: int) -> Tensor:
    """(H, M, F) -> (groups, M, F, lanes), with zeros for channels that are not there."""
    x = nn.functional.pad(x, (0, 0, 0, 0, 0, -x.shape[0] % lanes))
    return x.unflatten(0, (-1, lanes)).permute(0, 2, 3, 1).contiguous()


def _options(plan: ModelPlan, rows: int, block: int, dtype: torch.dtype) -> Array:
    code = compiled_module("s4d_torch.nn.stepping.step_code")
    norm = plan.blocks[0].norm
    assert norm is not None
    options = {
        code.ROWS: rows,
        code.TOWERS: plan.towers,
        code.INPUTS: plan.d_input,
        code.WIDTH: plan.d_model,
        code.OUTPUTS: plan.d_output,
        code.BLOCK: block,
        code.EMBEDDING: plan.tokens,
        code.NORM: norm.kind,
        code.PRENORM: plan.prenorm,
        code.ACTIVATION: plan.activation.compiled,
        code.MIXING: plan.mixing.compiled,
        code.MEAN: plan.pooling == "mean",
        code.EXACT: dtype == torch.float64,
    }
    return np.array([options[place] for place in sorted(options)], dtype=np.int64)


def _weights(plan: ModelPlan, systems: list[SystemTables], lanes: int) -> Iterator[Tensor]:
    """All weights in the order of use; matrices as (inputs, outputs)."""
    first = plan.blocks[0].norm
    yield torch.tensor(0.0 if first is None else first.eps, dtype=torch.float64)
    if isinstance(plan.encoder, AffinePlan):
        yield from _affine(plan.encoder)
    else:
        yield plan.encoder
    for block, system in zip(plan.blocks, systems, strict=True):
        yield from _scale_and_shift(block.norm)
        yield nn.functional.pad(system.taps, (0, -plan.d_model % lanes))
        if block.linear is not None:
            yield from _affine(block.linear)
    yield from _scale_and_shift(plan.norm)
    for part in plan.decoder:
        yield from _affine(part)


def _affine(plan: AffinePlan) -> tuple[Tensor, Tensor]:
    return plan.weight.T, plan.bias


def _scale_and_shift(norm: FoldedNorm | None) -> tuple[Tensor, Tensor]:
    assert norm is not None, "models with a norm of no compiled form step by themselves"
    return norm.scale, norm.shift
