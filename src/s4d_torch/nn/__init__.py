"""Modules that own parameters: method -> ssm -> layer -> block -> model.

``activation`` and ``norm`` hold the choices around a state space, ``plan`` folds a model for
``stepping`` and for exports, ``baselines`` are other models of the same calls.
"""

from s4d_torch.nn.block import Block
from s4d_torch.nn.layer import DSS, S4, S4D, Layer
from s4d_torch.nn.method import METHODS, Method
from s4d_torch.nn.model import SequenceModel
from s4d_torch.nn.output_only import OutputOnly
from s4d_torch.nn.parameter_groups import parameter_groups
from s4d_torch.nn.ssm import SSM
from s4d_torch.nn.state import ModelState
from s4d_torch.nn.stepping.step import CompiledStep

__all__ = [
    "DSS", "METHODS", "S4", "S4D", "SSM", "Block", "CompiledStep", "Layer", "Method",
    "ModelState", "OutputOnly", "SequenceModel", "parameter_groups",
]  # fmt: skip
