"""What a forecaster refuses, or handles, and with which sentence."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from s4d_torch.estimators import S4DForecaster

Array = np.ndarray[Any, Any]
QUICK: dict[str, Any] = {"horizon": 6, "window": 12, "epochs": 0, "random_state": 0, "n_jobs": 1}
DAYS = pd.date_range("2024-01-01", periods=200, freq="D")


def noise(count: int = 200, columns: int | None = None) -> Array:
    size = count if columns is None else (count, columns)
    return np.random.default_rng(0).normal(size=size)


def refuses(match: str, y: Any, X: Any = None, times: Any = None, **options: Any) -> None:
    with pytest.raises(ValueError, match=match):
        S4DForecaster(**{**QUICK, **options}).fit(y, X, times=times)


# ---- time stamps ------------------------------------------------------------------------------


def test_a_gap_in_the_index_is_named() -> None:
    gap = pd.Series(noise(), DAYS).drop(DAYS[50])
    refuses("between 2024-02-19 and 2024-02-21 .row 50. there is a gap.*asfreq", gap)
    filled = gap.asfreq("D")  # what the sentence advises
    assert len(S4DForecaster(**QUICK, missing="interpolate").fit(filled).predict()) == 6


def test_a_duplicate_time_stamp_is_named() -> None:
    index = DAYS.to_numpy().copy()
    index[51] = index[50]
    refuses("2024-02-20 occurs twice, in rows 50 and 51", pd.Series(noise(), index))


def test_rows_out_of_order_and_without_a_time_are_named() -> None:
    refuses("sort the rows by time", pd.Series(noise(), DAYS[::-1]))
    index = DAYS.to_numpy().copy()
    index[3] = np.datetime64("NaT")
    refuses("row 3 has no time stamp", noise(), times=index)
    refuses("200 rows and times .100,.", noise(), times=DAYS[:100])
    refuses("has an index of its own", pd.Series(noise(), DAYS), times=DAYS)
    refuses("expected time stamps", pd.Series(noise(), [f"day {i}" for i in range(200)]))
    refuses("there is a gap", pd.Series(noise(3), [0, 1, 5]))


def test_series_of_different_steps_are_not_mixed() -> None:
    hours = pd.date_range("2024-01-01", periods=200, freq="h")
    refuses("different steps in time", [pd.Series(noise(), DAYS), pd.Series(noise(), hours)])


# ---- lengths ----------------------------------------------------------------------------------


def test_a_horizon_longer_than_the_series() -> None:
    refuses("y has 200 rows, too few for a horizon of 300", noise(), horizon=300)
    refuses("fewer than window 195 . horizon 6; use window=194", noise(), window=195)
    model = S4DForecaster(**QUICK).fit(noise())
    with pytest.raises(ValueError, match=r"beyond the 6 steps of fit; use S4DForecaster.horizon=7"):
        model.predict(7)
    with pytest.raises(ValueError, match="horizon must be"):
        model.predict(0)
    with pytest.raises(ValueError, match="too few to test with"):
        model.backtest(noise(14))


def test_one_series_shorter_than_the_window_is_named() -> None:
    refuses(r"y\['b'\] has 17 rows, fewer than window 12", {"a": noise(), "b": noise(17)})
    model = S4DForecaster(**QUICK).fit({"a": noise(), "b": noise(30)})
    with pytest.raises(ValueError, match="y has 11 rows, fewer than the window of 12"):
        model.predict(y=noise(11))


def test_short_series_get_a_window_that_fits() -> None:
    for count in (8, 9, 12, 20, 40):
        model = S4DForecaster(horizon=3, epochs=1, n_layers=1, d_model=4, d_state=2).fit(
            noise(count)
        )
        assert 2 <= model.window_ <= count - 3
        assert np.isfinite(model.predict()).all()
        assert np.isfinite(model.predict_quantiles()).all()


# ---- values -----------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [0.0, 5.0, -1e9])
@pytest.mark.parametrize("strategy", ["direct", "recursive"])
def test_a_constant_series_stays_constant(level: float, strategy: str) -> None:
    options = {**QUICK, "epochs": 1, "n_layers": 1, "d_model": 4, "d_state": 2}
    model = S4DForecaster(**options, strategy=strategy).fit(np.full(100, level))
    np.testing.assert_allclose(model.predict(), level, rtol=1e-6, atol=1e-2)
    assert np.isfinite(model.predict_quantiles()).all()


def test_a_constant_series_among_others_does_no_harm() -> None:
    model = S4DForecaster(**QUICK).fit({"flat": np.full(100, 3.0), "busy": noise()})
    np.testing.assert_allclose(model.predict()["flat"], 3.0, atol=1e-6)


def test_values_that_are_no_numbers() -> None:
    y = noise()
    y[7] = np.nan
    refuses("missing values .NaN., the first in row 7.*missing='interpolate'", y)
    y[7] = np.inf
    refuses("row 7, column 0 is inf", y, missing="interpolate")
    refuses("holds more than numbers", np.array(["a"] * 50))
    refuses("Complex data not supported", noise() + 1j)
    refuses("no value at all in column 1", np.column_stack([noise(), np.full(200, np.nan)]),
            missing="interpolate")  # fmt: skip
    refuses("expected .time", np.zeros((3, 4, 5)))
    refuses("expected .time", np.zeros(0))
    refuses("holds no series", {})
    refuses("needs y", None)
    refuses("has 2 columns", [noise(), noise(200, 2)])


# ---- covariates -------------------------------------------------------------------------------


def test_covariates_that_end_too_early() -> None:
    refuses("X ends too early: it has 150 rows, y has 200", noise(), noise(150, 2))
    model = S4DForecaster(**QUICK).fit(noise(), noise(200, 2))
    with pytest.raises(
        ValueError, match="X_future ends too early: it has 4 rows, the horizon is 6"
    ):
        model.predict(X_future=noise(4, 2))
    assert len(model.predict(4, X_future=noise(4, 2))) == 4
    with pytest.raises(ValueError, match="give X_future with 6 rows"):
        model.predict()
    with pytest.raises(ValueError, match="X_future has 1 columns"):
        model.predict(X_future=noise(6, 1))
    with pytest.raises(ValueError, match="missing values"):
        model.predict(X_future=np.full((6, 2), np.nan))
    with pytest.raises(ValueError, match="X_new has 0 columns, X had 2"):
        model.update(noise(3))
    with pytest.raises(ValueError, match="X has 0 columns, it had 2"):
        model.backtest(noise())


def test_covariates_of_another_time_or_series() -> None:
    y, X = pd.Series(noise(), DAYS), pd.DataFrame(noise(200, 1), DAYS, columns=["wind"])
    refuses("does not go with the time stamps: row 0", y, X.shift(1, freq="D"))
    refuses("X has 200 rows, y has 150", noise(150), noise(200, 2))
    refuses("y holds 2 series and X one series", [noise(), noise()], noise(200, 1))
    model = S4DForecaster(**QUICK).fit(y, X)
    ahead = pd.DataFrame(noise(6, 1), DAYS[-6:], columns=["wind"])
    with pytest.raises(ValueError, match="row 0 is of 2024-07-13"):
        model.predict(X_future=ahead)
    refuses("past_only, which takes a column of X, 'rain'", y, X, past_only=("rain",))
    refuses("there is no X", y, past_only=("wind",))
    refuses("reads its own forecasts", y, X, past_only=("wind",), strategy="recursive")
    without = S4DForecaster(**QUICK, past_only=("wind",)).fit(y, X)
    assert len(without.predict()) == 6
    with pytest.raises(ValueError, match="no covariates known beforehand"):
        without.predict(X_future=ahead)


# ---- updates, options -------------------------------------------------------------------------


def test_updates_have_to_follow() -> None:
    model = S4DForecaster(**QUICK).fit(pd.Series(noise(150), DAYS[:150]))
    with pytest.raises(ValueError, match="does not follow what came before: row 0"):
        model.update(pd.Series(noise(5), DAYS[151:156]))
    with pytest.raises(ValueError, match="1 series of 2 targets, fit had 1 of 1"):
        model.update(noise(5, 2))
    model.update(pd.Series(noise(5), DAYS[150:155]))
    assert model.predict().index[0] == DAYS[155]
    several = S4DForecaster(**QUICK).fit([noise(), noise(100)])
    with pytest.raises(ValueError, match="as many for every series"):
        several.update([noise(3), noise(4)])


def test_series_without_times_where_fit_had_them() -> None:
    model = S4DForecaster(**QUICK).fit(pd.Series(noise(), DAYS))
    with pytest.raises(ValueError, match="their week is a covariate"):
        model.predict(y=noise())
    hours = pd.date_range("2024-01-01", periods=200, freq="h")
    with pytest.raises(ValueError, match="a row every 3600 s, in fit it was every 86400 s"):
        model.predict(y=pd.Series(noise(), hours))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"horizon": 0}, "horizon must be at least 1"),
        ({"window": 1}, "window must be at least 2"),
        ({"epochs": -1}, "epochs must be 0"),
        ({"quantiles": (0.5, 0.1)}, "quantiles must ascend"),
        ({"quantiles": (0.0, 0.5)}, "between 0 and 1"),
        ({"quantiles": 0.5}, "between 0 and 1"),
        ({"strategy": "both"}, "strategy"),
        ({"missing": "drop"}, "missing"),
        ({"validation_fraction": 1.0}, "validation_fraction must be in"),
        ({"validation_fraction": "half"}, "validation_fraction"),
        ({"validation_fraction": 0.01}, "that part needs the horizon of 6"),
        ({"lr": "fast"}, "lr must be"),
        ({"past_only": "wind"}, "past_only must be a tuple"),
    ],
)
def test_options_are_judged_in_fit(options: dict[str, Any], match: str) -> None:
    refuses(match, noise(), **options)


def test_a_method_must_be_causal() -> None:
    from s4d_torch import Method

    refuses("bidirectional", noise(), method=Method(bidirectional=True))


def test_backtests_say_what_they_cannot_do() -> None:
    model = S4DForecaster(**QUICK).fit(noise())
    with pytest.raises(ValueError, match="start 5 leaves no window of 12"):
        model.backtest(noise(), start=5)
    with pytest.raises(ValueError, match=r"an interval of 0\.7 goes from 0\.15"):
        model.backtest(noise()).coverage(0.7)
    with pytest.raises(ValueError, match="stride"):
        model.backtest(noise(), stride=0)
