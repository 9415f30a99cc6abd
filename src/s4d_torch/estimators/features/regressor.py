"""Series to numbers, by a ridge on features."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from sklearn.base import RegressorMixin

from s4d_torch.data.dataset import Array, Kind
from s4d_torch.estimators.features.base import BaseFeatures, refuse_times, require_targets
from s4d_torch.estimators.features.ridge import Ridge, fit_ridge
from s4d_torch.estimators.panel import plain
from s4d_torch.estimators.targets import read_numbers, target_units


@dataclass(kw_only=True, eq=False, repr=False)
class S4DFeatureRegressor(RegressorMixin, BaseFeatures):  # type: ignore[misc]
    """Numbers from series by a ridge on :class:`S4DFeatures`, in scikit-learn style.

    X is (cases, channels, time), (cases, time), or a list of (channels, time) arrays of any
    lengths; y is (cases,), or (cases, outputs) for several numbers at once. The penalty is the one
    whose error is least with each case left out in turn. After ``fit``: ``bank_``, ``ridge_``
    (in units of the targets' spread) and ``alpha_``.
    """

    _kind: ClassVar[Kind] = "regression"
    ridge_: Ridge = field(init=False)

    def fit(self, X: Any, y: Any, times: None = None) -> Self:
        """Learn from series X and their numbers y, for whose forms see the class."""
        refuse_times(self, times)
        require_targets(self, y)
        columns, self.targets_in_columns_ = read_numbers(plain("y", y))
        sequences = self._fit_bank(X, columns)
        self.target_shift_, self.target_scale_ = target_units(columns)
        units = (columns - self.target_shift_) / self.target_scale_
        self.ridge_, _ = fit_ridge(self._pooled(sequences), units)
        self.alpha_ = self.ridge_.penalty
        return self

    def predict(self, X: Any) -> Array:
        """The numbers of each series, in the form y had: (cases,) or (cases, outputs)."""
        found = self.answers(X)
        return found if self.targets_in_columns_ else found[:, 0]

    def _answer(self, features: Array) -> Array:
        return self.ridge_(features) * self.target_scale_ + self.target_shift_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = tags.target_tags.single_output = True
        return tags
