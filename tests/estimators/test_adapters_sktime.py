"""sktime's own checks of the adapters, and that they say what the estimators say."""

import warnings
from typing import Any

import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("sktime", reason="sktime is not installed; its checks need it")
    from sktime.utils.estimator_checks import check_estimator

    from s4d_torch.estimators.adapters.sktime_estimators import (
        SktimeS4DClassifier,
        SktimeS4DRegressor,
    )

from s4d_torch import S4DClassifier, S4DFeatureRegressor

pytestmark = pytest.mark.filterwarnings("ignore")  # sktime's and pandas' own
TINY = {"n_layers": 1, "d_model": 4, "d_state": 2, "epochs": 2}
X = np.random.default_rng(0).normal(size=(12, 2, 20))
Y = np.array(["a", "b"])[np.arange(12) % 2]


@pytest.mark.parametrize("kind", [SktimeS4DClassifier, SktimeS4DRegressor])
def test_sktimes_own_checks_pass(kind: type[Any]) -> None:
    results = check_estimator(kind, verbose=False)
    assert not {name: found for name, found in results.items() if found != "PASSED"}
    assert len(results) > 15


def test_adapters_say_what_the_estimators_say() -> None:
    for model in ("trained", "ensemble"):
        adapter = SktimeS4DClassifier(model, TINY, random_state=0).fit(X, Y)
        own = S4DClassifier(**TINY, random_state=0, n_jobs=1, ensemble=model == "ensemble")
        np.testing.assert_array_equal(adapter.predict_proba(X), own.fit(X, Y).predict_proba(X))
    adapter = SktimeS4DRegressor("features", random_state=0).fit(X, X[:, 0, 0])
    own = S4DFeatureRegressor(random_state=0, n_jobs=1).fit(X, X[:, 0, 0])
    np.testing.assert_allclose(adapter.predict(X), own.predict(X))
    with pytest.raises(ValueError, match=r"model .*forest"):
        SktimeS4DClassifier("forest").fit(X, Y)
