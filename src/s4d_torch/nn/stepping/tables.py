"""The plan of a model as the constant arrays of the compiled step; see ``layout``."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from s4d_torch.nn.norm import FoldedNorm, NormKind
from s4d_torch.nn.plan import AffinePlan, ModelPlan, SystemPlan
from s4d_torch.nn.stepping import layout
from s4d_torch.nn.stepping.layout import BLOCK, W, padded
from s4d_torch.ssm.pairs import to_complex

TINY = 1e-200  # a mode that inputs hardly reach is scaled by this, not by its B
INPUTS = 4  # of a linear map that are read at once

Array = Any


@dataclass(frozen=True)
class StepTables:
    """The constant arrays of the step; ``scale`` (layers, 1, H, modes), complex, is for states."""

    plan: Array
    weights: Array
    cells: Array
    scale: Array
    systems: list[SystemPlan]
    _rows: dict[int, Array] = field(default_factory=dict)

    def rows(self, samples: int) -> Array:
        """``C A_bar^j``, (layers, H, samples, S): by them a state sends its first outputs.

        Large, and of no use to a stream that starts from rest, so made when first asked for.
        """
        if samples not in self._rows:
            each = [plan.tables(samples)[0][:, :samples] for plan in self.systems]
            self._rows[samples] = torch.stack(each).numpy()
        return self._rows[samples]


class SystemTables(NamedTuple):
    """One system in scaled modes: taps (H, BLOCK), cell (H, M, 4 + 4 rank), scale (H, M)."""

    taps: Tensor
    cell: Tensor
    scale: Tensor


@torch.no_grad()
def make_tables(plan: ModelPlan, rows: int, dtype: torch.dtype) -> StepTables:
    """For ``rows`` sequences at a time."""
    systems = [system_tables(block.past) for block in plan.blocks]
    weights = [part.double().flatten() for part in _weights(plan, systems)]
    cells = torch.stack([_grouped(system.cell) for system in systems])
    return StepTables(
        plan=_options(plan, rows, cells),
        weights=torch.cat(weights).to(dtype).numpy(),
        cells=cells.flatten().numpy(),
        scale=torch.stack([system.scale for system in systems])[:, None].resolve_conj().numpy(),
        systems=[block.past for block in plan.blocks],
    )


def system_tables(plan: SystemPlan) -> SystemTables:
    pairs = plan.kind != "real"
    rows = plan.tables(BLOCK)[0]  # (H, BLOCK, S)
    lagged = (rows[:, : BLOCK - 1] * plan.input[:, None]).sum(-1)
    taps = torch.cat([plan.direct[:, None], lagged], dim=1)
    B = to_complex(plan.input.contiguous(), pairs)
    scale = torch.where(B.abs() < TINY, torch.full_like(B, TINY), B)
    cell = [_parts(to_complex(plan.diagonal, pairs)), _row(rows[:, BLOCK - 1], scale, pairs)]
    if plan.kind == "low rank":
        for left, right in zip(plan.left.unbind(-1), plan.right.unbind(-2), strict=True):
            cell += [_parts(to_complex(left.contiguous()) / scale), _row(right, scale, pairs)]
    return SystemTables(taps, torch.cat(cell, dim=-1), scale)


def _parts(x: Tensor) -> Tensor:
    """(H, M) complex -> (H, M, 2)."""
    return torch.view_as_real(x.resolve_conj())


def _row(row: Tensor, scale: Tensor, pairs: bool) -> Tensor:
    """A real row over the state -> the one over real and imaginary parts of scaled modes."""
    weights = to_complex(row.contiguous(), pairs).conj()
    return _parts((weights * scale).conj())


def _options(plan: ModelPlan, rows: int, cells: Tensor) -> Array:
    layers, groups, modes, width, _ = cells.shape
    options = {
        layout.ROWS: rows,
        layout.TOWERS: plan.towers,
        layout.LAYERS: layers,
        layout.GROUPS: groups,
        layout.MODES: modes,
        layout.RANK: (width - 4) // 4,
        layout.INPUTS: plan.d_input if plan.tokens else padded(plan.d_input, INPUTS),
        layout.WIDTH: plan.d_model,
        layout.OUTPUTS: plan.d_output,
        layout.EMBEDDING: plan.tokens,
        layout.PRENORM: plan.prenorm,
        layout.ACTIVATION: plan.activation.compiled,
        layout.MIXING: plan.mixing.compiled,
        layout.MEAN: plan.pooling == "mean",
    }
    return np.array([options[place] for place in sorted(options)], dtype=np.int64)


# -- weights ---------------------------------------------------------------------------------------


def _weights(plan: ModelPlan, systems: list[SystemTables]) -> Iterator[Tensor]:
    """All weights in the order of use."""
    width = plan.d_model
    yield _padded(torch.ones(width), 0)  # which channels there are
    if isinstance(plan.encoder, AffinePlan):
        yield _affine(plan.encoder, multiple=INPUTS)
    else:
        yield _padded(plan.encoder, 1)
    none = FoldedNorm(NormKind.NONE, torch.ones(width), torch.zeros(width))
    norms = [block.norm for block in plan.blocks]
    *before, last = [*norms, plan.norm] if plan.prenorm else [none, *norms]
    # lag -i modulo K, twice: the ring, read from its beginning, begins with any lag
    lags = -torch.arange(2 * BLOCK) % BLOCK
    for norm, block, system in zip(before, plan.blocks, systems, strict=True):
        yield from _norm(norm)
        yield _grouped(system.taps[:, lags])
        if block.linear is not None:
            yield _affine(block.linear, branches=len(block.linear.bias) // width)
    yield from _norm(last)
    for part in plan.decoder:
        yield _affine(part, parts=part.weight.shape[1] // width)


def _norm(norm: FoldedNorm | None) -> tuple[Tensor, Tensor, Tensor]:
    assert norm is not None, "models with a norm of no compiled form step by themselves"
    eps = norm.eps if norm.kind == NormKind.LAYER else -1.0
    return (
        torch.full((W,), eps, dtype=torch.float64),
        _padded(norm.scale, 0),
        _padded(norm.shift, 0),
    )


def _affine(plan: AffinePlan, multiple: int = W, branches: int = 1, parts: int = 1) -> Tensor:
    """(groups, 1 + inputs, W): for each group of outputs their biases, then their weights.

    Outputs are ``branches`` of whole groups, inputs ``parts`` of a multiple each.
    """
    weight = _padded(plan.weight.double().unflatten(1, (parts, -1)), 2, multiple).flatten(1)
    both = torch.cat([plan.bias.double()[:, None], weight], dim=1)
    return torch.cat([_grouped(branch) for branch in both.unflatten(0, (branches, -1))])


def _grouped(x: Tensor) -> Tensor:
    """(H, ...) -> (groups, ..., W), with zeros for channels that are not there."""
    return _padded(x, 0).unflatten(0, (-1, W)).movedim(1, -1).contiguous()


def _padded(x: Tensor, dim: int, multiple: int = W) -> Tensor:
    """With zeros up to a multiple."""
    lacking = list(x.shape)
    lacking[dim] = -x.shape[dim] % multiple
    return torch.cat([x, x.new_zeros(lacking)], dim)
