"""What a forecast costs: the squared error of the mean and the pinball loss of the quantiles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from s4d_torch.data.dataset import Dataset, Split
from s4d_torch.estimators.fitting import EstimatorTrainer, prediction_batch
from s4d_torch.training.evaluation import Evaluation, call


def pinball(quantiles: Tensor, targets: Tensor, levels: Tensor) -> Tensor:
    """``max(q (y - f), (q - 1) (y - f))`` for quantiles f (..., levels) and targets y (...)."""
    error = targets[..., None] - quantiles
    return torch.maximum(levels * error, (levels - 1) * error)


class ForecastTrainer(EstimatorTrainer):
    """The loop with the loss of a forecast, averaged over the horizon.

    The mean and the quantiles have outputs of their own, so that the sum of both losses has the
    best of each for its minimum. Validation windows are judged by the squared error of the mean.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, class_weights=None, **options)
        self.levels = torch.tensor(self.model.levels)
        self.metric_name = "mse" if self.held_out else "loss"

    def loss_sum(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """outputs (batch, horizon, 1 + levels), targets (batch, horizon)."""
        wanted = targets.to(outputs.dtype)
        loss = (outputs[..., 0] - wanted).square().mean(1).sum()
        if len(self.levels):
            levels = self.levels.to(outputs.dtype)
            loss = loss + pinball(outputs[..., 1:], wanted, levels).mean((1, 2)).sum()
        return loss

    @torch.no_grad()
    def evaluate(self, model: nn.Module, split: str, *, rate: float = 1.0) -> Evaluation:
        """Sums over batches: all outputs of a long horizon would not fit into memory."""
        if not self.held_out:
            return super().evaluate(model, split, rate=rate)
        was_training, rows = model.training, self.dataset.splits[split]
        model.eval()
        loss = squares = 0.0
        for outputs, targets in each_batch(model, self.dataset, rows):
            loss += self.loss_sum(outputs, targets).item()
            squares += (outputs[..., 0] - targets).square().mean(1).sum().item()
        model.train(was_training)
        return Evaluation(loss / len(rows), {self.metric_name: squares / len(rows)})


def each_batch(model: nn.Module, dataset: Dataset, split: Split) -> Iterator[tuple[Tensor, Tensor]]:
    """Outputs and targets of a split, batch by batch."""
    size = prediction_batch(dataset.signature.length)
    for first in range(0, len(split), size):
        batch = dataset.batch(split, np.arange(first, min(first + size, len(split))))
        yield call(model, batch), batch.targets
