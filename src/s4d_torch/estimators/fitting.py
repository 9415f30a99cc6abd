"""From series and targets to a trained model: the training loop, as estimators use it."""

import copy
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss

from s4d_torch.data.dataset import Array, Dataset, Sequences, Signature, Split
from s4d_torch.nn.pretrained import Pretrained
from s4d_torch.training.build import build_model
from s4d_torch.training.config import Config, TrainingConfig
from s4d_torch.training.divergence import DivergenceError
from s4d_torch.training.evaluation import Evaluation, predict
from s4d_torch.training.loop import Trainer
from s4d_torch.training.metrics import Metric
from s4d_torch.training.reports.reporter import Reporter
from s4d_torch.training.saved.store import MemoryStore

CPU = torch.device("cpu")
# Cases are learned once their loss stays below this part of that of a guess. Classes are known long
# before their loss is small; numbers are only as good as their loss.
LEARNED = {"classification": 0.03, "regression": 0.001}
EPOCHS_BELOW = 3  # in a row, so that one lucky epoch does not count
SAMPLES_AT_ONCE = 1 << 17  # in a batch of a prediction: more are no faster, and take memory


class EstimatorTrainer(Trainer):
    """The loop with weights for classes, and several numbers to predict.

    Held-out cases are judged by accuracy, where each case counts as its class does; numbers by the
    loss. With nothing held out, nothing is judged; then ``until_learned`` stops once the training
    cases are learned.
    """

    def __init__(
        self,
        *args: Any,
        class_weights: Tensor | None,
        held_out: bool,
        until_learned: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self.class_weights, self.held_out = class_weights, held_out
        self.until_learned, self.epochs_below = until_learned and not held_out, 0
        classes = self.dataset.signature.kind == "classification"
        self.metric_name = "accuracy" if classes and held_out else "loss"
        self.metric = Metric(
            lambda outputs, targets: self._judge(outputs, targets).scores[self.metric_name],
            self.dataset.signature.kind,
            higher_is_better=self.metric_name == "accuracy",
        )

    def loss_sum(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Weighted cross entropy, or the squared error averaged over the numbers of a case."""
        if self.dataset.signature.kind == "classification":
            return super().loss_sum(outputs, targets)
        wanted = targets.to(outputs.dtype).view_as(outputs)
        return mse_loss(outputs, wanted, reduction="sum") / outputs.shape[1]

    def _end_epoch(self, epoch: int) -> None:
        state, signature = self.state, self.dataset.signature
        loss = state.loss_sum / state.loss_count if state.loss_count else math.inf
        super()._end_epoch(epoch)
        if not self.until_learned:
            return
        guess = math.log(signature.outputs) if signature.kind == "classification" else 1.0
        below = loss < LEARNED[signature.kind] * guess
        self.epochs_below = self.epochs_below + 1 if below else 0
        state.finished |= self.epochs_below == EPOCHS_BELOW

    def evaluate(self, model: torch.nn.Module, split: str, *, rate: float = 1.0) -> Evaluation:
        if not self.held_out:
            loss = self.state.loss_sum / max(1, self.state.loss_count)
            return Evaluation(loss, {self.metric_name: loss})
        rows, size = self.dataset.splits[split], prediction_batch(self.dataset.signature.length)
        precision = self.config.training.precision
        found = predict(model, self.dataset, rows, batch_size=size, precision=precision, rate=rate)
        return self._judge(*found)

    def _judge(self, outputs: Tensor, targets: Tensor) -> Evaluation:
        count = len(targets)
        if self.dataset.signature.kind == "regression":
            loss = self.loss_sum(outputs.double(), targets).item() / count
            return Evaluation(loss, {"loss": loss})
        weights = torch.ones(outputs.shape[1]) if self.class_weights is None else self.class_weights
        each = weights.double()[targets]
        costs = cross_entropy(outputs.double(), targets, reduction="none")
        loss = ((each * costs).sum() / each.sum()).item()
        right = (each * (outputs.argmax(-1) == targets)).sum() / each.sum()
        return Evaluation(loss, {"accuracy": right.item()})


def fit_model(
    sequences: Sequences,
    targets: Array,
    held_out: Array | None,
    signature: Signature,
    config: Config,
    *,
    times: list[Array] | None = None,
    model: Pretrained | None = None,
    class_weights: Tensor | None = None,
    until_learned: bool = False,
    reporter: Reporter | None = None,
) -> tuple[Pretrained, list[dict[str, Any]]]:
    """Train ``model``, or a new one, on the cases that are not held out; and a row per epoch.

    With cases held out, the weights that did best on them; otherwise the last ones, after all
    epochs or, with ``until_learned``, when little is left to learn.
    """
    train = validation = whole = _split(sequences, targets, times)
    if held_out is not None:
        train = whole.part(np.setdiff1d(np.arange(len(whole)), held_out))
        validation = whole.part(held_out)
    dataset = Dataset(train, validation, validation, signature)
    return train_model(
        dataset,
        config,
        model,
        EstimatorTrainer,
        held_out=held_out is not None,
        reporter=reporter,
        class_weights=class_weights,
        until_learned=until_learned,
    )


def train_model(
    dataset: Dataset,
    config: Config,
    model: Pretrained | None,
    trainer: Callable[..., Trainer],
    *,
    held_out: bool,
    **options: Any,
) -> tuple[Pretrained, list[dict[str, Any]]]:
    """The loop of ``trainer`` over a dataset, whose validation split judges if it is held out."""
    store = MemoryStore()
    with torch.random.fork_rng([]):  # the caller's random numbers stay its own
        model = build_model(config, dataset.signature) if model is None else model
        loop = trainer(
            config, dataset, model, store=store, device=CPU, held_out=held_out, **options
        )
        try:
            loop.run()
        except DivergenceError as error:
            found = str(error).split(". ")[0]
            raise DivergenceError(
                f"{found}. A smaller lr, now {config.optimizer.lr:g}, may help"
            ) from error
    best = store.best_model() if held_out else loop.model
    assert best is not None
    return best.eval(), store.rows


def _split(sequences: Sequences, targets: Array, times: list[Array] | None) -> Split:
    whole = Split.whole(sequences, targets)
    return whole if times is None else replace(whole, times=Sequences.of(times))


def predict_outputs(
    model: Pretrained,
    sequences: Sequences,
    signature: Signature,
    times: list[Array] | None = None,
) -> Array:
    """Outputs (cases, outputs).

    In double precision: a case gets the same answer alone and among others, which single precision
    rounds differently. It takes about twice the time.
    """
    whole = _split(sequences, np.zeros(len(sequences)), times)
    here = replace(signature, kind="regression")  # the targets are none: they are not looked at
    dataset, size = Dataset(whole, whole, whole, here), prediction_batch(sequences.longest)
    exact = copy.deepcopy(model).double()
    outputs, _ = predict(exact, dataset, whole, batch_size=size, precision="float64")
    return np.asarray(outputs.numpy())


def prediction_batch(length: int) -> int:
    return min(256, max(1, SAMPLES_AT_ONCE // max(1, length)))


@contextmanager
def threads(n_jobs: int | None) -> Iterator[None]:
    """Torch computes with ``n_jobs`` threads: -1 all cores, None as many as it would anyway."""
    if n_jobs == 0:
        raise ValueError("n_jobs is 0; give a number of threads, -1 for all cores, or None")
    before, cores = torch.get_num_threads(), os.cpu_count() or 1
    if n_jobs is not None:
        torch.set_num_threads(n_jobs if n_jobs > 0 else max(1, cores + 1 + n_jobs))
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Printer(Reporter):
    """Prints a line after an epoch: about ten in all, or with ``every`` after each one."""

    def __init__(self, name: str, training: TrainingConfig, *, every: bool) -> None:
        self.name, self.epochs = name, training.known_epochs
        self.held_out = training.patience is not None
        self.stride = 1 if every else max(1, self.epochs // 10)

    def epoch(self, row: Mapping[str, Any]) -> None:
        epoch = row["epoch"]
        if epoch % self.stride and epoch != self.epochs:
            return
        line = f"{self.name}: epoch {epoch}/{self.epochs}, loss {row['train_loss']:.4g}"
        if self.held_out:
            line += f", held out {row['validation_loss']:.4g}"
            if "validation_accuracy" in row:
                line += f", accuracy {row['validation_accuracy']:.3f}"
        print(line, flush=True)

    def message(self, text: str) -> None:
        print(f"{self.name}: {text}", flush=True)
