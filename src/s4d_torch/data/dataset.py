"""Labelled sequences in three splits, on disk or in memory, and the batches taken from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from s4d_torch.data.clock import FIRST, Clock

Array = npt.NDArray[Any]
LabelKind = Literal["classification", "regression"]
Kind = Literal["classification", "regression", "generation", "tracking"]
IGNORED = -100  # a target after the end of a sequence; torch's losses pass over it


@dataclass(frozen=True)
class Sequences:
    """Many sequences in one array, which may be mapped from a file.

    Of one length: ``values`` is (n, length, features), or (n, length) for tokens. Of many lengths:
    sequence i is ``values[offsets[i] : offsets[i + 1]]``, with ``offsets`` (n + 1,). Values keep
    the type they were stored in; :class:`Dataset` turns them into what a model reads.
    """

    values: Array
    offsets: Array | None = None

    def __len__(self) -> int:
        return self.values.shape[0] if self.offsets is None else self.offsets.shape[0] - 1

    def __getitem__(self, i: int) -> Array:
        if self.offsets is None:
            return self.values[i]
        return self.values[self.offsets[i] : self.offsets[i + 1]]

    @property
    def ragged(self) -> bool:
        return self.offsets is not None

    @property
    def longest(self) -> int:
        if self.offsets is None:
            return int(self.values.shape[1])
        return int(np.diff(self.offsets).max(initial=0))

    def lengths(self, index: Array) -> Array:
        if self.offsets is None:
            return np.full(len(index), self.values.shape[1], dtype=np.int64)
        return self.offsets[index + 1] - self.offsets[index]

    def padded(self, index: Array, length: int, first: int = 0) -> Array:
        """The sequences of ``index`` from sample ``first`` on, (batch, length, ...).

        There are zeros after their ends.
        """
        if self.offsets is None and first + length <= self.values.shape[1]:
            return np.asarray(self.values[index, first : first + length])
        start = 1 if self.offsets is not None else 2
        batch = np.zeros((len(index), length, *self.values.shape[start:]), self.values.dtype)
        for row, i in zip(batch, index, strict=True):
            sequence = self[int(i)][first : first + length]
            row[: len(sequence)] = sequence
        return batch

    def decimated(self, step: int) -> Sequences:
        """Every ``step``-th sample of each, from the first."""
        if self.offsets is None:
            return Sequences(self.values[:, ::step])
        return Sequences.of([self[i][::step] for i in range(len(self))])

    def packed(self, index: Array) -> Array:
        """The sequences of ``index`` one after the other, (total, ...)."""
        return np.concatenate([self[int(i)] for i in index])

    @staticmethod
    def of(arrays: Sequence[Array]) -> Sequences:
        """Put separate sequences, (length, features) or (length,), into one array."""
        lengths = [len(array) for array in arrays]
        if len(set(lengths)) == 1:
            return Sequences(np.stack(arrays))
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return Sequences(np.concatenate(arrays), offsets)


@dataclass(frozen=True)
class Split:
    """Sequences with a target each, (n,): a class, or a number; pairs have two ``inputs``.

    To track something, there are some numbers for each sample, (n, length, outputs).
    ``index`` picks a part of the stored rows without copying them. To generate, each symbol is the
    target of those before it, and ``targets`` only describe the sequences. ``grouped`` are those
    in which sequences of a class or of a source stand together. ``cases`` (n,) are the names of
    the stored rows, ``groups`` (n,) what they come from (a speaker, a patient), where known.
    ``times``, of the lengths of the inputs, say when samples came that are not evenly spaced.
    """

    inputs: tuple[Sequences, ...]
    targets: Array
    index: Array
    grouped: bool = False
    cases: Array | None = None
    groups: Array | None = None
    times: Sequences | None = None

    @staticmethod
    def whole(inputs: Sequences | tuple[Sequences, ...], targets: Array) -> Split:
        towers = inputs if isinstance(inputs, tuple) else (inputs,)
        counts = sorted({len(targets), *map(len, towers)})
        if len(counts) != 1:
            raise ValueError(
                f"each sequence needs one target; got {' and '.join(map(str, counts))}"
            )
        return Split(towers, targets, np.arange(len(targets)))

    def __len__(self) -> int:
        return len(self.index)

    @property
    def owners(self) -> Array | None:
        """What each sequence comes from, (n,); None where that is not known."""
        return None if self.groups is None else self.groups[self.index]

    def part(self, positions: Array | slice) -> Split:
        """The rows at these positions of this split."""
        return replace(self, index=self.index[positions])

    def few(self, most: int | None) -> Split:
        """The first rows; of a grouped split evenly spaced ones, so that no group is lost."""
        if most is None or most >= len(self) or not self.grouped:
            return self.part(slice(most))
        return self.part(np.arange(most) * len(self) // most)

    def lengths(self) -> Array | None:
        """How many samples each sequence has, the longer of a pair; None if all have as many."""
        if not any(tower.ragged for tower in self.inputs):
            return None
        return np.asarray(np.max([tower.lengths(self.index) for tower in self.inputs], axis=0))

    def labels(self) -> Array:
        """The targets of this split, in its order."""
        return np.asarray(self.targets[self.index])


@dataclass(frozen=True)
class Signature:
    """What a model has to know about data: saved with a trained model, so that it can be used.

    A model reads ``(value - input_shift) * input_scale`` per feature, or tokens as they are, and
    predicts ``(target - target_shift) / target_scale`` for a regression. One that generates reads
    the beginning, which is its last token, then symbols, and predicts each from those before. One
    that tracks predicts numbers at each sample, from it and those before.
    """

    kind: Kind
    features: int
    """channels of a signal; for tokens, how many there are"""
    outputs: int
    """classes, numbers to predict, or symbols to choose from"""
    length: int
    """samples of the longest sequence"""
    tokens: bool = False
    towers: int = 1
    classes: tuple[str, ...] = ()
    input_shift: tuple[float, ...] = (0.0,)
    input_scale: tuple[float, ...] = (1.0,)
    target_shift: float = 0.0
    target_scale: float = 1.0
    sample_rate: float | None = None
    """samples per second, where time has a unit"""
    quantization: str = ""
    """what symbols stand for: a name in ``QUANTIZATIONS``"""
    channels: tuple[str, ...] = ()
    """names of the features, in the model's order; none where they have none"""
    target: str = ""
    """name of what is predicted"""
    clock: Clock | None = None
    """in what the gaps between samples are measured, where models are told of them"""
    frames: bool = False
    """whether each sample is a square image, row by row"""
    per_time: bool = False
    """whether the number to predict counts events per time, as a heart rate does: played twice as
    fast, a signal has twice as many"""

    @staticmethod
    def of_classes(
        classes: Sequence[str], *, length: int, features: int = 1, **others: Any
    ) -> Signature:
        """That of a classification, with an output for each class."""
        return Signature(
            "classification", features, len(classes), length, classes=tuple(classes), **others
        )

    def read(self, values: Array) -> Tensor:
        """Stored values (..., length, features) as the numbers a model reads."""
        if self.tokens:
            return torch.from_numpy(values.astype(np.int64))
        numbers = values.astype(np.float32)  # a copy, so the file below stays as it is
        numbers -= np.asarray(self.input_shift, dtype=np.float32)
        numbers *= np.asarray(self.input_scale, dtype=np.float32)
        return torch.from_numpy(numbers)


@dataclass(frozen=True)
class Batch:
    """inputs (batch, length, features), pairs (batch, 2, length, ...); lengths where ragged.

    targets (batch,), to generate (batch, length) with ``IGNORED`` after the ends, to track (batch,
    length, outputs). ``gaps``
    (batch, length), where there is a clock, are what a model takes as ``rate``.

    Packed, inputs are one row (1, total, features), and ``offsets`` (batch + 1,) say where
    sequences begin; targets are (batch,), or to generate (1, total).
    """

    inputs: Tensor
    targets: Tensor
    lengths: Tensor | None
    offsets: Tensor | None = None
    gaps: Tensor | None = None

    def to(self, device: torch.device) -> Batch:
        others = (self.lengths, self.offsets, self.gaps)
        moved = (None if x is None else x.to(device) for x in others)
        return Batch(self.inputs.to(device), self.targets.to(device), *moved)


@dataclass(frozen=True)
class Dataset:
    """Three disjoint splits of one task; ``notes`` are what its reader has to say about it."""

    train: Split
    validation: Split
    test: Split
    signature: Signature
    notes: tuple[str, ...] = ()

    @staticmethod
    def of(splits: Iterable[Split], signature: Signature) -> Dataset:
        """From the splits in their order."""
        train, validation, test = splits
        return Dataset(train, validation, test, signature)

    @property
    def splits(self) -> dict[str, Split]:
        return {"train": self.train, "validation": self.validation, "test": self.test}

    def batch(self, split: Split, positions: Array) -> Batch:
        """The sequences at these positions of ``split``, as a model reads them."""
        index = split.index[positions]
        each = np.stack([tower.lengths(index) for tower in split.inputs], 1)
        longest, ragged = int(each.max()), any(tower.ragged for tower in split.inputs)
        towers = [self.signature.read(tower.padded(index, longest)) for tower in split.inputs]
        pairs = len(towers) > 1
        lengths = torch.from_numpy(each if pairs else each[:, 0]) if ragged else None
        if self.signature.kind == "generation":
            return self._next_symbols(towers[0], lengths)
        inputs = torch.stack(towers, 1) if pairs else towers[0]
        gaps = self._padded_gaps(split, index, longest)
        return Batch(inputs, self._targets(split.targets[index]), lengths, gaps=gaps)

    def packed(self, split: Split, positions: Array) -> Batch:
        """The same sequences one after the other in one row, without padding; not for pairs."""
        index, (tower,) = split.index[positions], split.inputs
        inputs = self.signature.read(tower.packed(index)[None])
        offsets = torch.from_numpy(np.append(0, np.cumsum(tower.lengths(index))))
        if self.signature.kind != "generation":
            each = self._gaps(split, index)
            gaps = None if each is None else torch.from_numpy(np.concatenate(each)[None])
            return Batch(inputs, self._targets(split.targets[index]), None, offsets, gaps)
        before = torch.roll(inputs, 1, dims=1)
        before[0, offsets[:-1]] = self.signature.features - 1  # the beginning
        return Batch(before, inputs, None, offsets)

    def piece(self, split: Split, positions: Array, first: int, size: int) -> Batch:
        """Samples ``first`` to ``first + size`` of longer sequences, to generate or to track.

        Some may end earlier, but none before ``first``.
        """
        index, (tower,) = split.index[positions], split.inputs
        lengths = np.minimum(tower.lengths(index) - first, size)
        longest, ragged = int(lengths.max()), torch.from_numpy(lengths) if tower.ragged else None
        inputs = self.signature.read(tower.padded(index, longest, first))
        if self.signature.kind == "tracking":
            targets = self._targets(split.targets[index, first : first + longest])
            gaps = self._padded_gaps(split, index, first + longest)
            return Batch(inputs, targets, ragged, gaps=None if gaps is None else gaps[:, first:])
        before = self.signature.read(tower.padded(index, 1, first - 1)) if first else None
        return self._next_symbols(inputs, ragged, before)

    @staticmethod
    def sample_counts(split: Split, positions: Array) -> Array:
        """How many samples each of these sequences has."""
        return split.inputs[0].lengths(split.index[positions])

    def answers(self, split: Split, positions: Array) -> int:
        """How many targets these sequences have: one each, or one for each symbol or sample."""
        if self.signature.kind not in ("generation", "tracking"):
            return len(positions)
        return int(self.sample_counts(split, positions).sum())

    def _next_symbols(
        self, symbols: Tensor, lengths: Tensor | None, before: Tensor | None = None
    ) -> Batch:
        """Each symbol from those before it; the first from ``before``, or the beginning."""
        first = symbols.new_full((len(symbols), 1), self.signature.features - 1)
        first = first if before is None else before
        targets = symbols
        if lengths is not None:
            padding = torch.arange(symbols.shape[1]) >= lengths[:, None]
            targets = symbols.masked_fill(padding, IGNORED)
        return Batch(torch.cat([first, symbols[:, :-1]], 1), targets, lengths)

    def _gaps(self, split: Split, index: Array) -> list[Array] | None:
        """In steps of the training data, (length,) of each sequence; None without a clock."""
        clock = self.signature.clock
        if clock is None:
            return None
        if split.times is None:
            raise ValueError(
                f"the model reads samples with their times (a clock with steps of {clock.unit}), "
                "and this data has none; give the times of its samples"
            )
        return [clock.gaps(split.times[int(i)]).astype(np.float32) for i in index]

    def _padded_gaps(self, split: Split, index: Array, length: int) -> Tensor | None:
        """(batch, length), of the first ``length`` samples; what lies beyond the ends is a step."""
        if (each := self._gaps(split, index)) is None:
            return None
        padded = np.full((len(index), length), FIRST, dtype=np.float32)
        for row, gaps in zip(padded, each, strict=True):
            row[: len(gaps)] = gaps[:length]
        return torch.from_numpy(padded)

    def _targets(self, targets: Array) -> Tensor:
        if self.signature.kind == "classification":
            return torch.from_numpy(targets.astype(np.int64))
        shift, scale = self.signature.target_shift, self.signature.target_scale
        return torch.from_numpy(((targets - shift) / scale).astype(np.float32))

    def shortened(self, *, train: int | None = None, test: int | None = None) -> Dataset:
        """At most so many training sequences, and validation and test sequences."""
        return replace(
            self,
            train=self.train.few(train),
            validation=self.validation.few(test),
            test=self.test.few(test),
        )

    def repeated(self, sizes: Sequence[int]) -> Dataset:
        """Splits of these sizes: the sequences that are there, over and over."""
        pairs = zip(self.splits.values(), sizes, strict=True)
        splits = (replace(split, index=np.resize(split.index, size)) for split, size in pairs)
        return Dataset.of(splits, self.signature)

    def mapped(self, change: Callable[[Split], Split]) -> Dataset:
        """With each split changed."""
        changed = Dataset.of(map(change, self.splits.values()), self.signature)
        return replace(changed, notes=self.notes)

    def grouped(self) -> Dataset:
        """The same, known to have the sequences of a class or of a source together."""
        return self.mapped(lambda split: replace(split, grouped=True))

    def decimated(self, step: int) -> Dataset:
        """Every ``step``-th sample, taken without a filter."""
        made: dict[int, Sequences] = {}  # splits share what they are stored in

        def thin(split: Split) -> Split:
            for tower in split.inputs:
                if id(tower) not in made:
                    made[id(tower)] = tower.decimated(step)
            inputs = tuple(made[id(tower)] for tower in split.inputs)
            times = None if split.times is None else split.times.decimated(step)
            return replace(split, inputs=inputs, times=times)

        rate = self.signature.sample_rate
        length = -(-self.signature.length // step)
        signature = replace(self.signature, length=length, sample_rate=rate and rate / step)
        return replace(self.mapped(thin), signature=signature)
