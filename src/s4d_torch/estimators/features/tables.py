"""A bank of filters in the form that compiled code reads, and what series leave behind in it."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from s4d_torch.data.dataset import Array
from s4d_torch.estimators.features.bank import FilterBank
from s4d_torch.ssm.compiled.runtime import as_read

WIDTH = 16  # modes and filters are padded to a multiple of it, which every LANES divides
DOUBLE, SINGLE, WHOLE = torch.float64, torch.float32, torch.int64


@dataclass
class Pool:
    """What n series have left behind; its size does not depend on how long they are.

    ``counts`` (n, G, K, F) of outputs above thresholds, ``states`` (n, G, 2 P), ``before`` (n, G),
    the last mixture that was read, and ``samples`` (n,), how many there were.
    """

    counts: Tensor
    states: Tensor
    before: Tensor
    samples: Tensor


@dataclass(frozen=True)
class FilterTables:
    """The arrays of a :class:`FilterBank` as tensors, modes padded to P and filters to F.

    ``modes`` is (G, 4 P); ``heard`` (G,) says up to which mode a system has any. Of the F filters
    of a system the first ``filters`` count.
    """

    channels: Tensor
    weights: Tensor
    reads: Tensor
    modes: Tensor
    heard: Tensor
    C: Tensor
    thresholds: Tensor
    filters: int

    @staticmethod
    def of(bank: FilterBank) -> "FilterTables":
        (G, K, filters), M, S = bank.thresholds.shape, bank.modes.shape[2], bank.channels.shape[1]
        P, F = (-(-size // WIDTH) * WIDTH for size in (M, filters))
        silent = (bank.modes[:, 2:] == 0).all(1)  # (G, M)
        heard = M - silent[:, ::-1].cumprod(1).sum(1)
        channels, reads, heard = as_read(
            WHOLE,
            channels=(torch.from_numpy(bank.channels), (G, S)),
            reads=(torch.from_numpy(bank.reads), (G, 2)),
            heard=(torch.from_numpy(heard), (G,)),
        )
        weights, modes = as_read(
            DOUBLE,
            weights=(torch.from_numpy(bank.weights), (G, S)),
            modes=(_padded(bank.modes, P).flatten(1), (G, 4 * P)),
        )
        C, thresholds = as_read(
            SINGLE,
            C=(_padded(bank.C, F), (G, 2 * M, F)),
            thresholds=(_padded(bank.thresholds, F), (G, K, F)),
        )
        return FilterTables(channels, weights, reads, modes, heard, C, thresholds, filters)

    @property
    def systems(self) -> int:
        return int(self.thresholds.shape[0])

    @property
    def padded_modes(self) -> int:
        return int(self.modes.shape[1] // 4)

    def begin(self, series: int) -> Pool:
        """Before the first sample."""
        return Pool(
            torch.zeros(series, *self.thresholds.shape, dtype=DOUBLE),
            torch.zeros(series, self.systems, 2 * self.padded_modes, dtype=DOUBLE),
            torch.zeros(series, self.systems, dtype=DOUBLE),
            torch.zeros(series, dtype=WHOLE),
        )


def _padded(array: Array, to: int) -> Tensor:
    return torch.from_numpy(np.pad(array, ((0, 0), (0, 0), (0, to - array.shape[2]))))
