"""Forecasts from many origins of a series, compared with what came; and what to compare with."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from s4d_torch.data.dataset import Array
from s4d_torch.estimators.fitting import prediction_batch
from s4d_torch.estimators.forecasting.carried import Carried
from s4d_torch.estimators.forecasting.network import ForecastNetwork, sorted_quantiles
from s4d_torch.estimators.forecasting.rows import Context
from s4d_torch.nn import validate


@dataclass(frozen=True)
class Backtest:
    """What forecasts from many origins were worth, in the units of y.

    ``forecasts`` and ``actual`` are (origins, horizon, targets), the origins of several series one
    behind the other; ``origins`` (origins, 2) has the number of the series and the row that the
    forecast begins with. ``below`` (levels, horizon) is the part of values below each quantile,
    ``pinball`` the mean pinball loss.
    """

    forecasts: Array = field(repr=False)
    actual: Array = field(repr=False)
    origins: Array = field(repr=False)
    levels: tuple[float, ...]
    below: Array = field(repr=False)
    pinball: float
    seconds: float

    @property
    def mse(self) -> float:
        """The mean squared error over all origins, steps and targets."""
        return float(np.mean(np.square(self.forecasts - self.actual), dtype=np.float64))

    @property
    def mae(self) -> float:
        """The mean absolute error over all origins, steps and targets."""
        return float(np.mean(np.abs(self.forecasts - self.actual), dtype=np.float64))

    def coverage(self, interval: float = 0.9) -> float:
        """The part of values within the central interval, such as 0.9: from 0.05 to 0.95."""
        ends = (1 - interval) / 2, (1 + interval) / 2
        places = [np.flatnonzero(np.isclose(self.levels, end)) for end in ends]
        if not all(len(place) for place in places):
            raise ValueError(
                f"an interval of {interval:g} goes from {ends[0]:g} to {ends[1]:g}, and the "
                f"quantiles are {self.levels}; name these in the option quantiles"
            )
        low, high = (self.below[place[0]] for place in places)
        return float((high - low).mean())


def run_backtest(
    forecaster: Any, context: Context, horizon: int, stride: int, start: int | None
) -> Backtest:
    """See :meth:`S4DForecaster.backtest`."""
    validate.positive_integer("stride", stride)
    network: ForecastNetwork = forecaster.model_
    window = network.window
    first = window if start is None else start
    if first < window:
        raise ValueError(f"start {first} leaves no window of {window} rows before it")
    began = time.perf_counter()
    forecasts, actual, origins = [], [], []
    levels = torch.tensor(network.levels, dtype=torch.float64)
    below, loss = np.zeros((len(levels), horizon)), 0.0
    for number in range(len(context.values)):
        length = len(context.values[number])
        if length < first + horizon:
            raise ValueError(
                f"{context.names[number]} has {length} rows, too few to test with: {first} before "
                f"the first forecast and a horizon of {horizon} have to fit in"
            )
        places = np.arange(first, length - horizon + 1, stride)
        mean, counts, cost = _one_series(forecaster, context, number, places, horizon)
        view = np.lib.stride_tricks.sliding_window_view(context.values[number], horizon, axis=0)
        forecasts.append(mean)
        actual.append(view[places].swapaxes(1, 2).astype(np.float32))
        origins.append(np.column_stack([np.full(len(places), number), places]))
        below += counts
        loss += cost
    total = sum(map(len, forecasts)) * context.targets
    return Backtest(
        np.concatenate(forecasts),
        np.concatenate(actual),
        np.concatenate(origins),
        network.levels,
        below / total,
        loss / (total * horizon * max(1, len(levels))),
        time.perf_counter() - began,
    )


def _one_series(
    forecaster: Any, context: Context, number: int, places: Array, horizon: int
) -> tuple[Array, Array, float]:
    """Means (origins, horizon, targets), how many are below each quantile, and the pinball sum."""
    network: ForecastNetwork = forecaster.model_
    levels = np.array(network.levels)
    mean = np.zeros((len(places), horizon, context.targets), np.float32)
    below, loss = np.zeros((len(levels), horizon)), 0.0
    rows = context.each_row()[number * context.targets : (number + 1) * context.targets]
    for target, row in enumerate(rows):
        shift, scale = context.shift[number][target], context.scale[number][target]
        done = 0
        for outputs in _outputs(forecaster, row, places, horizon):
            found = outputs * scale + shift
            here = places[done : done + len(found)]
            came = np.stack([context.values[number][i : i + horizon, target] for i in here])
            mean[done : done + len(found), :, target] = found[..., 0]
            missed = came[..., None] - found[..., 1:]
            below += (missed < 0).sum(0).T
            loss += float(np.maximum(levels * missed, (levels - 1) * missed).sum())
            done += len(found)
    return mean, below, loss


def _outputs(forecaster: Any, row: Array, places: Array, horizon: int) -> Iterator[Array]:
    """(batch, horizon, 1 + levels) in standard units, for one row and its origins."""
    network: ForecastNetwork = forecaster.model_
    window, size = network.window, prediction_batch(network.length + horizon)
    for first in range(0, len(places), size):
        here = places[first : first + size]
        past = np.stack([row[i - window : i] for i in here])
        if forecaster.strategy == "recursive":
            known = np.stack([row[i : i + horizon, 1:] for i in here]) if network.known else None
            yield forecaster._outputs(Carried(network, past), horizon, known)
            continue
        if network.known:  # steps beyond a shorter horizon are not looked at
            ahead = np.stack([_padded(row[i : i + network.horizon], network.horizon) for i in here])
            past = np.concatenate([past, ahead], 1)
        with torch.no_grad():
            outputs, _ = network(torch.from_numpy(past.astype(np.float32)))
        yield sorted_quantiles(outputs)[:, :horizon].double().numpy()


def _padded(rows: Array, count: int) -> Array:
    return np.pad(rows, ((0, count - len(rows)), (0, 0)), "edge")


def seasonal_naive(y: Array, places: Array, horizon: int, season: int) -> Array:
    """The last whole season over and over: (origins, horizon, targets) from y (time, targets)."""
    validate.positive_integer("season", season)
    if len(places) and places.min() < season:
        raise ValueError(f"the first forecast is from row {places.min()}, before a whole season")
    steps = np.arange(horizon) % season
    return np.asarray(y[(places[:, None] - season) + steps])
