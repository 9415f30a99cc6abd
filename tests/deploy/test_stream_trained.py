"""Streams of trained estimators: the answers of whole series, as samples arrive."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from s4d_torch import Method, S4DClassifier, S4DRegressor, Stream, Streams

TINY: dict[str, Any] = {
    "n_layers": 2, "d_model": 8, "d_state": 4, "epochs": 2, "random_state": 0, "n_jobs": 1,
    "method": Method(dt_min=0.02, dt_max=0.5),
}  # fmt: skip
X = np.random.default_rng(0).normal(2.0, 3.0, size=(12, 2, 150))
Y = np.array(["a", "b", "c"])[np.arange(12) % 3]
CLOSE: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-5}  # streams are in single precision


def classifier(**options: Any) -> S4DClassifier:
    return S4DClassifier(**{**TINY, **options}).fit(X, Y)


@pytest.fixture(scope="module")
def model() -> S4DClassifier:
    return classifier()


@pytest.mark.parametrize("sizes", [[150], [1] * 150, [64, 86], [3, 17, 1, 64, 65]])
def test_a_stream_answers_as_the_series_up_to_there(model: Any, sizes: list[int]) -> None:
    stream, at = Stream(model), 0
    for size in sizes:
        found = stream.push(X[0, :, at : at + size].T)
        at += size
        if at % 50 == 0 or size > 1:
            np.testing.assert_allclose(found, model.predict_proba(X[:1, :, :at])[0], **CLOSE)
    assert stream.samples == 150
    np.testing.assert_array_equal(stream.push(np.zeros((0, 2))), found)


def test_the_sample_before_counts(model: Any) -> None:
    """Without it, the first difference of a chunk would be 0, and the answer another."""
    stream, cut = Stream(model), Stream(model)
    stream.push(X[0, :, :1].T)
    cut.push(X[0, :, :1].T)
    cut._position.before = None
    assert np.abs(stream.push(X[0, :, 1:2].T) - cut.push(X[0, :, 1:2].T)).max() > 1e-4


def test_numbers_and_plain_values_are_streamed_too() -> None:
    numbers = S4DRegressor(**TINY).fit(X, 100 + 20 * X[:, 0, :2])
    found = [Stream(numbers).push(X[0].T), numbers.predict(X[:1])[0]]
    np.testing.assert_allclose(*found, rtol=1e-4)
    plain = classifier(differences=False, standardize=False)
    found = [Stream(plain, rate=2).push(X[0].T), Stream(plain).push(X[0].T)]
    np.testing.assert_allclose(found[1], plain.predict_proba(X[:1])[0], **CLOSE)
    assert np.abs(found[0] - found[1]).max() > 1e-5


def test_many_streams_do_not_mix(model: Any) -> None:
    streams = Streams(model)
    streams.push({"a": X[0, :, :50].T, "b": X[1, :, :9].T})
    found = streams.push({"a": X[0, :, 50:].T, "c": X[2].T})
    np.testing.assert_allclose(found["a"], model.predict_proba(X[:1])[0], **CLOSE)
    np.testing.assert_allclose(found["c"], model.predict_proba(X[2:3])[0], **CLOSE)
    assert streams.samples("b") == 9


def test_a_stream_goes_on_from_a_snapshot(model: Any, tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    stream = Stream(model)
    half = stream.push(X[0, :, :70].T)
    stream.snapshot(path)
    again = Stream(model)
    again.restore(path)
    assert again.samples == 70
    np.testing.assert_array_equal(again.push(X[0, :, :0].T), half)
    further = again.push(X[0, :, 70:].T), stream.push(X[0, :, 70:].T)
    np.testing.assert_allclose(*further, rtol=1e-6)  # sums of modes begin at another sample
    with pytest.raises(ValueError, match=r"another model: .*d_input 4 instead of 2"):
        Stream(classifier(differences=False)).restore(path)
    other = classifier()
    other.units_.shift[0] += 1
    with pytest.raises(ValueError, match="other weights"):
        Stream(other).restore(path)


def test_a_snapshot_before_the_first_sample_has_none_before(model: Any, tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    streams = Streams(model)
    streams.join("a")
    streams.snapshot(path)
    again = Streams(model)
    again.restore(path)
    found = again.push({"a": X[0].T})["a"]
    np.testing.assert_allclose(found, model.predict_proba(X[:1])[0], **CLOSE)


def test_what_cannot_be_streamed_is_said(model: Any) -> None:
    with pytest.raises(NotFittedError):
        Stream(S4DClassifier())
    with pytest.raises(ValueError, match=r"this S4DClassifier reads series backwards too"):
        Stream(classifier(method="s4d", epochs=1))
    with pytest.raises(ValueError, match="rate must be 1, got 2; resample"):
        Stream(model, rate=2)
    stream = Stream(model)
    with pytest.raises(ValueError, match="fit with differences=False"):
        stream.rate = 0.5
    with pytest.raises(ValueError, match="push a sample first"):
        stream.push(np.zeros((0, 2)))
    with pytest.raises(ValueError, match=r"a chunk must be \(length, 2\), got \(5, 4\)"):
        stream.push(np.zeros((5, 4)))
    with pytest.raises(ValueError, match="sample 1 of the chunk, channel 0, is nan"):
        stream.push(np.array([[0, 1], [np.nan, 1]]))
    assert stream.samples == 0
    ensemble = classifier(ensemble=True, epochs=1)
    with pytest.raises(ValueError, match="this S4DClassifier is an ensemble"):
        Stream(ensemble)
