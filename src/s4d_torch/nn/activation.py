"""The nonlinearity of a layer and the mixing of its channels: all there is to each, in one entry.

An entry has a module, which is enough to train, to step and for ``torch.export``. Other engines
need a form of their own: ``compiled`` is the number by which the compiled step knows it (see
``stepping/activation_code``), ``onnx`` adds it to a graph. Where there is no compiled form, the
model's own step takes over; an export that lacks a form is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from s4d_torch._registry import EntryRegistry, Registry

# The numbers of the compiled step. They are written into machine code that is kept on disk: give a
# new one the next number, and change none.
NONE, GELU, RELU, SILU, TANH = range(5)

OnnxForm = Callable[[Any, str], str]
"""``(graph, x) -> y``: nodes added to a graph (``deploy.export.onnx_builder.Graph``), by name."""


@dataclass(frozen=True)
class Activation:
    """A nonlinearity, applied feature by feature; ``module`` makes one without arguments."""

    module: Callable[[], nn.Module]
    compiled: int | None = None
    onnx: OnnxForm | None = None

    @classmethod
    def of(cls, entry: Activation | Callable[[], nn.Module]) -> Activation:
        """An entry, also from the class of a module alone."""
        return entry if isinstance(entry, Activation) else cls(entry)

    def __call__(self) -> nn.Module:
        return self.module()


def _onnx_gelu(g: Any, x: str) -> str:
    wide = g.op("Erf", g.op("Div", x, g.constant(math.sqrt(2.0))))
    half = g.op("Mul", x, g.op("Add", wide, g.constant(1.0)))
    return str(g.op("Mul", half, g.constant(0.5)))


ACTIVATIONS: EntryRegistry[Activation] = EntryRegistry("activation", Activation.of)
ACTIVATIONS.register("gelu", Activation(nn.GELU, GELU, _onnx_gelu))
ACTIVATIONS.register("relu", Activation(nn.ReLU, RELU, lambda g, x: g.op("Relu", x)))
ACTIVATIONS.register(
    "silu", Activation(nn.SiLU, SILU, lambda g, x: g.op("Mul", x, g.op("Sigmoid", x)))
)
ACTIVATIONS.register("tanh", Activation(nn.Tanh, TANH, lambda g, x: g.op("Tanh", x)))
ACTIVATIONS.register("none", Activation(nn.Identity, NONE, lambda g, x: x))


@dataclass(frozen=True)
class Mixing:
    """A linear map to ``width`` times d_model, then a module that leads back to d_model.

    ``width`` 0 has no linear map. The compiled step knows a mixing by its width alone, and by
    whether it ends in a gate.
    """

    width: int
    module: Callable[[], nn.Module] = nn.Identity
    compiled: int | None = None
    onnx: OnnxForm | None = None


def _onnx_glu(g: Any, x: str) -> str:
    value, gate = g.ops("Split", x, results=2, axis=-1)
    return str(g.op("Mul", value, g.op("Sigmoid", gate)))


MIXINGS: Registry[Mixing] = Registry("mixing")
MIXINGS.register("glu", Mixing(2, nn.GLU, compiled=2, onnx=_onnx_glu))
MIXINGS.register("linear", Mixing(1, compiled=1, onnx=lambda g, x: x))
MIXINGS.register("none", Mixing(0, compiled=0, onnx=lambda g, x: x))
