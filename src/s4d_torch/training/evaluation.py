"""Predictions of a model for a whole split, and their scores."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from s4d_torch.data.dataset import IGNORED, Array, Batch, Dataset, Signature, Split
from s4d_torch.nn.state import ModelState
from s4d_torch.training.distributed import Processes
from s4d_torch.training.metrics import METRICS
from s4d_torch.training.reports.intervals import Interval, score_intervals


@dataclass(frozen=True)
class Evaluation:
    """The mean loss, and every score that fits the kind of the task.

    ``intervals`` of 95 % are those of a test with few cases.
    """

    loss: float
    scores: dict[str, float]
    intervals: dict[str, Interval] = field(default_factory=dict)


def call(
    model: nn.Module, batch: Batch, *, precision: str = "float32", rate: float = 1.0
) -> Tensor:
    """What a model makes of a batch: (batch, outputs), or (batch, length, outputs) per step.

    In at least float32. ``rate`` multiplies the gaps between samples, where the batch has them.
    """
    return go_on(model, batch, None, precision=precision, rate=rate, return_state=False)[0]


def go_on(
    model: nn.Module,
    batch: Batch,
    state: ModelState | None,
    *,
    precision: str = "float32",
    rate: float = 1.0,
    return_state: bool = True,
) -> tuple[Tensor, ModelState | None]:
    """:func:`call` from a carried state, and the state at the end."""
    inputs, times = batch.inputs, rate if batch.gaps is None else rate * batch.gaps
    if precision == "float64" and inputs.is_floating_point():
        inputs = inputs.double()
    with torch.autocast(inputs.device.type, torch.bfloat16, enabled=precision == "bfloat16"):
        given: dict[str, Any] = {"lengths": batch.lengths}
        if batch.offsets is not None:
            given = {"cu_seqlens": batch.offsets}
        if state is not None:  # baselines have none
            given["state"] = state
        y, end = model(inputs, **given, rate=times, return_state=return_state)
    return y if y.dtype == torch.float64 else y.float(), end


def class_weights(choice: str, dataset: Dataset) -> Tensor | None:
    """For "balanced", one over how frequent each class is in training; 1 in the mean of all cases.

    None for "none".
    """
    if choice == "none":
        return None
    kind = dataset.signature.kind
    if kind != "classification":
        raise ValueError(f"class_weight {choice!r} is for classes, this is a {kind}; leave it out")
    labels = dataset.train.labels().astype(np.int64)
    counts = np.bincount(labels, minlength=dataset.signature.outputs)
    present = counts > 0
    weights = np.zeros(len(counts))
    weights[present] = len(labels) / (present.sum() * counts[present])
    return torch.from_numpy(weights)


def loss_sum(
    outputs: Tensor,
    targets: Tensor,
    signature: Signature,
    label_smoothing: float = 0.0,
    weights: Tensor | None = None,
) -> Tensor:
    """Cross entropy, or the squared error in units of the targets' spread; summed over a batch.

    ``weights`` are those of the classes.
    """
    if signature.kind == "regression":
        return mse_loss(outputs[:, 0], targets.to(outputs.dtype), reduction="sum")
    if signature.kind == "tracking":  # the mean of the numbers of a sample
        total = mse_loss(outputs, targets.to(outputs.dtype), reduction="sum")
        return total / signature.outputs
    if signature.kind == "generation":  # over all symbols, not those after the ends
        outputs, targets = outputs.flatten(0, 1), targets.flatten()
    each = None if weights is None else weights.to(outputs)
    return cross_entropy(outputs, targets, each, reduction="sum", label_smoothing=label_smoothing)


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
    advance: Callable[[int], None] | None = None,
    piece: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Outputs (n, outputs) and targets (n,) for all of a split, as the model sees both.

    To generate: the surprise of each sequence in nats, (n,), and how many symbols it has, (n,); to
    track: both (n, length, outputs).
    Sequences are taken in the order of their lengths, so that little of a batch is padding;
    ``advance`` is told how many are done after each. To generate or to track, sequences longer than
    ``piece`` samples are read in pieces of so many, with the state carried on: a model needs no
    more memory for a long one then.
    """
    if not len(split):
        raise ValueError("there are no sequences to evaluate: the split is empty")
    kind = dataset.signature.kind
    if piece is not None and kind not in ("generation", "tracking"):
        raise ValueError(f"piece is for tasks with an answer at each sample; this is {kind}")
    was_training = model.training
    model.eval()
    outputs, targets = [], []
    lengths = split.lengths()
    if lengths is not None and kind == "tracking":
        raise ValueError(
            "answers at each sample come as one array, and these sequences differ in length; "
            "predict those of one length at a time"
        )
    order = np.arange(len(split)) if lengths is None else np.argsort(lengths, kind="stable")
    try:
        mine = processes.share(order)
        # as many calls in each process: one that holds shards needs the others in every call
        for first in range(0, -(-len(split) // processes.count), batch_size):
            part = mine[first : first + batch_size]
            together = order[first * processes.count :][: batch_size * processes.count]
            longest = 0 if piece is None else int(dataset.sample_counts(split, together).max())
            cuts = range(0, longest, piece) if piece is not None and longest > piece else None
            some = SomeSequences(dataset, split, part, device)
            answer, target = some.answers(model, cuts, precision=precision, rate=rate)
            outputs.append(answer[: len(part)].cpu())
            targets.append(target[: len(part)].cpu())
            if advance is not None:
                advance(len(part))
    finally:
        model.train(was_training)
    total, back = len(split), torch.from_numpy(np.argsort(order))
    found = (processes.gather(torch.cat(rows), total)[back] for rows in (outputs, targets))
    return next(found), next(found)


@dataclass(frozen=True)
class SomeSequences:
    """A batch of a split: the sequences at ``positions`` in this process, which may be none.

    A process whose sequences have ended, or that has none, reads one along: of a model in shards
    each needs the others in every call.
    """

    dataset: Dataset
    split: Split
    positions: Array
    device: torch.device | None

    def answers(
        self, model: nn.Module, cuts: range | None, **options: Any
    ) -> tuple[Tensor, Tensor]:
        """Outputs and targets; of long sequences from cut to cut, with a state carried on."""
        generates = self.dataset.signature.kind == "generation"
        if cuts is not None:
            return (self.surprise if generates else self.track)(model, cuts, **options)
        used = self.positions if len(self.positions) else np.arange(1)
        batch = self._moved(self.dataset.batch(self.split, used))
        outputs = call(model, batch, **options)
        # to generate, all of the outputs would not fit into memory
        return surprise(outputs, batch.targets) if generates else (outputs, batch.targets)

    def surprise(self, model: nn.Module, cuts: range, **options: Any) -> tuple[Tensor, Tensor]:
        """As :func:`surprise` of the whole sequences."""
        counts = self.dataset.sample_counts(self.split, self.positions)
        nats, symbols = torch.zeros(len(counts), dtype=torch.float64), torch.from_numpy(counts)
        rows, state = np.arange(len(counts)), None
        for first in cuts:
            going = counts[rows] > first
            rows, used = rows[going], self.positions[rows[going]]
            if not len(rows):
                self._read(model, np.arange(1), 0, cuts.step, None, **options)
                continue
            state = None if state is None else state.select(torch.from_numpy(going))
            outputs, targets, state = self._read(model, used, first, cuts.step, state, **options)
            nats[rows] += surprise(outputs, targets)[0].cpu()
        return nats, symbols

    def track(self, model: nn.Module, cuts: range, **options: Any) -> tuple[Tensor, Tensor]:
        """Answers and targets at each sample of sequences of one length, (n, length, outputs)."""
        used, state, pieces = self.positions if len(self.positions) else np.arange(1), None, []
        for first in cuts:
            outputs, targets, state = self._read(model, used, first, cuts.step, state, **options)
            pieces.append((outputs.cpu(), targets.cpu()))
        answers, wanted = (torch.cat(rows, 1) for rows in zip(*pieces, strict=True))
        return answers, wanted

    def _read(
        self,
        model: nn.Module,
        positions: Array,
        first: int,
        size: int,
        state: ModelState | None,
        **options: Any,
    ) -> tuple[Tensor, Tensor, ModelState | None]:
        """Outputs and targets of the piece from ``first`` on, and the state at its end."""
        batch = self._moved(self.dataset.piece(self.split, positions, first, size))
        outputs, state = go_on(model, batch, state, **options)
        return outputs, batch.targets, state

    def _moved(self, batch: Batch) -> Batch:
        return batch if self.device is None else batch.to(self.device)


def surprise(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """``-log p`` of the symbols of each sequence, summed, (batch,), and their number, (batch,)."""
    nats = cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="none")
    return nats.view(targets.shape).double().sum(1), (targets != IGNORED).sum(1)


def score(
    outputs: Tensor,
    targets: Tensor,
    signature: Signature,
    *,
    intervals: bool = False,
    groups: Array | None = None,
) -> Evaluation:
    """The loss and all scores of predictions; those of a regression in the targets' own unit.

    ``intervals`` are found too if asked for; ``groups`` (n,) say which cases belong together.
    Predictions that are no numbers have no score, whatever class they would seem to name.
    """
    if signature.kind == "generation":
        loss = (outputs.sum() / targets.sum()).item()
    else:
        answers = targets.shape[:2].numel() if signature.kind == "tracking" else len(targets)
        loss = loss_sum(outputs.double(), targets, signature).item() / answers
    if signature.kind == "regression":
        outputs, targets = (physical(x, signature) for x in (outputs[:, 0], targets))
    scores = {
        name: math.nan if outputs.isnan().any() else metric.score(outputs, targets)
        for name, metric in METRICS.items()
        if metric.kind == signature.kind
    }
    known = score_intervals(outputs, targets, list(scores), groups) if intervals else {}
    return Evaluation(loss, scores, known)


def check_outputs(outputs: Tensor) -> None:
    """Refuse answers that are no numbers: they would still name a class."""
    bad = ~torch.isfinite(outputs).flatten(1).all(1) if outputs.ndim > 1 else ~outputs.isfinite()
    if bad.any():
        raise ValueError(
            f"the answers to {int(bad.sum())} of {len(bad)} sequences are not finite numbers: the "
            "weights are damaged, or values in the data are too large"
        )


def physical(values: Tensor, signature: Signature) -> Tensor:
    """Predicted or stored targets of a regression in their own unit."""
    return values.double() * signature.target_scale + signature.target_shift
