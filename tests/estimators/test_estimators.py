"""The estimators: what goes in, what comes out, and what scikit-learn asks of them."""

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

from s4d_torch.estimators import S4DClassifier, S4DRegressor
from s4d_torch.nn import Method

Array = np.ndarray[Any, Any]
TINY: dict[str, Any] = {
    "n_layers": 1,
    "d_model": 8,
    "d_state": 4,
    "dropout": 0.0,
    "lr": 0.02,
    "epochs": 8,
    "random_state": 0,
    "n_jobs": 1,
}


def waves(count: int = 40, length: int = 30, channels: int = 1) -> tuple[Array, Array]:
    """Slow and fast waves, (count, channels, length), named so; each with its own phase."""
    random = np.random.default_rng(0)
    fast = np.arange(count) % 2
    t = np.arange(length)
    phase = random.uniform(0, 2 * np.pi, (count, channels, 1))
    X = np.sin(t * np.where(fast, 1.2, 0.3)[:, None, None] + phase)
    return X + 0.1 * random.normal(size=X.shape), np.where(fast, "fast", "slow")


def ragged(X: Array) -> list[Array]:
    """The same series, cut to different lengths."""
    return [case[:, : case.shape[1] - i % 7] for i, case in enumerate(X)]


# ---- forms of X -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "form",
    [
        lambda X: X,
        lambda X: X[:, 0],
        lambda X: X[:, 0].tolist(),
        lambda X: list(X),
        ragged,
        lambda X: [case[0] for case in ragged(X)],
        lambda X: X.astype(np.float32),
    ],
    ids=["3d", "2d", "lists", "arrays", "ragged", "ragged-1d", "float32"],
)
def test_a_classifier_learns_from_every_form_of_series(form: Callable[[Array], Any]) -> None:
    X, y = waves()
    model = S4DClassifier(**TINY).fit(form(X), y)
    assert model.classes_.tolist() == ["fast", "slow"]
    assert model.score(form(X), y) > 0.9
    odds = model.predict_proba(form(X))
    assert odds.shape == (40, 2)
    np.testing.assert_allclose(odds.sum(1), 1)
    np.testing.assert_array_equal(model.classes_[odds.argmax(1)], model.predict(form(X)))


def test_the_forms_mean_the_same() -> None:
    X, y = waves()
    odds = [
        S4DClassifier(**{**TINY, "epochs": 2}).fit(form, y).predict_proba(form)
        for form in (X, X[:, 0], list(X))
    ]
    np.testing.assert_array_equal(odds[0], odds[1])
    np.testing.assert_array_equal(odds[0], odds[2])


def test_ragged_series_are_judged_as_they_would_be_alone() -> None:
    X, y = waves(channels=2)
    cases = ragged(X)
    model = S4DClassifier(**{**TINY, "epochs": 2}).fit(cases, y)
    together = model.predict_proba(cases)
    alone = np.concatenate([model.predict_proba([case]) for case in cases])
    np.testing.assert_allclose(together, alone, rtol=1e-10)
    assert model.predict_proba(X).shape == (40, 2)  # another length is no obstacle


def test_a_regressor_predicts_one_number_or_several() -> None:
    random = np.random.default_rng(0)
    level = random.normal(size=60)
    X = 5 + level[:, None, None] + 0.1 * random.normal(size=(60, 2, 20))
    y = 100 + 30 * level
    options = {**TINY, "epochs": 20}
    one = S4DRegressor(**options).fit(X, y)
    assert one.predict(X).shape == (60,)
    assert one.score(X, y) > 0.9
    both = np.stack([y, -0.01 * y], 1)
    two = S4DRegressor(**options).fit(X, both)
    assert two.predict(X).shape == (60, 2)
    assert two.score(X, both) > 0.9
    column = S4DRegressor(**{**options, "epochs": 1}).fit(X, y[:, None])
    assert column.predict(X).shape == (60, 1)


def test_standard_units_are_those_of_training_and_a_large_offset_costs_no_digits() -> None:
    X, y = waves(channels=2)
    plain = S4DClassifier(**{**TINY, "epochs": 2}).fit(X, y)
    shifted = 1e6 + 1e-2 * X
    moved = S4DClassifier(**{**TINY, "epochs": 2}).fit(shifted, y)
    np.testing.assert_allclose(moved.units_.shift[:2], 1e6, rtol=1e-6)
    np.testing.assert_allclose(
        moved.predict_proba(shifted[:3]), plain.predict_proba(X[:3]), atol=1e-3
    )
    constant = S4DClassifier(**{**TINY, "epochs": 1}).fit(np.concatenate([X, 0 * X + 0.1], 1), y)
    np.testing.assert_array_equal(constant.units_.scale[[2, 3, 6, 7]], 1)
    raw = S4DClassifier(**{**TINY, "epochs": 1}, standardize=False).fit(X, y)
    assert raw.units_.shift.tolist() == [0, 0, 0, 0]


# ---- randomness, going on, weights ------------------------------------------------------------


def test_the_same_random_state_gives_the_same_model_and_touches_no_other_numbers() -> None:
    X, y = waves()
    np.random.seed(5)  # noqa: NPY002  the global state is what must not change
    before = np.random.get_state()[1].copy()  # type: ignore[index]  # noqa: NPY002
    first, again = (S4DClassifier(**TINY).fit(X, y).predict_proba(X) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # type: ignore[index]  # noqa: NPY002
    other = S4DClassifier(**{**TINY, "random_state": 1}).fit(X, y).predict_proba(X)
    assert not np.array_equal(first, other)


def test_a_warm_start_goes_on_where_the_last_fit_stopped() -> None:
    X, y = waves()
    model = S4DClassifier(**{**TINY, "epochs": 6}, warm_start=True).fit(X, y)
    first = model.history_[-1]["train_loss"]
    units = model.units_
    model.fit(X[:30] + 0.1, y[:30])
    assert model.units_ is units
    cold = S4DClassifier(**{**TINY, "epochs": 3}).fit(X[:30] + 0.1, y[:30])
    assert model.history_[0]["train_loss"] < cold.history_[0]["train_loss"]
    model.fit(X, y)
    assert model.history_[-1]["train_loss"] < first
    with pytest.raises(ValueError, match=r"classes that the first fit did not see: \['new'\]"):
        model.fit(X, np.where(y == "slow", "new", y))
    regressor = S4DRegressor(**{**TINY, "epochs": 1}, warm_start=True).fit(X, np.arange(40.0))
    with pytest.raises(ValueError, match="y has 2 numbers for each case, the first fit saw 1"):
        regressor.fit(X, np.ones((40, 2)))


def test_class_weights_move_the_border_towards_the_lighter_class() -> None:
    random = np.random.default_rng(0)
    y = np.arange(60) % 4 == 0  # a quarter
    X = random.normal(size=(60, 12)) + 0.3 * y[:, None]  # that is hard to tell from the rest
    options = {**TINY, "epochs": 4}
    chosen = {
        str(weight): int(S4DClassifier(**options, class_weight=weight).fit(X, y).predict(X).sum())
        for weight in ({True: 0.01}, None, "balanced", {True: 100.0})
    }
    few, plain, balanced, many = chosen.values()
    assert few == 0
    assert few <= plain < balanced < many
    assert many > 50
    with pytest.raises(ValueError, match="class_weight must be numbers above 0"):
        S4DClassifier(**options, class_weight={True: -1.0}).fit(X, y)


def test_held_out_cases_stop_the_training_and_choose_the_weights() -> None:
    random = np.random.default_rng(0)
    X, y = random.normal(size=(40, 10)), np.arange(40) % 2  # nothing to learn
    options = {**TINY, "epochs": 60}
    model = S4DClassifier(**options, validation_fraction=0.25, patience=3).fit(X, y)
    assert model.n_epochs_ == len(model.history_) < 60
    scores = [(row["validation_accuracy"], -row["validation_loss"]) for row in model.history_]
    assert model.n_epochs_ - 1 - scores.index(max(scores)) == 3
    regressor = S4DRegressor(**options, validation_fraction=0.25, patience=2).fit(X, X[:, 0])
    assert "validation_loss" in regressor.history_[0]
    everything = S4DClassifier(**{**TINY, "epochs": 2}).fit(X, y)  # too few to spare any
    assert everything.n_epochs_ == 2
    for fraction in (1.0, -0.1, "some"):
        with pytest.raises(ValueError, match="validation_fraction"):
            S4DClassifier(**TINY, validation_fraction=fraction).fit(X, y)


def test_progress_is_printed_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    X, y = waves(20, 10)
    S4DClassifier(**{**TINY, "epochs": 3}).fit(X, y)
    assert capsys.readouterr().out == ""
    S4DClassifier(**{**TINY, "epochs": 3}, verbose=2, validation_fraction=0.2).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[2].startswith("S4DClassifier: epoch 3/3, loss ")
    assert ", held out " in lines[2]
    assert ", accuracy " in lines[2]


def test_threads_are_those_asked_for_and_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    seen: list[int] = []
    set_threads = torch.set_num_threads
    monkeypatch.setattr(torch, "set_num_threads", lambda n: (seen.append(n), set_threads(n)))
    before = torch.get_num_threads()
    X, y = waves(12, 10)
    S4DClassifier(**{**TINY, "epochs": 1, "n_jobs": 2}).fit(X, y)
    # the optimiser of a small model takes one, and gives the others back, after each step
    assert (seen[0], seen[-1]) == (2, before)
    assert set(seen[1:-1]) <= {1, 2}
    assert torch.get_num_threads() == before
    with pytest.raises(ValueError, match="n_jobs is 0"):
        S4DClassifier(**{**TINY, "n_jobs": 0}).fit(X, y)


# ---- scikit-learn -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [S4DClassifier, S4DRegressor])
def test_scikit_learns_own_checks_pass(kind: type[Any]) -> None:
    options = {"d_model": 16, "d_state": 8, "epochs": 22} if kind is S4DRegressor else {}
    estimator = kind(**{**TINY, "batch_size": 32, "random_state": None, **options})
    results = check_estimator(estimator, on_fail=None, on_skip=None)
    problems = {each["check_name"]: each for each in results if each["status"] != "passed"}
    # no array library but numpy is claimed, and its check runs only where scipy's switch is set
    problems.pop("check_array_api_input", None)
    assert not problems
    assert len(results) > 40


def test_pipelines_searches_and_cross_validation() -> None:
    X, y = waves()
    flat = X[:, 0]
    halved = FunctionTransformer(lambda X: X[:, ::2])
    assert make_pipeline(halved, S4DClassifier(**TINY)).fit(flat, y).score(flat, y) > 0.8
    scores = cross_val_score(S4DClassifier(**TINY), ragged(X), y, cv=2)
    assert scores.shape == (2,)
    assert scores.mean() > 0.7
    grid = {"epochs": [1, 8], "method": ["s4d", Method(init="lin", bidirectional=True)]}
    search = GridSearchCV(S4DClassifier(**TINY), grid, cv=2).fit(X, y)
    assert search.best_params_["epochs"] == 8
    assert search.predict(X).shape == (40,)


def test_a_clone_has_the_options_and_nothing_learned() -> None:
    X, y = waves(12, 10)
    method = Method(init="inv")
    model = S4DClassifier(**{**TINY, "epochs": 1}, method=method, class_weight="balanced")
    model.fit(X, y)
    assert not model.model_.method.bidirectional
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        copy.predict(X)
    same = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(same.predict_proba(X), model.predict_proba(X))


def test_the_front_door_does_not_import_scikit_learn_and_says_what_is_missing() -> None:
    code = """
import sys, s4d_torch
assert "sklearn" not in sys.modules
sys.modules["sklearn"] = None
try:
    import s4d_torch.estimators
except ImportError as error:
    print(error)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "scikit-learn" in result.stdout
    assert "pip install 's4d-torch[estimators]'" in result.stdout


def test_real_series_are_told_apart(real_data: Callable[..., Path]) -> None:
    from s4d_torch.data.files.ts import SeriesFile

    root = real_data("ucr")
    data = []
    for part in ("TRAIN", "TEST"):
        file = SeriesFile(root / f"ucr/ItalyPowerDemand/ItalyPowerDemand_{part}.ts", "error")
        data.append((np.stack([case.T for case in file.cases()]), np.array(file.targets)))
    (X, y), (X_test, y_test) = data
    model = S4DClassifier(d_model=16, n_layers=2, epochs=20, random_state=0, n_jobs=1).fit(X, y)
    assert model.score(X_test, y_test) > 0.9
