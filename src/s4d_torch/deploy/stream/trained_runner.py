"""Streams of a trained estimator: its model, in the units of the series that it was fitted to.

The model's own :class:`~s4d_torch.deploy.stream.runner.Runner` carries the state. Where the model
reads first differences, the last sample is carried beside it, ``before`` (streams, channels) in a
snapshot, so that a difference across two chunks is that of the whole series.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, cast

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from s4d_torch.data.dataset import Array
from s4d_torch.deploy.stream.identity import identity_of
from s4d_torch.deploy.stream.raw_chunks import check_finite, raw_values
from s4d_torch.deploy.stream.runner import Chunk, Runner, StreamPosition
from s4d_torch.estimators.estimator import BaseS4D
from s4d_torch.nn import validate
from s4d_torch.nn.model import SequenceModel


class TrainedRunner:
    """A copy of an estimator's model, and what turns samples into what it reads."""

    pools = True

    def __init__(
        self, estimator: BaseS4D, crossover: int | None = None, check_finite: bool = True
    ) -> None:
        check_is_fitted(estimator)
        name = type(estimator).__name__
        if estimator.features_ is not None:
            raise ValueError(
                f"this {name} is an ensemble, whose features read series backwards too; for a "
                "stream fit it with ensemble=False, or features with direction='causal'"
            )
        if estimator.clock_ is not None:
            raise ValueError(
                f"this {name} was fitted with times, which streams of estimators are not told; "
                "stream its model_, in its units: Stream(estimator.model_).push(chunk, rate=gaps)"
            )
        model = cast(SequenceModel, estimator.model_)
        if model.method.bidirectional:
            raise ValueError(
                f"this {name} reads series backwards too, from an end that a stream does not have; "
                "fit one with a Method that is not bidirectional, e.g. method=Method(dt_max=0.5)"
            )
        self.runner = Runner(model, crossover, check_finite)
        self.estimator, self.check_finite = copy(estimator), check_finite
        self.channels = int(estimator.n_channels_in_)

    def read(self, chunk: Chunk) -> Tensor:
        """A chunk as it came, checked: (1, length, channels), or (1, 0)."""
        values = raw_values(chunk, self.channels)
        if values is None:
            return torch.empty(1, 0)
        if self.check_finite:
            units = self.estimator.units_
            shift, scale = units.shift[: self.channels], units.scale[: self.channels]
            check_finite((values - shift) / scale, values)
        return torch.from_numpy(values.copy())[None]

    def push(self, position: StreamPosition, chunk: Tensor) -> Tensor:
        """The answer (outputs,) to all samples so far."""
        return self.push_all([position], [chunk])[0]

    def push_all(
        self, positions: Sequence[StreamPosition], chunks: Sequence[Tensor]
    ) -> list[Tensor]:
        """An answer for each stream."""
        pairs = list(zip(positions, chunks, strict=True))
        found = self.runner.push_all(positions, [self._as_read(*pair) for pair in pairs])
        for position, chunk in pairs:
            if chunk.shape[1]:
                position.before = chunk[0, -1].clone()
        return [self._answer(y) for y in found]

    def copy_of_state(self, position: StreamPosition) -> Any:
        return self.runner.copy_of_state(position)

    def check_rate(self, rate: float) -> None:
        """A first difference is that of samples one step of the training series apart."""
        validate.sampling_rate(rate)
        if rate != 1 and self.estimator.reads_differences_:
            raise ValueError(
                f"first differences are of samples at the rate of the training series: rate must "
                f"be 1, got {rate:g}; resample the stream, or fit with differences=False"
            )

    def turn_to(self, position: StreamPosition, rate: float) -> None:
        self.check_rate(rate)
        self.runner.turn_to(position, rate)

    def identity(self) -> dict[str, Any]:
        """What two estimators have in common that answer alike."""
        estimator = self.estimator
        config = {"estimator": type(estimator).__name__, **self.runner.identity()["config"]}
        named = {**vars(estimator.units_), **estimator._scaling()}
        tensors = {name: torch.from_numpy(np.asarray(x, float)) for name, x in named.items()}
        return identity_of(config, {**self.runner.model.state_dict(), **tensors})

    def packed(self, positions: Sequence[StreamPosition]) -> dict[str, Tensor]:
        """States, answers of the model and, if it reads differences, the last samples, by name."""
        found = self.runner.packed(positions)
        if self.estimator.reads_differences_:
            none = torch.zeros(self.channels, dtype=torch.float64)
            last = [none if p.before is None else p.before for p in positions]
            found["before"] = torch.stack(last)
        return found

    def unpacked(self, tensors: Mapping[str, Tensor], row: int) -> StreamPosition:
        """One stream of those in :meth:`packed`."""
        position = self.runner.unpacked(tensors, row)
        if "before" in tensors:
            position.before = tensors["before"][row].clone()
        return position

    def _as_read(self, position: StreamPosition, chunk: Tensor) -> Tensor:
        """A chunk in the units of the model, with its differences: (1, length, d_input)."""
        if not chunk.shape[1]:
            return chunk
        values, units = chunk[0].numpy(), self.estimator.units_
        if self.estimator.reads_differences_:
            # of a stream without samples there is none before, whatever a snapshot says
            last = position.before if position.samples else None
            first = values[:1] if last is None else last.numpy()[None]
            values = np.concatenate([values, np.diff(values, axis=0, prepend=first)], axis=1)
        u: Array = (values - units.shift) / units.scale
        if self.check_finite:
            check_finite(u, values)
        return torch.from_numpy(u).to(self.runner.dtype).to(self.runner.device)[None]

    def _answer(self, y: Tensor) -> Tensor:
        outputs = y.detach().cpu().double().numpy()[None]
        return torch.from_numpy(self.estimator._answer(outputs)[0])
