"""Training: configs, one loop, runs that can be taken up again."""

from s4d_torch._interruption import Interrupted
from s4d_torch.training.config import (
    Config,
    ModelConfig,
    OptimizerConfig,
    TrainingConfig,
    default_config,
)
from s4d_torch.training.guard import DivergenceError
from s4d_torch.training.metrics import METRICS, Metric
from s4d_torch.training.processes import LostProcessError
from s4d_torch.training.progress import Progress, Reporter
from s4d_torch.training.run import Run, train, train_on
from s4d_torch.training.schedule import SCHEDULES

__all__ = [
    "Config",
    "DivergenceError",
    "Interrupted",
    "LostProcessError",
    "METRICS",
    "Metric",
    "ModelConfig",
    "OptimizerConfig",
    "Progress",
    "Reporter",
    "Run",
    "SCHEDULES",
    "TrainingConfig",
    "default_config",
    "train",
    "train_on",
]
