"""Series to numbers."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score

from s4d_torch.data.dataset import Array, Kind
from s4d_torch.estimators.estimator import BaseS4D
from s4d_torch.estimators.features.base import BaseFeatures
from s4d_torch.estimators.features.regressor import S4DFeatureRegressor
from s4d_torch.estimators.targets import read_numbers, target_units


@dataclass(kw_only=True, eq=False, repr=False)
class S4DRegressor(RegressorMixin, BaseS4D):  # type: ignore[misc]
    """Numbers from series by a diagonal state space model, in scikit-learn style.

    X is (cases, channels, time), (cases, time), or a list of (channels, time) arrays of any
    lengths; y is (cases,), or (cases, outputs) for several numbers at once. After ``fit``:
    ``model_`` (a :class:`~s4d_torch.SequenceModel`, which predicts in units of the targets'
    spread), ``history_`` (a row for each epoch) and ``n_epochs_``.
    """

    _kind: ClassVar[Kind] = "regression"
    _features_kind: ClassVar[type[BaseFeatures]] = S4DFeatureRegressor
    _rates: ClassVar[dict[str, float]] = {"few": 0.01, "many": 0.01}

    def predict(self, X: Any, times: Any = None) -> Array:
        """The numbers of each series, in the form y had: (cases,) or (cases, outputs)."""
        found = self._answers(X, times)
        return found if self.targets_in_columns_ else found[:, 0]

    def score(self, X: Any, y: Any, sample_weight: Any = None, times: Any = None) -> float:
        """R^2, the part of the variance of y that is predicted."""
        return float(r2_score(y, self.predict(X, times), sample_weight=sample_weight))

    def _answer(self, outputs: Array) -> Array:
        return np.asarray(outputs * self.target_scale_ + self.target_shift_)

    def _scaling(self) -> dict[str, Array]:
        return {"target_shift": self.target_shift_, "target_scale": self.target_scale_}

    def _targets(self, y: Any, goes_on: bool) -> tuple[Array, int]:
        columns, in_columns = read_numbers(y)
        if goes_on:
            if columns.shape[1] != self.n_outputs_:
                raise ValueError(
                    f"y has {columns.shape[1]} numbers for each case, the first fit saw "
                    f"{self.n_outputs_}; use warm_start=False to begin anew"
                )
        else:
            self.targets_in_columns_ = in_columns
            self.target_shift_, self.target_scale_ = target_units(columns)
        return (columns - self.target_shift_) / self.target_scale_, columns.shape[1]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = tags.target_tags.single_output = True
        return tags
