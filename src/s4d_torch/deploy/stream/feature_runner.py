"""Streams of an estimator of causal features: counts so far, and what the estimator makes of them.

A stream's state is a :class:`~s4d_torch.estimators.features.tables.Pool` of one series, which does
not grow; the answer after any sample is that of the whole series up to there. In a snapshot:
``counts``, ``states``, ``before`` and ``answer`` (streams, ...), ``samples`` (streams,).
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from s4d_torch.deploy.stream.identity import identity_of
from s4d_torch.deploy.stream.raw_chunks import check_finite, raw_values
from s4d_torch.deploy.stream.runner import Chunk, StreamPosition
from s4d_torch.estimators.features.base import BaseFeatures
from s4d_torch.estimators.features.pooling import features, push
from s4d_torch.estimators.features.saving import arrays_of, options_of
from s4d_torch.estimators.features.tables import FilterTables, Pool
from s4d_torch.nn import validate

NO_EFFECT = ("random_state", "n_jobs", "missing")  # on answers, once fitted


class FeatureRunner:
    """A copy of an estimator and its filters, for any number of streams."""

    pools = True

    def __init__(
        self, estimator: BaseFeatures, crossover: int | None = None, check_finite: bool = True
    ) -> None:
        check_is_fitted(estimator)
        name = type(estimator).__name__
        if bool(estimator.bank_.reads[:, 1].any()):
            raise ValueError(
                f"this {name} reads series backwards too, from an end that a stream does not have; "
                "fit one with direction='causal'"
            )
        if crossover is not None:
            raise ValueError(f"a stream of {name} has one way of running: leave out crossover")
        validate.flag("check_finite", check_finite)
        self.estimator, self.check_finite = deepcopy(estimator), check_finite
        self.tables = FilterTables.of(self.estimator.bank_)
        self.channels = int(estimator.n_channels_in_)
        self.outputs = self._answer(self.tables.begin(1)).shape[0]

    def read(self, chunk: Chunk) -> Tensor:
        """A chunk in the estimator's units, checked: (1, length, channels), or (1, 0)."""
        values, units = raw_values(chunk, self.channels), self.estimator.units_
        if values is None:
            return torch.empty(1, 0)
        u = (values - units.shift) / units.scale
        if self.check_finite:
            check_finite(u, values)
        return torch.from_numpy(u.astype(np.float32))[None]

    def push(self, position: StreamPosition, chunk: Tensor) -> Tensor:
        """The answer (outputs,) to all samples so far."""
        length = chunk.shape[1]
        if not length:
            if position.answer is None:
                raise ValueError("the chunk is empty and nothing came before; push a sample first")
            return position.answer.clone()
        if position.state is None:
            position.state = self.tables.begin(1)
        push(self.tables, position.state, chunk[0], torch.tensor([[0, length]]))
        position.samples += length
        position.answer = self._answer(position.state)
        return position.answer.clone()

    def push_all(
        self, positions: Sequence[StreamPosition], chunks: Sequence[Tensor]
    ) -> list[Tensor]:
        """An answer for each stream."""
        return [self.push(*pair) for pair in zip(positions, chunks, strict=True)]

    def copy_of_state(self, position: StreamPosition) -> Pool:
        return deepcopy(position.state) if position.state else self.tables.begin(1)

    def check_rate(self, rate: float) -> None:
        """Features count samples: those of another rate would weigh differently."""
        validate.sampling_rate(rate)
        if rate != 1:
            raise ValueError(
                f"features are counts of samples at the rate they were fitted with: rate must be 1,"
                f" got {rate:g}; resample the stream"
            )

    def turn_to(self, position: StreamPosition, rate: float) -> None:
        self.check_rate(rate)

    def identity(self) -> dict[str, Any]:
        """What two estimators have in common that answer alike."""
        options = {k: x for k, x in options_of(self.estimator).items() if k not in NO_EFFECT}
        arrays = arrays_of(self.estimator) | vars(self.estimator.units_)
        tensors = {name: torch.from_numpy(x) for name, x in arrays.items()}
        return identity_of({"estimator": type(self.estimator).__name__, **options}, tensors)

    def packed(self, positions: Sequence[StreamPosition]) -> dict[str, Tensor]:
        """Pools and answers of some streams, by name."""
        pools = [vars(self.copy_of_state(position)) for position in positions]
        none = torch.zeros(self.outputs, dtype=torch.float64)
        answers = [none if p.answer is None else p.answer for p in positions]
        found = {name: torch.cat([pool[name] for pool in pools]) for name in pools[0]}
        return {**found, "answer": torch.stack(answers)}

    def unpacked(self, tensors: Mapping[str, Tensor], row: int) -> StreamPosition:
        """One stream of those in :meth:`packed`."""
        here = {name: x[row : row + 1].clone() for name, x in tensors.items()}
        answer = here.pop("answer")[0]
        return StreamPosition(state=Pool(**here), answer=answer)

    def _answer(self, pool: Pool) -> Tensor:
        found = self.estimator._answer(features(self.tables, pool))[0]
        return torch.from_numpy(np.asarray(found, dtype=np.float64))
