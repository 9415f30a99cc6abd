"""Weights of the official code (state-spaces/s4), read into layers and models.

A file or state dict (:mod:`.weight_files`, :mod:`.weights`) is read from the inside out: the state
space (:mod:`.kernel_reader`), the layer, the model; :mod:`.conversion` does all of it for a file.
"""

from s4d_torch.deploy.official.conversion import Conversion, convert_file, output_errors
from s4d_torch.deploy.official.layer_reader import from_official
from s4d_torch.deploy.official.model_reader import from_official_model
from s4d_torch.deploy.official.weight_files import load_layer, read_official, save_layer
from s4d_torch.deploy.official.weights import LayerOptions, ModelOptions

__all__ = ["from_official", "from_official_model", "LayerOptions", "ModelOptions", "read_official"]
__all__ += ["save_layer", "load_layer", "convert_file", "Conversion", "output_errors"]
