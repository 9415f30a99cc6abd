"""A model as a few flat arrays: everything the compiled step needs, folded once.

Discretised systems, evaluation statistics of BatchNorm and the skip D disappear into tables; see
``compiled_step`` for their layout.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from s4d_torch.nn.block import Block, NoNorm, SequenceBatchNorm, SequenceNorm
from s4d_torch.nn.method import Method
from s4d_torch.nn.ssm import SSM
from s4d_torch.nn.state import ModelState
from s4d_torch.ssm.compiled.runtime import compiled_module
from s4d_torch.ssm.discretization import bilinear_low_rank
from s4d_torch.ssm.pairs import to_complex
from s4d_torch.ssm.recurrence import DiagonalSystem

TINY = 1e-200  # a mode that inputs hardly reach is scaled by this, not by its B

Array = Any


class Model(Protocol):
    """What of a :class:`SequenceModel` is packed, run and asked for errors."""

    config: dict[str, Any]
    method: Method
    d_input: int
    d_output: int
    d_model: int
    towers: int
    check_finite: bool

    @property
    def encoder(self) -> nn.Module: ...
    @property
    def norm(self) -> nn.Module: ...
    @property
    def decoder(self) -> nn.Module: ...
    def step(self, u: Tensor, state: ModelState, *, rate: float) -> tuple[Tensor, ModelState]: ...
    def initial_state(self, batch_size: int) -> ModelState: ...
    def _each_block(self) -> list[Block]: ...
    def _check_input(self, u: Tensor, step: bool) -> None: ...
    def _check_values(self, u: Tensor) -> None: ...
    def _check_state(self, state: ModelState, batch: int) -> None: ...


class Packed(NamedTuple):
    """The constant arrays of ``compiled_step``; ``scale`` and ``unscale`` are for states."""

    plan: Array
    weights: Array
    cells: Array
    reads: Array
    scale: Array
    unscale: Array


class Tables(NamedTuple):
    """One SSM in scaled modes: taps (block, H), cell (H, M, 4 + 4 rank), read (H, M, 2)."""

    taps: Tensor
    cell: Tensor
    read: Tensor
    scale: Tensor


@torch.no_grad()
def pack(model: Model, rows: int, rate: float, block: int, lanes: int) -> Packed:
    """``rows`` sequences, ``block`` samples between two runs of a mode, ``lanes`` in a group."""
    layers = model._each_block()
    tables = [ssm_tables(layer.layer.ssm, rate, block) for layer in layers]
    dtype = layers[0].layer.ssm.raw_C.dtype
    flat = [part.detach().double().flatten() for part in _weights(model, tables, lanes)]
    return Packed(
        plan=_plan(model, rows, block, dtype),
        weights=torch.cat(flat).to(dtype).numpy(),
        cells=torch.stack([_grouped(table.cell, lanes) for table in tables]).numpy(),
        reads=torch.stack([_grouped(table.read, lanes) for table in tables]).numpy(),
        scale=torch.stack([_parts(1 / table.scale) for table in tables]).numpy(),
        unscale=torch.stack([_parts(table.scale) for table in tables]).numpy(),
    )


def ssm_tables(ssm: SSM, rate: float, block: int) -> Tables:
    system, pairs = ssm._state_space(rate).system(), ssm.method.pairs
    rows = system.outputs(block)  # (H, block, S)
    lagged = (rows[:, : block - 1] * system.input[:, None]).sum(-1)
    taps = torch.cat([(system.direct + ssm.D.double())[:, None], lagged], dim=1).T
    B = to_complex(system.input.contiguous(), pairs)
    scale = torch.where(B.abs() < TINY, torch.full_like(B, TINY), B)
    low_rank: list[Tensor] = []
    if isinstance(system, DiagonalSystem):
        A = system.step.A_bar
    else:
        step = bilinear_low_rank(ssm.A, ssm.P, ssm.B, rate * ssm.dt[:, None])
        A = step.diagonal
        for left, right in zip(step.left.unbind(-1), step.right.unbind(-2), strict=True):
            low_rank += [_parts(left / scale), _parts((right * scale).conj())]
    read, late = (_row(rows[:, j], scale, pairs) for j in (0, block - 1))
    return Tables(taps, torch.cat([_parts(A), late, *low_rank], dim=-1), read, scale)


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


def _plan(model: Model, rows: int, block: int, dtype: torch.dtype) -> Array:
    code, config = compiled_module("s4d_torch.nn.stepping.step_code"), model.config
    plan = {
        code.ROWS: rows,
        code.TOWERS: model.towers,
        code.INPUTS: model.d_input,
        code.WIDTH: model.d_model,
        code.OUTPUTS: model.d_output,
        code.BLOCK: block,
        code.EMBEDDING: config["encoder"] == "embedding",
        code.NORM: code.NORMS.index(config["norm"]),
        code.PRENORM: config["prenorm"],
        code.ACTIVATION: code.ACTIVATIONS.index(config["activation"]),
        code.MIXING: code.MIXINGS.index(config["mixing"]),
        code.MEAN: config["pooling"] == "mean",
        code.EXACT: dtype == torch.float64,
    }
    return np.array([plan[place] for place in sorted(plan)], dtype=np.int64)


def _weights(model: Model, tables: list[Tables], lanes: int) -> Iterator[Tensor]:
    """All weights in the order of use; matrices as (inputs, outputs)."""
    first = model._each_block()[0].norm
    yield torch.tensor(first.norm.eps if isinstance(first, SequenceNorm) else 0.0)
    yield from _linear(model.encoder)
    for block, table in zip(model._each_block(), tables, strict=True):
        yield from _norm(block.norm, model.d_model)
        yield nn.functional.pad(table.taps, (0, -model.d_model % lanes))
        yield from _linear(block.layer.output)
    yield from _norm(model.norm, model.d_model)
    for module in model.decoder if isinstance(model.decoder, nn.Sequential) else [model.decoder]:
        yield from _linear(module)


def _linear(module: nn.Module) -> Iterator[Tensor]:
    if isinstance(module, nn.Embedding):
        yield module.weight
    elif isinstance(module, nn.Linear):
        yield from (module.weight.T, module.bias)


def _norm(norm: nn.Module, width: int) -> tuple[Tensor, Tensor]:
    """Scale and shift."""
    if isinstance(norm, SequenceNorm):
        return norm.norm.weight, norm.norm.bias
    if isinstance(norm, SequenceBatchNorm):
        weight, bias, mean, variance = (
            x.double() for x in (norm.weight, norm.bias, norm.running_mean, norm.running_var)
        )
        scale = weight / (variance + norm.eps).sqrt()
        return scale, bias - mean * scale
    if isinstance(norm, NoNorm):
        return torch.ones(width), torch.zeros(width)
    raise TypeError(f"{type(norm).__name__} has no compiled form; use model.step")
