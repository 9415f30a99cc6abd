"""Sequences with samples dropped at random: how models do with what is left, and its times."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from s4d_torch.data.clock import Clock
from s4d_torch.data.dataset import Array, Dataset, Sequences, Split
from s4d_torch.data.folder import DataFolder, Scratch
from s4d_torch.data.task import check_at_least, check_choices

Dropped = Literal["gaps", "ignored", "interpolated"]


@dataclass(frozen=True, kw_only=True)
class Dropping:
    """Options of a task whose samples may be dropped, the same ones in every run."""

    drop: float = 0.0
    """part of the samples that is dropped at random, in training and test alike"""
    dropped: Dropped = "gaps"
    """what becomes of the others: the model is told the gaps between them; or is not, and they
    move together; or straight lines fill the gaps"""
    drop_seed: int = 0
    """of the random choice of samples"""

    def check_dropping(self) -> None:
        check_choices(self, dropped=Dropped)
        check_at_least(0, self, "drop_seed")
        if not 0 <= self.drop < 1:
            raise ValueError(f"drop must be a part of the samples, 0 <= drop < 1, got {self.drop}")


DROPPING = tuple(field.name for field in fields(Dropping))


def without_dropped(
    dataset: Dataset,
    options: Dropping,
    folder: DataFolder,
    name: str,
    key: Mapping[str, Any],
    files: Sequence[Path],
) -> Dataset:
    """The dataset as ``options`` ask for it; ``name``, ``key`` and ``files`` are what it is of.

    Sample k of a sequence stays with probability ``1 - drop``, as drawn from the seed and the
    place of the sequence in its file; at least one stays. Times count in samples of the whole
    sequence, whatever the median of the gaps.
    """
    if not options.drop:
        return dataset
    if dataset.signature.clock is not None:
        raise ValueError("samples can be dropped of evenly spaced data; this has times of its own")
    described = {**key, **{name: getattr(options, name) for name in DROPPING}}
    thin = folder.prepared(
        f"{name}-dropped", described, files, lambda scratch: _build(dataset, options, scratch)
    )
    return thin.grouped() if dataset.train.grouped else thin


def _build(dataset: Dataset, options: Dropping, scratch: Scratch) -> Dataset:
    done: dict[int, tuple[Sequences, Sequences]] = {}  # splits share arrays

    def change(split: Split) -> Split:
        (tower,) = split.inputs
        if id(tower.values) not in done:
            done[id(tower.values)] = _thinned(tower, options, scratch)
        values, times = done[id(tower.values)]
        return replace(split, inputs=(values,), times=times if options.dropped == "gaps" else None)

    thin = dataset.mapped(change)
    signature = replace(
        dataset.signature,
        length=max(split.inputs[0].longest for split in thin.splits.values()),
        clock=Clock(1.0) if options.dropped == "gaps" else None,
    )
    return replace(thin, signature=signature)


def _thinned(tower: Sequences, options: Dropping, scratch: Scratch) -> tuple[Sequences, Sequences]:
    """Values, and the places where they stood."""
    smallest, each = np.min_scalar_type(tower.longest), range(len(tower))
    times = scratch.ragged(
        stays(len(tower[i]), options.drop, options.drop_seed, i).astype(smallest) for i in each
    )
    if options.dropped != "interpolated":
        return scratch.ragged(tower[i][times[i]] for i in each), times
    if tower.ragged:
        return scratch.ragged(on_grid(tower[i], times[i]) for i in each), times
    even = scratch.array(tower.values.shape, tower.values.dtype)
    for i in each:
        even[i] = on_grid(tower[i], times[i])
    return Sequences(even), times


def stays(length: int, drop: float, seed: int, place: int) -> Array:
    """The samples of a sequence that are not dropped; never none."""
    random = np.random.Generator(np.random.PCG64([seed, place]))
    found = np.flatnonzero(random.random(length) >= drop)
    return found if len(found) else np.array([int(random.integers(length))])


def on_grid(values: Array, kept: Array) -> Array:
    """(length, features) as before, with straight lines over all that was not kept."""
    grid = np.arange(len(values))
    lines = np.stack([np.interp(grid, kept, channel) for channel in values[kept].T], axis=1)
    lines = np.rint(lines) if values.dtype.kind in "iu" else lines
    return lines.astype(values.dtype)
