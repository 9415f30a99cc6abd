"""A labelled dataset in memory, split into training, validation and test parts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Split:
    """Sequences (n, length, features) and a class for each, (n,)."""

    inputs: Tensor
    targets: Tensor

    def __len__(self) -> int:
        return self.targets.shape[0]

    def __getitem__(self, index: Tensor | slice) -> Split:
        return Split(self.inputs[index], self.targets[index])


@dataclass(frozen=True)
class Dataset:
    """Three disjoint splits of one classification task."""

    train: Split
    validation: Split
    test: Split
    classes: int

    @property
    def features(self) -> int:
        return self.train.inputs.shape[-1]


def split_randomly(
    whole: Split, *, classes: int, validation: float, test: float, seed: int
) -> Dataset:
    """Shuffle and cut; the same seed gives the same splits, whatever else draws numbers."""
    order = torch.randperm(len(whole), generator=torch.Generator().manual_seed(seed))
    n_test, n_validation = round(test * len(whole)), round(validation * len(whole))
    cuts = [n_test, n_validation, len(whole) - n_test - n_validation]
    in_test, in_validation, in_train = order.split(cuts)
    return Dataset(whole[in_train], whole[in_validation], whole[in_test], classes)
