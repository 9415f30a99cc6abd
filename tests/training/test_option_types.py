"""Options of a wrong type or out of range are refused before anything is trained."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from s4d_torch.cli import main
from s4d_torch.estimators import S4DClassifier, S4DRegressor
from s4d_torch.training import ModelConfig, OptimizerConfig, TrainingConfig, train, train_on
from s4d_torch.training.config import Config, default_config
from training_job import small_config, small_data

WHOLE = [1.5, 2.0, True, "3", math.nan, math.inf, [1], 10**400]
NUMBERS = [True, "0.1", math.nan, math.inf, -math.inf, [0.1]]


@pytest.mark.parametrize("value", [*WHOLE, None, 0, -1])
@pytest.mark.parametrize("name", ["epochs", "batch_size"])
def test_training_refuses_what_is_no_count(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be"):
        TrainingConfig(**{name: value})


@pytest.mark.parametrize(
    ("kind", "name", "values"),
    [
        (TrainingConfig, "seed", [*WHOLE, -1, 2**63]),
        (TrainingConfig, "patience", [*WHOLE, 0, -1]),
        (TrainingConfig, "train_size", [*WHOLE, 0]),
        (TrainingConfig, "eval_size", [*WHOLE, 0]),
        (TrainingConfig, "label_smoothing", [*NUMBERS, -0.1, 1.0, None]),
        (TrainingConfig, "rate_jitter", [*NUMBERS, -0.1, None]),
        (TrainingConfig, "ema", [*NUMBERS, 0.0, 1.0]),
        (TrainingConfig, "skip_bad_batches", [1, "yes", None]),
        (TrainingConfig, "precision", ["float16", 32, None]),
        (TrainingConfig, "metric", [1, None]),
        (OptimizerConfig, "lr", [*NUMBERS, -1.0, None]),
        (OptimizerConfig, "ssm_lr", [*NUMBERS, -1.0]),
        (OptimizerConfig, "weight_decay", [*NUMBERS, -1.0]),
        (OptimizerConfig, "warmup", [*NUMBERS, 1.0]),
        (OptimizerConfig, "clip", [*NUMBERS, 0.0]),
        (OptimizerConfig, "accumulate", [*WHOLE, 0]),
        (OptimizerConfig, "milestones", [0.5, [0.5], (math.nan,), ("a",), (2.0,)]),
        (ModelConfig, "n_layers", WHOLE),
        (ModelConfig, "d_model", WHOLE),
        (ModelConfig, "d_state", WHOLE),
        (ModelConfig, "dropout", NUMBERS),
        (ModelConfig, "prenorm", [1, None]),
        (ModelConfig, "norm", [None, 1]),
    ],
)
def test_every_option_is_of_its_type(kind: Any, name: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(ValueError, match=name) as refused:
            kind(**{name: value})
        if kind is not TrainingConfig or name != "metric":
            assert f"{name} " in str(refused.value)


def test_numbers_of_numpy_are_numbers() -> None:
    found = TrainingConfig(epochs=np.int64(3), ema=np.float32(0.5))  # type: ignore[arg-type]
    assert type(found.epochs) is int
    assert json.loads(json.dumps(Config(training=found).to_json()))["training"]["epochs"] == 3


def test_train_refuses_before_it_reads_anything() -> None:
    with pytest.raises(ValueError, match=r"epochs must be a whole number.*, got 1\.5"):
        train("digits", small_config(training={"epochs": 1.5}))
    for minutes in (-1.0, math.nan):
        with pytest.raises(ValueError, match="checkpoint_minutes must be 0 or more"):
            train_on(small_data(), small_config(), checkpoint_minutes=minutes)


def test_a_config_in_json_is_held_to_its_types() -> None:
    described = default_config("digits").to_json()
    described["data"]["split_seed"] = "zero"
    with pytest.raises(ValueError, match="split_seed must be a whole number, got 'zero'"):
        Config.from_json(described)


def test_the_command_line_refuses_likewise(capsys: pytest.CaptureFixture[str]) -> None:
    for epochs in ("1.5", "0", "nan"):
        assert main(["train", "digits", "--epochs", epochs]) == 2
        assert "epochs" in capsys.readouterr().err


TINY: dict[str, Any] = {"n_layers": 1, "d_model": 4, "d_state": 4, "epochs": 1}


@pytest.mark.parametrize("kind", [S4DClassifier, S4DRegressor])
@pytest.mark.parametrize(
    ("name", "values"),
    [
        *((name, [*WHOLE, 0, -1]) for name in ("epochs", "batch_size", "patience", "d_model")),
        *((name, [*WHOLE, 0, None]) for name in ("n_layers", "d_state")),
        ("dropout", [*NUMBERS, 1.0, None]),
        ("lr", [*NUMBERS, -1.0]),
        ("weight_decay", [*NUMBERS, -1.0]),
        ("validation_fraction", [math.nan, 1.0, -0.1, None, "most", [0.1]]),
        ("n_jobs", [1.5, 0, "all", True]),
        ("method", ["s5", 3, None]),
        ("standardize", ["yes", None]),
        ("differences", ["yes", None]),
        ("ensemble", ["yes", None]),
        ("warm_start", ["yes", None]),
        ("missing", ["drop", None, 0]),
        ("verbose", ["yes", None, 0.5]),
    ],
)
def test_estimators_judge_their_options_in_fit(kind: Any, name: str, values: list[Any]) -> None:
    X, y = np.random.default_rng(0).normal(size=(12, 10)), np.arange(12) % 2
    for value in values:
        model = kind(**{**TINY, name: value})  # nothing is judged here, as scikit-learn asks
        with pytest.raises(ValueError, match=name):
            model.fit(X, y)


def test_estimators_take_numbers_of_numpy() -> None:
    X, y = np.random.default_rng(0).normal(size=(12, 10)), np.arange(12) % 2
    options = {**TINY, "epochs": np.int64(2), "batch_size": np.int32(4), "lr": np.float32(0.01)}
    assert S4DClassifier(**options, verbose=False).fit(X, y).n_epochs_ == 2


def test_an_estimator_with_weights_that_are_not_finite_is_refused() -> None:
    X, y = np.random.default_rng(0).normal(size=(12, 10)), np.arange(12) % 2
    model = S4DClassifier(**TINY).fit(X, y)
    model.model_.decoder.weight.data[0, 0] = math.nan
    for answer in (model.predict, model.predict_proba):
        with pytest.raises(ValueError, match="answers to 12 of 12 sequences are not finite"):
            answer(X)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": None}, "a config needs task, got data, model"),
        ({"optimizer": None}, "a config needs optimizer"),
        ({"model": 3}, "model must hold options by name, got 3"),
        ({"data": ["x"]}, r"data must hold options by name, got \['x'\]"),
    ],
    ids=str,
)
def test_a_config_that_lacks_a_part_says_which(change: dict[str, Any], message: str) -> None:
    described = default_config("digits").to_json()
    for name, value in change.items():
        described.pop(name)
        described |= {} if value is None else {name: value}
    with pytest.raises((ValueError, TypeError), match=message):
        Config.from_json(described)
