"""Weights in fewer bits: the mixing matrices of a model as int8 or float16, all else as it is.

The state space parameters stay exact: eigenvalues close to the unit circle carry their information
in the last digits, and there are few of them. Computation stays in float32; only what is stored
shrinks.
"""

from copy import deepcopy
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from s4d_torch._registry import unknown
from s4d_torch.nn.model import SequenceModel
from s4d_torch.nn.plan import AffinePlan, ModelPlan

QUANTIZATIONS = ("int8", "float16")
LEVELS = 127  # int8 without -128: symmetric, so that zero is exact


class StoredMatrix(NamedTuple):
    """A matrix (outputs, inputs) as it is stored; ``scale`` (outputs,) only for int8.

    The matrix is ``scale[:, None] * values``, or ``values`` in float32.
    """

    values: Tensor
    scale: Tensor | None = None

    def matrix(self) -> Tensor:
        """The numbers that are computed with, in float32."""
        values = self.values.float()
        return values if self.scale is None else values * self.scale[:, None]


def stored(matrix: Tensor, quantize: str) -> StoredMatrix:
    """A matrix (outputs, inputs); int8 has a scale for each output, ``max |row| / 127``."""
    matrix = matrix.detach().cpu().float()
    if quantize == "float16":
        largest, most = float(matrix.abs().max()), torch.finfo(torch.float16).max
        if largest > most:
            raise ValueError(
                f"a weight of {largest:.3g} does not fit into float16, which ends at {most:.0f}; "
                "use int8"
            )
        return StoredMatrix(matrix.half())
    scale = matrix.abs().amax(1) / LEVELS
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))  # a row of zeros stays one
    values = (matrix / scale[:, None]).round().clamp(-LEVELS, LEVELS)
    return StoredMatrix(values.to(torch.int8), scale)


def mixing_matrices(model: SequenceModel) -> list[nn.Linear]:
    """The linear map of each layer that mixes its channels; none with ``mixing='none'``."""
    layers = [block.layer.output for block in model._each_block()]
    return [layer for layer in layers if isinstance(layer, nn.Linear)]


def quantized(model: SequenceModel, quantize: str) -> SequenceModel:
    """A copy whose mixing matrices hold only numbers that ``int8`` or ``float16`` can store.

    It is computed and saved as any model, so it shows what a quantised export will answer.
    """
    if quantize not in QUANTIZATIONS:
        raise ValueError(unknown("quantisation", quantize, QUANTIZATIONS))
    copy = deepcopy(model)
    linears = mixing_matrices(copy)
    if not linears:
        raise ValueError(
            "the model has no mixing matrices to quantise (mixing='none'); export it without"
        )
    with torch.no_grad():
        for linear in linears:
            linear.weight.copy_(stored(linear.weight, quantize).matrix())
    return copy


def quantized_plan(plan: ModelPlan, quantize: str) -> ModelPlan:
    """The plan with its mixing matrices stored as ``int8`` or ``float16``."""

    def shrunk(linear: AffinePlan) -> AffinePlan:
        found = stored(linear.weight, quantize)
        return replace(linear, weight=found.values, scale=found.scale)

    blocks = tuple(
        block if block.linear is None else replace(block, linear=shrunk(block.linear))
        for block in plan.blocks
    )
    return replace(plan, blocks=blocks)
