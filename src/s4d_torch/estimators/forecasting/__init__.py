"""Forecasting: windows of series, a linear map with a state space model on top, quantiles."""

from s4d_torch.estimators.forecasting.backtest import Backtest, seasonal_naive
from s4d_torch.estimators.forecasting.forecaster import S4DForecaster

__all__ = ["S4DForecaster", "Backtest", "seasonal_naive"]
