"""Series to their future, in the manner of the other estimators."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Self, cast

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from s4d_torch.data.dataset import Array
from s4d_torch.estimators.fitting import threads
from s4d_torch.estimators.forecasting import fit, saved
from s4d_torch.estimators.forecasting.backtest import Backtest, run_backtest
from s4d_torch.estimators.forecasting.carried import Carried
from s4d_torch.estimators.forecasting.covariates import Covariates, check_match, check_rows
from s4d_torch.estimators.forecasting.network import ForecastNetwork, sorted_quantiles
from s4d_torch.estimators.forecasting.options import check_horizon, check_options, level_positions
from s4d_torch.estimators.forecasting.rows import Context, make_context
from s4d_torch.estimators.forecasting.series import Form, Given, fill, read
from s4d_torch.nn.method import Method


@dataclass(kw_only=True, eq=False, repr=False)
class S4DForecaster(BaseEstimator):  # type: ignore[misc]
    """The next ``horizon`` values of series, and their quantiles.

    y is (time,), or (time, targets) for several targets, a pandas Series or DataFrame, or a list or
    dict of many such series of any lengths; X, covariates, is alike. One model learns from all
    series and targets: each is read by itself, in units of its own window, by a linear map and a
    causal state space model on top of it. After ``fit``: ``model_``, ``history_`` (a row for each
    epoch), ``window_``, ``branch_share_`` (how much of the state space model validation asked for).

    Columns of X must be known ``horizon`` steps ahead, except those that ``past_only`` names.
    Time stamps, from pandas or ``times``, must be equally spaced; with ``calendar`` the place in
    the day, the week and the year is a covariate, where two of them were seen.
    ``strategy="recursive"`` learns one step and repeats it; then any horizon can be asked for.
    """

    horizon: int = 24
    window: int | None = None
    quantiles: tuple[float, ...] = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
    strategy: str = "direct"
    past_only: tuple[Any, ...] = ()
    calendar: bool = True
    n_layers: int = 2
    d_model: int = 32
    d_state: int = 32
    dropout: float = 0.1
    method: str | Method = "s4d"
    lr: float = 0.001
    weight_decay: float = 0.05
    batch_size: int | None = None
    epochs: int | None = None
    validation_fraction: float | str = "auto"
    patience: int = 4
    missing: str = "error"
    random_state: Any = None
    n_jobs: int | None = None
    verbose: int = 0

    model_: ForecastNetwork = field(init=False)
    history_: list[dict[str, Any]] = field(init=False)

    def fit(self, y: Any, X: Any = None, *, times: Any = None) -> Self:
        """Learn from series y, and covariates X for each of their rows.

        ``times`` are the time stamps of arrays; pandas objects have their own. The last part of
        each series, ``validation_fraction``, chooses among weights and sets the quantiles right.
        """
        check_options(self)
        given, beside = self._read(y, X, times)
        with threads(self.n_jobs):
            learned = fit.learn(self, given, beside)
            self.model_, self.history_ = learned.network, learned.history
            self.window_, self.n_epochs_ = learned.network.window, len(learned.history)
            self.branch_share_, self.rolled_spread_ = learned.share, learned.rolled_spread
            self.covariates_ = learned.covariates
            self._form, self._context = given.form, learned.context
            self._carried = Carried(self.model_, learned.context.rows(self.window_))
        return self

    def predict(
        self,
        horizon: int | None = None,
        X_future: Any = None,
        *,
        y: Any = None,
        X: Any = None,
        times: Any = None,
    ) -> Any:
        """The mean of the next ``horizon`` values, in the form of y: (horizon,), or (horizon,
        targets).

        ``X_future`` holds the known columns of X for these steps. With ``y`` (and its X), the
        future of another series, of which at least ``window_`` rows are needed.
        """
        found, form, context = self._forecast(horizon, X_future, y, X, times)
        return form.give([each[..., 0] for each in found], context.future(len(found[0])))

    def predict_quantiles(
        self,
        horizon: int | None = None,
        X_future: Any = None,
        quantiles: Any = None,
        *,
        y: Any = None,
        X: Any = None,
        times: Any = None,
    ) -> Any:
        """Quantiles of the next values: (horizon, levels), or (horizon, targets, levels).

        ``quantiles`` are some of those that were fitted; all of them by default.
        """
        chosen = level_positions(self.quantiles, quantiles)
        found, form, context = self._forecast(horizon, X_future, y, X, times)
        values = [each[..., 1:][..., chosen] for each in found]
        levels = [self.quantiles[i] for i in chosen]
        return form.give_quantiles(values, context.future(len(found[0])), levels)

    def update(self, y_new: Any, X_new: Any = None, *, times: Any = None) -> Self:
        """Observations that follow those of fit, for every series as many; nothing is fitted.

        The state space model reads on from its carried state, the linear map sees the last window.
        """
        check_is_fitted(self)
        given, beside = self._read(y_new, X_new, times, continues=True)
        context = self._context.extended(given, beside, self.covariates_)
        with threads(self.n_jobs):
            self._carried.extend(context.rows(len(given.series[0])))
        self._context = context.shortened(self.window_)
        return self

    def backtest(
        self,
        y: Any,
        horizon: int | None = None,
        stride: int = 1,
        X: Any = None,
        *,
        times: Any = None,
        start: int | None = None,
    ) -> Backtest:
        """Forecasts from every ``stride``-th row of y, compared with what came.

        The first is from row ``start``, by default ``window_``, the first with a whole window; the
        last has its whole horizon within y. Nothing is fitted again, and each forecast reads its
        own window alone: rows that fit has seen flatter it.
        """
        check_is_fitted(self)
        horizon = check_horizon(self, horizon)
        given, beside = self._read(y, X, times)
        self._check_columns(given, beside)
        context = make_context(given, beside, self.covariates_)
        with threads(self.n_jobs):
            return run_backtest(self, context, horizon, stride, start)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write everything needed to predict and to go on, as safetensors and JSON."""
        check_is_fitted(self)
        saved.save(self, folder)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """The forecaster that :meth:`save` wrote; refused if its files are not as it wrote them."""
        return cast(Self, saved.load(cls, folder))

    def _read(
        self, y: Any, X: Any, times: Any, *, continues: bool = False
    ) -> tuple[Given, Given | None]:
        if y is None:
            raise ValueError(f"{type(self).__name__} needs y, the series to forecast; got None")
        name = "y_new" if continues else "y"
        given = read(name, y, times)
        given = Given([fill(each, self.missing) for each in given.series], given.form)
        if X is None:
            return given, None
        beside = read("X_new" if continues else "X", X)
        beside = Given([fill(each, self.missing) for each in beside.series], beside.form)
        check_match(given, beside)
        return given, beside

    def _check_columns(self, given: Given, beside: Given | None) -> None:
        covariates: Covariates = self.covariates_
        columns = 0 if beside is None else beside.columns
        if columns != covariates.columns:
            raise ValueError(
                f"X has {columns} columns, it had {covariates.columns} in fit; give the same"
            )
        if covariates.cycles and given.step is None:
            raise ValueError(
                f"fit had time stamps (their {', '.join(covariates.cycles)} is a covariate) and y "
                "has none; give times, or a pandas index"
            )
        before, here = self._context.step, given.step
        if before and here and not 0.8 < here.seconds / before.seconds < 1.25:  # months differ
            raise ValueError(
                f"y has a row every {here.seconds:g} s, in fit it was every {before.seconds:g} s; "
                "sample it as it was there"
            )

    def _forecast(
        self, horizon: int | None, X_future: Any, y: Any, X: Any, times: Any
    ) -> tuple[list[Array], Form, Context]:
        """(horizon, targets, 1 + levels) for each series, in its own units."""
        check_is_fitted(self)
        horizon = check_horizon(self, horizon)
        form, context, carried = self._form, self._context, self._carried
        if y is not None:
            given, beside = self._read(y, X, times)
            self._check_columns(given, beside)
            form, context = given.form, make_context(given, beside, self.covariates_)
            context.check_length(self.window_)
            carried = Carried(self.model_, context.rows(self.window_))
        elif X is not None:
            raise ValueError("X goes with y; give the covariates of the future as X_future")
        future = self._future(X_future, form, context, horizon)
        with threads(self.n_jobs):
            outputs = self._outputs(carried, horizon, future)
        return context.physical(outputs), form, context

    def _outputs(self, carried: Carried, horizon: int, future: Array | None) -> Array:
        """(rows, horizon, 1 + levels) in standard units."""
        if self.strategy == "direct":
            if future is not None:  # the network wants all of its horizon
                future = np.pad(future, ((0, 0), (0, self.horizon - horizon), (0, 0)), "edge")
            found = sorted_quantiles(carried.forecast(future))[:, :horizon]
            return np.asarray(found.numpy())
        mean = carried.rolled(horizon, future)[..., None]
        spread = torch.from_numpy(self.rolled_spread_[: min(horizon, self.horizon)])
        if horizon > self.horizon:  # what is known of the last step is the best guess after it
            spread = torch.cat([spread, spread[-1:].expand(horizon - self.horizon, -1)])
        return np.asarray(torch.cat([mean, mean + carried.window_scale[:, None, None] * spread], 2))

    def _future(self, X_future: Any, form: Form, context: Context, horizon: int) -> Array | None:
        """The known covariates of all rows, (rows, horizon, known)."""
        covariates: Covariates = self.covariates_
        if not covariates.known and X_future is not None:
            raise ValueError("X_future was given, and fit had no covariates known beforehand")
        times = context.future(horizon)
        each: list[Array | None] = [None] * len(times)
        if covariates.known:
            if X_future is None:
                raise ValueError(
                    f"{len(covariates.known)} columns of X are known beforehand: give X_future "
                    f"with {horizon} rows, or name those that are not in past_only"
                )
            ahead = read("X_future", X_future)
            if ahead.columns != len(covariates.known) or ahead.form.keys != form.keys:
                raise ValueError(
                    f"X_future has {ahead.columns} columns for {len(ahead.series)} series, expected"
                    f" the {len(covariates.known)} known columns of X for {len(times)} series"
                )
            for x, stamps in zip(ahead.series, times, strict=True):
                check_rows(x, horizon, stamps, "the horizon is", exact=False)
            each = [fill(x, self.missing).values for x in ahead.series]
        if not covariates.n_known:
            return None
        pairs = zip(each, times, strict=True)
        known = [covariates.ahead(x, stamps, horizon) for x, stamps in pairs]
        return np.repeat(np.stack(known), context.targets, axis=0)
