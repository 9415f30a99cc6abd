"""Estimators that are told when samples came."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn")

from s4d_torch import Method, Stream
from s4d_torch.data.clock import Clock
from s4d_torch.data.dataset import Array
from s4d_torch.estimators import (
    S4DClassifier,
    S4DFeatureClassifier,
    S4DFeatureRegressor,
    S4DFeatures,
    S4DRegressor,
)

SMALL: dict[str, Any] = {"d_model": 8, "n_layers": 1, "d_state": 4, "random_state": 0, "n_jobs": 1}
LENGTH = 12


def pulses(cases: int = 40, seed: int = 0) -> tuple[Array, Array, Array]:
    """The same values in every case: only their times tell slow from fast."""
    random = np.random.default_rng(seed)
    slow = random.permutation(np.arange(cases) % 2)
    gaps = random.uniform(0.7, 1.3, (cases, LENGTH)) * np.where(slow, 60, 20)[:, None]
    X = np.tile(np.resize([1.0, 0.0, 0.0], LENGTH), (cases, 1))
    return X, np.where(slow, "slow", "fast"), gaps.cumsum(1)


@pytest.fixture(scope="module")
def fitted() -> S4DClassifier:
    X, y, times = pulses()
    return S4DClassifier(**SMALL, epochs=30, lr=0.02).fit(X, y, times=times)


def test_what_only_times_tell_is_learned(fitted: S4DClassifier) -> None:
    X, y, times = pulses(seed=1)
    assert fitted.score(X, y, times=times) == 1
    assert (fitted.predict(X, times=times) == y).all()
    assert fitted.predict_proba(X, times=times).shape == (40, 2)
    assert fitted.score(X, y, sample_weight=np.ones(40), times=times) == 1
    assert fitted.clock_ is not None
    _, _, known = pulses()
    assert fitted.clock_.step == np.median(np.diff(known))


def test_the_model_is_given_the_gaps(fitted: S4DClassifier) -> None:
    X, _, times = pulses(cases=3, seed=2)
    assert fitted.clock_ is not None
    u = torch.from_numpy(fitted.units_._read(X[:, None])).double()
    gaps = torch.from_numpy(fitted.clock_.gaps(times))
    outputs, _ = fitted.model_.double().eval()(u, rate=gaps)
    fitted.model_.float()
    expected = outputs.detach().softmax(-1).numpy()
    np.testing.assert_allclose(fitted.predict_proba(X, times=times), expected, atol=1e-6)


def test_ragged_series_and_absent_samples(fitted: S4DClassifier) -> None:
    X, y, times = pulses(cases=4, seed=3)
    ragged = [x[: 8 + i] for i, x in enumerate(X)]
    when = [t[: 8 + i] for i, t in enumerate(times)]
    assert (fitted.predict(ragged, times=when) == y).all()
    alone = [fitted.predict_proba([x], times=[t])[0] for x, t in zip(ragged, when, strict=True)]
    np.testing.assert_allclose(fitted.predict_proba(ragged, times=when), alone, atol=1e-9)
    holes = [x.copy() for x in ragged]
    holes[1][3] = np.nan  # absent, not interpolated: as if it had never been there
    shorter = [np.delete(x, 3) if i == 1 else x for i, x in enumerate(ragged)]
    later = [np.delete(t, 3) if i == 1 else t for i, t in enumerate(when)]
    found = fitted.predict_proba(holes, times=when)
    np.testing.assert_allclose(found, fitted.predict_proba(shorter, times=later), atol=1e-9)


def test_single_values_are_interpolated_in_time() -> None:
    X = np.array([[[0.0, np.nan, 4.0], [1.0, 1.0, 1.0]]])
    model = S4DClassifier(missing="interpolate")
    panel = model._read(X, reset=True, times=[[0.0, 3.0, 4.0]])
    np.testing.assert_array_equal(panel.cases[0][0], [0, 3, 4])


def test_saved_and_loaded(fitted: S4DClassifier, tmp_path: Path) -> None:
    X, _, times = pulses(cases=4, seed=4)
    fitted.save(tmp_path / "model")
    loaded = S4DClassifier.load(tmp_path / "model")
    assert loaded.clock_ == fitted.clock_
    expected = fitted.predict_proba(X, times=times)
    np.testing.assert_array_equal(loaded.predict_proba(X, times=times), expected)
    assert loaded.model_.preprocessing["clock"]["step"] == fitted.clock_.step  # type: ignore[index,union-attr]


def test_dates_and_numbers(tmp_path: Path) -> None:
    X, _, times = pulses(cases=6)
    dates = np.datetime64("2024-01-01", "ms") + (1000 * times).round().astype("m8[ms]")
    model = S4DRegressor(**SMALL, epochs=1).fit(X, np.arange(6.0), times=dates)
    assert model.clock_ is not None
    assert model.clock_.dates
    assert model.predict(X, times=dates).shape == (6,)
    assert isinstance(model.score(X, np.arange(6.0), times=dates), float)
    with pytest.raises(ValueError, match="are numbers, those before were dates"):
        model.predict(X, times=times)
    tensor = S4DRegressor(**SMALL, epochs=1).fit(X, np.arange(6.0), times=torch.tensor(times))
    assert tensor.clock_ == Clock(float(np.median(np.diff(times))))


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (np.zeros((4, LENGTH)), "is that of the sample before"),
        (np.arange(LENGTH)[None].repeat(3, 0), "times of 3 sequences; expected those of 4"),
        (np.arange(4 * 5).reshape(4, 5), rf"times\[0\] has shape \(5,\); .*of the {LENGTH}"),
        (np.tile(np.arange(LENGTH)[::-1], (4, 1)), "goes back"),
        (np.full((4, LENGTH), np.nan), "time 0 is nan"),
        (np.full((4, LENGTH), "now"), "expected numbers or datetime64"),
    ],
)
def test_bad_times(times: Any, message: str) -> None:
    X, y, _ = pulses(cases=4)
    with pytest.raises(ValueError, match=message):
        S4DClassifier(**SMALL, epochs=1).fit(X, y, times=times)


def test_with_and_without(fitted: S4DClassifier) -> None:
    X, y, times = pulses(cases=6)
    for ask in (fitted.predict, fitted.predict_proba, lambda X: fitted.score(X, y)):
        with pytest.raises(ValueError, match="was fitted with times, usually"):
            ask(X)
    even = S4DClassifier(**SMALL, epochs=1).fit(X, y)
    with pytest.raises(ValueError, match="was fitted without times"):
        even.predict(X, times=times)
    further = S4DClassifier(**SMALL, epochs=1, warm_start=True).fit(X, y, times=times)
    with pytest.raises(ValueError, match="was fitted with times"):
        further.fit(X, y)
    step = further.clock_
    assert further.fit(X, y, times=2 * times).clock_ == step


def test_what_cannot_be_told_refuses() -> None:
    X, y, times = pulses(cases=6)
    with pytest.raises(ValueError, match="use ensemble=False"):
        S4DClassifier(**SMALL, epochs=1, ensemble=True).fit(X, y, times=times)
    for kind, target in ((S4DFeatureClassifier, y), (S4DFeatureRegressor, np.arange(6.0))):
        with pytest.raises(ValueError, match=r"takes samples as evenly spaced.*use S4DClassifier"):
            kind().fit(X, target, times=times)
    with pytest.raises(ValueError, match="cannot be told times"):
        S4DFeatures().fit(X, times=times)  # type: ignore[arg-type]
    causal = S4DClassifier(**SMALL, epochs=1, method=Method()).fit(X, y, times=times)
    with pytest.raises(ValueError, match="which streams of estimators are not told"):
        Stream(causal)
