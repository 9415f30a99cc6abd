"""The forecaster as sktime knows forecasters; needs the extra ``sktime``."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np

from s4d_torch._extras import missing_package
from s4d_torch.data.dataset import Array
from s4d_torch.estimators.forecasting.forecaster import S4DForecaster

try:
    import pandas as pd
    from sktime.forecasting.base import BaseForecaster
except ModuleNotFoundError as error:
    if error.name not in ("sktime", "pandas"):
        raise
    raise missing_package("forecasters of sktime", "sktime", "sktime") from error


class SktimeS4DForecaster(BaseForecaster):  # type: ignore[misc]
    """:class:`S4DForecaster` behind sktime's interface: ``fit(y, X, fh)``, ``predict``, ``update``.

    The horizon is the furthest step of ``fh``. ``options`` are those of S4DForecaster as a dict.
    X is taken as known beforehand, as sktime does. ``update`` reads on from the carried state and
    never fits again, whatever ``update_params`` says.

    Examples
    --------
    >>> from s4d_torch.estimators.forecasting.sktime_forecaster import SktimeS4DForecaster
    >>> from sktime.datasets import load_airline
    >>> y = load_airline()
    >>> forecaster = SktimeS4DForecaster(epochs=0).fit(y, fh=[1, 2, 3])
    >>> len(forecaster.predict())
    3
    """

    _tags: ClassVar[dict[str, Any]] = {
        "authors": "The s4d-torch developers",
        "python_dependencies": ["torch", "scikit-learn"],
        "y_inner_mtype": "pd.DataFrame",
        "X_inner_mtype": "pd.DataFrame",
        "scitype:y": "both",
        "requires-fh-in-fit": True,
        "capability:exogenous": True,
        "capability:insample": False,
        "capability:pred_int": True,
        "capability:pred_int:insample": False,
        "capability:missing_values": False,
        "capability:random_state": True,
        "property:randomness": "derandomized",
    }

    def __init__(
        self,
        window: int | None = None,
        epochs: int | None = None,
        options: dict[str, Any] | None = None,
        random_state: Any = None,
    ) -> None:
        self.window = window
        self.epochs = epochs
        self.options = options
        self.random_state = random_state
        super().__init__()

    def _fit(self, y: Any, X: Any, fh: Any) -> SktimeS4DForecaster:
        steps = fh.to_relative(self.cutoff)
        self.forecaster_ = S4DForecaster(
            horizon=int(max(steps)),
            window=self.window,
            epochs=self.epochs,
            random_state=self.random_state,
            **(self.options or {}),
        )
        self.forecaster_.fit(y, X)
        return self

    def _predict(self, fh: Any, X: Any) -> Any:
        found = self.forecaster_.predict(None, self._ahead(fh, X))
        return self._at(found.to_numpy(), fh, self._get_columns(method="predict"))

    def _predict_quantiles(self, fh: Any, X: Any, alpha: Sequence[float]) -> Any:
        """Between and beyond the fitted levels, lines over the quantiles of a normal variable."""
        levels = self.forecaster_.quantiles
        found = self.forecaster_.predict_quantiles(None, self._ahead(fh, X)).to_numpy()
        each = found.reshape(len(found), -1, len(levels))  # (horizon, targets, levels)
        wanted = np.stack([_between(each, levels, level) for level in alpha], 2)
        columns = self._get_columns(method="predict_quantiles", alpha=alpha)
        return self._at(wanted.reshape(len(found), -1), fh, columns)

    def _update(self, y: Any, X: Any = None, update_params: bool = True) -> SktimeS4DForecaster:
        last = self.forecaster_.predict(1, self._nothing_known()).index[0]
        new = y.index >= last
        if new.any():
            self.forecaster_.update(y[new], None if X is None else X.loc[y.index[new]])
        return self

    def _ahead(self, fh: Any, X: Any) -> Any:
        """The rows of X for each step up to the horizon.

        A step that fh leaves out may lack its row: what is known of one step bears on no other.
        """
        if not self.forecaster_.covariates_.known:
            return None
        times = self.forecaster_.predict(None, self._nothing_known()).index
        every = self.forecaster_.strategy == "recursive"
        needed = times if every else fh.to_absolute_index(self.cutoff)
        if X is None or not needed.isin(X.index).all():
            missing = "no X" if X is None else f"none for {needed[~needed.isin(X.index)][0]}"
            raise ValueError(f"X has to cover the steps that are forecast, and there is {missing}")
        return X.reindex(times).ffill().bfill()

    def _nothing_known(self) -> Any:
        """Rows of zeros in place of known covariates, where only the index is asked for."""
        known = len(self.forecaster_.covariates_.known)
        return np.zeros((self.forecaster_.horizon, known)) if known else None

    def _at(self, values: Array, fh: Any, columns: Any) -> Any:
        """The steps of fh as a table, with the index that sktime expects."""
        places = np.asarray(fh.to_relative(self.cutoff)).astype(int) - 1
        index = fh.to_absolute_index(self.cutoff)
        return pd.DataFrame(values[places], index=index, columns=columns)

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Small and quick ones, for sktime's own checks."""
        tiny = {"n_layers": 1, "d_model": 4, "d_state": 2, "n_jobs": 1}
        return [
            {"epochs": 1, "window": 4, "options": tiny, "random_state": 0},
            {"epochs": 0, "window": 5, "random_state": 0},
        ]


def _between(quantiles: Array, levels: Sequence[float], level: float) -> Array:
    """The quantile of a level from those of others, (..., levels) -> (...)."""
    normal = NormalDist()
    x = np.array([normal.inv_cdf(each) for each in levels])
    at = normal.inv_cdf(min(max(level, 1e-9), 1 - 1e-9))
    right = int(np.clip(np.searchsorted(x, at), 1, len(x) - 1))
    part = (at - x[right - 1]) / (x[right] - x[right - 1])
    return np.asarray((1 - part) * quantiles[..., right - 1] + part * quantiles[..., right])
