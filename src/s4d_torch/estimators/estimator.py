"""What the classifier and the regressor share: options, the fit, series in and numbers out."""

import math
import os
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, cast

import numpy as np
import torch
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from s4d_torch._registry import unknown
from s4d_torch.data.clock import Clock
from s4d_torch.data.dataset import Array, Kind, Signature
from s4d_torch.data.splits import hold_out
from s4d_torch.estimators import saving
from s4d_torch.estimators.features.base import BaseFeatures
from s4d_torch.estimators.fitting import Printer, fit_model, predict_outputs, threads
from s4d_torch.estimators.panel import Panel, Units, plain, random_seed
from s4d_torch.estimators.reading import SeriesEstimator
from s4d_torch.nn.method import METHODS, Method
from s4d_torch.nn.pretrained import Pretrained
from s4d_torch.training.config import Config, ModelConfig, OptimizerConfig, TrainingConfig
from s4d_torch.training.evaluation import check_outputs
from s4d_torch.training.option_types import check_types

ENOUGH_TO_HOLD_OUT = 500  # cases, from which on some can be spared to judge the others
STEPS = 500  # of the optimiser, where the data is small
FEWEST_EPOCHS = 10  # where it is not
MOST_EPOCHS = 500
# By the number of cases, fewer than ENOUGH_TO_HOLD_OUT or not: few are learned no better by a wide
# model, only slower.
WIDTH = {"few": 32, "many": 64}
FASTEST = 0.5  # step size of the narrowest kernels: they see about two samples


@dataclass(kw_only=True, eq=False, repr=False)
class BaseS4D(SeriesEstimator, ABC):
    """An estimator around a :class:`~s4d_torch.SequenceModel` and the training loop."""

    n_layers: int = 3
    d_model: int | None = None
    d_state: int = 32
    dropout: float = 0.0  # what is dropped changes the mean over time, and so a number
    method: str | Method = "s4d"
    lr: float | None = None
    weight_decay: float = 0.05
    batch_size: int | None = None
    epochs: int | None = None
    validation_fraction: float | str = "auto"
    patience: int = 20
    standardize: bool = True
    differences: bool = True
    ensemble: bool = False
    missing: str = "error"
    warm_start: bool = False
    random_state: Any = None
    n_jobs: int | None = None
    verbose: int = 0

    _kind: ClassVar[Kind]
    _features_kind: ClassVar[type[BaseFeatures]]
    _rates: ClassVar[dict[str, float]]  # of learning, by the number of cases
    model_: Pretrained = field(init=False)
    features_: BaseFeatures | None = field(init=False)
    units_: Units = field(init=False)
    clock_: Clock | None = field(init=False)
    history_: list[dict[str, Any]] = field(init=False)

    @abstractmethod
    def _targets(self, y: Array, goes_on: bool) -> tuple[Array, int]:
        """What the model is to learn, and how many outputs that needs."""

    @abstractmethod
    def _answer(self, outputs: Array) -> Array:
        """What is made of the model's outputs: probabilities or numbers, (cases, outputs)."""

    def _scaling(self) -> dict[str, Array]:
        """By name, what :meth:`_answer` needs beside the outputs."""
        return {}

    def _class_weights(self, targets: Array) -> torch.Tensor | None:
        return None

    def fit(self, X: Any, y: Any, times: Any = None) -> Self:
        """Learn from series X and their targets y, for whose forms see the class.

        ``times``, (cases, time) or a list of (time,), say when samples came that are not evenly
        spaced: numbers, or datetime64. The model is told the gaps between them, in units of their
        median, and predictions need times too.
        """
        if y is None:
            name = type(self).__name__
            raise ValueError(f"{name} requires y to be passed, but the target y is None")
        self._check_options()
        goes_on = bool(self.warm_start) and hasattr(self, "model_")
        if times is not None and self.ensemble:
            raise ValueError("the features of an ensemble know no times; use ensemble=False")
        panel = self._panel(X, times) if goes_on else self._read(X, reset=True, times=times)
        check_consistent_length(panel.cases, y)
        targets, outputs = self._targets(plain("y", y), goes_on)
        if not goes_on:
            self.n_channels_in_ = panel.channels
            self.units_, self.reads_differences_ = self._units(panel), bool(self.differences)
            self.n_outputs_ = outputs
            self.clock_ = None
            if panel.times is not None:
                self.clock_ = Clock.of(panel.times, dates=panel.dates)
        # first, as it takes seconds: what it refuses is not told after minutes of training
        features = self._fitted_features(panel, y) if self.ensemble else None
        seed = random_seed(self.random_state)
        held_out = self._held_out(targets, seed)
        signature = self._signature(panel.longest)
        config = self._config(len(panel), held_out, self._span(panel), seed)
        printer = Printer(type(self).__name__, config.training, every=self.verbose > 1)
        with threads(self.n_jobs):
            self.model_, self.history_ = fit_model(
                self.units_.sequences(panel),
                targets,
                held_out,
                signature,
                config,
                times=panel.times,
                model=self.model_ if goes_on else None,
                class_weights=self._class_weights(targets),
                until_learned=self.epochs is None,
                reporter=printer if self.verbose else None,
            )
        self.model_.preprocessing = saving.preprocessing(self)
        self.n_epochs_, self.features_ = len(self.history_), features
        return self

    def _panel(self, X: Any, times: Any) -> Panel:
        """X as the fit knows it, with times if that had them."""
        name = type(self).__name__
        if times is None and self.clock_ is not None:
            raise ValueError(
                f"{name} was fitted with times, usually {self.clock_.unit} apart; give those of X, "
                "times=..."
            )
        if times is not None and self.clock_ is None:
            raise ValueError(
                f"{name} was fitted without times and takes samples as evenly spaced; leave out "
                "times, or fit with them"
            )
        return self._read(X, reset=False, times=times, clock=self.clock_)

    def _span(self, panel: Panel) -> int:
        """Steps from the first sample of the longest series to its last."""
        if panel.times is None or self.clock_ is None:
            return panel.longest
        return math.ceil(max(self.clock_.gaps(times).sum() for times in panel.times))

    def _fitted_features(self, panel: Panel, y: Any) -> BaseFeatures:
        """The other half of an ensemble, on the same series."""
        shared = ("standardize", "missing", "random_state", "n_jobs")
        features: Any = self._features_kind(**{name: getattr(self, name) for name in shared})
        # a column of labels is taken as labels: scikit-learn's warning of it has been given
        labels = np.asarray(plain("y", y)).ravel() if self._kind == "classification" else y
        return cast(BaseFeatures, features.fit(panel.cases, labels))

    def _check_options(self) -> None:
        """scikit-learn's rule: options are stored as they come and judged when they are used."""
        check_types(self, [name for name in self.get_params(deep=False) if name != "verbose"])
        for name in ("n_layers", "d_model", "d_state", "batch_size", "epochs", "patience"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value!r}")
        if self.ensemble and self.warm_start:
            raise ValueError(
                "warm_start goes on with a model; the features of an ensemble are fitted at once, "
                "from all cases: use ensemble=False or warm_start=False"
            )
        if not isinstance(self.verbose, int | np.integer):
            raise ValueError(f"verbose must be a whole number, got {self.verbose!r}")

    def _held_out(self, targets: Array, seed: int) -> Array | None:
        """Positions of the cases that judge the others; None if all are learned from."""
        fraction = self.validation_fraction
        if isinstance(fraction, str):
            if fraction != "auto":
                raise ValueError(unknown("validation_fraction", fraction, ("auto", "a number")))
            fraction = 0.1 if len(targets) >= ENOUGH_TO_HOLD_OUT else 0.0
        if not 0 <= fraction < 1:
            raise ValueError(f"validation_fraction must be in [0, 1) or 'auto', got {fraction}")
        return hold_out(targets, self._kind, [fraction], seed)[1] if fraction else None

    def _units(self, panel: Panel) -> Units:
        """Of the channels of a panel and, if they are read too, of their first differences."""
        if not self.standardize:
            return Units.none(panel.channels * (2 if self.differences else 1))
        units = Units.of(panel)
        return units.with_differences(panel) if self.differences else units

    def _signature(self, length: int) -> Signature:
        """The data as the model sees it: in standard units, with the differences it reads."""
        clock = self.clock_
        return Signature(self._kind, len(self.units_.shift), self.n_outputs_, length, clock=clock)

    def _config(self, cases: int, held_out: Array | None, length: int, seed: int) -> Config:
        batch_size, epochs = self.batch_size, self.epochs
        size = "few" if cases < ENOUGH_TO_HOLD_OUT else "many"
        learning = cases - (0 if held_out is None else len(held_out))
        if batch_size is None:
            batch_size = min(32, max(8, math.ceil(learning / 10)))
        if epochs is None:
            steps = math.ceil(learning / batch_size)  # of an epoch
            epochs = min(MOST_EPOCHS, max(FEWEST_EPOCHS, math.ceil(STEPS / steps)))
        return Config(
            task=type(self).__name__,
            model=ModelConfig(
                n_layers=self.n_layers,
                d_model=WIDTH[size] if self.d_model is None else self.d_model,
                d_state=self.d_state,
                dropout=self.dropout,
            ),
            method=self._method(length),
            optimizer=OptimizerConfig(
                lr=self._rates[size] if self.lr is None else self.lr,
                weight_decay=self.weight_decay,
            ),
            training=TrainingConfig(
                epochs=epochs,
                batch_size=batch_size,
                seed=seed,
                patience=None if held_out is None else self.patience,
            ),
        )

    def _method(self, length: int) -> Method:
        """A name gets two directions and step sizes that fit the length; a Method is as it is."""
        if isinstance(self.method, Method):
            return self.method
        # kernels from two samples to the whole series wide
        dt_min = min(FASTEST / 5, 1 / length)
        method = METHODS[self.method].with_steps(dt_min, FASTEST)
        return method.replace(bidirectional=True, softmax_length=length)

    def _answers(self, X: Any, times: Any = None) -> Array:
        """Probabilities or numbers, (cases, outputs); of an ensemble the mean of both halves."""
        check_is_fitted(self)
        panel = self._panel(X, times)
        sequences = self.units_.sequences(panel)
        signature = self._signature(sequences.longest)
        with threads(self.n_jobs):
            outputs = predict_outputs(self.model_, sequences, signature, panel.times)
        check_outputs(torch.from_numpy(outputs))
        found = self._answer(outputs)
        if self.features_ is None:
            return found
        return (found + self.features_.answers(panel.cases)) / 2

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write everything needed to predict, as safetensors and JSON, into ``folder``."""
        check_is_fitted(self)
        saving.save(self, folder)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """The estimator that :meth:`save` wrote; refused if its files are not as it wrote them."""
        return cast(Self, saving.load(cls, folder))
