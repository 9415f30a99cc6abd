"""What is to be exported: one model as its plan, and what the files are held to."""

from dataclasses import dataclass

import torch

from s4d_torch.data.dataset import Signature
from s4d_torch.nn.model import SequenceModel
from s4d_torch.nn.plan import ModelPlan


@dataclass(frozen=True)
class Job:
    """``plan`` at the sampling rate ``rate``; the files have to answer as ``model`` does.

    ``state`` is the precision of what a step carries along.
    """

    plan: ModelPlan
    model: SequenceModel
    rate: float
    state: torch.dtype
    signature: Signature | None = None
