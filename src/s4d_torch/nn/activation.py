"""The nonlinearity of a layer and the mixing of its channels: all there is to each, in one entry.

An entry has a module, which is enough to train, to step and for ``torch.export``. Other engines
need a form of their own: ``compiled`` is the number by which the compiled step knows it (see
``stepping/activation_code``), ``onnx`` adds it to a graph, ``c`` and ``js`` are expressions of C
and JavaScript. Where there is no compiled form, the model's own step takes over; an export that
lacks a form is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from s4d_torch._registry import EntryRegistry

# The numbers of the compiled step. They are written into machine code that is kept on disk: give a
# new one the next number, and change none.
NONE, GELU, RELU, SILU, TANH = range(5)

OnnxForm = Callable[[Any, str], str]
"""``(graph, x) -> y``: nodes added to a graph (``deploy.export.onnx_builder.Graph``), by name."""


@dataclass(frozen=True)
class Activation:
    """A nonlinearity, applied feature by feature; ``module`` makes one without arguments.

    ``c`` is an expression of C99 for the float ``x``, in float: ``"x < 0.0f ? 0.0f : x"``. It may
    call the C library, ``sigmoid(x)`` and ``normal(x)``, the normal distribution function; so may
    ``js``, the same in JavaScript: ``"Math.max(x, 0)"``.
    """

    module: Callable[[], nn.Module]
    compiled: int | None = None
    onnx: OnnxForm | None = None
    c: str | None = None
    js: str | None = None

    @classmethod
    def of(cls, entry: Activation | Callable[[], nn.Module]) -> Activation:
        """An entry, also from the class of a module alone."""
        if isinstance(entry, Activation):
            return entry
        if not callable(entry):
            raise TypeError(f"an activation is an Activation or a class, got {entry!r}")
        return cls(entry)

    def __call__(self) -> nn.Module:
        return self.module()


def _onnx_gelu(g: Any, x: str) -> str:
    wide = g.op("Erf", g.op("Div", x, g.constant(math.sqrt(2.0))))
    half = g.op("Mul", x, g.op("Add", wide, g.constant(1.0)))
    return str(g.op("Mul", half, g.constant(0.5)))


ACTIVATIONS: EntryRegistry[Activation] = EntryRegistry("activation", Activation.of)
ACTIVATIONS.register(
    "gelu", Activation(nn.GELU, GELU, _onnx_gelu, c="x * normal(x)", js="x * normal(x)")
)
ACTIVATIONS.register(
    "relu",
    Activation(
        nn.ReLU,
        RELU,
        lambda g, x: g.op("Relu", x),
        c="x < 0.0f ? 0.0f : x",
        js="x < 0 ? 0 : x",
    ),
)
ACTIVATIONS.register(
    "silu",
    Activation(
        nn.SiLU,
        SILU,
        lambda g, x: g.op("Mul", x, g.op("Sigmoid", x)),
        c="x * sigmoid(x)",
        js="x * sigmoid(x)",
    ),
)
ACTIVATIONS.register(
    "tanh",
    Activation(nn.Tanh, TANH, lambda g, x: g.op("Tanh", x), c="tanhf(x)", js="Math.tanh(x)"),
)
ACTIVATIONS.register("none", Activation(nn.Identity, NONE, lambda g, x: x, c="x", js="x"))


@dataclass(frozen=True)
class Mixing:
    """A linear map to ``width`` times d_model, then a module that leads back to d_model.

    ``width`` 0 has no linear map. The compiled step knows a mixing by its width alone, and by
    whether it ends in a gate. ``c`` is an expression of C99 for channel ``h`` of the result, of
    what the map gives, ``v``; it has ``S4D_WIDTH`` channels, or twice as many and so on. ``js`` is
    the same in JavaScript, where that number is ``width``.
    """

    width: int
    module: Callable[[], nn.Module] = nn.Identity
    compiled: int | None = None
    onnx: OnnxForm | None = None
    c: str | None = None
    js: str | None = None

    @classmethod
    def of(cls, entry: Mixing) -> Mixing:
        if not isinstance(entry, Mixing):
            raise TypeError(f"a mixing is a Mixing(width, module), got {entry!r}")
        return entry


def _onnx_glu(g: Any, x: str) -> str:
    value, gate = g.ops("Split", x, results=2, axis=-1)
    return str(g.op("Mul", value, g.op("Sigmoid", gate)))


MIXINGS: EntryRegistry[Mixing] = EntryRegistry("mixing", Mixing.of)
MIXINGS.register(
    "glu",
    Mixing(
        2,
        nn.GLU,
        2,
        _onnx_glu,
        c="v[h] * sigmoid(v[h + S4D_WIDTH])",
        js="v[h] * sigmoid(v[h + width])",
    ),
)
MIXINGS.register("linear", Mixing(1, compiled=1, onnx=lambda g, x: x, c="v[h]", js="v[h]"))
MIXINGS.register("none", Mixing(0, compiled=0, onnx=lambda g, x: x, c="v[h]", js="v[h]"))
