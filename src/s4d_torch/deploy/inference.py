"""A trained run on new data: other sampling rates, other datasets, answers with their labels."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from s4d_torch.data.dataset import Array, Dataset, Sequences, Signature, Split
from s4d_torch.data.user_files import order_of
from s4d_torch.training.evaluation import check_outputs, predict
from s4d_torch.training.prediction import predict_sequences
from s4d_torch.training.reports.describe import describe_signature
from s4d_torch.training.run import Run

FITTING = ("kind", "tokens", "towers", "features")  # what has to be as in training


def labelled(output: Tensor, signature: Signature) -> dict[str, Any]:
    """An output as data: the class with all probabilities, or the number."""
    if signature.kind == "regression":
        return {"value": output[0].item()}
    classes = signature.classes or tuple(map(str, range(signature.outputs)))
    best = int(output.argmax())
    return {
        "class": classes[best],
        "probability": output[best].item(),
        "probabilities": dict(zip(classes, output.tolist(), strict=True)),
    }


def runner_up(prediction: Mapping[str, Any]) -> tuple[str, float] | None:
    """The second class of a labelled output and its probability; None where there is no other."""
    best, chances = prediction["class"], prediction["probabilities"].items()
    others = [pair for pair in chances if pair[0] != best]
    return max(others, key=itemgetter(1), default=None)


def relative_rate(signature: Signature, sample_rate: float | None) -> float:
    """How many samples of the training data a sample stands for: 2 at half the sampling rate."""
    if sample_rate is None or signature.sample_rate is None:
        return 1.0
    return signature.sample_rate / sample_rate


def describe_rate(rate: float, signature: Signature, sample_rate: float | None) -> str:
    """The rate, and where it comes from if it is that of the sampling rates."""
    trained = signature.sample_rate
    if sample_rate is None or trained is None or rate != trained / sample_rate:
        return f"computed with rate {rate:g}"
    return f"at {sample_rate:g} Hz, trained at {trained:g} Hz; computed with rate {rate:g}"


def predict_at_rates(
    run: Run,
    sequences: Sequence[Any],
    rates: Sequence[float],
    device: torch.device,
    *,
    times: Sequence[Array | None] | None = None,
    advance: Callable[[int], None] | None = None,
) -> list[Tensor]:
    """An output for each sequence, or pair of them; those of one rate are computed together.

    ``times`` are those of the samples of each, for a run with a clock.
    """
    run.model.to(device)
    outputs: dict[int, Tensor] = {}
    for rate in dict.fromkeys(rates):
        places = [i for i, each in enumerate(rates) if each == rate]
        these = [sequences[i] for i in places]
        when = None if times is None else [each for i in places if (each := times[i]) is not None]
        options: Any = {"rate": rate, "device": device, "advance": advance}
        found = predict_sequences(run, these, times=when, **options)
        outputs |= dict(zip(places, found, strict=True))
    return [outputs[i] for i in range(len(sequences))]


def predict_splits(
    run: Run,
    dataset: Dataset,
    splits: Sequence[Split],
    *,
    rate: float = 1.0,
    device: torch.device | None = None,
    batch_size: int | None = None,
    advance: Callable[[int], None] | None = None,
) -> tuple[Tensor, Tensor]:
    """Outputs and targets of several splits, one after the other."""
    model, training = run.model.to(device), run.config.training
    options: dict[str, Any] = {"device": device, "precision": training.precision, "rate": rate}
    options |= {"batch_size": batch_size or training.batch_size, "advance": advance}
    options["piece"] = training.tbptt
    each = [predict(model, dataset, split, **options) for split in splits]
    outputs, targets = (torch.cat(rows) for rows in zip(*each, strict=True))
    check_outputs(outputs)
    return outputs, targets


def fit_dataset(dataset: Dataset, trained: Signature, *, same_unit: bool) -> Dataset:
    """The dataset as a model reads it that was trained on data of another signature.

    Channels and classes are matched by their names, where both have them. Values of the same
    reader are in the same unit and are normalised as in training; those of another task by that
    task's own statistics.
    """
    found = dataset.signature
    _check_clocks(trained, found)
    order = list(range(found.features))
    if trained.channels and found.channels:
        order = order_of(found.channels, trained.channels, "this data")
    if any(getattr(trained, name) != getattr(found, name) for name in FITTING):
        raise ValueError(
            f"this data does not fit the run: it was trained on {describe_signature(trained)}; "
            f"the data has {describe_signature(found)}"
        )
    signature = replace(trained, length=found.length, sample_rate=found.sample_rate)
    if not same_unit:
        shift, scale = (
            tuple(each[i] for i in order) if len(each) == len(order) else each
            for each in (found.input_shift, found.input_scale)
        )
        signature = replace(signature, input_shift=shift, input_scale=scale)
    if order != sorted(order):
        dataset = _reordered(dataset, order)
    if trained.kind != "classification":
        return replace(dataset, signature=signature)
    numbers = _class_numbers(trained, found)
    splits = {
        name: replace(split, targets=numbers[np.asarray(split.targets, dtype=np.int64)])
        for name, split in dataset.splits.items()
    }
    return Dataset.of(splits.values(), signature)


def _check_clocks(trained: Signature, found: Signature) -> None:
    """What was learned of gaps is of no use without them, nor are they where none were learned."""
    old, new = trained.clock, found.clock
    if old is not None and new is None:
        column = f" (--data.time-column {old.column})" if old.column else ""
        raise ValueError(
            "this data does not fit the run, which is told when samples came: it has no times"
            f"{column}"
        )
    if old is None and new is not None:
        raise ValueError(
            "this data does not fit the run, which takes samples as evenly spaced: it has times; "
            "leave them aside (--data.times ignore, or no --data.time-column)"
        )
    if old is not None and new is not None and old.dates != new.dates:
        kinds = {True: "dates", False: "numbers"}
        raise ValueError(
            f"this data does not fit the run: its times are {kinds[new.dates]}, those of the "
            f"training data were {kinds[old.dates]}"
        )


def _reordered(dataset: Dataset, order: Sequence[int]) -> Dataset:
    """With the channels of its sequences in another order."""

    @cache  # splits share arrays
    def tower(values: int, offsets: int) -> Sequences:
        return Sequences(arrays[values][..., order], arrays[offsets])

    towers = [tower for split in dataset.splits.values() for tower in split.inputs]
    arrays: Any = {id(each): each for t in towers for each in (t.values, t.offsets)}

    def change(split: Split) -> Split:
        inputs = tuple(tower(id(t.values), id(t.offsets)) for t in split.inputs)
        return replace(split, inputs=inputs)

    return dataset.mapped(change)


def _class_numbers(trained: Signature, found: Signature) -> Array:
    """For each class of the data its number in the run."""
    if trained.classes == found.classes and trained.outputs == found.outputs:
        return np.arange(found.outputs)
    strange = [name for name in found.classes if name not in trained.classes]
    if strange or not found.classes or not trained.classes:
        raise ValueError(
            f"this data does not fit the run, which tells {trained.outputs} classes apart "
            f"({', '.join(trained.classes[:10]) or 'without names'}); the data has "
            f"{', '.join(strange[:10]) or f'{found.outputs} without names'}"
        )
    return np.array([trained.classes.index(name) for name in found.classes])


def confusion_matrix(outputs: Tensor, targets: Tensor) -> Tensor:
    """(classes, classes): how often the class of a row was taken for that of a column."""
    classes = outputs.shape[-1]
    both = targets * classes + outputs.argmax(-1)
    return torch.bincount(both, minlength=classes**2).view(classes, classes)
