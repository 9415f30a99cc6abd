"""Estimators of features on disk."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from s4d_torch import S4DFeatureClassifier, S4DFeatureRegressor, S4DFeatures
from s4d_torch.estimators.description import _digest

SMALL: dict[str, Any] = {
    "n_systems": 4,
    "n_filters": 5,
    "d_state": 8,
    "random_state": 0,
    "n_jobs": 1,
}
X = np.random.default_rng(0).normal(size=(12, 2, 20))
Y = np.array(["a", "b", "c"])[np.arange(12) % 3]


def saved(folder: Path) -> S4DFeatureClassifier:
    model = S4DFeatureClassifier(**SMALL).fit(X, Y)
    model.save(folder)
    return model


def test_what_is_loaded_answers_alike(tmp_path: Path) -> None:
    model = saved(tmp_path / "classes")
    again = S4DFeatureClassifier.load(tmp_path / "classes")
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again.get_params() == model.get_params()
    assert again.classes_.tolist() == ["a", "b", "c"]
    assert again.alpha_ == model.alpha_
    numbers = S4DFeatureRegressor(**SMALL).fit(X, X[:, 0, :2])
    numbers.save(tmp_path / "numbers")
    loaded = S4DFeatureRegressor.load(tmp_path / "numbers")
    np.testing.assert_array_equal(loaded.predict(X), numbers.predict(X))
    features = S4DFeatures(**SMALL).fit(X)
    features.save(tmp_path / "features")
    found = S4DFeatures.load(tmp_path / "features")
    np.testing.assert_array_equal(found.transform(X), features.transform(X))
    names = sorted(file.name for file in (tmp_path / "features").iterdir())
    assert names == ["estimator.json", "features.safetensors"]


def test_files_that_were_changed_are_refused(tmp_path: Path) -> None:
    saved(tmp_path)
    file = tmp_path / "features.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"not the file that was saved with estimator\.json"):
        S4DFeatureClassifier.load(tmp_path)
    file.unlink()
    with pytest.raises(FileNotFoundError, match="is missing; the folder is not complete"):
        S4DFeatureClassifier.load(tmp_path)
    with pytest.raises(FileNotFoundError, match="holds no estimator"):
        S4DFeatureClassifier.load(tmp_path / "nothing")


def test_another_class_is_named(tmp_path: Path) -> None:
    saved(tmp_path)
    with pytest.raises(ValueError, match="holds a S4DFeatureClassifier, not a S4DFeatures"):
        S4DFeatures.load(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="is a file; name a folder"):
        S4DFeatures(**SMALL).fit(X).save(tmp_path / "file")


def rewrite_arrays(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """As somebody would who mends the checksum too."""
    file, path = folder / "features.safetensors", folder / "estimator.json"
    arrays = load_file(file)
    change(arrays)
    save_file(arrays, file)
    described = json.loads(path.read_text())
    described["sha256"][file.name] = _digest(file)
    path.write_text(json.dumps(described))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x.update({"bank.channels": x["bank.channels"] + 9}), "channels must be below 2"),
        (lambda x: x.update({"ridge.weights": x["ridge.weights"][:-1]}), "ridge.weights must be"),
        (lambda x: x.pop("bank.C"), "bank.C"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    saved(tmp_path)
    rewrite_arrays(tmp_path, change)
    with pytest.raises(ValueError, match=message):
        S4DFeatureClassifier.load(tmp_path)


@pytest.mark.parametrize("name", ["classes_", "n_channels_in_", "sharpness_"])
def test_descriptions_that_miss_something_are_refused(tmp_path: Path, name: str) -> None:
    saved(tmp_path)
    path = tmp_path / "estimator.json"
    described = json.loads(path.read_text())
    for part in ("learned", "arrays"):
        described[part].pop(name, None)
    path.write_text(json.dumps(described))
    with pytest.raises(ValueError, match=name):
        S4DFeatureClassifier.load(tmp_path)
