"""What is to be exported: one model as its plan, and what the files are held to."""

from dataclasses import dataclass
from typing import Any

import torch

from s4d_torch.data.dataset import Signature
from s4d_torch.data.task import Task
from s4d_torch.nn.model import SequenceModel
from s4d_torch.nn.plan import ModelPlan


@dataclass(frozen=True)
class Job:
    """``plan`` at the sampling rate ``rate``; the files have to answer as ``model`` does.

    ``state`` is the precision of what a step carries along, ``task`` what the model was trained
    on, with its ``options``; ``name`` is what a user calls it.
    """

    plan: ModelPlan
    model: SequenceModel
    rate: float
    state: torch.dtype
    signature: Signature | None = None
    task: Task[Any] | None = None
    options: Any = None
    name: str | None = None

    @property
    def title(self) -> str:
        """What a reader sees of the name."""
        known = "A state space model" if self.task is None else self.task.name
        return known if self.name is None else self.name
