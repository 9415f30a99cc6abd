"""Diagonal state space models for PyTorch: S4, DSS and S4D as combinations of a few choices."""

import os
import sys

# OpenMP reads this once, when torch is loaded: threads that spin while they wait make every call
# many times slower on a machine that others use too.
if "torch" not in sys.modules:
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from s4d_torch._version import __version__
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
    SequenceModel,
    parameter_groups,
)

__all__ = [
    "DSS",
    "METHODS",
    "S4",
    "S4D",
    "SSM",
    "Block",
    "CompiledStep",
    "Layer",
    "Method",
    "ModelState",
    "SequenceModel",
    "__version__",
    "parameter_groups",
]
