"""What an experiment costs, by its sizes: time until runs like it are done, and memory.

The unit of time is a mode step, forward and backward: one mode of one channel over one sample.

``peak = process + 50 parameters + 4 batch length d_model (fixed + each n_layers)`` bytes: the
process with torch in it; weights, gradients, two moments of AdamW and what a checkpoint copies;
then the activations that wait for the backward pass, ``each`` tensors per layer, and ``fixed``
ones for the ends of the model and for what one layer needs while it works. The factors were
measured with the training loop on a CPU, and are rather too large than too small.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

from s4d_torch.data.dataset import Signature
from s4d_torch.data.folder import DataFolder
from s4d_torch.data.task import TASKS
from s4d_torch.nn.model import SequenceModel
from s4d_torch.paper.experiments.experiment import Experiment, Result
from s4d_torch.training.config import Config

# -- time ------------------------------------------------------------------------------------------

# Sequences to learn from, where all of the published data is there.
SEQUENCES = {
    "scifar": 45_000,
    "image": 45_000,
    "sc35": 84_843,
    "bidmc-hr": 5_556,
    "bidmc-rr": 5_556,
    "bidmc-spo2": 5_556,
    "listops": 96_000,
    "text": 22_500,
    "retrieval": 147_086,
    "pathfinder": 160_000,
    "pathx": 160_000,
}
FEW = 1_000  # of anything else: no table of the paper needs it
WORDS = 35  # of Speech Commands
SHORT_LISTOPS = (8_000, 42)  # sequences and mean length of the NYU files
LEARNED_FROM = 0.8  # of the pictures that are drawn
MIXING, ATTENTION, DENSE = 0.4, 0.75, 2.0  # mode steps: a weight, a pair of samples; times for S4


def mode_steps(config: Config) -> float:
    """The work of a whole run; validation and test are small beside it."""
    sequences, length = _data(config)
    model, method = config.model, config.method
    per_sample = MIXING * model.d_model**2
    if model.architecture == "transformer":
        per_sample += ATTENTION * length * model.d_model
    elif model.architecture == "ssm":
        both = 2 if method.bidirectional else 1
        dense = DENSE if method.structure == "dplr" else 1.0
        per_sample += dense * both * model.d_model * model.d_state / 2
    else:  # convolutions and recurrent layers: several weights for each of ours
        per_sample *= 8
    return sequences * config.training.epochs * length * model.n_layers * per_sample


def _data(config: Config) -> tuple[float, float]:
    """(sequences to learn from, samples of each)."""
    task, options = config.task, config.data
    sequences, length = float(SEQUENCES.get(task, FEW)), float(TASKS[task].length or FEW)
    if task == "listops":
        made_here = (options.n_train, options.max_length)
        sequences, length = SHORT_LISTOPS if options.source == "nyu" else made_here
    if task == "sc35":
        sequences *= len(options.words) / WORDS if options.words else 1.0
        length = float(options.sample_rate)
    if task in ("pathfinder", "pathx"):
        sequences = LEARNED_FROM * options.count
    if task in ("text", "retrieval"):
        length = min(length, options.max_length)
    return min(sequences, config.training.train_size or sequences), length


def seconds_per_mode_step(length: int = 1024, batch: int = 8) -> float:
    """Measured here and now, on one thread: a few steps of a small model."""
    d_model, d_state, n_layers = 32, 32, 2
    model = SequenceModel(1, 10, d_model=d_model, d_state=d_state, n_layers=n_layers)
    u, times = torch.randn(batch, length, 1), []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for _ in range(4):  # the first loads compiled code
            began = time.perf_counter()
            model(u)[0].square().mean().backward()
            times.append(time.perf_counter() - began)
    finally:
        torch.set_num_threads(threads)
    per_sample = d_model * d_state / 2 + MIXING * d_model**2
    return min(times[1:]) / (batch * length * n_layers * per_sample)


class Durations:
    """How long experiments take: as those of the same size did, or else by their sizes.

    ``rate`` is the seconds of a mode step, if it is known without results.
    """

    def __init__(self, results: Sequence[Result], rate: float | None = None) -> None:
        self.times: dict[str, list[float]] = {}
        rates = []
        for result in results:
            if result.error is None and "wall_seconds" in result.summary:
                took = result.summary["wall_seconds"]
                self.times.setdefault(self._size(result.config), []).append(took)
                with suppress(ValueError, TypeError, KeyError):  # of another version
                    rates.append(took / mode_steps(Config.from_json(result.config)))
        self.rate = median(rates) if rates else rate  # one that had to wait changes little

    def __bool__(self) -> bool:
        return self.rate is not None

    def of(self, experiment: Experiment) -> float:
        """Seconds."""
        like = self.times.get(self._size(experiment.config.to_json()))
        if like:
            return median(like)
        if self.rate is None:
            raise ValueError("no result and no rate to judge by")
        return self.rate * mode_steps(experiment.config)

    @staticmethod
    def _size(config: Mapping[str, Any]) -> str:
        training = {k: v for k, v in config["training"].items() if k != "seed"}
        size = [config["task"], config["data"], config["model"], training]
        size.append(config["method"]["structure"])
        return json.dumps(size, sort_keys=True)


# -- memory ----------------------------------------------------------------------------------------

PARAMETER_BYTES = 50
UNKNOWN_LENGTH = 16384
MEMORY_SHARE = 0.9  # the part of the free memory that a grid takes


@dataclass(frozen=True)
class MemoryCost:
    """Bytes of the process; tensors (batch, length, d_model) once and for each layer."""

    process: float
    fixed: float
    each: float
    parameters: Callable[[int, int, int], float]
    """of width, layers and state size, roughly"""


def _convnet_parameters(width: int, layers: int, _: int) -> float:
    return 25 * layers / 4 * sum((2**stage * width) ** 2 for stage in range(4))


COSTS = {
    "ssm": MemoryCost(0.5e9, 12, 10, lambda h, n, d: n * (2 * h * h + 8 * h * d)),
    "lstm": MemoryCost(0.4e9, 11, 16, lambda h, n, _: 16 * n * h * h),
    "transformer": MemoryCost(0.4e9, 16, 28, lambda h, n, _: 12 * n * h * h),
    "convnet": MemoryCost(0.4e9, 12, 2.5, _convnet_parameters),
    "resnet": MemoryCost(0.4e9, 9, 0.4, lambda h, n, _: 6 * n * h * h),
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
