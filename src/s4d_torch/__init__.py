"""Diagonal state space models for PyTorch: S4, DSS and S4D as combinations of a few choices."""

from s4d_torch._version import __version__
from s4d_torch.nn import (
    DSS,
    METHODS,
    S4,
    S4D,
    SSM,
    Block,
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
    "Layer",
    "Method",
    "ModelState",
    "SequenceModel",
    "__version__",
    "parameter_groups",
]
