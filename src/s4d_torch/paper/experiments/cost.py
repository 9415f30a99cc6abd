"""What an experiment costs, by its sizes: time until runs like it are done, and memory.

The unit of time is a mode step, forward and backward: one mode of one channel over one sample.

``peak = process + 50 parameters + 4 batch length d_model (fixed + each n_layers)`` bytes: the
process with torch in it; weights, gradients, two moments of AdamW and what a checkpoint copies;
then the activations that wait for the backward pass, ``each`` tensors per layer, and ``fixed``
ones for the ends of the model and for what one layer needs while it works. The factors were
measured with the training loop on a CPU, and are rather too large than too small.
"""

import json
import math
import os
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

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
    **dict.fromkeys(("scifar", "image"), 45_000),
    "sc35": 84_843,
    **dict.fromkeys(("bidmc-hr", "bidmc-rr", "bidmc-spo2"), 5_556),
    "listops": 96_000,
    "text": 22_500,
    "retrieval": 147_086,
    **dict.fromkeys(("pathfinder", "pathx"), 160_000),
}
FEW = 1_000  # of anything else: no table of the paper needs it
WORDS = 35  # of Speech Commands
SHORT_LISTOPS = (8_000, 42)  # sequences and mean length of the NYU files
LEARNED_FROM = 0.8  # of the pictures that are drawn
# Mode steps: of a weight, of a pair of samples, and of log2(n) of a sample that is transformed.
MIXING, ATTENTION, TRANSFORM = 0.4, 0.75, 1.0


def mode_steps(config: Config) -> float:
    """The work of a whole run; validation and test are small beside it."""
    sequences, length = _data(config)
    model, method = config.model, config.method
    per_sample = MIXING * model.d_model**2
    if model.architecture == "transformer":
        per_sample += ATTENTION * length * model.d_model
    elif model.architecture == "ssm":
        transformed = TRANSFORM * math.log2(2 * length)
        scanned = (2 if method.bidirectional else 1) * model.d_state / 2
        dense = method.structure == "dplr"  # which has no scan
        per_sample += model.d_model * (transformed if dense else min(scanned, transformed))
    else:  # convolutions and recurrent layers: several weights for each of ours
        per_sample *= 8
    return sequences * config.training.known_epochs * length * model.n_layers * per_sample


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
    if task.startswith("bidmc"):
        length = float(options.length)
    if task in ("pathfinder", "pathx"):
        sequences = LEARNED_FROM * options.count
    if task == "pathx":
        length = float(options.size**2)
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
    """How long experiments take: as those of their size did, or ``rate`` seconds a mode step."""

    def __init__(self, results: Sequence[Result], rate: float | None = None) -> None:
        self.times: dict[str, list[float]] = {}
        rates = []
        for result in results:
            if result.error is None and "seconds" in result.summary:
                took = result.seconds
                self.times.setdefault(self._size(result.config), []).append(took)
                with suppress(ValueError, TypeError, KeyError):  # of another version
                    rates.append(took / mode_steps(Config.from_json(result.config)))
        self.rate = median(rates) if rates else rate  # one that had to wait changes little

    def __bool__(self) -> bool:
        return self.rate is not None

    def of(self, experiment: Experiment) -> float:
        """Seconds."""
        if like := self.times.get(self._size(experiment.config.to_json())):
            return median(like)
        if self.rate is None:
            raise ValueError("no result and no rate to judge by")
        return self.rate * mode_steps(experiment.config)

    @staticmethod
    def _size(config: Mapping[str, Any]) -> str:
        training = {k: v for k, v in config["training"].items() if k != "seed"}
        structure = config["method"]["structure"]
        size = [config["task"], config["data"], config["model"], training, structure]
        return json.dumps(size, sort_keys=True)


# -- memory ----------------------------------------------------------------------------------------

PARAMETER_BYTES = 50
UNKNOWN_LENGTH = 16384


class MemoryCost(NamedTuple):
    """Bytes of the process; tensors (batch, length, d_model) once and for each layer.

    Each layer has about ``weights d_model^2 + states d_model d_state`` parameters.
    """

    process: float
    fixed: float
    each: float
    weights: float
    states: float = 0.0


COSTS = {
    "ssm": MemoryCost(0.5e9, 12, 10, 2, 8),
    "lstm": MemoryCost(0.4e9, 11, 16, 16),
    "transformer": MemoryCost(0.4e9, 16, 28, 12),
    "convnet": MemoryCost(0.4e9, 12, 2.5, 25 / 4 * (1 + 4 + 16 + 64)),  # stages of growing width
    "resnet": MemoryCost(0.4e9, 9, 0.4, 6),
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
    per_channel = cost.weights * model.d_model + cost.states * model.d_state
    parameters = model.n_layers * model.d_model * per_channel
    tables = signature.features * model.d_model if signature.tokens else 0
    return round(cost.process + PARAMETER_BYTES * width / 4 * (parameters + tables) + activations)


def needed_memory(experiments: Sequence[Experiment], data: DataFolder) -> dict[str, int]:
    """The peak of each experiment by key; a guess where its data, prepared here, cannot be read."""
    signatures: dict[tuple[str, str], Signature] = {}
    peaks = {}
    for experiment in experiments:
        config = experiment.config
        if (shape := (config.task, repr(config.data))) not in signatures:
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


def counted_memory(name: str, meminfo: Path = Path("/proc/meminfo")) -> float | None:
    """Bytes that Linux counts as MemTotal or MemAvailable; None where it does not say."""
    with suppress(OSError):
        for line in meminfo.read_text("utf-8").splitlines():
            if line.startswith(f"{name}:"):
                return 1024.0 * int(line.split()[1])
    return None


def _of_system(meminfo: Path) -> float:
    if (counted := counted_memory("MemAvailable", meminfo)) is not None:
        return counted
    try:
        return 0.5 * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")  # others have a half
    except (AttributeError, OSError, ValueError):  # nobody knows, so nobody is held back
        return float("inf")


# Where the two versions of control groups keep limit, use and what of it are droppable files.
GROUPS = (
    ("memory.", "max", "current", "inactive_file"),
    ("memory/memory.", "limit_in_bytes", "usage_in_bytes", "total_inactive_file"),
)


def _of_container(group: Path) -> float:
    for start, *names, droppable in GROUPS:
        files = (group / f"{start}{name}" for name in (*names, "stat"))
        try:
            most, taken, table = (file.read_text("utf-8") for file in files)
        except OSError:
            continue
        if most.strip() == "max":
            return float("inf")
        free = dict(line.split() for line in table.splitlines()).get(droppable, "0")
        return float(int(most) - int(taken) + int(free))
    return float("inf")
