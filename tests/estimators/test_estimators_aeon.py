"""aeon's own checks, through an adapter to its interface."""

import warnings
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("aeon", reason="aeon is not installed; its checks need it")
    from aeon.classification import BaseClassifier
    from aeon.regression import BaseRegressor
    from aeon.testing.estimator_checking import check_estimator

from s4d_torch.estimators import S4DClassifier, S4DRegressor

TINY: dict[str, Any] = {"n_layers": 1, "d_model": 4, "d_state": 2, "missing": "interpolate"}
TAGS = {
    "capability:multivariate": True,
    "capability:unequal_length": True,
    "capability:missing_values": True,
    "capability:multithreading": True,
    "X_inner_type": ["np-list", "numpy3D"],
    "algorithm_type": "deeplearning",
}


class Adapter:
    """aeon keeps ``fit`` and ``predict`` to itself; X comes as aeon's collections, as they are."""

    def __init__(self, epochs: int = 20, random_state: int | None = None, n_jobs: int = 1) -> None:
        self.epochs = epochs
        self.random_state = random_state
        self.n_jobs = n_jobs
        super().__init__()

    def _made(self, kind: type[Any]) -> Any:
        options = {name: getattr(self, name) for name in ("epochs", "random_state", "n_jobs")}
        return kind(**TINY, **options)

    def _predict(self, X: Any) -> Any:
        return self.estimator_.predict(X)  # type: ignore[attr-defined]

    @classmethod
    def _get_test_params(cls, parameter_set: str = "default") -> dict[str, Any]:
        return {"epochs": 2}


class AeonS4DClassifier(Adapter, BaseClassifier):  # type: ignore[misc]
    _tags = TAGS

    def __init__(self, epochs: int = 20, random_state: int | None = None, n_jobs: int = 1) -> None:
        super().__init__(epochs, random_state, n_jobs)

    def _fit(self, X: Any, y: Any) -> Any:
        self.estimator_ = self._made(S4DClassifier).fit(X, y)
        return self

    def _predict_proba(self, X: Any) -> Any:
        return self.estimator_.predict_proba(X)


class AeonS4DRegressor(Adapter, BaseRegressor):  # type: ignore[misc]
    _tags = TAGS

    def __init__(self, epochs: int = 20, random_state: int | None = None, n_jobs: int = 1) -> None:
        super().__init__(epochs, random_state, n_jobs)

    def _fit(self, X: Any, y: Any) -> Any:
        self.estimator_ = self._made(S4DRegressor).fit(X, y)
        return self


@pytest.mark.filterwarnings("ignore")  # aeon's and pandas' own
@pytest.mark.parametrize("kind", [AeonS4DClassifier, AeonS4DRegressor])
def test_aeons_own_checks_pass(kind: type[Any]) -> None:
    results = check_estimator(kind)
    problems = {name: found for name, found in results.items() if found != "PASSED"}
    assert not problems
    assert len(results) > 15
