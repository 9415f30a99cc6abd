"""Trained models in use: live streams, exports, the Hub, new data, weights of the official code.

Exports and the Hub, which load much that streams do without, are imported when first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from s4d_torch.deploy.official import from_official, from_official_model
from s4d_torch.deploy.official.weight_files import load_layer, read_official, save_layer
from s4d_torch.deploy.stream import Stream, Streams

if TYPE_CHECKING:
    from s4d_torch.deploy.export.exporter import Exported, ExportMismatchError, export_model
    from s4d_torch.deploy.export.quantize import quantized
    from s4d_torch.deploy.hub import HubSequenceModel, push_to_hub

_LATER = {
    "export.exporter": ("export_model", "Exported", "ExportMismatchError"),
    "export.quantize": ("quantized",),
    "hub": ("HubSequenceModel", "push_to_hub"),
}

__all__ = ["Stream", "Streams", "export_model", "Exported", "ExportMismatchError", "quantized"]
__all__ += ["HubSequenceModel", "push_to_hub", "from_official", "from_official_model"]
__all__ += ["load_layer", "read_official", "save_layer"]


def __getattr__(name: str) -> Any:
    for module, names in _LATER.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
