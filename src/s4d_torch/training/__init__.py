"""Training: one loop, and runs that go on bit by bit after any interruption.

``config`` decides a run and ``build`` makes its model; ``loop`` trains it, with ``batches``,
``optimizer``, ``evaluation`` and ``divergence``; ``distributed`` is for many processes;
``saved`` keeps it; ``run`` puts all together.
"""

from s4d_torch._interruption import Interrupted
from s4d_torch.training.build import ARCHITECTURES
from s4d_torch.training.config import (
    Config,
    ModelConfig,
    OptimizerConfig,
    TrainingConfig,
    default_config,
)
from s4d_torch.training.distributed import LostProcessError
from s4d_torch.training.divergence import DivergenceError
from s4d_torch.training.metrics import METRICS, Metric
from s4d_torch.training.reports.reporter import Progress, Reporter
from s4d_torch.training.run import Run, load, load_run, train, train_on
from s4d_torch.training.schedule import SCHEDULES

__all__ = [
    "ARCHITECTURES", "Config", "DivergenceError", "Interrupted", "LostProcessError", "METRICS",
    "Metric", "ModelConfig", "OptimizerConfig", "Progress", "Reporter", "Run", "SCHEDULES",
    "TrainingConfig", "default_config", "load", "load_run", "train", "train_on",
]  # fmt: skip
