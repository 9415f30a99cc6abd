"""Whole models of the official repository: its Lightning module, and the model of its example."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import sqrt
from typing import Any, NamedTuple

import torch
from torch import Tensor

from s4d_torch.deploy.official.layer_reader import LayerParts, read_layer
from s4d_torch.deploy.official.weights import (
    Facts,
    ModelOptions,
    Weights,
    because,
    listed,
    make_options,
)
from s4d_torch.nn import SequenceModel


class Wrapper(NamedTuple):
    """Where a kind of model keeps its layers and norms; ``{}`` is the number of a block."""

    title: str
    layer: str
    norm: str
    final_norm: str | None


LIGHTNING = Wrapper(
    "SequenceModel (Lightning)",
    "model.layers.{}.layer.",
    "model.layers.{}.norm.norm.",
    "model.norm.norm.",
)
EXAMPLE = Wrapper("S4Model (example.py)", "s4_layers.{}.", "norms.{}.", None)
POOLS = "output_transform."  # the linear map of a decoder that may pool


class ModelParts(NamedTuple):
    """The arguments of a model, and its tensors in double precision."""

    arguments: dict[str, Any]
    tensors: dict[str, Tensor]
    dtype: torch.dtype

    def build(self, dtype: torch.dtype | None = None) -> SequenceModel:
        unused = torch.Generator()  # all of it is overwritten: leave other draws alone
        model = SequenceModel(**self.arguments, generator=unused, dtype=dtype or self.dtype)
        model.load_state_dict(self.tensors)
        return model


def from_official_model(
    state_dict: Mapping[str, Tensor], *, dtype: torch.dtype | None = None, **options: Any
) -> SequenceModel:
    """A :class:`SequenceModel` with the output of an official model, from its ``state_dict()``.

    Reads the state dict of a Lightning checkpoint (``encoder.*``, ``model.layers.*``,
    ``decoder.*``) and of the model in the official ``example.py``. ``options`` are those of
    :class:`~s4d_torch.deploy.official.ModelOptions`. Dropout is not in the weights: here
    it is 0. A key without a counterpart is an error.
    """
    weights = Weights(state_dict)
    parts = read_model(weights, make_options(ModelOptions, options), Facts())
    weights.finish()
    return parts.build(dtype)


def is_model(names: Mapping[str, Any]) -> bool:
    """Whether these are the keys of a whole model, not of one layer."""
    firsts = tuple(wrapper.layer.format(0) for wrapper in (LIGHTNING, EXAMPLE))
    return any(name.startswith(firsts) for name in names)


def read_model(weights: Weights, options: ModelOptions, facts: Facts) -> ModelParts:
    """The parts of the model in these weights, its keys counted as taken."""
    names = weights.names()
    for wrapper in (LIGHTNING, EXAMPLE):
        blocks = 0
        while any(name.startswith(wrapper.layer.format(blocks)) for name in names):
            blocks += 1
        if blocks:
            return _Reader(weights, wrapper, blocks, options, facts).read()
    raise ValueError(
        f"no official model here: no key starts with {LIGHTNING.layer.format(0)!r} or "
        f"{EXAMPLE.layer.format(0)!r}; got {listed(names)}"
    )


@dataclass
class _Reader:
    """Reads a model part by part into the ``tensors`` of a SequenceModel."""

    weights: Weights
    wrapper: Wrapper
    blocks: int
    options: ModelOptions
    facts: Facts
    tensors: dict[str, Tensor] = field(default_factory=dict)

    def read(self) -> ModelParts:
        self.facts.found("model", self.wrapper.title)
        self.facts.found("n_layers", self.blocks)
        layer = self.read_layers()
        own = ("d_model", "d_state", "method", "activation", "mixing")
        arguments = {
            "n_layers": self.blocks,
            **{name: getattr(layer, name) for name in own},
            **self.read_norms(layer.d_model),
            **self.read_ends(layer.d_model),
        }
        return ModelParts(arguments, self.tensors, layer.dtype)

    def read_layers(self) -> LayerParts:
        """All layers; the first one, which the others are like."""
        unsure = self.wrapper is LIGHTNING and self.options.dt_transform is None
        if unsure and any(name.endswith("kernel.inv_dt") for name in self.weights.names()):
            raise ValueError(
                "the official v4 has two defaults for dt_transform, 'exp' in its classes and "
                "'softplus' in its config files, and weights do not show which one they were "
                "trained under; pass dt_transform, as the run's config has it"
            )
        layers: list[LayerParts] = []
        for i in range(self.blocks):
            view = self.weights.under(self.wrapper.layer.format(i))
            layers.append(read_layer(view, self.options, Facts() if i else self.facts))
            tensors = layers[i].tensors.items()
            self.tensors |= {f"blocks.{i}.layer.{name}": x for name, x in tensors}
            for what in ("d_model", "d_state", "method", "mixing"):
                first, here = getattr(layers[0], what), getattr(layers[i], what)
                if here != first:
                    raise ValueError(
                        f"layer {i} has {what} {here}, layer 0 {first}; the layers of a "
                        "SequenceModel are of one kind: convert them one by one with "
                        f"from_official and prefix={view.prefix!r}"
                    )
        return layers[0]

    def read_norms(self, d_model: int) -> dict[str, Any]:
        """All norms; their kind, and whether they come before the layers."""
        kinds = [
            self._read_norm(self.wrapper.norm.format(i), f"blocks.{i}.norm.", d_model)
            for i in range(self.blocks)
        ]
        if self.wrapper.final_norm is None:
            prenorm = self.facts.choose("prenorm", self.options.prenorm, False)
            if prenorm:
                raise ValueError(
                    "the model of example.py has no norm after its last block, as a model with "
                    "prenorm has here; only prenorm=False can be converted"
                )
        else:
            final = self._read_norm(self.wrapper.final_norm, "norm.", d_model)
            prenorm = kinds[0] == "none" or final != "none"
            kinds += [final] if prenorm else []
            self.facts.found("prenorm", prenorm)
            if self.options.prenorm not in (None, prenorm):
                raise ValueError(f"prenorm is {prenorm} by the weights, not {not prenorm}")
        if len(set(kinds)) > 1:
            raise ValueError(f"the norms of a model must be of one kind, got {', '.join(kinds)}")
        self.facts.found("norm", kinds[0])
        return {"norm": kinds[0], "prenorm": prenorm}

    def _read_norm(self, source: str, target: str, d_model: int) -> str:
        view = self.weights.under(source)
        view = view.under("ln.") if "ln.weight" in view else view
        if "weight" not in view:
            return "none"
        batch = "running_mean" in view
        target = target if batch else f"{target}norm."
        for name in ("weight", "bias", *(("running_mean", "running_var") if batch else ())):
            self.tensors[target + name] = view.take(name, (d_model,), "(d_model,)")
        view.drop("num_batches_tracked")  # of no use with a fixed momentum
        return "batch" if batch else "layer"

    def read_ends(self, d_model: int) -> dict[str, Any]:
        """Encoder, pooling and decoder."""
        encoder, decoder = self._only_map("encoder."), self._only_map("decoder.")
        kind = "linear" if "bias" in encoder else "embedding"
        if kind == "linear":
            weight = encoder.take("weight", (d_model, None), "(d_model, d_input)")
            self.tensors["encoder.bias"] = encoder.take("bias", (d_model,), "(d_model,)")
            d_input = weight.shape[1]
        else:
            weight = encoder.take("weight", (None, d_model), "(tokens, d_model)")
            weight = weight * self._embedding_scale(d_model, decoder)
            d_input = weight.shape[0]
        self.tensors["encoder.weight"] = weight
        weight = decoder.take("weight", (None, d_model), "(d_output, d_model)")
        self.tensors["decoder.weight"], d_output = weight, weight.shape[0]
        self.tensors["decoder.bias"] = decoder.take("bias", (d_output,), "(d_output,)")
        found = {"encoder": kind, "d_input": d_input, "d_output": d_output}
        for what, value in found.items():
            self.facts.found(what, value)
        return {**found, "pooling": self._pooling(decoder)}

    def _only_map(self, part: str) -> Weights:
        """The one module with a weight below ``part``; wrappers number it differently."""
        view = self.weights.under(part)
        places = [name.removesuffix("weight") for name in view.names() if name.endswith("weight")]
        if len(places) != 1:
            names = [part + name for name in view.names()]
            raise ValueError(
                f"expected one linear map or embedding below {part!r}, "
                f"got {listed(names) or 'none'}{because(names)}"
            )
        return view.under(places[0])

    def _pooling(self, decoder: Weights) -> str:
        """Only a decoder named sequence (or nd) pools; how, its weights do not show."""
        given = self.options.pooling
        if decoder.prefix.endswith(POOLS):
            return self.facts.choose("pooling", given, "mean")
        pooling = "mean" if self.wrapper is EXAMPLE else "none"
        if given not in (None, pooling):
            raise ValueError(f"pooling is {pooling!r} in {self.wrapper.title}, got {given!r}")
        self.facts.found("pooling", pooling)
        return pooling

    def _embedding_scale(self, d_model: int, decoder: Weights) -> float:
        rescale = self.options.rescale
        if decoder.prefix.endswith(POOLS):
            if rescale is not None:
                raise ValueError(f"rescale is for language models (task lm), got {rescale}")
            return 1.0
        if rescale is None:
            raise ValueError(
                "a language model (task lm) multiplies its embedding by sqrt(d_model) unless it "
                "was trained with rescale: false, which weights do not show; pass rescale"
            )
        self.facts.choose("rescale", rescale, True)
        return sqrt(d_model) if rescale else 1.0
