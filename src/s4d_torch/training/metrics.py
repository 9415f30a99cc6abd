"""Scores of predictions: each with a direction, so that the best can be kept."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from s4d_torch._registry import Registry
from s4d_torch.data.dataset import Kind


@dataclass(frozen=True)
class Metric:
    """``score(predictions, targets)``: class scores (n, classes) and classes (n,), or numbers.

    For a generation: the surprise of each sequence in nats, (n,), and its symbols, (n,).
    """

    score: Callable[[Tensor, Tensor], float]
    kind: Kind
    higher_is_better: bool
    format: str = ""
    """of a value that is shown; by default per cent for classes, four digits for others"""

    def better(self, new: float, old: float | None) -> bool:
        if math.isnan(new):
            return False
        return old is None or (new > old if self.higher_is_better else new < old)

    def show(self, value: float) -> str:
        usual = ".2%" if self.kind == "classification" else ".4g"
        return f"{value:{self.format or usual}}"


METRICS: Registry[Metric] = Registry("metric")


def _metric(name: str, kind: Kind, *, higher_is_better: bool) -> Callable[..., object]:
    def register(score: Callable[[Tensor, Tensor], float]) -> Callable[[Tensor, Tensor], float]:
        METRICS.register(name, Metric(score, kind, higher_is_better))
        return score

    return register


@_metric("accuracy", "classification", higher_is_better=True)
def accuracy(scores: Tensor, classes: Tensor) -> float:
    """The part of the sequences whose class has the highest score."""
    return (scores.argmax(-1) == classes).double().mean().item()


@_metric("f1", "classification", higher_is_better=True)
def f1(scores: Tensor, classes: Tensor) -> float:
    """F1 of each class that occurs in targets or predictions, averaged (macro)."""
    found, wanted = (one_hot(x, scores.shape[-1]).bool() for x in (scores.argmax(-1), classes))
    hits = (found & wanted).sum(0).double()
    total = (found.sum(0) + wanted.sum(0)).double()
    return (2 * hits / total)[total > 0].mean().item()


@_metric("auroc", "classification", higher_is_better=True)
def auroc(scores: Tensor, classes: Tensor) -> float:
    """The chance that a class is more probable where it is true; averaged over classes, ties half.

    NaN if there is only one class.
    """
    areas = []
    for k in range(scores.shape[-1]) if scores.shape[-1] > 2 else (1,):
        positive = classes == k
        ups = int(positive.sum())
        if 0 < ups < len(classes):
            ranks = _ranks(log_odds(scores.double(), k))[positive].sum().item()
            areas.append((ranks - ups * (ups + 1) / 2) / (ups * (len(classes) - ups)))
    return math.fsum(areas) / len(areas) if areas else math.nan


def log_odds(scores: Tensor, k: int) -> Tensor:
    """``log p_k / (1 - p_k)``: orders as p_k = softmax(scores)_k does, and never saturates."""
    others = torch.cat([scores[:, :k], scores[:, k + 1 :]], dim=1)
    return scores[:, k] - others.logsumexp(1)


def _ranks(values: Tensor) -> Tensor:
    """Ranks from 1; equal values share the mean of theirs."""
    _, place, counts = values.unique(return_inverse=True, return_counts=True)
    return (counts.cumsum(0) - (counts - 1) / 2)[place].double()


@_metric("rmse", "regression", higher_is_better=False)
def rmse(predictions: Tensor, targets: Tensor) -> float:
    """The root of the mean squared error."""
    return (predictions.double() - targets.double()).square().mean().sqrt().item()


@_metric("mae", "regression", higher_is_better=False)
def mae(predictions: Tensor, targets: Tensor) -> float:
    """The mean absolute error."""
    return (predictions.double() - targets.double()).abs().mean().item()


@_metric("mse", "tracking", higher_is_better=False)
def mse(predictions: Tensor, targets: Tensor) -> float:
    """The mean squared error over all samples."""
    return (predictions.double() - targets.double()).square().mean().item()


@_metric("bits", "generation", higher_is_better=False)
def bits(surprise: Tensor, symbols: Tensor) -> float:
    """Bits per symbol: the cross entropy in base 2, over all symbols of all sequences."""
    return (surprise.double().sum() / symbols.sum()).item() / math.log(2)
