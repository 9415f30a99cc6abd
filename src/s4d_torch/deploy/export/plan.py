"""A trained model as plain numbers: what its graphs, of whatever format, are made from.

Everything that depends only on weights is folded: discretised systems in double precision, norms
with running statistics as a scale and a shift. What is left is real arithmetic.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from s4d_torch.deploy.export.quantize import StoredMatrix, check_quantization, stored
from s4d_torch.nn import validate
from s4d_torch.nn.block import Block, NoNorm, SequenceBatchNorm, SequenceNorm
from s4d_torch.nn.model import SequenceModel
from s4d_torch.nn.ssm import SSM
from s4d_torch.ssm.discretization import bilinear_low_rank
from s4d_torch.ssm.pairs import readout, to_real

CHUNK = 64  # samples of one matrix product; a power of two, for tables made by doubling


@dataclass(frozen=True)
class AffinePlan:
    """``x W^T + b``."""

    weight: StoredMatrix
    bias: Tensor


@dataclass(frozen=True)
class NormPlan:
    """``layer``: normalise the features, then scale and shift; ``affine``: only the latter."""

    kind: Literal["layer", "affine", "none"]
    scale: Tensor
    shift: Tensor
    eps: float = 0.0


@dataclass(frozen=True)
class SystemPlan:
    """``y = output s + direct u``, ``s <- A s + input u`` per channel; float64.

    A is diagonal, ``diagonal`` (H, S) being complex numbers as neighbours (``pairs``) or real ones
    (``real``), or pairs minus ``left`` (H, S, rank) times ``right`` (H, rank, S) (``low rank``).
    ``output``, ``input`` (H, S); ``direct`` (H,), with the skip D inside. ``log_diagonal`` is
    (2, H, modes), real and imaginary parts.
    """

    kind: Literal["pairs", "real", "low rank"]
    diagonal: Tensor
    log_diagonal: Tensor
    left: Tensor
    right: Tensor
    output: Tensor
    input: Tensor
    direct: Tensor


@dataclass(frozen=True)
class BlockPlan:
    """``norm``, the systems that look back and ahead, the activation and the mixing."""

    norm: NormPlan
    past: SystemPlan
    future: SystemPlan | None
    linear: AffinePlan | None
    glu: bool


@dataclass(frozen=True)
class ModelPlan:
    """All of a model; ``encoder`` is a table of rows for tokens."""

    encoder: AffinePlan | Tensor
    blocks: tuple[BlockPlan, ...]
    norm: NormPlan
    decoder: tuple[AffinePlan, ...]
    activation: str
    prenorm: bool
    pooling: str
    towers: int
    d_input: int
    d_output: int
    d_model: int
    d_state: int

    @property
    def tokens(self) -> bool:
        return isinstance(self.encoder, Tensor)

    @property
    def causal(self) -> bool:
        """Whether there is a step: a model that looks ahead has none."""
        return all(block.future is None for block in self.blocks)


def state_shapes(plan: ModelPlan) -> dict[str, list[int]]:
    """What a step carries along, for one sequence; pooling over time has a sum and a count."""
    shapes = {f"state_{i}": [plan.d_model, plan.d_state] for i in range(len(plan.blocks))}
    if plan.pooling == "mean":
        shapes |= {"total": [plan.d_model], "samples": []}
    return shapes


@torch.no_grad()
def make_plan(model: SequenceModel, *, quantize: str | None = None, rate: float = 1.0) -> ModelPlan:
    """The plan of a model in evaluation, at one sampling rate."""
    validate.sampling_rate(rate)
    if quantize is not None:
        check_quantization(quantize)
    model = deepcopy(model).cpu().eval()
    if any(x.dtype in validate.LOW_PRECISION for x in model.parameters()):
        model = model.float()
    decoder = [model.decoder] if isinstance(model.decoder, nn.Linear) else model.decoder
    return ModelPlan(
        encoder=(
            _affine(model.encoder)
            if isinstance(model.encoder, nn.Linear)
            else model.encoder.weight.float().clone()
        ),
        blocks=tuple(_block(block, quantize, rate) for block in model._each_block()),
        norm=_norm(model.norm, model.d_model),
        decoder=tuple(_affine(part) for part in decoder if isinstance(part, nn.Linear)),
        activation=model.config["activation"],
        prenorm=model.config["prenorm"],
        pooling=model.pooling,
        towers=model.towers,
        d_input=model.d_input,
        d_output=model.d_output,
        d_model=model.d_model,
        d_state=model.config["d_state"],
    )


def _affine(layer: nn.Linear, quantize: str | None = None) -> AffinePlan:
    return AffinePlan(stored(layer.weight, quantize), layer.bias.float().clone())


def _norm(norm: nn.Module, features: int) -> NormPlan:
    if isinstance(norm, NoNorm):
        return NormPlan("none", torch.ones(features), torch.zeros(features))
    if isinstance(norm, SequenceBatchNorm):
        scale = norm.weight.double() / (norm.running_var.double() + norm.eps).sqrt()
        shift = norm.bias.double() - scale * norm.running_mean.double()
        return NormPlan("affine", scale.float(), shift.float())
    assert isinstance(norm, SequenceNorm)
    layer = norm.norm
    return NormPlan("layer", layer.weight.float().clone(), layer.bias.float().clone(), layer.eps)


def _block(block: Block, quantize: str | None, rate: float) -> BlockPlan:
    layer = block.layer
    past, future = _systems(block, rate)
    return BlockPlan(
        norm=_norm(block.norm, layer.d_model),
        past=past,
        future=future,
        linear=_affine(layer.output, quantize) if isinstance(layer.output, nn.Linear) else None,
        glu=layer.mixing == "glu",
    )


def _systems(block: Block, rate: float) -> tuple[SystemPlan, SystemPlan | None]:
    ssm = block.layer.ssm
    system, matrix = ssm._state_space(rate).system(), _matrix(ssm, rate)
    direct = system.direct.double()

    def plan(output: Tensor, direct: Tensor) -> SystemPlan:
        vectors = {"output": output, "input": system.input, "direct": direct}
        exact: dict[str, Any] = {name: x.double().clone() for name, x in vectors.items()}
        return SystemPlan(**matrix, **exact)

    if not ssm.method.bidirectional:
        return plan(system.output, direct + ssm.D), None
    past = plan(system.output[0], direct[0] + ssm.D)
    return past, plan(system.output[1], direct[1])  # D once: the present is counted once


def _matrix(ssm: SSM, rate: float) -> dict[str, Any]:
    """A_bar, as the fields of a plan."""
    pairs = ssm.method.pairs
    if ssm.method.structure == "dplr":
        step = bilinear_low_rank(ssm.A, ssm.P, ssm.B, rate * ssm.dt[:, None])
        return {
            "kind": "low rank",
            "diagonal": to_real(step.diagonal),
            "log_diagonal": torch.zeros(2, 0, 0, dtype=torch.float64),  # nobody asks for it
            "left": to_real(step.left.mT).mT.contiguous(),
            "right": readout(step.right) / 2,
        }
    log_A = ssm._state_space(rate).discrete().log_A
    none = torch.zeros(0, 0, 0, dtype=torch.float64)
    return {
        "kind": "pairs" if pairs else "real",
        "diagonal": to_real(log_A.exp(), pairs),
        # a mode that forgets all at once has the logarithm -inf, which times 0 is no number
        "log_diagonal": torch.stack([log_A.real.clamp(min=-700.0), log_A.imag]),
        "left": none,
        "right": none,
    }
