"""What the transformer, the classifier and the regressor share: options, filters, features."""

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, Literal, Self, cast, get_args

import numpy as np
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from s4d_torch.data.dataset import Array, Sequences
from s4d_torch.estimators.features import saving
from s4d_torch.estimators.features.bank import FilterBank, draw_bank
from s4d_torch.estimators.features.pooling import features_of, with_thresholds
from s4d_torch.estimators.fitting import threads
from s4d_torch.estimators.panel import Units, random_seed
from s4d_torch.estimators.reading import SeriesEstimator
from s4d_torch.nn import validate
from s4d_torch.training.option_types import check_types

Direction = Literal["both", "causal"]


@dataclass(kw_only=True, eq=False, repr=False)
class BaseFeatures(SeriesEstimator, ABC):
    """An estimator around a :class:`FilterBank` and the features pooled from it."""

    n_systems: int = 64
    n_filters: int = 32
    n_thresholds: int = 4
    d_state: int = 32
    direction: str = "both"
    differences: bool = True
    standardize: bool = True
    missing: str = "error"
    random_state: Any = None
    n_jobs: int | None = None

    bank_: FilterBank = field(init=False)
    units_: Units = field(init=False)

    @abstractmethod
    def _answer(self, features: Array) -> Array:
        """What is made of features (cases, n), a row for each case: what a stream answers."""

    def _fit_bank(self, X: Any, y: Any = None) -> Sequences:
        """Draw the filters and find their thresholds; returns X as the filters read it."""
        self._check_options()
        panel = self._read(X, reset=True)
        if y is not None:
            check_consistent_length(panel.cases, y)
        self.n_channels_in_ = panel.channels
        self.units_ = Units.of(panel) if self.standardize else Units.none(panel.channels)
        sequences = self.units_.sequences(panel)
        random = np.random.default_rng(random_seed(self.random_state))
        bank = draw_bank(
            random,
            channels=panel.channels,
            length=panel.longest,
            systems=self.n_systems,
            filters=self.n_filters,
            thresholds=self.n_thresholds,
            d_state=self.d_state,
            causal=self.direction == "causal",
            differences=self.differences,
        )
        with threads(self.n_jobs):
            self.bank_ = with_thresholds(bank, sequences, random)
        return sequences

    def _pooled(self, sequences: Sequences) -> Array:
        with threads(self.n_jobs):
            return features_of(self.bank_, sequences)

    def _features(self, X: Any) -> Array:
        check_is_fitted(self)
        return self._pooled(self.units_.sequences(self._read(X, reset=False)))

    def answers(self, X: Any) -> Array:
        """Probabilities or numbers, a row for each case; of the transformer its features."""
        return self._answer(self._features(X))

    def _check_options(self) -> None:
        """scikit-learn's rule: options are stored as they come and judged when they are used."""
        check_types(self, self.get_params(deep=False))
        for name in ("n_systems", "n_filters", "n_thresholds"):
            validate.positive_integer(name, getattr(self, name))
        if self.d_state < 2 or self.d_state % 2:
            raise ValueError(f"d_state must be even and at least 2, got {self.d_state!r}")
        validate.one_of("direction", self.direction, get_args(Direction))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write everything needed to predict, as safetensors and JSON, into ``folder``."""
        check_is_fitted(self)
        saving.save(self, folder)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """The estimator that :meth:`save` wrote; refused if its files are not as it wrote them."""
        return cast(Self, saving.load(cls, folder))


def refuse_times(estimator: BaseFeatures, times: Any) -> None:
    """Features are shares of samples, each of which counts as much as another."""
    if times is not None:
        name = type(estimator).__name__
        raise ValueError(
            f"{name} takes samples as evenly spaced and cannot be told times; use S4DClassifier or "
            "S4DRegressor, or resample the series"
        )


def require_targets(estimator: BaseFeatures, y: Any) -> None:
    if y is None:
        name = type(estimator).__name__
        raise ValueError(f"{name} requires y to be passed, but the target y is None")
