"""What a run would take, from a few of its own steps."""

import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from s4d_torch.data.dataset import Array, Dataset, Sequences, Signature, Split
from s4d_torch.data.folder import DataFolder, MissingDataError
from s4d_torch.data.task import TASKS
from s4d_torch.nn.ssm import SSM
from s4d_torch.training.batches import Order
from s4d_torch.training.build import build_model
from s4d_torch.training.config import Config
from s4d_torch.training.distributed import local_device
from s4d_torch.training.evaluation import predict
from s4d_torch.training.loop import evaluation_interval
from s4d_torch.training.metrics import METRICS
from s4d_torch.training.reports.describe import (
    count_parameters,
    describe_data,
    describe_model,
    describe_signature,
)
from s4d_torch.training.reports.reporter import Progress, Reporter
from s4d_torch.training.run import load_dataset, train_on

# Steps to measure; the first, in which torch loads much of itself, does not count.
STEPS, MOST_STEPS, SECONDS = 3, 12, 2.0
STATUS = Path("/proc/self/status")


class _StopError(Exception):
    """The steps that were wanted are done."""


class _Stopwatch(Reporter):
    """Times the first steps, more of them if they are quick, then stops the run."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._last = 0.0

    def begin(self, about: Mapping[str, Any]) -> None:
        self._last = time.perf_counter()

    def step(self, now: Progress) -> None:
        before, self._last = self._last, time.perf_counter()
        self.seconds.append(self._last - before)
        enough = now.step >= STEPS and sum(self.seconds) >= SECONDS
        if enough or now.step in (MOST_STEPS, now.steps):
            raise _StopError


def estimate_cost(config: Config, folder: DataFolder, device: str = "auto") -> dict[str, Any]:
    """What training ``config`` takes: sizes, and the time and memory of a few steps of it.

    On the task's data if it is in ``folder``, else on noise of its shape. No run is written.
    """
    try:
        dataset, missing = _sample(config, replace(folder, download=False)), False
    except MissingDataError:
        dataset, missing = _synthetic(config), True
        # noise has one length, that of the longest: there is nothing to pack
        config = replace(config, training=replace(config.training, pack=False))
    training, where = config.training, local_device(device)
    model = build_model(config, dataset.signature)
    watch = _Stopwatch()
    with suppress(_StopError):
        train_on(dataset.shortened(test=1), config, device=device, reporter=watch)
    step = median(watch.seconds[1:] or watch.seconds)
    order = Order.of(config, dataset)
    shape = describe_signature(dataset.signature)
    epochs = training.epochs_for(order.steps)
    validation = _validation(config, dataset, model, where) / evaluation_interval(epochs)
    epoch = None if missing else order.steps * step + validation
    return {
        "task": config.task,
        "config": config.to_json(),
        "data": f"not here; measured on noise: {shape}, with features and classes a guess"
        if missing
        else describe_data(dataset),
        "synthetic": missing,
        "model": describe_model(config, model),
        "parameters": count_parameters(model),
        "ssm_parameters": sum(count_parameters(m) for m in model.modules() if isinstance(m, SSM)),
        "length": dataset.signature.length,
        "batch_size": training.batch_size,
        "epochs": epochs,
        "steps_per_epoch": None if missing else order.steps,
        "steps": None if missing else epochs * order.steps,
        "seconds_per_step": step,
        "seconds_per_epoch": epoch,
        "seconds": None if epoch is None else epochs * epoch,
        "peak_bytes": peak_memory(where),
        "threads": torch.get_num_threads(),
        "device": str(where),
    }


def _sample(config: Config, folder: DataFolder) -> Dataset:
    """The data; a part of it again and again where it would have to be made first."""
    task = TASKS[config.task]
    preview = task.preview(config.data) if task.preview else None
    if preview is None:
        return load_dataset(task, config.data, config, folder)
    options, sizes = preview
    dataset = task.load(options, folder).repeated(sizes)
    return dataset.shortened(train=config.training.train_size, test=config.training.eval_size)


def _validation(
    config: Config, dataset: Dataset, model: torch.nn.Module, device: torch.device
) -> float:
    """Seconds to validate once, from one batch of it."""
    size = min(config.training.batch_size, len(dataset.validation))
    batch = dataset.validation.part(slice(size))
    began = time.perf_counter()
    options: Any = {"precision": config.training.precision, "piece": config.training.tbptt}
    predict(model.to(device), dataset, batch, batch_size=size, device=device, **options)
    return (time.perf_counter() - began) * len(dataset.validation) / size


def _synthetic(config: Config) -> Dataset:
    """Noise in the shape of a task, as far as that is known without its data."""
    task = TASKS[config.task]
    length = min(task.length or 1024, getattr(config.data, "max_length", sys.maxsize))
    size = STEPS * config.training.batch_size * config.optimizer.accumulate
    random = np.random.default_rng(0)
    noise: Array
    kind = METRICS[task.metric].kind
    if kind == "generation":
        levels = getattr(config.data, "levels", 256)
        signature = Signature("generation", levels + 1, levels, length, tokens=True)
        noise = random.integers(levels, size=(size, length))
    else:
        kind = "regression" if kind == "tracking" else kind
        outputs = 10 if kind == "classification" else 1
        signature = Signature(kind, features=1, outputs=outputs, length=length)
        noise = random.standard_normal((size, length, 1), dtype=np.float32)
    whole = Split.whole(Sequences(noise), np.zeros(size, dtype=np.int64))
    return Dataset(whole, whole, whole, signature)


def peak_memory(device: torch.device | None = None) -> int | None:
    """Bytes of memory that this process, or its part of a GPU, has held at most."""
    if device is not None and device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    with suppress(OSError, ValueError):
        return process_status("VmHWM")  # unlike getrusage, not inherited from a large parent
    try:
        import resource
    except ImportError:  # Windows
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most


def process_status(name: str) -> int:
    """Bytes that Linux counts under ``name`` for this process, such as VmRSS or VmHWM."""
    for line in STATUS.read_text("utf-8").splitlines():
        if line.startswith(f"{name}:"):
            return 1024 * int(line.split()[1])
    raise ValueError(f"{STATUS} has no {name}")
