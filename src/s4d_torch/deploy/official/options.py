"""What the official code's weights do not show: its options, by the names it gives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeVar, get_args

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, softplus

from s4d_torch._registry import unknown
from s4d_torch.nn import validate
from s4d_torch.ssm.constraint import FLOOR

Disc = Literal["zoh", "bilinear", "dss"]
Transform = Literal["exp", "relu", "none", "sigmoid", "softplus"]
Activation = Literal["gelu", "relu", "silu", "swish", "tanh", "id", "identity", "linear"]
FinalActivation = Literal["glu", "id", "identity", "linear"]
Pooling = Literal["mean", "last", "none"]

TRANSFORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "exp": torch.exp,
    "relu": lambda raw: raw.relu() + FLOOR,
    "none": lambda raw: raw,
    "sigmoid": torch.sigmoid,
    "softplus": softplus,
}
# the logarithm without a detour, where there is one
LOG_TRANSFORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "exp": lambda raw: raw,
    "sigmoid": logsigmoid,
}
CONSTRAINT_OF = {"exp": "exp", "relu": "relu", "softplus": "softplus", "none": "identity"}
ACTIVATION_OF = {"swish": "silu", "id": "none", "identity": "none", "linear": "none"}

AnyOptions = TypeVar("AnyOptions", bound="LayerOptions")


@dataclass(frozen=True)
class LayerOptions:
    """Options of a layer, by their official names; None takes the official default."""

    disc: Disc | None = None
    """discretisation of a diagonal layer; officially zoh, in v3 bilinear"""
    real_transform: Transform | None = None
    """what -Re(A) is stored under (in v3 real_type); officially exp"""
    imag_transform: Transform | None = None
    """what -Im(A) is stored under; officially none"""
    dt_transform: Transform | None = None
    """what dt is stored under, as inv_dt; officially exp, but a whole model of v4 has to be told"""
    dt_fast: bool = False
    """dt is stored under sinh, too"""
    bandlimit: float | None = None
    """silence modes at or above this part of half the sampling rate"""
    activation: Activation | None = None
    """what follows the state space; officially gelu"""
    final_act: FinalActivation | None = None
    """what follows an output map of width d_model; id if not said (glu is known from its width)"""
    l_max: int | None = None
    """the length of the sequences that a layer with disc dss was trained on"""
    l_kernel: int | None = None
    """the length that C of an S4 layer is made for, where the weights do not hold it (v2)"""

    def __post_init__(self) -> None:
        choices = {
            "disc": Disc,
            "real_transform": Transform,
            "imag_transform": Transform,
            "dt_transform": Transform,
            "activation": Activation,
            "final_act": FinalActivation,
        }
        for name, kind in choices.items():
            check_choice(name, getattr(self, name), get_args(kind))
        validate.flag("dt_fast", self.dt_fast)
        for name in ("l_max", "l_kernel"):
            if getattr(self, name) is not None:
                validate.positive_integer(name, getattr(self, name))
        if self.bandlimit is not None:
            validate.number("bandlimit", self.bandlimit)


@dataclass(frozen=True)
class ModelOptions(LayerOptions):
    """Options of a whole model, by their official names; None takes the official default."""

    pooling: Pooling | None = None
    """the decoder's mode: mean (their pool; if not said), last, or none for an output per step"""
    rescale: bool | None = None
    """whether a language model multiplies its embedding by sqrt(d_model) (task lm)"""
    prenorm: bool | None = None
    """norm before each layer; only the model of their example.py does not show it"""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("pooling", self.pooling, get_args(Pooling))
        for name in ("rescale", "prenorm"):
            if getattr(self, name) is not None:
                validate.flag(name, getattr(self, name))


def make_options(kind: type[AnyOptions], given: Mapping[str, Any]) -> AnyOptions:
    """The options from keyword arguments; an unknown name gets a suggestion."""
    names = [option.name for option in fields(kind)]
    for name in given:
        if name not in names:
            raise TypeError(unknown("option", name, names))
    return kind(**given)


def check_choice(name: str, value: str | None, options: tuple[str, ...]) -> None:
    if value is not None and value not in options:
        raise ValueError(unknown(name, value, options))
