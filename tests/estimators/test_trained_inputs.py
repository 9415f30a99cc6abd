"""First differences beside the values, and ensembles with random features."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.utils.estimator_checks import check_estimator

from s4d_torch import (
    S4DClassifier,
    S4DFeatureClassifier,
    S4DFeatureRegressor,
    S4DRegressor,
    SequenceModel,
)
from s4d_torch.estimators.panel import Panel, Units

TINY: dict[str, Any] = {
    "n_layers": 1, "d_model": 8, "d_state": 4, "epochs": 2, "random_state": 0, "n_jobs": 1,
}  # fmt: skip
X = np.random.default_rng(0).normal(2.0, 3.0, size=(18, 2, 30))
Y = np.array(["a", "b", "c"])[np.arange(18) % 3]


def test_a_model_reads_values_and_differences_in_units_of_their_own() -> None:
    units = Units.of(Panel(X)).with_differences(Panel(X))
    read = np.stack([units.sequences(Panel(X))[i] for i in range(18)])  # (cases, time, inputs)
    np.testing.assert_allclose(read.mean((0, 1)), 0, atol=1e-6)
    np.testing.assert_allclose(read.std((0, 1)), 1, rtol=1e-5)
    moves = read[..., 2:] * units.scale[2:] + units.shift[2:]
    np.testing.assert_allclose(moves[:, 1:], np.diff(X, axis=-1).swapaxes(1, 2), atol=1e-5)
    np.testing.assert_allclose(moves[:, 0], 0, atol=1e-6)
    ragged = [case[:, : 20 + i % 5] for i, case in enumerate(X)]
    for i, case in enumerate(ragged):
        np.testing.assert_allclose(units.sequences(Panel(ragged))[i], read[i, : case.shape[1]])


def test_differences_that_are_rounding_are_not_blown_up() -> None:
    steady = np.full((4, 1, 50), 1e6) + 1e-10 * np.random.default_rng(0).normal(size=(4, 1, 50))
    units = Units.of(Panel(steady)).with_differences(Panel(steady))
    assert units.scale.tolist() == [1.0, 1.0]
    single = (1e4 + np.sin(np.arange(50) / 100)).astype(np.float32)[None, None]
    units = Units.of(Panel(single)).with_differences(Panel(single))
    assert units.scale[1] == pytest.approx(np.diff(single).std(), rel=0.1) or units.scale[1] == 1


def test_differences_are_an_option_that_fit_decides() -> None:
    with_them, without = (
        S4DClassifier(**TINY, differences=wanted).fit(X, Y) for wanted in (True, False)
    )
    assert (with_them.reads_differences_, without.reads_differences_) == (True, False)
    assert (with_them.model_.d_input, without.model_.d_input) == (4, 2)
    before = with_them.predict_proba(X)
    with_them.set_params(differences=False)
    np.testing.assert_array_equal(with_them.predict_proba(X), before)
    moved = with_them.predict_proba(X[..., ::-1].copy())
    assert np.abs(moved - before).max() > 1e-5
    assert S4DClassifier(**TINY).fit(X[..., :1], Y).predict(X[..., :1]).shape == (18,)
    with pytest.raises(ValueError, match="differences"):
        S4DClassifier(**TINY, differences="yes").fit(X, Y)


@pytest.mark.parametrize("kind", [S4DClassifier, S4DRegressor])
@pytest.mark.parametrize("options", [{}, {"differences": False}, {"ensemble": True}])
def test_what_was_saved_answers_alike(kind: Any, options: Any, tmp_path: Path) -> None:
    y = Y if kind is S4DClassifier else X[:, 0, :2] * 10 + 3
    model = kind(**TINY, **options).fit(X, y)
    model.save(tmp_path)
    again = kind.load(tmp_path)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.reads_differences_ == model.reads_differences_
    assert (again.features_ is None) == (not options.get("ensemble"))
    again.save(tmp_path / "again")
    np.testing.assert_array_equal(kind.load(tmp_path / "again").predict(X), model.predict(X))


def test_folders_of_a_release_without_differences_load_as_they_were(tmp_path: Path) -> None:
    model = S4DClassifier(**TINY, differences=False).fit(X, Y)
    model.save(tmp_path)
    path = tmp_path / "estimator.json"
    described = json.loads(path.read_text("utf-8"))
    for name in ("differences", "ensemble"):
        del described["options"][name]
    del described["learned"]["reads_differences_"]
    path.write_text(json.dumps(described), "utf-8")
    again = S4DClassifier.load(tmp_path)
    assert not again.reads_differences_
    assert not again.differences  # another fit is of the same kind
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    described["learned"]["reads_differences_"] = True
    path.write_text(json.dumps(described), "utf-8")
    with pytest.raises(ValueError, match="do not fit: 4 inputs"):
        S4DClassifier.load(tmp_path)


def test_who_loads_the_weights_alone_is_told_of_the_differences(tmp_path: Path) -> None:
    model = S4DRegressor(**TINY).fit(X, X[:, 0, 0])
    assert model.model_.preprocessing["differences"]
    model.save(tmp_path)
    with pytest.warns(UserWarning, match="with first differences after its channels"):
        alone = SequenceModel.from_pretrained(tmp_path)
    assert alone.preprocessing == model.model_.preprocessing


# ---- ensembles --------------------------------------------------------------------------------


def test_an_ensemble_is_the_mean_of_a_trained_model_and_features() -> None:
    together = S4DClassifier(**TINY, ensemble=True).fit(X, Y)
    trained = S4DClassifier(**TINY).fit(X, Y)
    features = S4DFeatureClassifier(random_state=0, n_jobs=1).fit(X, Y)
    mean = (trained.predict_proba(X) + features.predict_proba(X)) / 2
    np.testing.assert_allclose(together.predict_proba(X), mean, rtol=1e-10)
    np.testing.assert_array_equal(together.predict(X), np.array(["a", "b", "c"])[mean.argmax(1)])
    y = X[:, 0, 0] * 10
    both = S4DRegressor(**TINY, ensemble=True).fit(X, y)
    halves = (
        S4DRegressor(**TINY).fit(X, y).predict(X),
        S4DFeatureRegressor(random_state=0, n_jobs=1).fit(X, y).predict(X),
    )
    np.testing.assert_allclose(both.predict(X), np.mean(halves, 0), rtol=1e-9)
    assert both.set_params(ensemble=False).fit(X, y).features_ is None


def test_an_ensemble_reads_every_form_of_series() -> None:
    ragged = [case[:, : 20 + i % 5].copy() for i, case in enumerate(X)]
    ragged[3][1, 4:6] = np.nan
    model = S4DClassifier(**TINY, ensemble=True, missing="interpolate").fit(ragged, Y)
    assert model.predict_proba(ragged).shape == (18, 3)
    flat = S4DClassifier(**TINY, ensemble=True).fit(X[:, 0], Y)
    assert flat.n_features_in_ == 30
    assert flat.predict(X[:, 0]).shape == (18,)


def test_halves_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    model = S4DClassifier(**TINY, ensemble=True).fit(X, Y)
    model.save(tmp_path)
    other = S4DFeatureClassifier(random_state=1, n_jobs=1).fit(X, Y)
    other.save(tmp_path / "features")
    with pytest.raises(ValueError, match="is not the file that was saved"):
        S4DClassifier.load(tmp_path)
    (tmp_path / "features" / "estimator.json").unlink()
    with pytest.raises(FileNotFoundError, match="is missing; the folder is not complete"):
        S4DClassifier.load(tmp_path)
    model.set_params(ensemble=False).fit(X, Y).save(tmp_path)  # over an ensemble
    assert S4DClassifier.load(tmp_path).features_ is None
    model.features_ = S4DFeatureClassifier(n_jobs=1).fit(X, np.roll(np.array(["a", "d"] * 9), 1))
    model.save(tmp_path)
    with pytest.raises(ValueError, match="the features beside it do not fit"):
        S4DClassifier.load(tmp_path)


def test_what_an_ensemble_cannot_do_is_said() -> None:
    with pytest.raises(ValueError, match="class_weight has no effect on the features"):
        S4DClassifier(**TINY, ensemble=True, class_weight="balanced").fit(X, Y)
    with pytest.raises(ValueError, match="warm_start goes on with a model"):
        S4DRegressor(**TINY, ensemble=True, warm_start=True).fit(X, X[:, 0, 0])


def test_scikit_learns_own_checks_pass_for_an_ensemble() -> None:
    options = {**TINY, "epochs": 4, "lr": 0.02, "dropout": 0.0, "batch_size": 32}
    estimator = S4DClassifier(**options, ensemble=True)
    results = check_estimator(estimator, on_fail=None, on_skip=None)
    problems = {each["check_name"]: each for each in results if each["status"] != "passed"}
    problems.pop("check_array_api_input", None)
    refused = {name for name in problems if "class_weight" in name}  # as said above
    assert refused
    assert set(problems) == refused


# ---- what it costs ----------------------------------------------------------------------------


def test_training_ends_once_the_cases_are_learned() -> None:
    options = {**TINY, "lr": 0.02, "dropout": 0.0, "epochs": None}
    t = np.arange(30)
    easy = np.where(np.arange(18)[:, None] % 2, np.sin(t), np.sin(0.3 * t))
    y = np.arange(18) % 2
    model = S4DClassifier(**options).fit(easy, y)
    losses = [row["train_loss"] for row in model.history_]
    assert model.n_epochs_ < 100  # of the 167 that make up 500 steps
    assert max(losses[-3:]) < 0.03 * np.log(2) <= losses[-4]
    asked = S4DClassifier(**{**options, "epochs": model.n_epochs_ + 5}).fit(easy, y)
    assert asked.n_epochs_ == model.n_epochs_ + 5  # who names a number gets it
    noise = np.random.default_rng(0).normal(size=(18, 4))  # cannot be told apart
    hard = S4DClassifier(**{**options, "batch_size": 18, "lr": 1e-5}).fit(noise, y)
    assert hard.n_epochs_ == len(hard.history_) > 100


def test_few_cases_get_a_narrow_model_unless_asked_otherwise() -> None:
    options = {name: TINY[name] for name in ("n_layers", "d_state", "random_state", "n_jobs")}
    for cases, width in ((18, 32), (500, 64)):
        series = np.random.default_rng(0).normal(size=(cases, 5))
        model = S4DClassifier(**options, epochs=1).fit(series, np.arange(cases) % 2)
        assert model.model_.config["d_model"] == width
    assert S4DClassifier(**TINY).fit(X, Y).model_.config["d_model"] == 8
