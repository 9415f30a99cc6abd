"""Series to classes."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.class_weight import compute_class_weight

from s4d_torch.data.dataset import Array, Kind
from s4d_torch.estimators.estimator import BaseS4D
from s4d_torch.estimators.features.base import BaseFeatures
from s4d_torch.estimators.features.classifier import S4DFeatureClassifier
from s4d_torch.estimators.targets import check_two_classes, read_labels
from s4d_torch.training.config import Config


@dataclass(kw_only=True, eq=False, repr=False)
class S4DClassifier(ClassifierMixin, BaseS4D):  # type: ignore[misc]
    """Classes of series by a diagonal state space model, in scikit-learn style.

    X is (cases, channels, time), (cases, time), or a list of (channels, time) arrays of any
    lengths; y is (cases,), numbers or names. After ``fit``: ``classes_``, ``model_`` (a
    :class:`~s4d_torch.SequenceModel`), ``history_`` (a row for each epoch) and ``n_epochs_``.
    """

    dropout: float = 0.1
    label_smoothing: float = 0.0
    class_weight: Mapping[Any, float] | str | None = None

    _kind: ClassVar[Kind] = "classification"
    _features_kind: ClassVar[type[BaseFeatures]] = S4DFeatureClassifier
    _rates: ClassVar[dict[str, float]] = {"few": 0.01, "many": 0.005}
    classes_: Array = field(init=False)

    def predict(self, X: Any, times: Any = None) -> Array:
        """The most probable class of each series, (cases,)."""
        chances = self._answers(X, times)
        return np.asarray(self.classes_[chances.argmax(1)])

    def predict_proba(self, X: Any, times: Any = None) -> Array:
        """The probability of each class, (cases, classes), in the order of ``classes_``."""
        return self._answers(X, times)

    def score(self, X: Any, y: Any, sample_weight: Any = None, times: Any = None) -> float:
        """The part of the series whose class is predicted right."""
        found = self.predict(X, times)
        return float(accuracy_score(y, found, sample_weight=sample_weight))

    def _answer(self, outputs: Array) -> Array:
        odds = np.exp(outputs - outputs.max(1, keepdims=True))
        return np.asarray(odds / odds.sum(1, keepdims=True))

    def _check_options(self) -> None:
        super()._check_options()
        if self.ensemble and self.class_weight is not None:
            raise ValueError(
                "class_weight has no effect on the features of an ensemble; use ensemble=False, or "
                "class_weight=None"
            )

    def _targets(self, y: Any, goes_on: bool) -> tuple[Array, int]:
        labels, classes, numbers = read_labels(y)
        if goes_on:
            if unseen := sorted(set(classes.tolist()) - set(self.classes_.tolist()), key=str):
                raise ValueError(
                    f"y has classes that the first fit did not see: {unseen}; "
                    "use warm_start=False to begin anew"
                )
            return np.asarray(np.searchsorted(self.classes_, labels)), len(self.classes_)
        check_two_classes(classes)
        self.classes_ = classes
        return numbers, len(classes)

    def _class_weights(self, targets: Array) -> torch.Tensor | None:
        if self.class_weight is None:
            return None
        present = np.unique(targets)
        weights = np.zeros(len(self.classes_))
        weights[present] = compute_class_weight(
            self.class_weight, classes=self.classes_[present], y=self.classes_[targets]
        )
        if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
            raise ValueError(f"class_weight must be numbers above 0, got {self.class_weight!r}")
        weights /= weights[targets].mean()  # so that the learning rate means what it meant
        return torch.from_numpy(weights)

    def _config(self, cases: int, held_out: Array | None, length: int, seed: int) -> Config:
        config = super()._config(cases, held_out, length, seed)
        training = replace(config.training, label_smoothing=self.label_smoothing)
        return replace(config, training=training)
