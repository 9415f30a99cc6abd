"""One training loop for classifiers of sequences: AdamW, warm-up, cosine decay."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR

from s4d_torch.data.dataset import Split
from s4d_torch.nn.model import SequenceModel
from s4d_torch.nn.parameter_groups import parameter_groups

WARM_UP = 0.1  # part of the steps in which the learning rate rises from 0


@dataclass(frozen=True)
class Progress:
    """Where a run stands after a step; ``accuracy`` is that of the last finished epoch."""

    step: int
    steps: int
    epoch: int
    epochs: int
    loss: float
    accuracy: float | None


def fit(
    model: SequenceModel,
    train: Split,
    validation: Split,
    *,
    epochs: int,
    batch_size: int = 32,
    lr: float = 1e-2,
    weight_decay: float = 0.01,
    seed: int = 0,
    on_progress: Callable[[Progress], None] | None = None,
) -> float:
    """Train in place; returns the accuracy on ``validation`` after the last epoch.

    ``seed`` decides the order of the batches and the dropout, and leaves the caller's random
    numbers alone. ``on_progress`` is called after every step.
    """
    for name, value in (("epochs", epochs), ("batch_size", batch_size)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    per_epoch = math.ceil(len(train) / batch_size)
    steps = epochs * per_epoch
    optimizer = AdamW(parameter_groups(model, lr=lr, weight_decay=weight_decay))
    schedule = LambdaLR(optimizer, lambda step: learning_rate_factor(step, steps))
    order = torch.Generator().manual_seed(seed)
    score: float | None = None
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for epoch in range(epochs):
            model.train()
            batches = torch.randperm(len(train), generator=order).split(batch_size)
            for i, batch in enumerate(batches):
                loss = _loss(model, train[batch])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
                if i == per_epoch - 1:
                    score = accuracy(model, validation)
                if on_progress is not None:
                    step = epoch * per_epoch + i + 1
                    on_progress(Progress(step, steps, epoch + 1, epochs, loss.item(), score))
    assert score is not None
    return score


def learning_rate_factor(step: int, steps: int) -> float:
    """Linear from 0 to 1 over the warm-up, then half a cosine down to 0."""
    rise = max(1, round(WARM_UP * steps))
    if step < rise:
        return (step + 1) / rise
    return 0.5 * (1 + math.cos(math.pi * (step - rise) / max(1, steps - rise)))


@torch.no_grad()
def accuracy(model: SequenceModel, data: Split, *, batch_size: int = 256) -> float:
    """The part of ``data`` whose class the model finds; leaves the model in its mode."""
    was_training = model.training
    model.eval()
    device = _device(model)
    right = 0
    for first in range(0, len(data), batch_size):
        part = data[first : first + batch_size]
        scores, _ = model(part.inputs.to(device), return_state=False)
        right += int((scores.argmax(-1) == part.targets.to(device)).sum())
    model.train(was_training)
    return right / len(data)


def _loss(model: SequenceModel, batch: Split) -> torch.Tensor:
    device = _device(model)
    scores, _ = model(batch.inputs.to(device), return_state=False)
    return cross_entropy(scores, batch.targets.to(device))


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device
