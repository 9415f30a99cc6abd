"""Diagonal state space models for PyTorch: S4, DSS and S4D as combinations of a few choices."""

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from s4d_torch._interruption import begin_quietly, is_command

# OpenMP reads this once, when torch is loaded: threads that spin while they wait make every call
# many times slower on a machine that others use too.
if "torch" not in sys.modules:
    begin_quietly()  # torch takes seconds
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from s4d_torch._version import __version__

# A command imports what it needs, and `s4d --help` no torch at all.
if TYPE_CHECKING or not is_command():
    from s4d_torch.nn import (
        DSS,
        METHODS,
        S4,
        S4D,
        SSM,
        Block,
        CompiledStep,
        Layer,
        Method,
        ModelState,
        OutputOnly,
        SequenceModel,
        parameter_groups,
    )

if TYPE_CHECKING:
    from s4d_torch.deploy import Stream, Streams, export_model, from_official, from_official_model
    from s4d_torch.estimators import (
        S4DClassifier,
        S4DFeatureClassifier,
        S4DFeatureRegressor,
        S4DFeatures,
        S4DForecaster,
        S4DRegressor,
    )
    from s4d_torch.training import Run, load, load_run

# what is imported when it is first asked for
_LATER = {
    "Block": "s4d_torch.nn",
    "CompiledStep": "s4d_torch.nn",
    "DSS": "s4d_torch.nn",
    "Layer": "s4d_torch.nn",
    "METHODS": "s4d_torch.nn",
    "Method": "s4d_torch.nn",
    "ModelState": "s4d_torch.nn",
    "OutputOnly": "s4d_torch.nn",
    "Run": "s4d_torch.training",
    "S4": "s4d_torch.nn",
    "S4D": "s4d_torch.nn",
    "S4DClassifier": "s4d_torch.estimators",
    "S4DFeatureClassifier": "s4d_torch.estimators",
    "S4DFeatureRegressor": "s4d_torch.estimators",
    "S4DFeatures": "s4d_torch.estimators",
    "S4DForecaster": "s4d_torch.estimators",
    "S4DRegressor": "s4d_torch.estimators",
    "SSM": "s4d_torch.nn",
    "SequenceModel": "s4d_torch.nn",
    "Stream": "s4d_torch.deploy",
    "Streams": "s4d_torch.deploy",
    "export_model": "s4d_torch.deploy",
    "from_official": "s4d_torch.deploy",
    "from_official_model": "s4d_torch.deploy",
    "load": "s4d_torch.training",
    "load_run": "s4d_torch.training",
    "parameter_groups": "s4d_torch.nn",
}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})


__all__ = [
    "DSS", "METHODS", "S4", "S4D", "SSM", "Block", "CompiledStep", "Layer", "Method",
    "ModelState", "OutputOnly", "Run", "S4DClassifier", "S4DFeatureClassifier",
    "S4DFeatureRegressor", "S4DFeatures", "S4DForecaster", "S4DRegressor", "SequenceModel",
    "Stream", "Streams", "__version__", "export_model", "from_official", "from_official_model",
    "load", "load_run", "parameter_groups",
]  # fmt: skip
