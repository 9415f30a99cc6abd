"""The fit of a forecaster, from series to a network: windows, linear map, branch, quantiles."""

from __future__ import annotations

import math
from typing import Any, NamedTuple, cast

import numpy as np
import torch

from s4d_torch._registry import unknown
from s4d_torch.data.dataset import Array, Dataset
from s4d_torch.estimators.fitting import Printer, train_model
from s4d_torch.estimators.forecasting import calibration
from s4d_torch.estimators.forecasting.covariates import Covariates
from s4d_torch.estimators.forecasting.linear import solve
from s4d_torch.estimators.forecasting.network import ForecastNetwork
from s4d_torch.estimators.forecasting.rows import Context, make_context
from s4d_torch.estimators.forecasting.series import Given
from s4d_torch.estimators.forecasting.training import ForecastTrainer
from s4d_torch.estimators.forecasting.windows import Cut, Frame, make_dataset, spread_out
from s4d_torch.estimators.panel import random_seed
from s4d_torch.nn.method import METHODS, Method
from s4d_torch.training.config import Config, ModelConfig, OptimizerConfig, TrainingConfig

LONGEST_WINDOW = 512  # that is chosen; more may be asked for
HELD_OUT = 0.2  # of each series, where it leaves enough to learn from
MOST_WINDOWS = 8192  # that the branch learns from: neighbours tell it nearly the same
MOST_JUDGED = 2048  # that judge it
STEPS = 1000  # of the optimiser, where the data is small
EPOCHS = range(6, 31)  # fewest and most
FASTEST = 0.5  # step size of the narrowest kernels: they see about two samples


class Learned(NamedTuple):
    """What a fit leaves behind."""

    network: ForecastNetwork
    history: list[dict[str, Any]]
    share: float
    rolled_spread: Array
    covariates: Covariates
    context: Context


def learn(options: Any, y: Given, X: Given | None) -> Learned:
    """Everything a forecaster of these options learns from series and covariates."""
    horizon = options.horizon
    window = _window(options, [len(series) for series in y.series], y)
    held_out = _held_out(options, [len(series) for series in y.series], window)
    ends = [len(series) - kept for series, kept in zip(y.series, held_out, strict=True)]
    covariates = Covariates.of(y, X, options.past_only, options.calendar, ends)
    context = make_context(y, X, covariates, ends=ends)
    rows = [row.astype(np.float32) for row in context.each_row()]
    ahead = 1 if options.strategy == "recursive" else horizon
    cut = Cut(window, ahead, covariates.n_known > 0, np.repeat(held_out, y.columns).tolist())
    dataset, validated = make_dataset(Frame.of(rows), cut)
    seed = random_seed(options.random_state)
    network = _network(options, window, ahead, covariates, seed)
    line = solve(dataset.train, dataset.validation if validated else None, window)
    network = _with_line(network, line.weight, line.center)
    calibration.start_quantiles(network, dataset)
    history: list[dict[str, Any]] = []
    share = 0.0
    if options.epochs != 0:
        network, history = _train(options, dataset, network, seed, validated=validated)
        share = calibration.shrink_branch(network, dataset) if validated else 1.0
    if validated:
        calibration.calibrate(network, dataset)
    rolled = np.zeros((0, len(network.levels)))
    if options.strategy == "recursive":
        rolled = _rolled_spread(network, rows, cut, horizon)
    return Learned(network, history, share, rolled, covariates, context.shortened(window))


def _window(options: Any, lengths: list[int], y: Given) -> int:
    """The window asked for, or one that leaves windows to learn from; both have to fit."""
    shortest, horizon = min(lengths), options.horizon
    name = y.series[int(np.argmin(lengths))].name
    if shortest <= horizon + 1:
        raise ValueError(
            f"{name} has {shortest} rows, too few for a horizon of {horizon}: a window of the past "
            "and the horizon after it have to fit in; give more rows or ask for a shorter horizon"
        )
    if options.window is None:
        return int(min(LONGEST_WINDOW, shortest - horizon, max(2, (shortest - 2 * horizon) // 3)))
    if options.window + horizon > shortest:
        raise ValueError(
            f"{name} has {shortest} rows, fewer than window {options.window} + horizon {horizon}; "
            f"use window={shortest - horizon} or less, or leave this series out"
        )
    return int(options.window)


def _held_out(options: Any, lengths: list[int], window: int) -> list[int]:
    """How many samples at the end of each series validate."""
    fraction, horizon = options.validation_fraction, options.horizon
    if isinstance(fraction, str):
        if fraction != "auto":
            raise ValueError(unknown("validation_fraction", fraction, ("auto", "a number")))
        kept = [max(horizon, round(HELD_OUT * length)) for length in lengths]
        # a short series is all learned from
        return [
            n if length - n >= window + 2 * horizon else 0 for n, length in _pairs(kept, lengths)
        ]
    if not 0 <= fraction < 1:
        raise ValueError(f"validation_fraction must be in [0, 1) or 'auto', got {fraction}")
    kept = [round(fraction * length) for length in lengths]
    for n, length in _pairs(kept, lengths):
        if n and (n < horizon or length - n < window + horizon):
            raise ValueError(
                f"validation_fraction {fraction} of {length} rows is {n}: that part needs the "
                f"horizon of {horizon}, the rest window and horizon, {window + horizon}"
            )
    return kept


def _pairs(kept: list[int], lengths: list[int]) -> list[tuple[int, int]]:
    return list(zip(kept, lengths, strict=True))


def _network(
    options: Any, window: int, horizon: int, covariates: Covariates, seed: int
) -> ForecastNetwork:
    return ForecastNetwork(
        window,
        horizon,
        [float(level) for level in options.quantiles],
        len(covariates.past),
        covariates.n_known,
        d_model=options.d_model,
        n_layers=options.n_layers,
        d_state=options.d_state,
        dropout=options.dropout,
        method=_method(options, window),
        generator=torch.Generator().manual_seed(seed),
    )


def _with_line(network: ForecastNetwork, weight: Array, center: str) -> ForecastNetwork:
    network.linear.copy_(torch.from_numpy(weight))
    network.center = network.config["center"] = center
    return network


def _method(options: Any, window: int) -> Method:
    """A name gets step sizes that fit the window; a Method is as it is, if it is causal."""
    if not isinstance(options.method, Method):
        method = METHODS[options.method].with_steps(min(FASTEST / 5, 1 / window), FASTEST)
        return method.replace(softmax_length=window)
    if options.method.bidirectional:
        raise ValueError(
            "a forecaster reads on from a carried state, and a bidirectional method has none; use "
            "method.replace(bidirectional=False)"
        )
    return options.method


def _train(
    options: Any, dataset: Dataset, network: ForecastNetwork, seed: int, *, validated: bool
) -> tuple[ForecastNetwork, list[dict[str, Any]]]:
    judged = spread_out(dataset.validation, MOST_JUDGED)
    random = np.random.default_rng(seed)
    chosen = np.sort(random.permutation(len(dataset.train))[:MOST_WINDOWS])
    fewer = Dataset.of((dataset.train.part(chosen), judged, judged), dataset.signature)
    cases = len(chosen)
    batch_size = options.batch_size or min(64, max(8, math.ceil(cases / 10)))
    epochs = options.epochs
    if epochs is None:
        epochs = min(EPOCHS[-1], max(EPOCHS[0], math.ceil(STEPS / math.ceil(cases / batch_size))))
    config = Config(
        task=type(options).__name__,
        model=ModelConfig(),
        method=network.branch.method,
        optimizer=OptimizerConfig(lr=options.lr, weight_decay=options.weight_decay),
        training=TrainingConfig(
            epochs=epochs,
            batch_size=batch_size,
            seed=seed,
            patience=options.patience if validated else None,
        ),
    )
    name = type(options).__name__
    printer = Printer(name, config.training, every=options.verbose > 1) if options.verbose else None
    trained, history = train_model(
        fewer, config, network, ForecastTrainer, held_out=validated, reporter=printer
    )
    return cast(ForecastNetwork, trained), history


def _rolled_spread(network: ForecastNetwork, rows: list[Array], cut: Cut, horizon: int) -> Array:
    """Quantiles of recursive forecasts, from windows with the whole horizon after them."""
    whole = Cut(cut.window, horizon, reads_ahead=True, held_out=cut.held_out)
    dataset, _ = make_dataset(Frame.of(rows), whole)
    split = dataset.validation
    return calibration.rolled_quantiles(network, split.inputs[0].values, split.targets, split.index)
