"""Random S4D features: what they are, that no path to them gives others, and who learns on them."""

import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

from s4d_torch import S4DFeatureClassifier, S4DFeatureRegressor, S4DFeatures
from s4d_torch.data.dataset import Sequences
from s4d_torch.estimators.features import plain, pooling
from s4d_torch.estimators.features.bank import FASTEST, check_bank, draw_bank
from s4d_torch.estimators.features.pooling import features_of, rows_and_spans, with_thresholds
from s4d_torch.estimators.features.ridge import PENALTIES, fit_ridge
from s4d_torch.estimators.features.tables import FilterTables

Array = np.ndarray[Any, Any]
SMALL: dict[str, Any] = {
    "n_systems": 8,
    "n_filters": 6,
    "d_state": 8,
    "random_state": 0,
    "n_jobs": 1,
}
ESTIMATORS = [S4DFeatures, S4DFeatureClassifier, S4DFeatureRegressor]


def waves(count: int = 40, length: int = 30, channels: int = 1) -> tuple[Array, Array]:
    """Slow and fast waves, (count, channels, length), named so; each with its own phase."""
    random = np.random.default_rng(0)
    fast = np.arange(count) % 2
    phase = random.uniform(0, 2 * np.pi, (count, channels, 1))
    X = np.sin(np.arange(length) * np.where(fast, 1.2, 0.3)[:, None, None] + phase)
    return X + 0.1 * random.normal(size=X.shape), np.where(fast, "fast", "slow")


def ragged(X: Array) -> list[Array]:
    return [case[:, : case.shape[1] - i % 7] for i, case in enumerate(X)]


def a_bank(sequences: Sequences, channels: int, **options: Any) -> Any:
    chosen = {"systems": 5, "filters": 3, "thresholds": 2, "d_state": 8, **options}
    chosen = {"causal": False, "differences": True, "length": sequences.longest, **chosen}
    random = np.random.default_rng(1)
    return with_thresholds(draw_bank(random, channels=channels, **chosen), sequences, random)


# ---- what a feature is ------------------------------------------------------------------------


def test_a_feature_is_the_part_of_the_outputs_above_a_threshold() -> None:
    """By the convolution with each kernel, written out."""
    u = np.random.default_rng(0).normal(size=(1, 70, 3)).astype(np.float32)
    bank = a_bank(Sequences(u), 3)
    found = features_of(bank, Sequences(u)).reshape(bank.thresholds.shape)
    for g in range(5):
        x = (u[0, :, bank.channels[g]].astype(float).T * bank.weights[g]).sum(1)
        x = x[::-1] if bank.reads[g, 1] else x
        x = np.diff(x, prepend=x[0]) if bank.reads[g, 0] else x
        A_bar = bank.modes[g, 0] + 1j * bank.modes[g, 1]
        B_bar = bank.modes[g, 2] + 1j * bank.modes[g, 3]
        states = np.array(
            [sum(A_bar ** (t - s) * B_bar * x[s] for s in range(t + 1)) for t in range(70)]
        )
        y = states.real @ bank.C[g, ::2] + states.imag @ bank.C[g, 1::2]  # (time, filters)
        distance = np.abs(y[:, None] - bank.thresholds[g])
        near = (distance < 1e-5).sum(0)  # whose side rounding decides: thresholds are outputs
        above = (y[:, None] > bank.thresholds[g]).sum(0)
        assert (np.abs(found[g] * 70 - above) <= near + 1e-3).all()
        assert (near <= 2).all()


def test_thresholds_are_quantiles_of_training_outputs() -> None:
    X, _ = waves(60, 50)
    features = S4DFeatures(random_state=0, n_jobs=1).fit_transform(X)
    means = features.mean(0)
    assert features.shape == (60, 64 * 32 * 4)
    assert features.dtype == np.float32
    assert features.min() >= 0
    assert features.max() <= 1
    # levels are spread evenly, and so is the part of the time above them
    np.testing.assert_allclose(np.quantile(means, [0.1, 0.5, 0.9]), [0.1, 0.5, 0.9], atol=0.05)


def test_a_short_series_among_long_ones_does_not_make_the_thresholds() -> None:
    random = np.random.default_rng(0)
    X = [random.normal(size=1 if i % 2 else 400) for i in range(20)]
    features = S4DFeatures(**SMALL).fit_transform(X)
    long = features[::2].mean(0)
    np.testing.assert_allclose(np.quantile(long, [0.1, 0.5, 0.9]), [0.1, 0.5, 0.9], atol=0.08)


def test_step_sizes_span_from_two_samples_to_the_whole_series() -> None:
    bank = draw_bank(
        np.random.default_rng(0), channels=1, length=500, systems=64, filters=1, thresholds=1,
        d_state=16, causal=False, differences=True,
    )  # fmt: skip
    A_bar = np.hypot(bank.modes[:, 0], bank.modes[:, 1])  # e^(-dt/2) of every mode that is heard
    dt = -2 * np.log(A_bar[:, 0])
    assert 1 / 500 <= dt.min() < 1.6 / 500
    assert FASTEST / 1.6 < dt.max() <= FASTEST
    angle = np.abs(np.angle(bank.modes[:, 0] + 1j * bank.modes[:, 1]))
    assert angle.max() <= np.pi
    assert (bank.modes[dt.argmax(), 2:] == 0).all(0).any()  # those beyond Nyquist are silent
    assert not (bank.modes[dt.argmin(), 2:] == 0).any()
    assert sorted(map(tuple, np.unique(bank.reads, axis=0))) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_mixtures_hear_every_channel() -> None:
    bank = draw_bank(
        np.random.default_rng(0), channels=12, length=50, systems=64, filters=1, thresholds=1,
        d_state=4, causal=True, differences=True,
    )  # fmt: skip
    used = np.where(bank.weights != 0, bank.channels, -1)
    assert set(used.ravel()) - {-1} == set(range(12))
    sizes = (bank.weights != 0).sum(1)
    assert sizes.min() == 1
    assert sizes.max() > 4
    assert not bank.reads[:, 1].any()


# ---- one answer, by whichever way -------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 7, 64, 150])
def test_compiled_code_counts_as_plain_torch_does(length: int) -> None:
    random = np.random.default_rng(0)
    cases = [random.normal(size=(max(1, length - i), 2)).astype(np.float32) for i in range(4)]
    sequences = Sequences.of(cases)
    bank = a_bank(sequences, 2, filters=17)
    tables, (u, spans) = FilterTables.of(bank), rows_and_spans(sequences)
    pools = [tables.begin(4) for _ in range(2)]
    pooling.push(tables, pools[0], u, spans)
    plain.push(tables, pools[1], u, spans)
    assert (pools[0].counts - pools[1].counts).abs().max() <= 2  # outputs that are thresholds
    torch.testing.assert_close(pools[0].states, pools[1].states)
    torch.testing.assert_close(pools[0].before, pools[1].before)
    chosen = spans[torch.tensor([[0, 2], [1, 3], [2, 0], [3, 1], [0, 1]])]
    chosen[4, 1, 1] = 0  # none
    found, counts = pooling.outputs(tables, u, chosen, 3)
    assert counts.tolist() == (-(-chosen[..., 1] // 3)).sum(1).tolist()
    expected = torch.zeros(*found.shape[:2], tables.C.shape[2])
    plain.outputs(tables, u, chosen, 3, expected)
    torch.testing.assert_close(found, expected[..., :17], rtol=1e-4, atol=1e-5)


def test_without_numba_plain_torch_answers_alike() -> None:
    program = (
        "import numpy as np; from s4d_torch import S4DFeatures; import sys;"
        "X = np.random.default_rng(0).normal(size=(6, 2, 20));"
        "m = S4DFeatures(n_systems=4, n_filters=3, d_state=4, random_state=0);"
        "print(repr(m.fit_transform(X).round(4).tolist()));"
        "assert ('numba' in sys.modules) == (len(sys.argv) > 1)"
    )
    found = []
    for compiled in ("0", "1"):
        arguments = [sys.executable, "-c", program, *(["compiled"] if compiled == "1" else [])]
        environment = {**__import__("os").environ, "S4D_TORCH_COMPILED": compiled}
        done = subprocess.run(
            arguments, capture_output=True, text=True, check=True, env=environment
        )
        found.append(np.array(eval(done.stdout)))
    assert np.abs(found[0] - found[1]).max() <= 0.051  # one sample of twenty
    assert (np.abs(found[0] - found[1]) > 0).mean() < 0.2


def test_a_series_gets_the_same_features_alone_and_among_others() -> None:
    X, _ = waves(30, 40, 3)
    model = S4DFeatures(**SMALL).fit(X)
    together = model.transform(X)
    np.testing.assert_array_equal(np.concatenate([model.transform(x[None]) for x in X]), together)
    np.testing.assert_array_equal(model.transform(list(X)), together)
    np.testing.assert_array_equal(clone(model).set_params(n_jobs=2).fit_transform(X), together)


def test_random_state_decides() -> None:
    X, y = waves()
    odds = [
        S4DFeatureClassifier(**{**SMALL, "random_state": seed}).fit(X, y).predict_proba(X)
        for seed in (0, 0, 1)
    ]
    np.testing.assert_array_equal(odds[0], odds[1])
    assert (odds[0] != odds[2]).any()


@pytest.mark.parametrize("direction", ["both", "causal"])
@pytest.mark.parametrize(
    "form",
    [lambda X: X, lambda X: X[:, 0], lambda X: list(X), ragged, lambda X: X.astype(np.float32)],
    ids=["3d", "2d", "arrays", "ragged", "float32"],
)
def test_a_classifier_learns_from_every_form(form: Callable[[Array], Any], direction: str) -> None:
    X, y = waves()
    model = S4DFeatureClassifier(**SMALL, direction=direction).fit(form(X[:20]), y[:20])
    assert model.classes_.tolist() == ["fast", "slow"]
    assert model.score(form(X[20:]), y[20:]) == 1
    odds = model.predict_proba(form(X))
    np.testing.assert_allclose(odds.sum(1), 1)
    np.testing.assert_array_equal(model.classes_[odds.argmax(1)], model.predict(form(X)))


def test_other_lengths_may_come_later() -> None:
    X, y = waves(40, 60)
    model = S4DFeatureClassifier(**SMALL).fit(X, y)
    assert model.score([x[:, :40] for x in X], y) == 1
    assert model.predict(X[:1, :, :1]).shape == (1,)


def test_channels_that_only_mean_something_together_are_mixed() -> None:
    """Two channels of noise; in one class the second is the first turned round."""
    random = np.random.default_rng(0)
    X = random.normal(size=(80, 2, 60))
    y = np.arange(80) % 2
    X[y == 1, 1] = -X[y == 1, 0] + 0.3 * random.normal(size=(40, 60))
    model = S4DFeatureClassifier(random_state=0, n_jobs=1).fit(X[:40], y[:40])
    assert model.score(X[40:], y[40:]) > 0.95


def test_probabilities_are_calibrated_on_cases_left_out() -> None:
    random = np.random.default_rng(0)
    X, y = random.normal(size=(60, 40)), np.arange(60) % 2  # nothing to learn
    odds = S4DFeatureClassifier(**SMALL).fit(X, y).predict_proba(random.normal(size=(60, 40)))
    assert odds.max() < 0.8
    X, y = waves(12)
    odds = S4DFeatureClassifier(**SMALL).fit(X, y).predict_proba(X)
    assert 0.9 < odds.max() < 1 - 1e-4  # twelve cases are no certainty


def test_a_regressor_predicts_in_the_form_and_unit_of_y() -> None:
    random = np.random.default_rng(0)
    speed = random.uniform(0.2, 1.5, 80)
    X = np.sin(speed[:, None, None] * np.arange(60) + random.uniform(0, 6, (80, 1, 1)))
    y = 1000 + 50 * speed
    model = S4DFeatureRegressor(**SMALL).fit(X[:60], y[:60])
    assert model.predict(X[60:]).shape == (20,)
    assert model.score(X[60:], y[60:]) > 0.9
    both = S4DFeatureRegressor(**SMALL).fit(X[:60], np.stack([y, -y], 1)[:60]).predict(X[60:])
    np.testing.assert_allclose(both[:, 0], -both[:, 1])
    np.testing.assert_allclose(both[:, 0], model.predict(X[60:]))


# ---- the ridge --------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(20, 50), (50, 20)], ids=["dual", "primal"])
def test_the_ridge_is_scikit_learns_and_leaves_out_what_it_says(shape: tuple[int, int]) -> None:
    random = np.random.default_rng(0)
    Z = random.normal(3, 2, shape).astype(np.float32)
    Z[:, 4] = 7  # never changes
    Y = Z[:, :2] + random.normal(size=(shape[0], 2))
    ridge, left_out = fit_ridge(Z, Y)
    assert ridge.penalty in PENALTIES
    assert not ridge.weights[4].any()
    spread = np.where(Z.std(0) > 0, Z.std(0), 1)
    standard = (Z - Z.mean(0)).astype(float) / spread
    reference = Ridge(ridge.penalty).fit(standard, Y)
    np.testing.assert_allclose(ridge(Z), reference.predict(standard), rtol=1e-4, atol=1e-4)
    expected = {penalty: each_left_out(standard, Y, penalty) for penalty in PENALTIES}
    np.testing.assert_allclose(left_out, expected[ridge.penalty], rtol=1e-3, atol=1e-3)
    errors = {penalty: np.square(found - Y).mean() for penalty, found in expected.items()}
    assert ridge.penalty == min(errors, key=errors.__getitem__)


def each_left_out(Z: Array, Y: Array, penalty: float) -> Array:
    """Predictions for each case of a ridge on all the others, one fit after the other."""
    found = []
    for i in range(len(Z)):
        rest, targets = np.delete(Z, i, 0), np.delete(Y, i, 0)
        center, mean = rest.mean(0), targets.mean(0)
        left = (rest - center).T @ (rest - center) + penalty * np.eye(Z.shape[1])
        found.append((Z[i] - center) @ np.linalg.solve(left, rest.T @ (targets - mean)) + mean)
    return np.array(found)


# ---- scikit-learn -----------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Skipping check check_array_api_input")
@pytest.mark.parametrize("kind", ESTIMATORS)
def test_scikit_learns_own_checks_pass(kind: type[Any]) -> None:
    check_estimator(kind(n_systems=6, n_filters=5, n_thresholds=3, d_state=8))


def test_features_in_pipelines_and_searches() -> None:
    X, y = waves()
    targets = (y == "fast").astype(float)
    pipeline = make_pipeline(S4DFeatures(**SMALL), Ridge()).fit(X, targets)
    assert pipeline.score(X, targets) > 0.9
    names = pipeline[0].get_feature_names_out()
    assert len(names) == 8 * 6 * 4
    search = GridSearchCV(S4DFeatureClassifier(**SMALL), {"direction": ["both", "causal"]}, cv=2)
    assert search.fit(X, y).best_score_ > 0.9
    again = pickle.loads(pickle.dumps(search.best_estimator_))
    np.testing.assert_array_equal(again.predict_proba(X), search.predict_proba(X))


def test_missing_values_are_refused_or_interpolated() -> None:
    X, y = waves()
    X[3, 0, 5:8] = np.nan
    with pytest.raises(ValueError, match="Input X contains NaN: case 3, channel 0, sample 5"):
        S4DFeatureClassifier(**SMALL).fit(X, y)
    model = S4DFeatureClassifier(**SMALL, missing="interpolate").fit(X, y)
    filled = X.copy()
    filled[3, 0, 5:8] = np.interp([5, 6, 7], [4, 8], X[3, 0, [4, 8]])
    np.testing.assert_allclose(model.predict_proba(X), model.predict_proba(filled))
    with pytest.raises(ValueError, match="infinity"):
        model.predict(np.where(np.isnan(X), np.inf, X))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_systems": 0}, "n_systems must be"),
        ({"n_filters": 2.5}, "n_filters must be a whole number"),
        ({"n_thresholds": -1}, "n_thresholds must be"),
        ({"d_state": 3}, "d_state must be even and at least 2, got 3"),
        ({"direction": "forward"}, "direction.*forward.*both"),
        ({"missing": "zero"}, "missing"),
        ({"differences": "yes"}, "differences must be True or False"),
        ({"n_jobs": 0}, "n_jobs is 0"),
        ({"random_state": -1}, "random_state must be None"),
    ],
)
def test_options_that_make_no_sense_are_named(options: dict[str, Any], message: str) -> None:
    X, y = waves(8)
    with pytest.raises(ValueError, match=message):
        S4DFeatureClassifier(**{**SMALL, **options}).fit(X, y)


def test_what_does_not_fit_is_refused() -> None:
    X, y = waves(8, channels=2)
    model = S4DFeatureClassifier(**SMALL)
    with pytest.raises(NotFittedError):
        model.predict(X)
    with pytest.raises(ValueError, match="one class"):
        model.fit(X, ["a"] * 8)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.fit(X, y[:7])
    with pytest.raises(ValueError, match="requires y to be passed"):
        model.fit(X, None)
    with pytest.raises(
        ValueError, match="X has 1 channels, S4DFeatureClassifier was fitted with 2"
    ):
        model.fit(X, y).predict(X[:, :1])


@pytest.mark.parametrize(
    "damage",
    [
        lambda bank: replace(bank, channels=bank.channels + 2),
        lambda bank: replace(bank, channels=bank.channels - 1),
        lambda bank: replace(bank, reads=bank.reads + 5),
        lambda bank: replace(bank, C=bank.C[:, :-1]),
        lambda bank: replace(bank, C=bank.C.astype(float)),
        lambda bank: replace(bank, thresholds=bank.thresholds[:-1]),
        lambda bank: replace(bank, modes=bank.modes * 3),
        lambda bank: replace(bank, weights=bank.weights * np.nan),
    ],
)
def test_a_bank_that_does_not_fit_together_is_refused(damage: Callable[[Any], Any]) -> None:
    sequences = Sequences(np.zeros((1, 9, 2), np.float32))
    bank = a_bank(sequences, 2)
    check_bank(bank, 2)
    with pytest.raises(ValueError, match="must"):
        check_bank(damage(bank), 2)


def test_compiled_code_is_not_sent_outside_of_its_arrays() -> None:
    sequences = Sequences(np.zeros((1, 9, 2), np.float32))
    tables = FilterTables.of(a_bank(sequences, 2))
    u = torch.zeros(9, 2)
    for spans in ([[0, 10]], [[-1, 3]], [[9, 1]], [[0, 0]]):
        with pytest.raises(ValueError, match="lies outside of the 9 rows"):
            pooling.push(tables, tables.begin(1), u, torch.tensor(spans))
    with pytest.raises(ValueError, match="the filters read channels 0 to 1, of 1 there are"):
        pooling.push(tables, tables.begin(1), u[:, :1], torch.tensor([[0, 9]]))
    with pytest.raises(ValueError, match="spans must be"):
        pooling.push(tables, tables.begin(2), u, torch.tensor([[0, 9]]))
