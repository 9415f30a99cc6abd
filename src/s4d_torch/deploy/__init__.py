"""Trained models elsewhere: live streams, exports, the Hub, weights from the official code."""

from s4d_torch.deploy.export.export import Exported, ExportMismatchError, export_model
from s4d_torch.deploy.export.quantize import quantized
from s4d_torch.deploy.hub import HubSequenceModel, push_to_hub
from s4d_torch.deploy.official.files import load_layer, read_official, save_layer
from s4d_torch.deploy.official.layer import from_official
from s4d_torch.deploy.official.model import from_official_model
from s4d_torch.deploy.stream.stream import Stream, Streams

__all__ = [
    "Stream",
    "Streams",
    "export_model",
    "Exported",
    "ExportMismatchError",
    "quantized",
    "HubSequenceModel",
    "push_to_hub",
    "from_official",
    "from_official_model",
    "load_layer",
    "read_official",
    "save_layer",
]
