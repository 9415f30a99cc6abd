"""Quantiles from what forecasts missed: where they begin, and how validation corrects them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from s4d_torch.data.dataset import Array, Dataset, Split
from s4d_torch.estimators.fitting import prediction_batch
from s4d_torch.estimators.forecasting.carried import Carried
from s4d_torch.estimators.forecasting.network import ForecastNetwork
from s4d_torch.estimators.forecasting.training import each_batch
from s4d_torch.estimators.forecasting.windows import spread_out

MOST = 2048  # windows whose errors are kept at a time
MOST_ROLLED = 256  # of those that are forecast one step after the other


@torch.no_grad()
def start_quantiles(network: ForecastNetwork, dataset: Dataset) -> None:
    """The branch is zero yet: quantiles begin as those of the linear map's errors in training."""
    missed = _misses(network, dataset, spread_out(dataset.train, MOST))
    network.spread[:, 1:] = _quantiles(missed[..., 0], network.levels)


@torch.no_grad()
def shrink_branch(network: ForecastNetwork, dataset: Dataset) -> float:
    """How much of the branch's mean validation asks for, 0 to 1; the network has so much after.

    Least squares of what the linear map missed on what the branch adds: on the validation windows
    the sum is never worse than the linear map alone.
    """
    both = own = 0.0
    split = spread_out(dataset.validation, 2 * MOST)
    for (outputs, targets), values in _with_windows(network, dataset, split):
        line = network.line(values)
        added, wanted = outputs[..., 0] - line, targets - line
        both += float((added * wanted).sum())
        own += float(added.square().sum())
    part = min(1.0, max(0.0, both / own)) if own > 0 else 0.0
    kinds = 1 + len(network.levels)
    for parameter in network.branch.decoder.parameters():
        parameter[::kinds] *= part
    network.spread[:, 0] *= part
    return part


@torch.no_grad()
def calibrate(network: ForecastNetwork, dataset: Dataset) -> None:
    """Move each quantile so that it is one on the validation windows, at each step ahead.

    In units of each window's spread: ``quantile + s c``, with c the same quantile of its misses.
    """
    missed = _misses(network, dataset, spread_out(dataset.validation, MOST))
    for i, level in enumerate(network.levels):
        network.calibration[:, 1 + i] += _quantiles(missed[..., 1 + i], (level,))[:, 0]


@torch.no_grad()
def rolled_quantiles(
    network: ForecastNetwork, values: Array, targets: Array, index: Array
) -> Array:
    """(horizon, levels): quantiles of what recursive forecasts missed, in units of each window.

    ``values`` (windows, window + horizon, columns) and ``targets`` (windows, horizon).
    """
    window, horizon = network.window, targets.shape[1]
    chosen = index[np.linspace(0, len(index) - 1, min(MOST_ROLLED, len(index))).astype(int)]
    carried = Carried(network, values[chosen, :window])
    ahead = values[chosen, window:, 1:].astype(np.float64) if network.known else None
    found = carried.rolled(horizon, ahead)
    missed = (torch.from_numpy(targets[chosen].astype(np.float64)) - found).T  # (horizon, windows)
    return _quantiles((missed / carried.window_scale).T, network.levels).numpy()


def _misses(network: ForecastNetwork, dataset: Dataset, split: Split) -> Tensor:
    """(windows, horizon, 1 + levels): target less forecast, in units of each window's spread."""
    found = []
    for (outputs, targets), values in _with_windows(network, dataset, split):
        scale = network.units(values)[1]
        found.append((targets[..., None] - outputs) / scale[:, None, None])
    return torch.cat(found)


def _quantiles(missed: Tensor, levels: tuple[float, ...]) -> Tensor:
    """Of misses (windows, horizon), for each step: (horizon, levels)."""
    if not levels:
        return missed.new_zeros(missed.shape[1], 0)
    wanted = torch.tensor(levels, dtype=missed.dtype)
    return torch.quantile(missed, wanted, dim=0).T


def _with_windows(
    network: ForecastNetwork, dataset: Dataset, split: Split
) -> Iterator[tuple[tuple[Tensor, Tensor], Tensor]]:
    """What :func:`each_batch` gives, and the windows (batch, window) of the series."""
    size = prediction_batch(dataset.signature.length)
    starts = range(0, len(split), size)
    for first, found in zip(starts, each_batch(network.eval(), dataset, split), strict=True):
        rows = split.index[first : first + size]
        values = np.array(split.inputs[0].values[rows, : network.window, 0])
        yield found, torch.from_numpy(values)
