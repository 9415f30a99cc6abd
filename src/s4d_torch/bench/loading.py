"""How long a batch takes to be read, beside the training step that uses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from s4d_torch.bench.measure import Contender, Run, Shape
from s4d_torch.data.dataset import Dataset
from s4d_torch.data.folder import DataFolder, default_root
from s4d_torch.data.task import TASKS
from s4d_torch.training.build import build_model
from s4d_torch.training.config import Config, default_config
from s4d_torch.training.evaluation import call, loss_sum

READ, STEP = "read", "step"
# tasks whose data is read from files and not made; others take their time only once
MEASURED = ("digits", "mnist", "image", "scifar", "fsdd", "sc35", "bidmc-hr", "text")


def tasks_here() -> list[str]:
    """Those of the measured tasks whose data is in the data folder."""
    folder = DataFolder(default_root(), download=False)
    return [name for name in MEASURED if TASKS[name].is_here(folder)]


def readers(name: str) -> tuple[Shape, dict[str, Contender]]:
    """A batch of a task in its small setting: read, and learned from."""
    config = default_config(name, "small")
    folder = DataFolder(default_root(), download=False)
    dataset = TASKS[name].load(config.data, folder)
    model, training = config.model, config.training
    length = dataset.signature.length
    shape = Shape("training step", training.batch_size, length, model.d_model, model.d_state)
    positions = np.random.Generator(np.random.PCG64(0)).permutation(len(dataset.train))
    return shape, {
        f"{name}: {READ}": Contender(_timed(lambda: _reading(dataset, config, positions))),
        f"{name}: {STEP}": Contender(_timed(lambda: _learning(dataset, config, positions))),
    }


def _timed(make: Callable[[], Run]) -> Callable[[Shape], Run]:
    return lambda shape: make()


def _reading(dataset: Dataset, config: Config, positions: Any) -> Run:
    """Another batch each time, as an epoch would read them."""
    size, start = config.training.batch_size, [0]

    def read() -> None:
        first = start[0] = (start[0] + size) % (len(positions) - size)
        dataset.batch(dataset.train, positions[first : first + size])

    return read


def _learning(dataset: Dataset, config: Config, positions: Any) -> Run:
    model = build_model(config, dataset.signature).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    batch = dataset.batch(dataset.train, positions[: config.training.batch_size])

    def step() -> None:
        optimizer.zero_grad()
        loss_sum(call(model, batch), batch.targets, dataset.signature).backward()
        optimizer.step()

    return step
