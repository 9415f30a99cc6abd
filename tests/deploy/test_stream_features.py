"""Streams of causal features: the answers of whole series, as samples arrive."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from s4d_torch import (
    S4DFeatureClassifier,
    S4DFeatureRegressor,
    S4DFeatures,
    Stream,
    Streams,
)
from s4d_torch.estimators.features.base import BaseFeatures

SMALL: dict[str, Any] = {
    "n_systems": 6, "n_filters": 5, "d_state": 8, "random_state": 0, "n_jobs": 1,
    "direction": "causal",
}  # fmt: skip
X = np.random.default_rng(0).normal(2.0, 3.0, size=(12, 2, 150))
Y = np.array(["a", "b", "c"])[np.arange(12) % 3]


def classifier(**options: Any) -> S4DFeatureClassifier:
    return S4DFeatureClassifier(**{**SMALL, **options}).fit(X, Y)


@pytest.mark.parametrize("sizes", [[150], [1] * 150, [64, 86], [3, 17, 1, 64, 65]])
def test_a_stream_answers_as_the_series_up_to_there(sizes: list[int]) -> None:
    model = classifier()
    stream, at = Stream(model), 0
    for size in sizes:
        found = stream.push(X[0, :, at : at + size].T)
        at += size
        if at % 7 == 0 or size > 1:
            np.testing.assert_array_equal(found, model.predict_proba(X[:1, :, :at])[0])
    assert stream.samples == 150


def test_numbers_and_features_are_streamed_too() -> None:
    numbers = S4DFeatureRegressor(**SMALL).fit(X, X[:, 0, :2])
    np.testing.assert_array_equal(Stream(numbers).push(X[0].T), numbers.predict(X[:1])[0])
    features = S4DFeatures(**SMALL).fit(X)
    found = Stream(features).push(torch.from_numpy(X[0].T))
    assert isinstance(found, torch.Tensor)
    np.testing.assert_array_equal(found.numpy(), features.transform(X[:1])[0])


def test_the_state_does_not_grow() -> None:
    stream = Stream(classifier())
    sizes = []
    for _ in range(3):
        stream.push(X[0].T)
        sizes.append(sum(x.numel() for x in vars(stream.state).values()))
    assert len(set(sizes)) == 1
    stream.reset()
    assert stream.samples == 0
    np.testing.assert_array_equal(stream.push(X[0].T), classifier().predict_proba(X[:1])[0])


def test_many_streams_do_not_mix() -> None:
    model = classifier()
    streams = Streams(model)
    streams.push({"a": X[0, :, :50].T, "b": X[1, :, :9].T})
    found = streams.push({"a": X[0, :, 50:].T, "c": X[2].T})
    np.testing.assert_array_equal(found["a"], model.predict_proba(X[:1])[0])
    np.testing.assert_array_equal(found["c"], model.predict_proba(X[2:3])[0])
    assert streams.samples("b") == 9


def test_a_stream_goes_on_from_a_snapshot(tmp_path: Path) -> None:
    model, path = classifier(), tmp_path / "state.safetensors"
    stream = Stream(model)
    half = stream.push(X[0, :, :70].T)
    stream.snapshot(path)
    again = Stream(model)
    again.restore(path)
    assert again.samples == 70
    np.testing.assert_array_equal(again.push(X[0, :, :0].T), half)
    np.testing.assert_array_equal(again.push(X[0, :, 70:].T), model.predict_proba(X[:1])[0])
    with pytest.raises(ValueError, match=r"another model: .*n_filters 5 instead of 4"):
        Stream(classifier(n_filters=4)).restore(path)
    with pytest.raises(ValueError, match="other weights"):
        Stream(classifier(random_state=1)).restore(path)


def test_estimators_that_look_ahead_are_refused() -> None:
    with pytest.raises(ValueError, match="fit one with direction='causal'"):
        Stream(classifier(direction="both"))
    with pytest.raises(Exception, match="not fitted yet"):
        Stream(S4DFeatureClassifier(**SMALL))


def test_what_a_stream_of_features_cannot_do_is_said() -> None:
    model: BaseFeatures = classifier()
    with pytest.raises(ValueError, match="rate must be 1, got 2"):
        Stream(model, rate=2)
    with pytest.raises(ValueError, match="leave out crossover"):
        Stream(model, crossover=5)
    stream = Stream(model)
    with pytest.raises(ValueError, match="rate must be 1"):
        stream.rate = 0.5
    with pytest.raises(ValueError, match="push a sample first"):
        stream.push(np.zeros((0, 2)))


def test_chunks_that_cannot_be_read_change_nothing() -> None:
    model = classifier()
    stream = Stream(model)
    stream.push(X[0, :, :70].T)
    with pytest.raises(ValueError, match=r"must be \(length, 2\), got \(2, 80\)"):
        stream.push(X[0, :, 70:])
    with pytest.raises(TypeError, match="must hold numbers"):
        stream.push(["a"])
    bad = X[0, :, 70:].T.copy()
    bad[3, 1] = np.nan
    with pytest.raises(ValueError, match="sample 3 of the chunk, channel 1, is nan"):
        stream.push(bad)
    np.testing.assert_array_equal(stream.push(X[0, :, 70:].T), model.predict_proba(X[:1])[0])
