"""Whole models: a training step around every layer, one step of a stream, the reading of data."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from s4d_torch.bench.contenders import (
    LAYERS,
    LISTING_FFT,
    LSTM,
    OFFICIAL,
    OURS,
    TRAINING,
    TRANSFORMER,
    Make,
)
from s4d_torch.bench.measure import Call, Case, Contender
from s4d_torch.data.folder import DataFolder, default_root
from s4d_torch.data.task import TASKS
from s4d_torch.nn.model import SequenceModel
from s4d_torch.training.build import build_model
from s4d_torch.training.config import default_config
from s4d_torch.training.evaluation import call, loss_sum
from s4d_torch.training.optimizer import FusedAdamW

EAGER, COMPILED, STREAM = "model.step", "model.compile_step()", "model.compile_step().push"
READ, LEARN = "read", "step"  # what is done with a batch
SMALL_LSTM = f"{LSTM}, 1 layer of as many parameters"
CLASSES = 10
# tasks whose data is read from files and not made; others take their time only once
READ_TASKS = ("digits", "mnist", "image", "scifar", "fsdd", "sc35", "bidmc-hr", "text")


class InBlock(nn.Module):
    """Another layer in the place of ours within a block of a model."""

    def __init__(self, inside: nn.Module) -> None:
        super().__init__()
        self.inside = inside

    def forward(self, x: Tensor, state: None = None, **_: Any) -> tuple[Tensor, None]:
        return self.inside(x), None


def _learning(model: nn.Module, loss: Callable[[], Tensor]) -> Call:
    """Forward, backward and AdamW as in ``s4d train``, for everybody."""
    optimizer = FusedAdamW(model.train().parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return step


def trained_model(case: Case, make: Make | None = None) -> SequenceModel:
    """The same model around every layer; ours, unless ``make`` makes another."""
    generator = torch.Generator().manual_seed(0)
    model = SequenceModel(
        1, CLASSES, case.d_model, case.layers, d_state=case.d_state, generator=generator
    )
    if make is not None:
        for block in model.blocks:
            block.layer = InBlock(make(case))
    return model.to(case.device)


def training_step(case: Case, make: Make | None = None) -> Call:
    model, generator = trained_model(case, make), torch.Generator().manual_seed(0)
    u = torch.randn(case.batch, case.length, 1, generator=generator).to(case.device)
    labels = (torch.arange(case.batch) % CLASSES).to(case.device)
    return _learning(model, lambda: cross_entropy(model(u, return_state=False)[0], labels))


def lstm_case(case: Case) -> Case:
    """One layer of the width at which a model around ``nn.LSTM`` has as many parameters as ours."""
    ours = sum(p.numel() for p in trained_model(replace(case, device="cpu")).parameters())
    # its map 8 h^2 and biases 8 h, encoder 2 h, two norms 4 h, decoder of one row for each class
    counts = {h: 8 * h * h + (14 + CLASSES) * h + CLASSES for h in range(1, math.isqrt(ours))}
    width = min(counts, key=lambda h: abs(counts[h] - ours))
    return replace(case, layers=1, d_model=width)


def training_steps(*, all_layers: bool = False) -> dict[str, Contender]:
    """Ours, an LSTM and the official layer; with ``all_layers`` two more that are not slow."""
    rivals = (OFFICIAL, LISTING_FFT, TRANSFORMER) if all_layers else (OFFICIAL,)
    return {
        OURS: Contender(training_step, lambda case: case.layers * LAYERS[OURS].memory(case)),
        SMALL_LSTM: Contender(lambda case: training_step(lstm_case(case), LAYERS[LSTM].make)),
        **{name: _trained(name) for name in rivals},
    }


def _trained(name: str) -> Contender:
    kind = LAYERS[name]
    return Contender(
        lambda case: training_step(case, kind.make),
        lambda case: case.layers * kind.memory(case),
        kind.order,
    )


def _stepped_model(case: Case) -> SequenceModel:
    return SequenceModel(
        1,
        CLASSES,
        case.d_model,
        case.layers,
        d_state=case.d_state,
        norm="batch",
        pooling="none",
        generator=torch.Generator().manual_seed(0),
    ).eval()


def _stepping(step: Callable[[Tensor, Any], tuple[Tensor, Any]], u: Tensor, state: Any) -> Call:
    """The state goes in and comes out at each call."""

    @torch.no_grad()
    def run() -> None:
        nonlocal state
        _, state = step(u, state)

    return run


def _model_step(case: Case, *, compiled: bool) -> Call:
    model = _stepped_model(case)
    step = model.compile_step(case.batch) if compiled else model.step
    return _stepping(step, torch.full((case.batch, 1), 0.1), model.initial_state(case.batch))


def _stream(case: Case) -> Call:
    """The state stays inside."""
    stream, u = _stepped_model(case).compile_step(case.batch), torch.full((case.batch, 1), 0.1)
    return lambda: stream.push(u)


def _lstm_step(case: Case) -> Call:
    lstm = nn.LSTM(case.d_model, case.d_model, case.layers, batch_first=True).eval()
    zeros = torch.zeros(case.layers, case.batch, case.d_model)
    u = torch.full((case.batch, 1, case.d_model), 0.1)
    return _stepping(lstm, u, (zeros, zeros))


def steps() -> dict[str, Contender]:
    return {
        STREAM: Contender(_stream),
        COMPILED: Contender(partial(_model_step, compiled=True)),
        EAGER: Contender(partial(_model_step, compiled=False)),
        f"{LSTM}, as many layers": Contender(_lstm_step),
    }


def tasks_here() -> list[str]:
    """Those of the measured tasks whose data is in the data folder."""
    folder = DataFolder(default_root(), download=False)
    return [name for name in READ_TASKS if TASKS[name].is_here(folder)]


def readers(name: str, threads: int) -> tuple[Case, dict[str, Contender]]:
    """A batch of a task in its small setting: read, and learned from."""
    config = default_config(name, "small")
    dataset = TASKS[name].load(config.data, DataFolder(default_root(), download=False))
    size, shape = config.training.batch_size, config.model
    sizes = (dataset.signature.length, shape.d_model, shape.d_state, shape.n_layers)
    case = Case(TRAINING, size, *sizes, threads=threads)
    positions = np.random.Generator(np.random.PCG64(0)).permutation(len(dataset.train))

    def reading(_: Case) -> Call:
        """Another batch each time, as an epoch would read them."""
        first = 0

        def read() -> None:
            nonlocal first
            first = (first + size) % (len(positions) - size)
            dataset.batch(dataset.train, positions[first : first + size])

        return read

    def learning(_: Case) -> Call:
        signature, batch = dataset.signature, dataset.batch(dataset.train, positions[:size])
        model = build_model(config, signature)
        return _learning(model, lambda: loss_sum(call(model, batch), batch.targets, signature))

    return case, {f"{name}: {READ}": Contender(reading), f"{name}: {LEARN}": Contender(learning)}
