"""Forecasts from a carried state: new samples are read one by one, the old ones never again."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import Tensor

from s4d_torch.data.dataset import Array
from s4d_torch.estimators.forecasting.network import ForecastNetwork
from s4d_torch.nn.stepping.step import CompiledStep

LONGEST = 2  # windows that a state has read, before it is begun anew from the last one


class Carried:
    """Several rows, each a series with its covariates, read to their end in double precision.

    The branch keeps the units, shift and scale, of the window it began with; the linear map always
    sees the last window. After a window's length of new samples the branch begins anew, so that
    its units never grow old, and a state costs no more memory than two windows.
    """

    def __init__(self, network: ForecastNetwork, history: Array) -> None:
        """``history`` (rows, window or more samples, 1 + past + known), in standard units."""
        self.network = copy.deepcopy(network).double().eval()
        self.window = network.window
        self.history = np.asarray(history, dtype=np.float64)
        self.stream: CompiledStep = self.network.branch.compile_step(len(history))
        self._begin()

    @torch.no_grad()
    def _begin(self) -> None:
        if self.history.shape[1] >= LONGEST * self.window:
            self.history = self.history[:, -self.window :]
        read = torch.from_numpy(self.history)
        first = read[:, : self.window]
        self.shift, self.scale = self.network.units(first[..., 0])
        inputs = self.network.normalized(first, self.shift, self.scale)
        self.outputs, state = self.network.branch(inputs)
        self.stream.start(state)
        self._push(read[:, self.window :])

    def extend(self, rows: Array) -> None:
        """Read on: rows (rows, samples, 1 + past + known)."""
        self.history = np.concatenate([self.history, rows], 1)
        if self.history.shape[1] >= LONGEST * self.window:
            self._begin()
        else:
            self._push(torch.from_numpy(np.asarray(rows, dtype=np.float64)))

    def _push(self, rows: Tensor) -> None:
        for sample in self.network.normalized(rows, self.shift, self.scale).unbind(1):
            self.outputs = self.stream.push(sample.contiguous())

    @property
    def last(self) -> Tensor:
        """The last window of each series, (rows, window)."""
        return torch.from_numpy(self.history[:, -self.window :, 0])

    @torch.no_grad()
    def forecast(self, future: Array | None) -> Tensor:
        """(rows, horizon, 1 + levels), with the known covariates (rows, horizon, known)."""
        ahead = None if future is None else torch.from_numpy(future)
        return self.network.combine(self.last, self.scale, self.outputs, ahead)

    @torch.no_grad()
    def rolled(self, horizon: int, future: Array | None) -> Tensor:
        """(rows, horizon): each forecast of one step is read as if it had come true."""
        stream = self.stream.fork()
        stream.start(self.stream.state)
        ahead = None if future is None else torch.from_numpy(future)
        values, outputs, found = self.last, self.outputs, []
        for i in range(horizon):
            known = None if ahead is None else ahead[:, i : i + 1]
            step = self.network.combine(values, self.scale, outputs, known)[:, 0, :1]  # (rows, 1)
            found.append(step)
            values = torch.cat([values[:, 1:], step], 1)
            columns = [step] if ahead is None else [step, ahead[:, i]]
            row = torch.cat(columns, 1)[:, None]
            sample = self.network.normalized(row, self.shift, self.scale)[:, 0]
            outputs = stream.push(sample.contiguous())
        return torch.cat(found, 1)

    @property
    def window_scale(self) -> Tensor:
        """Spread of the last window of each row, (rows,)."""
        return self.network.units(self.last)[1]
