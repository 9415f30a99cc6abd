"""An estimator of scikit-learn whose X are series: their forms, and what fit has seen of them."""

from typing import Any

from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from s4d_torch.data.clock import Clock
from s4d_torch.estimators.panel import (
    Panel,
    fill_missing,
    is_list_of_series,
    read_array,
    read_list,
)


class SeriesEstimator(BaseEstimator):  # type: ignore[misc]
    """Reads X in any of its forms; an option ``missing`` says what becomes of missing values."""

    missing: str
    n_channels_in_: int

    def _read(self, X: Any, *, reset: bool, times: Any = None, clock: Clock | None = None) -> Panel:
        """X as series; with ``reset`` its form is noted, otherwise it has to fit that of fit.

        ``times`` are those of its samples, ``clock`` that of the fit.
        """
        if is_list_of_series(X):
            panel, flat = read_list(X), False
        else:
            values = read_array(X)
            flat = values.ndim == 2
            panel = Panel(values[:, None] if flat else values)
        if reset:
            for name in ("n_features_in_", "feature_names_in_"):
                if hasattr(self, name):
                    delattr(self, name)
        if flat:  # scikit-learn's own rule: the number of columns is part of the form
            validate_data(self, X, reset=reset, skip_check_array=True)
        if not reset and panel.channels != self.n_channels_in_:
            raise ValueError(
                f"X has {panel.channels} channels, {type(self).__name__} was fitted with "
                f"{self.n_channels_in_}; X is (cases, channels, time)"
            )
        panel = panel if times is None else panel.timed(times, clock)
        return fill_missing(panel, self.missing)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = self.missing == "interpolate"
        return tags
