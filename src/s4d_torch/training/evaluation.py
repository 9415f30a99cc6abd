"""Predictions of a model for a whole split, and their scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from s4d_torch.data.dataset import Batch, Dataset, Signature, Split
from s4d_torch.training.metrics import METRICS
from s4d_torch.training.processes import Processes


@dataclass(frozen=True)
class Evaluation:
    """The mean loss, and every score that fits the kind of the task."""

    loss: float
    scores: dict[str, float]


def call(
    model: nn.Module, batch: Batch, *, precision: str = "float32", rate: float = 1.0
) -> Tensor:
    """What a model makes of a batch: (batch, outputs), in at least float32."""
    inputs = batch.inputs
    if precision == "float64" and inputs.is_floating_point():
        inputs = inputs.double()
    with torch.autocast(inputs.device.type, torch.bfloat16, enabled=precision == "bfloat16"):
        y, _ = model(inputs, lengths=batch.lengths, rate=rate, return_state=False)
    return y if y.dtype == torch.float64 else y.float()


def loss_sum(
    outputs: Tensor, targets: Tensor, signature: Signature, label_smoothing: float = 0.0
) -> Tensor:
    """Cross entropy, or the squared error in units of the targets' spread; summed over a batch."""
    if signature.kind == "classification":
        return cross_entropy(outputs, targets, reduction="sum", label_smoothing=label_smoothing)
    return mse_loss(outputs[:, 0], targets.to(outputs.dtype), reduction="sum")


@torch.no_grad()
def predict(
    model: nn.Module,
    dataset: Dataset,
    split: Split,
    *,
    batch_size: int = 64,
    device: torch.device | None = None,
    precision: str = "float32",
    rate: float = 1.0,
    processes: Processes = Processes(),  # noqa: B008  frozen
) -> tuple[Tensor, Tensor]:
    """Outputs (n, outputs) and targets (n,) for all of a split, as the model sees both."""
    if not len(split):
        raise ValueError("there are no sequences to evaluate: the split is empty")
    was_training = model.training
    model.eval()
    outputs, targets = [], []
    try:
        own = processes.share(np.arange(len(split)))
        for first in range(0, len(own), batch_size):
            batch = dataset.batch(split, own[first : first + batch_size])
            moved = batch if device is None else batch.to(device)
            outputs.append(call(model, moved, precision=precision, rate=rate).cpu())
            targets.append(batch.targets)
    finally:
        model.train(was_training)
    empty = torch.zeros(0, dataset.signature.outputs), torch.zeros(0)
    whole = [torch.cat(outputs), torch.cat(targets)] if outputs else list(empty)
    return processes.gather(whole[0], len(split)), processes.gather(whole[1], len(split))


def score(outputs: Tensor, targets: Tensor, signature: Signature) -> Evaluation:
    """The loss and all scores of predictions; those of a regression in the targets' own unit."""
    loss = loss_sum(outputs.double(), targets, signature).item() / len(targets)
    if signature.kind == "regression":
        outputs, targets = (physical(x, signature) for x in (outputs[:, 0], targets))
    scores = {
        name: metric.score(outputs, targets)
        for name, metric in METRICS.items()
        if metric.kind == signature.kind
    }
    return Evaluation(loss, scores)


def physical(values: Tensor, signature: Signature) -> Tensor:
    """Predicted or stored targets of a regression in their own unit."""
    return values.double() * signature.target_scale + signature.target_shift
