"""A trained model as plain numbers: what its graphs, of whatever format, are made from.

Everything that depends only on weights is folded: discretised systems in double precision, norms
with running statistics as a scale and a shift. What is left is real arithmetic.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from s4d_torch.deploy.quantize import StoredMatrix, check_quantization, stored
from s4d_torch.nn import validate
from s4d_torch.nn.block import Block, NoNorm, SequenceBatchNorm, SequenceNorm
from s4d_torch.nn.model import SequenceModel
from s4d_torch.ssm.pairs import to_real
from s4d_torch.ssm.recurrence import DenseSystem, DiagonalSystem

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

    ``A`` is (H, S), complex numbers as neighbours (``pairs``) or real ones (``real``), or a matrix
    (H, S, S) (``dense``); ``output``, ``input`` (H, S); ``direct`` (H,), with the skip D inside.
    ``log_A`` (2, H, modes), real and imaginary parts, is empty for a dense system.
    """

    kind: Literal["pairs", "real", "dense"]
    A: Tensor
    output: Tensor
    input: Tensor
    direct: Tensor
    log_A: Tensor


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
    system = ssm._system(rate)
    kind: Literal["pairs", "real", "dense"]
    if isinstance(system, DiagonalSystem):
        kind = "pairs" if system.pairs else "real"
        A, log_A = to_real(system.step.A_bar, system.pairs), system.step.log_A
        # a mode that forgets all at once has the logarithm -inf, which times 0 is no number
        log_A = torch.stack([log_A.real.clamp(min=-700.0), log_A.imag])
    else:
        assert isinstance(system, DenseSystem)
        kind, A, log_A = "dense", system.A_bar, system.A_bar.new_zeros(2, 0, 0)
    D = ssm.D.to(system.direct.dtype)

    def plan(output: Tensor, direct: Tensor) -> SystemPlan:
        tensors = (A, output, system.input, direct, log_A)
        return SystemPlan(kind, *(x.double().clone() for x in tensors))

    if not ssm.method.bidirectional:
        return plan(system.output, system.direct + D), None
    past = plan(system.output[0], system.direct[0] + D)
    return past, plan(system.output[1], system.direct[1])  # D once: the present is counted once
