"""The forecaster: what goes in, what comes out, and the identities in between."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import s4d_torch
from s4d_torch.data.dataset import Split
from s4d_torch.estimators import S4DForecaster
from s4d_torch.estimators.forecasting import seasonal_naive
from s4d_torch.estimators.forecasting.linear import solve
from s4d_torch.estimators.forecasting.network import ForecastNetwork, sorted_quantiles
from s4d_torch.estimators.forecasting.timeline import Step, cycles_of, phases, read_step
from s4d_torch.estimators.forecasting.training import pinball
from s4d_torch.estimators.forecasting.windows import Cut, Frame, make_dataset

Array = np.ndarray[Any, Any]
TINY: dict[str, Any] = {
    "horizon": 6,
    "window": 24,
    "n_layers": 1,
    "d_model": 8,
    "d_state": 4,
    "epochs": 1,
    "random_state": 0,
    "n_jobs": 1,
}
HOURS = pd.date_range("2024-01-01", periods=400, freq="h")


def waves(count: int = 400, noise: float = 0.1, seed: int = 0) -> Array:
    """A day's rhythm on a rising line."""
    t = np.arange(count)
    random = np.random.default_rng(seed)
    return 10 + 3 * np.sin(2 * np.pi * t / 24) + 0.01 * t + noise * random.normal(size=count)


@pytest.fixture(scope="module")
def fitted() -> S4DForecaster:
    series = pd.Series(waves(), HOURS, name="load")
    return S4DForecaster(**TINY).fit(series[:380])


# ---- what it is worth -------------------------------------------------------------------------


def test_forecasts_are_near_what_comes_and_quantiles_cover_it() -> None:
    y = waves(600)
    model = S4DForecaster(**{**TINY, "epochs": 3}).fit(y[:500])
    assert np.abs(model.predict() - y[500:506]).mean() < 0.3  # the waves are 3 high
    test = model.backtest(y, start=500)
    naive = seasonal_naive(y[:, None], test.origins[:, 1], 6, 24)
    assert test.mse < 0.7 * np.square(naive - test.actual).mean()
    assert 0.75 < test.coverage(0.9) < 1.0
    assert test.pinball < test.mae


def test_what_is_known_of_the_future_is_used() -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(700, 1))  # the only thing that moves y, and nothing foretells it
    y = 5 + 2 * X[:, 0] + 0.1 * random.normal(size=700)
    options = {**TINY, "horizon": 3, "epochs": 12, "lr": 0.01, "dropout": 0.0}
    knows = S4DForecaster(**options).fit(y[:650], X[:650])
    blind = S4DForecaster(**options).fit(y[:650])
    errors = [model.backtest(y, X=x, start=650).mse for model, x in ((knows, X), (blind, None))]
    assert errors[0] < 0.3 * errors[1]


def test_a_linear_recurrence_is_learned_exactly_by_the_linear_map() -> None:
    t = np.arange(300)
    y = np.sin(0.3 * t) + np.cos(0.11 * t)
    model = S4DForecaster(**{**TINY, "epochs": 0}).fit(y[:280])
    assert model.branch_share_ == 0
    np.testing.assert_allclose(model.predict(), y[280:286], atol=0.02)


def test_validation_never_prefers_a_branch_that_makes_it_worse() -> None:
    y = np.random.default_rng(0).normal(size=400).cumsum()  # nothing to learn
    options = {**TINY, "lr": 0.05, "epochs": 2}
    with_branch = S4DForecaster(**options).fit(y)
    line = S4DForecaster(**{**options, "epochs": 0}).fit(y)
    held_out = {"start": 320}
    assert 0 <= with_branch.branch_share_ <= 1
    # judged on every validation window, the share was found on: least squares is no worse
    assert with_branch.backtest(y, **held_out).mse <= line.backtest(y, **held_out).mse * 1.001


# ---- forms ------------------------------------------------------------------------------------


def test_every_form_of_series_comes_back_in_kind() -> None:
    y = waves()
    series = pd.Series(y, HOURS, name="load")
    two = np.stack([y, -y], 1)
    frame = pd.DataFrame(two, HOURS, columns=["up", "down"])

    def forecast(given: Any) -> Any:
        return S4DForecaster(**TINY, calendar=False).fit(given).predict()

    flat = forecast(y)
    assert flat.shape == (6,)
    np.testing.assert_array_equal(forecast(y.tolist()), flat)
    np.testing.assert_array_equal(forecast(torch.from_numpy(y)), flat)
    one = forecast(series)
    np.testing.assert_array_equal(one.to_numpy(), flat)
    assert one.name == "load"
    assert list(one.index) == list(pd.date_range(HOURS[-1], periods=7, freq="h")[1:])
    assert forecast(two).shape == (6, 2)
    np.testing.assert_array_equal(forecast(frame).to_numpy(), forecast(two))
    assert list(forecast(frame).columns) == ["up", "down"]
    many = forecast({"a": series, "b": series[100:]})
    assert {name: len(x) for name, x in many.items()} == {"a": 6, "b": 6}
    assert [x.shape for x in forecast([y, y[50:], y[10:]])] == [(6,)] * 3


def test_targets_mirror_each_other_because_each_is_read_in_units_of_its_own() -> None:
    y = waves()
    model = S4DForecaster(**{**TINY, "epochs": 0}).fit(np.stack([y, 1000 - 50 * y], 1))
    found = model.predict()
    np.testing.assert_allclose(1000 - 50 * found[:, 0], found[:, 1], rtol=1e-6)


def test_quantiles_come_in_order_and_those_that_are_asked_for(fitted: S4DForecaster) -> None:
    every = fitted.predict_quantiles()
    assert list(every.columns) == list(fitted.quantiles)
    assert (np.diff(every.to_numpy(), axis=1) >= 0).all()
    some = fitted.predict_quantiles(2, quantiles=(0.95, 0.05))
    np.testing.assert_array_equal(some.to_numpy(), every.iloc[:2][[0.95, 0.05]].to_numpy())
    with pytest.raises(ValueError, match=r"quantile 0\.3 was not fitted"):
        fitted.predict_quantiles(quantiles=(0.3,))


def test_months_and_business_days_go_on_as_they_should() -> None:
    ends = pd.date_range("2010-01-31", periods=150, freq="ME")
    model = S4DForecaster(**{**TINY, "epochs": 0}).fit(pd.Series(waves(150), ends))
    index = model.predict().index
    assert list(index) == list(pd.date_range(ends[-1], periods=7, freq="ME")[1:])
    periods = pd.period_range("2010-01", periods=150, freq="M")
    found = S4DForecaster(**{**TINY, "epochs": 0}).fit(pd.Series(waves(150), periods)).predict()
    assert list(found.index) == list(pd.period_range(periods[-1] + 1, periods=6, freq="M"))
    days = pd.bdate_range("2024-01-01", periods=30).to_numpy()
    assert read_step(days, "y") == Step(1, "B")
    np.testing.assert_array_equal(
        Step(1, "B").after(days[-1], 5).astype("M8[D]"),
        pd.bdate_range(days[-1], periods=6)[1:].to_numpy().astype("M8[D]"),
    )


def test_only_cycles_that_were_seen_twice_are_in_the_calendar() -> None:
    hourly = Step(3600 * 10**9, "ns")
    assert cycles_of(hourly, 47) == ()
    assert cycles_of(hourly, 48) == ("day",)
    assert cycles_of(hourly, 24 * 14) == ("day", "week")
    assert cycles_of(Step(24 * hourly.size, "ns"), 731) == ("week", "year")
    assert cycles_of(Step(1, "1"), 10**6) == ()
    noon = phases(np.array(["2024-01-01T12", "2024-01-02T12"], dtype="M8[h]"), ("day",))
    np.testing.assert_allclose(noon, [[0, -1], [0, -1]], atol=1e-9)


def test_without_quantiles_there_is_the_mean_alone() -> None:
    model = S4DForecaster(**TINY, quantiles=()).fit(waves())
    assert model.predict().shape == (6,)
    assert model.predict_quantiles().shape == (6, 0)
    assert model.backtest(waves(), stride=40).pinball == 0


# ---- identities -------------------------------------------------------------------------------


def test_update_reads_on_as_the_network_would_have_read_all_of_it(fitted: S4DForecaster) -> None:
    model = clone(fitted).fit(pd.Series(waves(), HOURS)[:380])
    rest = pd.Series(waves(), HOURS)[380:]
    model.update(rest[:5]).update(rest[5:7])
    found = model.predict()
    assert found.index[0] == HOURS[387]
    # the branch alone, over window and new samples in one call
    carried, network = model._carried, model._carried.network
    read = torch.from_numpy(carried.history)
    assert read.shape[1] == 24 + 7
    outputs, _ = network.branch(network.normalized(read, carried.shift, carried.scale))
    torch.testing.assert_close(outputs, carried.outputs, rtol=1e-8, atol=1e-10)


def test_after_a_window_of_updates_the_state_begins_anew() -> None:
    y = waves()
    model = S4DForecaster(**TINY).fit(y[:300])
    for value in y[300:324]:
        model.update([value])
    again = model.predict(y=y[:324])
    np.testing.assert_allclose(model.predict(), again, rtol=1e-10)


def test_a_forecast_from_another_series_is_that_of_its_backtest(fitted: S4DForecaster) -> None:
    series = pd.Series(waves(seed=1) * 7, HOURS)
    test = fitted.backtest(series, stride=50)
    for (_, row), found in zip(test.origins, test.forecasts, strict=True):
        alone = fitted.predict(y=series[:row])
        np.testing.assert_allclose(found[:, 0], alone, rtol=1e-4)
    assert test.mae == pytest.approx(np.abs(test.forecasts - test.actual).mean(), rel=1e-5)


def test_the_network_does_not_see_the_future_it_forecasts() -> None:
    network = ForecastNetwork(12, 4, (0.1, 0.9), past=1, known=2, d_model=4, n_layers=1, d_state=4)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(0, 0.1)
        network.linear.normal_()
        x = torch.randn(3, 16, 4)
        before, _ = network(x)
        x[:, 12:, :2] += 100  # the series and the covariate of the past
        np.testing.assert_array_equal(network(x)[0], before)
        x[:, 12:, 2:] += 1
        assert not torch.equal(network(x)[0], before)


def test_the_normalisation_has_an_inverse_and_flat_windows_stay_flat() -> None:
    torch.manual_seed(0)
    network = ForecastNetwork(12, 4, (0.5,), d_model=4, n_layers=1, d_state=4)
    with torch.no_grad():
        network.linear.normal_()
        x = torch.randn(2, 12, 1)
        y, _ = network(x)
        moved, _ = network(40 + 3 * x)
        torch.testing.assert_close(moved, 40 + 3 * y, rtol=1e-4, atol=1e-4)
        flat, _ = network(torch.full((1, 12, 1), 5.0))
        torch.testing.assert_close(flat, torch.full((1, 4, 2), 5.0))


def test_pinball_is_least_at_the_quantile() -> None:
    values = torch.from_numpy(np.random.default_rng(0).normal(size=20_001))
    levels = torch.tensor([0.1, 0.5, 0.8], dtype=torch.float64)
    exact = torch.quantile(values, levels)
    best = pinball(exact.expand(len(values), 3), values, levels).mean(0)
    for shift in (-0.05, 0.05):
        other = pinball((exact + shift).expand(len(values), 3), values, levels).mean(0)
        assert (other > best).all()
    assert sorted_quantiles(torch.tensor([9.0, 3, 1, 2])).tolist() == [9, 1, 2, 3]


def test_the_linear_map_is_that_of_least_squares_and_windows_stay_within_their_series() -> None:
    random = np.random.default_rng(0)
    series = [random.normal(size=(n, 1)).cumsum(0) for n in (60, 45)]
    dataset, validated = make_dataset(Frame.of(series), Cut(8, 3, False, [10, 0]))
    assert validated
    assert len(dataset.train) == (50 - 10) + (45 - 10)
    assert len(dataset.validation) == 10 - 2
    train: Split = dataset.train
    x = np.stack([train.inputs[0][i][:, 0] for i in train.index])
    y = np.stack([train.targets[i] for i in train.index])
    found = solve(train, None, 8)
    centers = x.mean(1, keepdims=True)
    a, b = x - centers, y - centers
    ridge = 0.01 * np.linalg.eigvalsh(a.T @ a).mean()
    np.testing.assert_allclose(
        found.weight.T, np.linalg.solve(a.T @ a + ridge * np.eye(8), a.T @ b), rtol=1e-6
    )
    ends = {int(i) + 11 for i in train.index}
    assert not any(60 < end < 60 + 11 for end in ends)  # none reaches over the seam


# ---- recursive --------------------------------------------------------------------------------


def test_recursive_forecasts_go_as_far_as_asked_and_repeat_one_step() -> None:
    y = waves()
    model = S4DForecaster(**TINY, strategy="recursive").fit(y[:380])
    far = model.predict(20)
    assert np.abs(far - y[380:]).mean() < 0.5
    np.testing.assert_allclose(model.predict(3), far[:3])
    # by hand: forecast one, take it for true, forecast the next
    by_hand = model.predict(1, y=y[:380])
    np.testing.assert_allclose(by_hand, far[:1], rtol=1e-9)
    model.update(far[:1])
    np.testing.assert_allclose(model.predict(19), far[1:], rtol=1e-8)
    spread = model.predict_quantiles(20, quantiles=(0.05, 0.95))
    assert (spread[:, 1] > spread[:, 0]).all()
    assert 0.6 < model.backtest(y, stride=5).coverage(0.9) <= 1


# ---- on disk, options, randomness -------------------------------------------------------------


def test_what_was_saved_goes_on_alike(fitted: S4DForecaster, tmp_path: Path) -> None:
    rest = pd.Series(waves(), HOURS)[380:]
    frame = pd.DataFrame({"up": waves(), "down": -waves(seed=2)}, HOURS)
    X = pd.DataFrame({"known": waves(seed=3), "past": waves(seed=4)}, HOURS)
    several = S4DForecaster(**TINY, past_only=("past",)).fit(frame[:380], X[:380])
    several.update(frame[380:385], X[380:385])
    for i, model in enumerate((fitted, several)):
        model.save(tmp_path / str(i))
        loaded = S4DForecaster.load(tmp_path / str(i))
        assert loaded.get_params() == model.get_params()
        ahead = X[["known"]][385:391] if i else None
        again, before = loaded.predict(X_future=ahead), model.predict(X_future=ahead)
        np.testing.assert_allclose(again, before, rtol=1e-9)
        assert again.index.equals(before.index)
    loaded = S4DForecaster.load(tmp_path / "0")
    loaded.update(rest[:3])
    assert loaded.predict(1).index[0] == HOURS[383]
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".pkl", ".pt", ".pickle")]


def test_damaged_and_foreign_files_are_refused(fitted: S4DForecaster, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="holds no estimator"):
        S4DForecaster.load(tmp_path)
    fitted.save(tmp_path)
    past = tmp_path / "past.safetensors"
    content = bytearray(past.read_bytes())
    content[-3] ^= 1
    past.write_bytes(bytes(content))
    with pytest.raises(ValueError, match="is not the file that was saved"):
        S4DForecaster.load(tmp_path)
    past.unlink()
    with pytest.raises(FileNotFoundError, match=r"past\.safetensors is missing"):
        S4DForecaster.load(tmp_path)
    with pytest.raises(ValueError, match="holds a S4DForecaster, not a S4DRegressor"):
        s4d_torch.S4DRegressor.load(tmp_path)


def test_one_seed_one_forecast_and_the_callers_random_numbers_stay() -> None:
    y = waves()
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    first = S4DForecaster(**TINY).fit(y).predict()
    assert torch.equal(torch.rand(2), expected)
    np.testing.assert_array_equal(first, S4DForecaster(**TINY).fit(y).predict())
    other = S4DForecaster(**{**TINY, "random_state": 1}).fit(y)
    assert not np.array_equal(first, other.predict())


def test_progress_is_printed_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    S4DForecaster(**{**TINY, "epochs": 2, "verbose": 1}).fit(waves())
    assert "S4DForecaster: epoch 2/2, loss" in capsys.readouterr().out


def test_it_is_importable_from_the_front_door_and_refuses_to_guess() -> None:
    assert s4d_torch.S4DForecaster is S4DForecaster
    with pytest.raises(NotFittedError):
        S4DForecaster().predict()
    assert clone(S4DForecaster(horizon=7)).horizon == 7
