"""A forecaster beside what it has to beat, on rows that none of them has seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from s4d_torch.data.dataset import Array
from s4d_torch.estimators.forecasting.backtest import Backtest, seasonal_naive
from s4d_torch.estimators.forecasting.forecaster import S4DForecaster
from s4d_torch.estimators.forecasting.timeline import CYCLES, Step

TESTED = 0.2  # of all rows
MOST_ORIGINS = 500  # forecasts that are compared: more are closer together than they differ
SEASONS = ("day", "week", "year")
LONGEST_SEASON = 400  # samples
OWN = ("S4DForecaster", "linear")


class Score(NamedTuple):
    """The errors of one method; coverage of its 90 % interval, where it has one."""

    method: str
    mse: float
    mae: float
    coverage: float | None


@dataclass(frozen=True)
class Comparison:
    """A fitted forecaster, and how it and others did on the last rows.

    ``naive`` (origins, horizon, targets) are the forecasts of seasonal naive, from the same origins
    as those of ``test``; ``start`` is the first row that nothing was fitted to.
    """

    model: S4DForecaster
    scores: tuple[Score, ...]
    test: Backtest
    naive: Array
    start: int
    season: int


def usual_season(step: Step | None) -> int:
    """Samples of the shortest of day, week and year that has several; 1 if time has no unit."""
    if step is None or step.unit == "1":
        return 1
    if step.unit == "B":
        return 5
    lengths = [round(CYCLES[name] / step.seconds) for name in SEASONS]
    return next((n for n in lengths if 2 <= n <= LONGEST_SEASON), 1)


def compare(
    model: S4DForecaster,
    y: Array,
    X: Array | None = None,
    *,
    times: Array | None = None,
    season: int = 1,
    tested: float = TESTED,
) -> Comparison:
    """Fit to the first rows of y (time, targets), and test from those that follow.

    ``tested`` is the part of the rows to test with; they begin after those of the fit, and hold a
    horizon at least. The linear model is the forecaster's own, without its state space model.
    """
    rows, horizon = len(y), model.horizon
    if not 0 < tested < 1:
        raise ValueError(f"tested must be between 0 and 1, a part of the rows, got {tested}")
    start = min(round((1 - tested) * rows), rows - horizon)
    if start < horizon + 2:
        raise ValueError(
            f"{rows} rows are too few to learn from and to test a horizon of {horizon}; give more "
            "rows, or a shorter horizon"
        )

    stride = max(1, (rows - start - horizon + 1) // MOST_ORIGINS)
    line = clone(model).set_params(epochs=0)
    tests = [_tested(each, y, X, times, start, stride) for each in (model, line)]
    places = tests[0].origins[:, 1] + start - model.window_
    naive = seasonal_naive(y, places, horizon, min(season, start))
    missed = naive - tests[0].actual
    scores = (
        *(
            Score(name, test.mse, test.mae, _coverage(test))
            for name, test in zip(OWN, tests, strict=True)
        ),
        Score(
            "seasonal naive", float(np.square(missed).mean()), float(np.abs(missed).mean()), None
        ),
    )
    return Comparison(model, scores, tests[0], naive, start, season)


def _tested(
    model: S4DForecaster, y: Array, X: Array | None, times: Array | None, start: int, stride: int
) -> Backtest:
    """Fitted to the rows before ``start``, and tested from there on."""

    def part(x: Array | None, first: int | None, last: int | None) -> Array | None:
        return None if x is None else x[first:last]

    model.fit(y[:start], part(X, None, start), times=part(times, None, start))
    first = start - model.window_
    x, stamps = part(X, first, None), part(times, first, None)
    return model.backtest(y[first:], None, stride, x, times=stamps)


def _coverage(test: Any) -> float | None:
    try:
        return float(test.coverage(0.9))
    except ValueError:  # other quantiles were asked for
        return None
