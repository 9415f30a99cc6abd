"""From sequences and targets to a dataset: splits that keep every class, and standard units."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from s4d_torch.data.dataset import (
    Array,
    Dataset,
    Kind,
    Sequences,
    Signature,
    Split,
    cut_randomly,
)
from s4d_torch.data.own.targets import Targets
from s4d_torch.data.store import Scratch

CHUNK_BYTES = 1 << 24  # of values that are looked at together


def hold_out(targets: Array, kind: Kind, fractions: Sequence[float], seed: int) -> list[Array]:
    """Positions to learn from, then one array of positions for each fraction.

    Of classes, every split gets its share, and at least one case of each stays to learn from.
    """
    if kind == "regression":
        parts = cut_randomly(len(targets), fractions, seed)
    else:
        random = np.random.Generator(np.random.PCG64(seed))
        left, held = np.arange(len(targets)), []
        for fraction in fractions:
            part = _by_class(targets[left], round(fraction * len(targets)), random)
            held.append(left[part])
            left = np.delete(left, part)
        parts = [left, *held]
    for part, fraction in zip(parts[1:], fractions, strict=True):
        if not len(part):
            raise ValueError(
                f"{len(targets)} cases are too few to hold out {fraction:g} of them; "
                "take a larger part, or add cases"
            )
    if not len(parts[0]):
        raise ValueError(f"{len(targets)} cases are too few: none is left to learn from")
    return parts


def _by_class(labels: Array, wanted: int, random: np.random.Generator) -> Array:
    """Positions of about ``wanted`` cases, of each class in proportion and never its last one."""
    classes, counts = np.unique(labels, return_counts=True)
    shares = counts * wanted / len(labels)
    taken = np.minimum(np.floor(shares), counts - 1).astype(np.int64)
    # what rounding down left over goes to the largest remainders; ties are broken at random
    tied = random.permutation(len(classes))
    order = tied[np.argsort(-(shares - taken)[tied], kind="stable")]
    order = order[(taken < counts - 1)[order]][: max(wanted - int(taken.sum()), 0)]
    taken[order] += 1
    chosen = [
        random.permutation(np.flatnonzero(labels == name))[:size]
        for name, size in zip(classes, taken, strict=True)
    ]
    return np.sort(np.concatenate(chosen))


def stored(sequences: Iterator[Array], scratch: Scratch) -> Sequences:
    """Sequences (length, features) kept on disk as they come; one array if of one length."""
    ragged = scratch.ragged(sequences)
    assert ragged.offsets is not None
    lengths = np.unique(np.diff(ragged.offsets))
    if len(lengths) > 1:
        return ragged
    flat = ragged.values
    shape = (len(ragged), int(lengths[0]), *flat.shape[1:])
    even = scratch.array(shape, flat.dtype)
    even[:] = flat.reshape(shape)
    with suppress(PermissionError):  # Windows keeps a file that is mapped
        Path(flat.filename).unlink()  # type: ignore[attr-defined]
    return Sequences(even)


@dataclass(frozen=True)
class Holdout:
    """How much of the training cases validates and tests where the data says nothing else."""

    validation: float
    test: float
    seed: int

    def __post_init__(self) -> None:
        for name in ("validation", "test"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"{name} must lie between 0 and 1, got {getattr(self, name)}")
        if self.validation + self.test >= 1:
            raise ValueError(
                f"validation {self.validation} and test {self.test} leave nothing to learn from"
            )
        if self.seed < 0:
            raise ValueError(f"the seed must not be negative, got {self.seed}")


def dataset_of(given: Mapping[str, Sequences], targets: Targets, holdout: Holdout) -> Dataset:
    """A dataset in units of its training split.

    ``given`` holds the sequences of "train", and of "validation" and "test" where these are
    decided; ``targets`` has the targets of all of them in that order. What is missing is held out
    of "train".
    """
    ends = np.cumsum([len(sequences) for sequences in given.values()])
    starts = ends - [len(sequences) for sequences in given.values()]
    splits = {
        name: Split.whole(sequences, targets.values[start:end])
        for (name, sequences), start, end in zip(given.items(), starts, ends, strict=True)
    }
    missing = [name for name in ("validation", "test") if name not in given]
    fractions = [getattr(holdout, name) for name in missing]
    whole = splits["train"]
    parts = hold_out(whole.labels(), targets.kind, fractions, holdout.seed)
    splits |= {
        name: whole.part(part) for name, part in zip(("train", *missing), parts, strict=True)
    }
    _check_learnable(splits, targets)
    random = np.random.Generator(np.random.PCG64(holdout.seed))
    # shuffled, so that the first n cases of files sorted by class are a fair sample
    train, validation, test = (
        splits[name].part(random.permutation(len(splits[name])))
        for name in ("train", "validation", "test")
    )
    return Dataset(train, validation, test, _signature(train, splits, targets))


def _check_learnable(splits: Mapping[str, Split], targets: Targets) -> None:
    known = set(splits["train"].labels().tolist())
    for name, split in splits.items():
        strange = set(split.labels().tolist()) - known
        if strange and targets.kind == "classification":
            classes = ", ".join(targets.classes[i] for i in sorted(strange))
            raise ValueError(f"the {name} cases have classes that training has not: {classes}")


def _signature(train: Split, splits: Mapping[str, Split], targets: Targets) -> Signature:
    shift, scale = standard_units(train)
    numbers = train.labels() if targets.kind == "regression" else np.zeros(1)
    return Signature(
        targets.kind,
        features=len(shift),
        outputs=targets.outputs,
        length=max(split.inputs[0].longest for split in splits.values()),
        classes=targets.classes,
        input_shift=shift,
        input_scale=scale,
        target_shift=float(numbers.mean()),
        target_scale=float(numbers.std()) or 1.0,
    )


def standard_units(split: Split) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean, and one over the standard deviation, of each channel over all samples of ``split``.

    A channel that never changes keeps its scale.
    """
    pivot = np.asarray(split.inputs[0][int(split.index[0])][0], dtype=np.float64)
    count, total, squares = 0, np.zeros_like(pivot), np.zeros_like(pivot)
    for values in _chunks(split):
        # deviations from a value of the data itself: a large offset takes no digits away
        deviations = values - pivot
        count += len(deviations)
        total += deviations.sum(0)
        squares += np.square(deviations).sum(0)
    mean = total / count
    deviation = np.sqrt(np.maximum(squares / count - mean**2, 0))
    scale = 1 / np.where(deviation > 1e-7 * np.abs(pivot + mean), deviation, 1.0)
    return tuple(map(float, pivot + mean)), tuple(map(float, scale))


def _chunks(split: Split) -> Iterator[Array]:
    """The samples of a split, (many, features) at a time, in double precision."""
    tower = split.inputs[0]
    features = tower.values.shape[-1]
    waiting: list[Array] = []
    size = 0
    for i in split.index:
        sequence = tower[int(i)]
        waiting.append(sequence)
        size += len(sequence) * features * 8
        if size > CHUNK_BYTES:
            yield np.concatenate(waiting).astype(np.float64)
            waiting, size = [], 0
    if waiting:
        yield np.concatenate(waiting).astype(np.float64)
