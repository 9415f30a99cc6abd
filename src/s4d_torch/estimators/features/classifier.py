"""Series to classes, by a ridge on features."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import ClassifierMixin

from s4d_torch.data.dataset import Array, Kind
from s4d_torch.estimators.features.base import BaseFeatures, refuse_times, require_targets
from s4d_torch.estimators.features.ridge import Ridge, fit_ridge
from s4d_torch.estimators.panel import plain
from s4d_torch.estimators.targets import check_two_classes, read_labels

SHARPNESS = np.logspace(-1, 2, 61)


@dataclass(kw_only=True, eq=False, repr=False)
class S4DFeatureClassifier(ClassifierMixin, BaseFeatures):  # type: ignore[misc]
    """Classes of series by a ridge on :class:`S4DFeatures`, in scikit-learn style.

    X is (cases, channels, time), (cases, time), or a list of (channels, time) arrays of any
    lengths; y is (cases,), numbers or names. The penalty is the one whose error is least with each
    case left out in turn, and probabilities are a softmax of the ridge's outputs, as sharp as
    fits the cases left out best. After ``fit``: ``classes_``, ``bank_``, ``ridge_``, ``alpha_``.
    """

    _kind: ClassVar[Kind] = "classification"
    classes_: Array = field(init=False)
    ridge_: Ridge = field(init=False)

    def fit(self, X: Any, y: Any, times: None = None) -> Self:
        """Learn from series X and their classes y, for whose forms see the class."""
        refuse_times(self, times)
        require_targets(self, y)
        _, classes, numbers = read_labels(plain("y", y))
        sequences = self._fit_bank(X, numbers)
        check_two_classes(classes)
        targets = np.where(numbers[:, None] == np.arange(len(classes)), 1.0, -1.0)
        self.ridge_, left_out = fit_ridge(self._pooled(sequences), targets)
        self.alpha_, self.sharpness_ = self.ridge_.penalty, _sharpness(left_out, numbers)
        self.classes_ = classes
        return self

    def predict(self, X: Any) -> Array:
        """The most probable class of each series, (cases,)."""
        chances = self.predict_proba(X)
        return np.asarray(self.classes_[chances.argmax(1)])

    def predict_proba(self, X: Any) -> Array:
        """The probability of each class, (cases, classes), in the order of ``classes_``."""
        return self.answers(X)

    def _answer(self, features: Array) -> Array:
        return np.exp(_log_softmax(self.sharpness_ * self.ridge_(features)))


def _sharpness(outputs: Array, numbers: Array) -> float:
    """The factor before the softmax under which the right classes are most likely.

    As in Platt's calibration, a few cases that are all right do not make the answers certain: of
    n + 2 cases, one would be of another class.
    """
    doubt = 1 / (len(numbers) + 2)
    right = numbers[:, None] == np.arange(outputs.shape[1])
    wanted = np.where(right, 1 - doubt, doubt / (outputs.shape[1] - 1))
    gains = [float((wanted * _log_softmax(factor * outputs)).sum()) for factor in SHARPNESS]
    return float(SHARPNESS[int(np.argmax(gains))])


def _log_softmax(outputs: Array) -> Array:
    shifted = outputs - outputs.max(1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(1, keepdims=True)))
