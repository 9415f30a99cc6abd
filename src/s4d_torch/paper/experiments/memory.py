"""How much memory an experiment takes at its peak, and how much there is.

``peak = process + 50 parameters + 4 batch length d_model (fixed + each n_layers)`` bytes: the
process with torch in it; weights, gradients, two moments of AdamW and what a checkpoint copies;
then the activations that wait for the backward pass, ``each`` tensors per layer, and ``fixed``
ones for the ends of the model and for what one layer needs while it works. The factors were
measured with the training loop on a CPU, and are rather too large than too small.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from s4d_torch.data.dataset import Signature
from s4d_torch.data.folder import DataFolder
from s4d_torch.data.task import TASKS
from s4d_torch.paper.experiments.experiment import Experiment
from s4d_torch.training.config import Config

PARAMETER_BYTES = 50
UNKNOWN_LENGTH = 16384
SPARE = 0.9  # the part of the free memory that a grid takes


@dataclass(frozen=True)
class Cost:
    """Bytes of the process; tensors (batch, length, d_model) once and for each layer."""

    process: float
    fixed: float
    each: float
    parameters: Callable[[int, int, int], float]
    """of width, layers and state size, roughly"""


def _convnet_parameters(width: int, layers: int, _: int) -> float:
    return 25 * layers / 4 * sum((2**stage * width) ** 2 for stage in range(4))


COSTS = {
    "ssm": Cost(0.5e9, 12, 10, lambda h, n, d: n * (2 * h * h + 8 * h * d)),
    "lstm": Cost(0.4e9, 11, 16, lambda h, n, _: 16 * n * h * h),
    "transformer": Cost(0.4e9, 16, 28, lambda h, n, _: 12 * n * h * h),
    "convnet": Cost(0.4e9, 12, 2.5, _convnet_parameters),
    "resnet": Cost(0.4e9, 9, 0.4, lambda h, n, _: 6 * n * h * h),
}
BIDIRECTIONAL = {"ssm": 1.25, "lstm": 2.8}  # times as many tensors
DPLR = 1.7


def peak_memory(config: Config, signature: Signature) -> int:
    """Bytes that training ``config`` takes at most, roughly."""
    model, training = config.model, config.training
    cost = COSTS.get(model.architecture, COSTS["transformer"])
    width = 8 if training.precision == "float64" else 4
    batch = signature.towers * training.batch_size
    tensors = cost.fixed + model.n_layers * cost.each
    if config.method.bidirectional:
        tensors *= BIDIRECTIONAL.get(model.architecture, 1.0)
    if model.architecture == "ssm" and config.method.structure == "dplr":
        tensors *= DPLR
    activations = batch * signature.length * model.d_model * width * tensors
    parameters = cost.parameters(model.d_model, model.n_layers, model.d_state)
    tables = signature.features * model.d_model if signature.tokens else 0
    return round(cost.process + PARAMETER_BYTES * width / 4 * (parameters + tables) + activations)


def needed_memory(experiments: Sequence[Experiment], data: DataFolder) -> dict[str, int]:
    """The peak of each experiment by its key; their data is prepared here, once for all.

    Where data cannot be read, the experiment will say so; until then its length is a guess.
    """
    signatures: dict[tuple[str, str], Signature] = {}
    peaks = {}
    for experiment in experiments:
        config = experiment.config
        shape = (config.task, repr(config.data))
        if shape not in signatures:
            signatures[shape] = _signature(config, data)
        peaks[experiment.key] = peak_memory(config, signatures[shape])
    return peaks


def _signature(config: Config, data: DataFolder) -> Signature:
    task = TASKS[config.task]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the run will say it again
            return task.load(config.data, data).signature
    except Exception:  # whatever it is, it is the experiment's to report
        length = task.length or UNKNOWN_LENGTH
        return Signature("classification", features=1, outputs=10, length=length)


def too_large(experiment: Experiment, needed: float, there: float) -> str:
    """The message for an experiment that is not started."""
    return (
        f"{experiment.config.task} {experiment.key} is left out: it needs about "
        f"{needed / 1e9:.1f} GB, {there / 1e9:.1f} GB are there; a smaller batch needs less, "
        "and --memory-gb overrides what is there"
    )


def available_memory(
    meminfo: Path = Path("/proc/meminfo"), group: Path = Path("/sys/fs/cgroup")
) -> float:
    """Bytes that can be taken without swapping, by the system's count and the container's."""
    return min(_of_system(meminfo), _of_container(group))


def _of_system(meminfo: Path) -> float:
    if meminfo.is_file():
        for line in meminfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("MemAvailable:"):
                return 1024.0 * int(line.split()[1])
    try:
        return 0.5 * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")  # others have a half
    except (AttributeError, OSError, ValueError):  # nobody knows, so nobody is held back
        return float("inf")


# Where the two versions of control groups keep limit, use and what of it are droppable files.
GROUPS = (
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    (
        "memory/memory.limit_in_bytes",
        "memory/memory.usage_in_bytes",
        "memory/memory.stat",
        "total_inactive_file",
    ),
)


def _of_container(group: Path) -> float:
    for limit, used, stat, droppable in GROUPS:
        try:
            most, taken, table = ((group / name).read_text("utf-8") for name in (limit, used, stat))
        except OSError:
            continue
        if most.strip() == "max":
            return float("inf")
        files = dict(line.split() for line in table.splitlines()).get(droppable, "0")
        return float(int(most) - int(taken) + int(files))
    return float("inf")
