"""What the official code's weights show, and its options, which they do not.

A foreign state dict is taken tensor by tensor: every key is used, or named in an error.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import torch
from torch import Tensor

from s4d_torch._registry import unknown
from s4d_torch.nn import validate

T = TypeVar("T")
AnyOptions = TypeVar("AnyOptions", bound="LayerOptions")

SHOWN = 8  # keys named in an error
# what some keys mean that have no counterpart here
REASONS = {
    r"\binput_gate\b|\boutput_gate\b": "a gated block (option gate)",
    r"\binput_linear\b": "a bottleneck (option bottleneck)",
    r"\breverse_layer\b|\bbidirectional_linear\b": "a second layer that runs backwards",
    r"\.norm\.[ms]$": "a LayerNorm with two scalars (transposed: true); its shift is divided by "
    "the deviation, which no usual LayerNorm does",
    r"\bretrieval\b": "the head for pairs, whose activation is not that of the layers",
    r"\.pe$": "a positional encoding",
    r"\.(Wx|Wy|affine)\b": "a residual with weights (option residual)",
    r"\bpool\b": "a pooling with weights between the layers",
    r"kernel\.(Q|w)$": "S4 with a free low-rank term (hurwitz=False)",
}


class Fact(NamedTuple):
    """One thing known of a model; ``source`` is weights, given or assumed."""

    what: str
    value: str
    source: str


@dataclass
class Facts:
    """What was recognised, in the order it was."""

    rows: list[Fact] = field(default_factory=list)

    def found(self, what: str, value: object) -> None:
        """Note what the weights themselves show."""
        self.rows.append(Fact(what, _shown(value), "weights"))

    def choose(self, what: str, given: T | None, default: T) -> T:
        """The value of an option, noted as given or assumed."""
        value = default if given is None else given
        self.rows.append(Fact(what, _shown(value), "assumed" if given is None else "given"))
        return value


class Weights:
    """The tensors under ``prefix``; views made by :meth:`under` share what has been taken."""

    def __init__(self, tensors: Mapping[str, Tensor], prefix: str = "") -> None:
        for name, x in tensors.items():
            if not isinstance(x, Tensor):
                raise TypeError(
                    f"a state dict maps names to tensors, got {type(x).__name__} for {name!r}; "
                    "pass the dict that model.state_dict() returned"
                )
        self.tensors, self.prefix = tensors, prefix
        self._taken: set[str] = set()

    def under(self, prefix: str) -> "Weights":
        """A view of the keys that go on with ``prefix``."""
        view = Weights(self.tensors, self.prefix + prefix)
        view._taken = self._taken
        return view

    def __contains__(self, name: str) -> bool:
        return self.prefix + name in self.tensors

    def names(self) -> list[str]:
        """The names in this view, without the prefix."""
        start = len(self.prefix)
        return [name[start:] for name in self.tensors if name.startswith(self.prefix)]

    def stored(self, name: str) -> Tensor:
        """A tensor as it is, not counted as used."""
        return self.tensors[self.prefix + name]

    def dtype(self, name: str) -> torch.dtype:
        """float64 if the tensor is, else float32: half precision is for storage only."""
        return torch.float64 if self.stored(name).dtype == torch.float64 else torch.float32

    def take(self, name: str, shape: tuple[int | None, ...], words: str) -> Tensor:
        """A tensor in double precision; ``shape`` (None: any size) is said in ``words``."""
        key = self.prefix + name
        if key not in self.tensors:
            there = [self.prefix + name for name in self.names()]
            have = f"there are: {listed(there)}" if there else f"no key starts {self.prefix!r}"
            raise ValueError(f"missing key {key!r}, expected a tensor {words}; {have}")
        x = self.tensors[key].detach().cpu()
        fits = x.ndim == len(shape) and all(
            size in (None, real) for size, real in zip(shape, x.shape, strict=True)
        )
        if not fits:
            wanted = ", ".join("any" if size is None else str(size) for size in shape)
            raise ValueError(
                f"{key!r} must be {words} with sizes ({wanted}), got shape {tuple(x.shape)}"
            )
        if not bool(torch.isfinite(x).all()):
            raise ValueError(f"{key!r} holds NaN or infinite values; convert an earlier checkpoint")
        self.drop(name)
        return x.double()

    def drop(self, name: str) -> None:
        """Count a key as used that the official code itself does not use."""
        self._taken.add(self.prefix + name)

    def finish(self) -> None:
        """Refuse what nobody has taken: a model without it would answer differently."""
        mine = (self.prefix + name for name in self.names())
        if left := [name for name in mine if name not in self._taken]:
            raise ValueError(f"keys without a counterpart here: {listed(left)}{because(left)}")


def listed(names: list[str]) -> str:
    """Some names for an error."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def because(names: list[str]) -> str:
    """What these keys are known to belong to."""
    known = REASONS.items()
    reasons = [why for key, why in known if any(re.search(key, name) for name in names)]
    return f"; they belong to {', and to '.join(reasons)}" if reasons else ""


def _shown(value: object) -> str:
    return str(value) if not isinstance(value, bool) else "yes" if value else "no"


Transform = Literal["exp", "relu", "none", "sigmoid", "softplus"]
Activation = Literal["gelu", "relu", "silu", "swish", "tanh", "id", "identity", "linear"]


@dataclass(frozen=True)
class LayerOptions:
    """Options of a layer, by their official names; None takes the official default."""

    disc: Literal["zoh", "bilinear", "dss"] | None = None
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
    final_act: Literal["glu", "id", "identity", "linear"] | None = None
    """what follows an output map of width d_model; id if not said (glu is known from its width)"""
    l_max: int | None = None
    """the length of the sequences that a layer with disc dss was trained on"""
    l_kernel: int | None = None
    """the length that C of an S4 layer is made for, where the weights do not hold it (v2)"""

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(type(self)).items():
            if (value := getattr(self, name)) is not None:
                _check_option(name, value, hint)


@dataclass(frozen=True)
class ModelOptions(LayerOptions):
    """Options of a whole model, by their official names; None takes the official default."""

    pooling: Literal["mean", "last", "none"] | None = None
    """the decoder's mode: mean (their pool; if not said), last, or none for an output per step"""
    rescale: bool | None = None
    """whether a language model multiplies its embedding by sqrt(d_model) (task lm)"""
    prenorm: bool | None = None
    """norm before each layer; only the model of their example.py does not show it"""


def make_options(kind: type[AnyOptions], given: Mapping[str, Any]) -> AnyOptions:
    """The options from keyword arguments; an unknown name gets a suggestion."""
    names = [option.name for option in fields(kind)]
    for name in given:
        if name not in names:
            raise TypeError(unknown("option", name, names))
    return kind(**given)


def _check_option(name: str, value: Any, hint: Any) -> None:
    """``hint`` is bool, or a choice, an integer or a number that may be None."""
    kind = next((each for each in get_args(hint) if each is not type(None)), hint)
    if get_origin(kind) is not Literal:
        checks = {bool: validate.flag, int: validate.positive_integer, float: validate.number}
        checks[kind](name, value)
    elif value not in get_args(kind):
        raise ValueError(unknown(name, value, get_args(kind)))
