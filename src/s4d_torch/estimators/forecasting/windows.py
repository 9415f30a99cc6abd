"""Series to windows: each window of the past with the future after it, without copies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from s4d_torch.data.dataset import Array, Dataset, Sequences, Signature, Split


@dataclass(frozen=True)
class Frame:
    """What windows are cut from: series one behind the other, as the network reads them.

    ``values`` (samples, 1 + past + known) in standard units, ``starts`` (series + 1,) where each
    begins and the last one ends.
    """

    values: Array
    starts: Array

    @staticmethod
    def of(series: Sequence[Array]) -> Frame:
        """From arrays (length, columns), one for each series."""
        ends = np.cumsum([len(each) for each in series])
        return Frame(np.concatenate(series), np.concatenate([[0], ends]))


@dataclass(frozen=True)
class Cut:
    """Sizes of windows, and how many samples at the end of each series are for validation."""

    window: int
    horizon: int
    reads_ahead: bool
    held_out: Sequence[int]


def make_dataset(frame: Frame, cut: Cut) -> tuple[Dataset, bool]:
    """All windows to learn from and to validate with; and whether there are any of the latter.

    A window is learned from if all of its future is before the held-out samples, and validates if
    all of its future is among them. Without one that validates, the learned ones stand in.
    """
    window, horizon = cut.window, cut.horizon
    length = window + (horizon if cut.reads_ahead else 0)
    count = len(frame.values) - window - horizon + 1
    view = np.lib.stride_tricks.sliding_window_view
    inputs = view(frame.values, length, axis=0)[:count].swapaxes(1, 2)  # (count, length, columns)
    targets = view(frame.values[window:, 0], horizon)  # (count, horizon)
    learned, judged = [], []
    for first, last, kept in zip(frame.starts[:-1], frame.starts[1:], cut.held_out, strict=True):
        end = last - kept  # of what is learned from
        learned.append(np.arange(first, end - window - horizon + 1))
        if kept:
            judged.append(np.arange(max(first, end - window), last - window - horizon + 1))
    whole = Split.whole(Sequences(inputs), targets)
    train, validates = np.concatenate(learned), any(len(part) for part in judged)
    validation = np.concatenate(judged) if validates else train
    signature = Signature("regression", frame.values.shape[1], horizon, length)
    parts = [whole.part(positions) for positions in (train, validation, validation)]
    return Dataset.of(parts, signature), validates


def spread_out(split: Split, most: int) -> Split:
    """At most so many windows, evenly spaced over all."""
    return split.part(np.unique(np.linspace(0, len(split) - 1, min(most, len(split))).astype(int)))
