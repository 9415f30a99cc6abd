"""Trained models as files for other runtimes, each checked against its model before it is kept.

``exporter`` writes a folder in one of ``formats``: ``onnx_*`` build graphs from the plan of a
model, ``c/`` writes it as source code, ``torch_model`` traces the model itself.
"""

from s4d_torch.deploy.export.exporter import Exported, ExportMismatchError, export_model
from s4d_torch.deploy.export.formats import FORMATS, Format
from s4d_torch.deploy.export.quantize import quantized

__all__ = ["FORMATS", "Exported", "ExportMismatchError", "Format", "export_model", "quantized"]
