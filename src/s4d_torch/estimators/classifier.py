"""Series to classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, column_or_1d

from s4d_torch.data.dataset import Array
from s4d_torch.estimators.base import BaseS4D
from s4d_torch.nn.method import Method
from s4d_torch.training.config import Config


class S4DClassifier(ClassifierMixin, BaseS4D):  # type: ignore[misc]
    """Classes of series by a diagonal state space model, in scikit-learn style.

    X is (cases, channels, time), (cases, time), or a list of (channels, time) arrays of any
    lengths. After ``fit``: ``classes_``, ``model_`` (a :class:`~s4d_torch.SequenceModel`),
    ``history_`` (a row for each epoch) and ``n_epochs_``.
    """

    _kind = "classification"
    classes_: Array

    def __init__(
        self,
        *,
        n_layers: int = 3,
        d_model: int = 64,
        d_state: int = 32,
        dropout: float = 0.1,
        method: str | Method = "s4d",
        lr: float = 0.005,
        weight_decay: float = 0.05,
        label_smoothing: float = 0.0,
        batch_size: int | None = None,
        epochs: int | None = None,
        class_weight: Mapping[Any, float] | str | None = None,
        validation_fraction: float | str = "auto",
        patience: int = 20,
        standardize: bool = True,
        missing: str = "error",
        warm_start: bool = False,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            n_layers=n_layers,
            d_model=d_model,
            d_state=d_state,
            dropout=dropout,
            method=method,
            lr=lr,
            weight_decay=weight_decay,
            batch_size=batch_size,
            epochs=epochs,
            validation_fraction=validation_fraction,
            patience=patience,
            standardize=standardize,
            missing=missing,
            warm_start=warm_start,
            random_state=random_state,
            n_jobs=n_jobs,
            verbose=verbose,
        )
        self.label_smoothing = label_smoothing
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from series X and their classes y, (cases,): numbers or names."""
        return super().fit(X, y)

    def predict(self, X: Any) -> Array:
        """The most probable class of each series, (cases,)."""
        outputs = self._outputs(X)
        return np.asarray(self.classes_[outputs.argmax(1)])

    def predict_proba(self, X: Any) -> Array:
        """The probability of each class, (cases, classes), in the order of ``classes_``."""
        outputs = self._outputs(X)
        odds = np.exp(outputs - outputs.max(1, keepdims=True))
        return np.asarray(odds / odds.sum(1, keepdims=True))

    def _targets(self, y: Any, goes_on: bool) -> tuple[Array, int]:
        labels = column_or_1d(y, warn=True)
        check_array(labels, ensure_2d=False, dtype=None, input_name="y")
        check_classification_targets(labels)
        classes, numbers = np.unique(labels, return_inverse=True)
        if goes_on:
            if strange := sorted(set(classes.tolist()) - set(self.classes_.tolist()), key=str):
                raise ValueError(
                    f"y has classes that the first fit did not see: {strange}; "
                    "use warm_start=False to begin anew"
                )
            return np.asarray(np.searchsorted(self.classes_, labels)), len(self.classes_)
        if len(classes) < 2:
            only = classes.tolist()[0]
            raise ValueError(f"y has one class, {only!r}; a classifier needs two or more")
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

    def _config(self, cases: int, length: int, seed: int, *, judged: bool) -> Config:
        config = super()._config(cases, length, seed, judged=judged)
        training = replace(config.training, label_smoothing=self.label_smoothing)
        return replace(config, training=training)
