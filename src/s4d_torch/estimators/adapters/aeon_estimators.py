"""The estimators as aeon knows classifiers and regressors; needs the extra ``aeon``.

X is any of aeon's collections: an array (cases, channels, time) or a list of (channels, time).
"""

from __future__ import annotations

from typing import Any, ClassVar

from s4d_torch._extras import missing_package
from s4d_torch.data.dataset import Kind
from s4d_torch.estimators.adapters.choice import Choice, test_params

try:
    from aeon.classification import BaseClassifier
    from aeon.regression import BaseRegressor
except ModuleNotFoundError as error:
    if error.name != "aeon":
        raise
    raise missing_package("estimators of aeon", "aeon", "aeon") from error

TAGS = {
    "X_inner_type": ["np-list", "numpy3D"],
    "capability:multivariate": True,
    "capability:unequal_length": True,
    "capability:missing_values": True,
    "capability:multithreading": True,
    "algorithm_type": "deeplearning",
}


class _Adapter(Choice):
    """aeon keeps ``fit`` and ``predict`` to itself and asks for those with an underscore."""

    def __init__(
        self,
        model: str = "trained",
        options: dict[str, Any] | None = None,
        random_state: Any = None,
        n_jobs: int = 1,
    ) -> None:
        self.n_jobs = n_jobs
        super().__init__(model, options, random_state)

    def _fit(self, X: Any, y: Any) -> Any:
        self.estimator_ = self._made().fit(X, y)
        return self

    def _predict(self, X: Any) -> Any:
        return self.estimator_.predict(X)

    @classmethod
    def _get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        return test_params()


class AeonS4DClassifier(_Adapter, BaseClassifier):  # type: ignore[misc]
    """:class:`~s4d_torch.S4DClassifier`, random features, or both, behind aeon's interface."""

    _tags: ClassVar[dict[str, Any]] = TAGS
    _kind: ClassVar[Kind] = "classification"

    def _predict_proba(self, X: Any) -> Any:
        return self.estimator_.predict_proba(X)


class AeonS4DRegressor(_Adapter, BaseRegressor):  # type: ignore[misc]
    """:class:`~s4d_torch.S4DRegressor`, random features, or both, behind aeon's interface."""

    _tags: ClassVar[dict[str, Any]] = TAGS
    _kind: ClassVar[Kind] = "regression"
