"""Series to features."""

from dataclasses import dataclass
from typing import Any, Self

from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from s4d_torch.data.dataset import Array
from s4d_torch.estimators.features.base import BaseFeatures, refuse_times


@dataclass(kw_only=True, eq=False, repr=False)
class S4DFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseFeatures):  # type: ignore[misc]
    """Features of series by random diagonal state spaces, in scikit-learn style.

    Each is the part of a series, between 0 and 1, in which the response of a random filter lies
    above a threshold, a quantile of its responses to the series given to ``fit``. X is
    (cases, channels, time), (cases, time), or a list of (channels, time) arrays of any lengths.
    After ``fit``: ``bank_``, the filters with their thresholds, and ``units_``.
    """

    def fit(self, X: Any, y: Any = None, times: None = None) -> Self:
        """Draw filters for series like X and find their thresholds; y is not looked at."""
        refuse_times(self, times)
        self._fit_bank(X)
        return self

    def transform(self, X: Any) -> Array:
        """Features (cases, n_systems * n_thresholds * n_filters), float32."""
        return self._features(X)

    def _answer(self, features: Array) -> Array:
        return features

    @property
    def _n_features_out(self) -> int:
        return self.bank_.n_features

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # always float32
        return tags
