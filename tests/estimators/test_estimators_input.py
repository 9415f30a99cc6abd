"""Estimators: what they refuse and what they say, missing values, and files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from s4d_torch.estimators import S4DClassifier, S4DRegressor
from s4d_torch.estimators.panel import Panel, fill_missing
from s4d_torch.nn import Method

Array = np.ndarray[Any, Any]
TINY: dict[str, Any] = {
    "n_layers": 1,
    "d_model": 8,
    "d_state": 4,
    "dropout": 0.0,
    "epochs": 1,
    "random_state": 0,
    "n_jobs": 1,
}
X = np.random.default_rng(0).normal(size=(12, 2, 9))
Y = np.arange(12) % 3


def test_a_tensor_that_is_differentiated_is_data() -> None:
    """scikit-learn would ask NumPy for it, which refuses."""
    tensor = torch.from_numpy(X).requires_grad_()
    found = S4DClassifier(**TINY).fit(tensor, Y).predict(tensor)
    assert list(found) == list(S4DClassifier(**TINY).fit(X, Y).predict(X))
    labels = torch._neg_view(-torch.from_numpy(Y).double()).long()
    again = S4DClassifier(**TINY).fit(torch._neg_view(-tensor), labels)
    assert list(found) == list(again.predict(X))


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (torch.ones(12, 2, 9, device="meta"), "is a tensor on the device meta"),
        (torch.ones(12, 2, 9).to_sparse(), "must be dense, got torch.sparse_coo"),
    ],
    ids=["meta", "sparse"],
)
def test_tensors_without_numbers_are_named(tensor: torch.Tensor, message: str) -> None:
    with pytest.raises(TypeError, match=f"X {message}"):
        S4DClassifier(**TINY).fit(tensor, Y)
    with pytest.raises(TypeError, match=f"y {message}"):
        S4DRegressor(**TINY).fit(X, tensor)


def test_a_random_state_that_is_none_is_named() -> None:
    with pytest.raises(ValueError, match="random_state must be None, a RandomState or a number"):
        S4DClassifier(**{**TINY, "random_state": -1}).fit(X, Y)


# ---- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("series", "message"),
    [
        (np.zeros((2, 3, 4, 5)), r"X has 4 dimensions, shape \(2, 3, 4, 5\); expected \(cases,"),
        (np.zeros((12, 2, 0)), r"X is empty, of shape \(12, 2, 0\)"),
        ([np.zeros((2, 5)), np.zeros((3, 5))], r"X\[1\] has 3 channels, X\[0\] has 2"),
        ([np.zeros((2, 5)), np.zeros((2, 0))], r"X\[1\] has shape \(2, 0\); expected \(channels,"),
        ([np.zeros((2, 5)), np.array([["a", "b"]])], r"X\[1\] holds more than numbers"),
        ([np.zeros((2, 5)), np.zeros((2, 6), complex)], "Complex data not supported"),
        (X[:, :, :3].tolist()[0][0], "Expected 2D array, got 1D array"),
    ],
)
def test_what_is_no_collection_of_series_is_refused(series: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        S4DClassifier(**TINY).fit(series, [0] * len(series))


def test_targets_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"inconsistent numbers of samples: \[12, 11\]"):
        S4DClassifier(**TINY).fit(X, Y[:11])
    with pytest.raises(ValueError, match="y has one class, 1; a classifier needs two or more"):
        S4DClassifier(**TINY).fit(X, np.ones(12, int))
    with pytest.raises(ValueError, match="requires y to be passed"):
        S4DRegressor(**TINY).fit(X, None)
    with pytest.raises(ValueError, match="NaN"):
        S4DRegressor(**TINY).fit(X, np.full(12, np.nan))


def test_predictions_ask_for_the_same_channels() -> None:
    model = S4DClassifier(**TINY).fit(X, Y)
    with pytest.raises(ValueError, match="X has 1 channels, S4DClassifier was fitted with 2"):
        model.predict(X[:, :1])
    flat = S4DClassifier(**TINY).fit(X[:, 0], Y)
    with pytest.raises(ValueError, match="X has 5 features, but S4DClassifier is expecting 9"):
        flat.predict(X[:, 0, :5])
    assert flat.predict(X[:, :1, :5]).shape == (12,)  # as (cases, channels, time) it may be shorter
    flat.fit(X, Y)
    assert not hasattr(flat, "n_features_in_")


@pytest.mark.parametrize("options", [{"method": "s5"}, {"missing": "drop"}, {"epochs": -1}])
def test_options_that_are_none_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        S4DClassifier(**{**TINY, **options}).fit(X, Y)


# ---- missing values ---------------------------------------------------------------------------


def holey() -> Array:
    """Series with a gap inside, one at an end, and a channel without any value."""
    series = X.copy()
    series[3, 1, 4:6] = np.nan
    series[5, 0, :2] = np.nan
    series[7, 1] = np.nan
    return series


def test_a_missing_value_is_refused_with_its_place() -> None:
    message = r"contains NaN: case 3, channel 1, sample 4 is the first \(2 in this case\)"
    with pytest.raises(ValueError, match=message):
        S4DClassifier(**TINY).fit(holey(), Y)
    model = S4DClassifier(**TINY).fit(X, Y)
    with pytest.raises(ValueError, match=message):
        model.predict(list(holey()))
    endless = X.copy()
    endless[1, 0, 2] = np.inf
    for missing in ("error", "interpolate"):
        with pytest.raises(ValueError, match=r"infinity .* case 1, channel 0, sample 2 is inf"):
            S4DClassifier(**TINY, missing=missing).fit(endless, Y)
    endless[1, 0, 2] = 1e300
    with pytest.raises(ValueError, match=r"too large for float32: case 1, .* is 1e\+300"):
        S4DClassifier(**TINY).fit(endless, Y)


def test_missing_values_are_interpolated_if_asked_for() -> None:
    series = holey()
    kept = series.copy()
    filled = fill_missing(Panel(series), "interpolate").cases
    np.testing.assert_array_equal(series, kept)
    np.testing.assert_allclose(filled[3, 1, 4], (2 * X[3, 1, 3] + X[3, 1, 6]) / 3)
    np.testing.assert_array_equal(filled[5, 0, :2], X[5, 0, 2])
    model = S4DClassifier(**TINY, missing="interpolate").fit(series, Y)
    assert np.isfinite(model.predict_proba(series)).all()
    empty = model.predict_proba(series[7:8])  # what is not known at all is the mean
    series[7, 1] = model.units_.shift[1]
    np.testing.assert_allclose(model.predict_proba(series[7:8]), empty, atol=1e-6)


# ---- files ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "classes", [["a", "bb", "c"], [10, 20, 30], [0.5, 1.5, 2.5], [False, True, True], ["x", "ÿ", 3]]
)
def test_a_saved_classifier_is_the_same_when_loaded(classes: list[Any], tmp_path: Path) -> None:
    mixed = len({type(each) for each in classes}) > 1
    names = np.array(classes[:2] * 2 if mixed else classes, object if mixed else None)
    y = names[Y]
    if not mixed and y.dtype.kind == "f":
        y = y.astype(str).astype(object)
    model = S4DClassifier(
        **TINY, method=Method(init="lin"), class_weight={y[0]: 2.0}, missing="interpolate"
    ).fit(X, y)
    model.save(tmp_path / "model")
    again = S4DClassifier.load(tmp_path / "model")
    assert again.get_params() == model.get_params()
    assert again.classes_.dtype == model.classes_.dtype
    np.testing.assert_array_equal(again.classes_, model.classes_)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(again.predict(X[:, :, :4]), model.predict(X[:, :, :4]))
    assert again.history_ == model.history_
    assert {path.name for path in (tmp_path / "model").iterdir()} == {
        "config.json",
        "estimator.json",
        "model.safetensors",
    }


def test_a_saved_regressor_is_the_same_when_loaded(tmp_path: Path) -> None:
    y = np.stack([Y, 100.0 - Y], 1)
    model = S4DRegressor(**TINY, warm_start=True).fit(X[:, 0], y)
    model.random_state = np.random.RandomState(3)
    model.save(tmp_path)
    again = S4DRegressor.load(tmp_path)
    np.testing.assert_array_equal(again.predict(X[:, 0]), model.predict(X[:, 0]))
    with pytest.raises(ValueError, match="X has 5 features"):
        again.predict(X[:, 0, :5])
    assert again.random_state is None
    again.fit(X[:, 0], y)
    assert len(again.history_) == 1


def changed(path: Path, **changes: Any) -> None:
    described = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({**described, **changes}), "utf-8")


def test_a_folder_that_is_not_as_it_was_saved_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"holds no estimator: no estimator\.json"):
        S4DClassifier.load(tmp_path)
    model = S4DClassifier(**TINY).fit(X, Y)
    path = tmp_path / "estimator.json"

    def refused(message: str, error: type[Exception] = ValueError) -> None:
        with pytest.raises(error, match=message):
            S4DClassifier.load(tmp_path)
        model.save(tmp_path)

    model.save(tmp_path)
    with pytest.raises(ValueError, match=r"holds a S4DClassifier, .* use S4DClassifier\.load"):
        S4DRegressor.load(tmp_path)
    weights = tmp_path / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    refused(r"model\.safetensors is not the file that was saved with")
    weights.unlink()
    refused(r"model\.safetensors is missing", FileNotFoundError)
    path.write_text("{", "utf-8")
    refused("is not valid JSON")
    path.write_text("[]", "utf-8")
    refused("was not written by save")
    changed(path, format_version=99)
    refused("has format version 99, this release reads 1")
    changed(path, options={"depth": 3})
    refused("describes no valid S4DClassifier: .*depth")
    changed(path, arrays={})
    refused("has no classes_")
    changed(path, arrays={"classes_": {"dtype": "<i8", "values": [1, 2]}})
    refused("do not fit: 4 inputs and 2 outputs in one, 4 and 3 in the other")
    changed(path, learned={"__class__": 1})
    refused("unknown entry '__class__'")
    with pytest.raises(NotADirectoryError, match="is a file; name a folder"):
        model.save(path)
