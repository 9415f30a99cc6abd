"""sktime's own checks of the adapter, and that it says what the forecaster says."""

import warnings

import numpy as np
import pandas as pd
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("sktime", reason="sktime is not installed; its checks need it")
    from sktime.utils.estimator_checks import check_estimator

    from s4d_torch.estimators.forecasting.sktime_forecaster import SktimeS4DForecaster

from s4d_torch import S4DForecaster

pytestmark = pytest.mark.filterwarnings("ignore")  # sktime's and pandas' own


def test_sktimes_own_checks_pass() -> None:
    results = check_estimator(SktimeS4DForecaster, verbose=False)
    assert not {name: found for name, found in results.items() if found != "PASSED"}
    assert len(results) > 100


def test_the_adapter_says_what_the_forecaster_says() -> None:
    index = pd.period_range("2000-01", periods=120, freq="M")
    y = pd.Series(np.sin(np.arange(120) / 2), index)
    adapter = SktimeS4DForecaster(window=12, epochs=0).fit(y, fh=[1, 3])
    own = S4DForecaster(window=12, epochs=0, horizon=3).fit(y.to_frame())
    np.testing.assert_allclose(adapter.predict(), own.predict().iloc[[0, 2], 0])
    interval = adapter.predict_interval(coverage=0.9).to_numpy()
    exact = own.predict_quantiles(quantiles=(0.05, 0.95)).to_numpy()[[0, 2]]
    np.testing.assert_allclose(interval, exact)
    wider = adapter.predict_interval(coverage=0.98).to_numpy()
    assert (wider[:, 0] < interval[:, 0]).all()
    assert (wider[:, 1] > interval[:, 1]).all()
