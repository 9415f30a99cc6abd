"""Layers of the official repository (state-spaces/s4), read from their weights."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from s4d_torch.deploy.official.kernel_reader import read_kernel
from s4d_torch.deploy.official.weights import Facts, LayerOptions, Weights, listed, make_options
from s4d_torch.nn import DSS, S4, S4D, Layer, Method

KERNELS = ("layer.kernel.", "kernel.kernel.", "kernel.")  # v4, v3 and v2, minimal
CLASSES: dict[str, type[Layer]] = {"vandermonde": S4D, "cauchy": S4, "softmax": DSS}
KERNEL = re.compile(r"(^|\.)kernel\.C$")
ACTIVATION_OF = {"swish": "silu", "id": "none", "identity": "none", "linear": "none"}


class LayerParts(NamedTuple):
    """What a layer is made of: its arguments, and its tensors in double precision."""

    d_model: int
    d_state: int
    method: Method
    activation: str
    mixing: str
    tensors: dict[str, Tensor]
    dtype: torch.dtype

    def build(self, dtype: torch.dtype | None = None) -> Layer:
        layer = CLASSES[self.method.kernel](
            self.d_model,
            self.d_state,
            method=self.method,
            activation=self.activation,
            mixing=self.mixing,
            generator=torch.Generator(),  # all of it is overwritten: leave other draws alone
            dtype=dtype or self.dtype,
        )
        layer.load_state_dict(self.tensors)
        return layer


def from_official(
    state_dict: Mapping[str, Tensor],
    *,
    prefix: str = "",
    dtype: torch.dtype | None = None,
    **options: Any,
) -> Layer:
    """A layer of ours with the output of an official one, from its ``state_dict()``.

    Reads the minimal S4D and S4Block (v4; also S4 and S4D of v2 and v3), and returns an
    :class:`S4D`, :class:`S4` or :class:`DSS`. ``prefix`` picks one layer out of a larger dict,
    such as ``"model.layers.0.layer."``. ``options`` are those of
    :class:`~s4d_torch.deploy.official.LayerOptions`, by their official names: what
    weights do not show, with the official defaults. A key without a counterpart is an error.

    >>> layer = from_official(official.state_dict(), disc="bilinear", real_transform="relu")
    """
    weights = Weights(state_dict, prefix)
    parts = read_layer(weights, make_options(LayerOptions, options), Facts())
    weights.finish()
    return parts.build(dtype)


def read_layer(weights: Weights, options: LayerOptions, facts: Facts) -> LayerParts:
    """The parts of the layer in this view, its keys counted as taken."""
    place = next((place for place in KERNELS if f"{place}C" in weights), None)
    if place is None:
        raise ValueError(_no_layer(weights))
    method, d_state, tensors = read_kernel(weights.under(place), options, facts)
    d_model = tensors["log_dt"].shape[0]
    facts.found("d_model", d_model)
    facts.found("d_state", d_state)
    facts.found("bidirectional", method.bidirectional)
    tensors = {f"ssm.{name}": x for name, x in tensors.items()}
    skip = "layer.D" if place == KERNELS[0] else "D"
    facts.found("skip D", skip in weights)
    tensors["ssm.D"] = _read_D(weights, skip, d_model)
    mixing = _read_output(weights, d_model, tensors)
    _check_final(mixing, options, facts)
    activation = facts.choose("activation", options.activation, "gelu")
    activation = ACTIVATION_OF.get(activation, activation)
    dtype = weights.dtype(f"{place}C")
    return LayerParts(d_model, d_state, method, activation, mixing, tensors, dtype)


def _no_layer(weights: Weights) -> str:
    names = weights.names()
    if not names:
        return f"no key starts with {weights.prefix!r}"
    kernels = [name for name in names if KERNEL.search(name)]
    if not kernels:
        return f"no official layer here: no key ends in 'kernel.C'; got {listed(names)}"
    return (
        f"no layer at {weights.prefix!r}, but deeper: {listed(kernels)}; pass the prefix of one, "
        "as in prefix='model.layers.0.layer.', or convert all with from_official_model"
    )


def _read_D(weights: Weights, name: str, d_model: int) -> Tensor:
    """The skip, (d_model,); zero where a layer has none."""
    if name not in weights:
        return torch.zeros(d_model, dtype=torch.float64)
    if weights.stored(name).ndim == 1:
        return weights.take(name, (d_model,), "(d_model,)")
    words = "(1, d_model), one head (channels=1, no activation glu)"
    return weights.take(name, (1, d_model), words)[0]


def _read_output(weights: Weights, d_model: int, tensors: dict[str, Tensor]) -> str:
    """Put the output's linear map into ``tensors``; our name of the mixing."""
    views = [weights.under(place) for place in ("output_linear.0.", "output_linear.")]
    view = next((view for view in views if "weight" in view or "weight_v" in view), None)
    if view is None:
        return "none"
    weight = _read_weight(view, d_model)
    width = weight.shape[0]
    if width not in (d_model, 2 * d_model):
        raise ValueError(
            f"{view.prefix}weight maps {d_model} features to {width}, "
            f"expected {d_model}, or {2 * d_model} with GLU"
        )
    tensors["output.weight"] = weight
    tensors["output.bias"] = view.take("bias", (width,), "(outputs,)")
    return "glu" if width == 2 * d_model else "linear"


def _read_weight(view: Weights, d_model: int) -> Tensor:
    """(outputs, d_model), also from a convolution of width 1 or from weight normalisation."""
    name = "weight" if "weight" in view else "weight_v"
    convolution = (1,) if view.stored(name).ndim == 3 else ()
    weight = view.take(name, (None, d_model, *convolution), "(outputs, d_model)")
    if name == "weight_v":
        g = view.take("weight_g", (weight.shape[0], *[1] * (weight.ndim - 1)), "(outputs, 1)")
        weight = g * weight / weight.flatten(1).norm(dim=1).view_as(g)
    return weight.flatten(1)


def _check_final(mixing: str, options: LayerOptions, facts: Facts) -> None:
    """The weights show GLU and no output map; what follows a plain map they do not."""
    if mixing == "linear":
        fits = facts.choose("final_act", options.final_act, "id") != "glu"
    else:
        fits = options.final_act is None or options.final_act == mixing
        facts.found("final_act", mixing)
    if not fits:
        raise ValueError(
            f"final_act is {options.final_act!r}, but the output map of the weights is {mixing!r}"
        )
