"""``s4d train --dry-run``: what a run would take, from a few of its own steps."""

from __future__ import annotations

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
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from s4d_torch.cli.display import amount, as_json, say
from s4d_torch.cli.summary import (
    count,
    data_line,
    model_line,
    parameters,
    signature_line,
    ssm_parameters,
)
from s4d_torch.data import TASKS, DataFolder, Dataset, MissingDataError, Sequences, Signature, Split
from s4d_torch.training import METRICS, Config, Progress, Reporter, train_on
from s4d_torch.training.batches import Order
from s4d_torch.training.build import build_model
from s4d_torch.training.distributed import local_device
from s4d_torch.training.evaluation import predict
from s4d_torch.training.run import load_dataset

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


def show(
    config: Config,
    folder: DataFolder,
    device: str,
    out: Path,
    console: Console,
    *,
    json: bool = False,
) -> None:
    """A table of what the run is and takes; only prepared data may be written, for later runs."""
    found = measure(config, folder, device)
    if json:
        print(as_json(found))
        return
    table = Table("", "", box=box.SIMPLE, show_header=False, title="Dry run", title_justify="left")
    for name, text in _rows(config, out, found):
        table.add_row(name, escape(text))
    console.print(table)
    epoch, total = found["seconds_per_epoch"], found["seconds"]
    speed = f"about {amount(found['seconds_per_step'])} per step"
    if epoch is not None:
        speed = f"about {amount(epoch)} per epoch, {amount(total)} for all"
    say(console, f"{speed}, {_bytes(found['peak_bytes'])}")


def measure(config: Config, folder: DataFolder, device: str) -> dict[str, Any]:
    """Sizes, and times and memory of a few steps, on the data if it is here."""
    try:
        dataset, missing = _sample(config, replace(folder, download=False)), False
    except MissingDataError:
        dataset, missing = _synthetic(config), True
    training, where = config.training, local_device(device)
    model = build_model(config, dataset.signature)
    watch = _Stopwatch()
    with suppress(_StopError):
        train_on(dataset.shortened(test=1), config, device=device, reporter=watch)
    step = median(watch.seconds[1:] or watch.seconds)
    order = Order(len(dataset.train), training.batch_size, config.optimizer.accumulate, 0)
    epoch = None if missing else order.steps * step + _validation(config, dataset, model, where)
    return {
        "task": config.task,
        "config": config.to_json(),
        "data": _noise_line(dataset) if missing else data_line(dataset),
        "synthetic": missing,
        "model": model_line(config, model),
        "parameters": parameters(model),
        "ssm_parameters": ssm_parameters(model),
        "length": dataset.signature.length,
        "batch_size": training.batch_size,
        "steps_per_epoch": None if missing else order.steps,
        "steps": None if missing else training.epochs * order.steps,
        "seconds_per_step": step,
        "seconds_per_epoch": epoch,
        "seconds": None if epoch is None else training.epochs * epoch,
        "peak_bytes": _peak(where),
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
    predict(
        model.to(device),
        dataset,
        batch,
        batch_size=size,
        device=device,
        precision=config.training.precision,
    )
    return (time.perf_counter() - began) * len(dataset.validation) / size


def _synthetic(config: Config) -> Dataset:
    """Noise in the shape of a task, as far as that is known without its data."""
    task = TASKS[config.task]
    length = task.length or 1024
    limit = getattr(config.data, "max_length", None)
    length = length if limit is None else min(length, limit)
    size = STEPS * config.training.batch_size * config.optimizer.accumulate
    kind = METRICS[task.metric].kind
    if kind == "generation":
        return _synthetic_symbols(size, length, getattr(config.data, "levels", 256))
    signature = Signature(
        kind,
        features=1,
        outputs=10 if kind == "classification" else 1,
        length=length,
    )
    noise = np.random.default_rng(0).standard_normal((size, length, 1), dtype=np.float32)
    whole = Split.whole(Sequences(noise), np.zeros(size, dtype=np.int64))
    return Dataset(whole, whole, whole, signature)


def _synthetic_symbols(size: int, length: int, levels: int) -> Dataset:
    signature = Signature("generation", levels + 1, levels, length, tokens=True)
    noise = np.random.default_rng(0).integers(levels, size=(size, length))
    whole = Split.whole(Sequences(noise), np.zeros(size))
    return Dataset(whole, whole, whole, signature)


def _noise_line(dataset: Dataset) -> str:
    shape = signature_line(dataset.signature)
    return f"not here; measured on noise: {shape}, with features and classes a guess"


def _rows(config: Config, out: Path, found: Mapping[str, Any]) -> list[tuple[str, str]]:
    training, optimizer = config.training, config.optimizer
    steps = "unknown without the data"
    if found["steps"] is not None:
        steps = f"{found['steps_per_epoch']:,} per epoch, {found['steps']:,} in all"
    return [
        ("task", f"{config.task}: {TASKS[config.task].summary}"),
        ("data", found["data"]),
        ("model", found["model"]),
        ("state spaces", f"{found['ssm_parameters']:,} of {found['parameters']:,} parameters"),
        ("length", f"{found['length']:,}"),
        (
            "batch",
            f"{training.batch_size}, {count(optimizer.accumulate, 'batch', 'batches')} a step",
        ),
        ("epochs", str(training.epochs)),
        ("steps", steps),
        ("learning rate", f"{optimizer.lr:g}, {optimizer.schedule}"),
        ("device", f"{found['device']}, {count(found['threads'], 'thread')}, {training.precision}"),
        ("run", str(out)),
        ("a step takes", amount(found["seconds_per_step"])),
        ("memory", f"{_bytes(found['peak_bytes'])} at the peak of the process"),
    ]


def _peak(device: torch.device) -> int | None:
    """Bytes of memory that this process, or its part of a GPU, has held at most."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if STATUS.exists():
        for line in STATUS.read_text("utf-8").splitlines():
            if line.startswith("VmHWM:"):  # unlike getrusage, not inherited from a large parent
                return 1024 * int(line.split()[1])
    try:
        import resource
    except ImportError:  # Windows
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most


def _bytes(number: int | None) -> str:
    if number is None:
        return "unknown memory"
    return f"{number / 1e9:.1f} GB" if number >= 1e9 else f"{number / 1e6:.0f} MB"
