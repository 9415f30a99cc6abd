"""A file of the official code as a layer or model of ours, held against the output in the file."""

import os
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from s4d_torch.deploy.official.layer_reader import read_layer
from s4d_torch.deploy.official.model_reader import is_model, read_model
from s4d_torch.deploy.official.weight_files import read_official
from s4d_torch.deploy.official.weights import Facts, ModelOptions, Weights
from s4d_torch.nn import Layer, SequenceModel

TOLERANCE = 1e-5  # of the largest output


@dataclass(frozen=True)
class Conversion:
    """What became of a file: the module, what is known of it and from where, and its errors.

    ``errors`` are the differences from the output in the file, if there is one, by the way it was
    computed, in units of the largest output.
    """

    module: Layer | SequenceModel
    facts: Facts
    errors: dict[str, float]

    @property
    def agrees(self) -> bool:
        return max(self.errors.values(), default=0.0) <= TOLERANCE

    def save(self, folder: str | os.PathLike[str]) -> str:
        """Write the module; returns the name of the function that loads it."""
        self.module.save_pretrained(folder)
        whole = isinstance(self.module, SequenceModel)
        return "SequenceModel.from_pretrained" if whole else "s4d_torch.Layer.from_pretrained"


def convert_file(
    path: str | os.PathLike[str], *, prefix: str = "", options: ModelOptions | None = None
) -> Conversion:
    """Convert the model in a file, or the layer whose keys start with ``prefix``."""
    options = options or ModelOptions()
    source = read_official(path)
    weights, facts = Weights(source.state_dict, prefix), Facts()
    module: Layer | SequenceModel
    if not prefix and is_model(source.state_dict):
        module = read_model(weights, options, facts).build()
    else:
        for name in ("pooling", "rescale", "prenorm"):
            if getattr(options, name) is not None:
                raise ValueError(f"{name} is an option of whole models, this is one layer")
        module = read_layer(weights, options, facts).build()
    weights.finish()
    compared = source.u is not None and source.y is not None
    return Conversion(module, facts, output_errors(module, source.u, source.y) if compared else {})


@torch.no_grad()
def output_errors(module: Any, u: Any, y: Tensor | Any) -> dict[str, float]:
    """The largest difference of a layer or model from ``y``, in units of the largest ``|y|``."""
    module.eval()
    u = u.to(next(module.parameters()).dtype) if u.is_floating_point() else u
    outputs = {"at once": module(u)[0]}
    if not module.method.bidirectional:
        state, steps = module.initial_state(u.shape[0]), []
        for t in range(u.shape[1]):
            step, state = module.step(u[:, t], state)
            steps.append(step)
        each = outputs["at once"].ndim == 3
        outputs["step by step"] = torch.stack(steps, dim=1) if each else steps[-1]
    scale = float(y.abs().max())
    return {way: float((out - y).abs().max()) / scale for way, out in outputs.items()}
