"""The estimators as sktime knows classifiers and regressors; needs the extra ``sktime``.

X is any panel that sktime knows, of series of any lengths; it comes as a list of data frames.
``n_jobs`` is one of the ``options``: as a parameter, sktime would have it change no bit of what is
learned.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from s4d_torch._extras import missing_package
from s4d_torch.data.dataset import Kind
from s4d_torch.estimators.adapters.choice import Choice, test_params

try:
    from sktime.classification.base import BaseClassifier
    from sktime.regression.base import BaseRegressor
except ModuleNotFoundError as error:
    if error.name not in ("sktime", "pandas"):
        raise
    raise missing_package("estimators of sktime", "sktime", "sktime") from error

TAGS = {
    "authors": "The s4d-torch developers",
    "python_dependencies": ["torch", "scikit-learn"],
    "X_inner_mtype": "df-list",
    "y_inner_mtype": "numpy1D",
    "capability:multivariate": True,
    "capability:unequal_length": True,
    "capability:missing_values": True,
    "capability:random_state": True,
    "property:randomness": "derandomized",
}


class _Adapter(Choice):
    """sktime keeps ``fit`` and ``predict`` to itself and asks for those with an underscore."""

    def _fit(self, X: Any, y: Any) -> Any:
        self.estimator_ = self._made().fit(_series(X), y)
        return self

    def _predict(self, X: Any) -> Any:
        return self.estimator_.predict(_series(X))

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Small and quick ones, for sktime's own checks."""
        return test_params()


class SktimeS4DClassifier(_Adapter, BaseClassifier):  # type: ignore[misc]
    """:class:`~s4d_torch.S4DClassifier`, random features, or both, behind sktime's interface.

    Examples
    --------
    >>> import numpy as np
    >>> from s4d_torch.estimators.adapters.sktime_estimators import SktimeS4DClassifier
    >>> X = np.random.default_rng(0).normal(size=(12, 1, 30))
    >>> classifier = SktimeS4DClassifier("features").fit(X, np.arange(12) % 2)
    >>> classifier.predict(X).shape
    (12,)
    """

    _tags: ClassVar[dict[str, Any]] = {**TAGS, "capability:predict_proba": True}
    _kind: ClassVar[Kind] = "classification"

    def _predict_proba(self, X: Any) -> Any:
        return self.estimator_.predict_proba(_series(X))


class SktimeS4DRegressor(_Adapter, BaseRegressor):  # type: ignore[misc]
    """:class:`~s4d_torch.S4DRegressor`, random features, or both, behind sktime's interface.

    Examples
    --------
    >>> import numpy as np
    >>> from s4d_torch.estimators.adapters.sktime_estimators import SktimeS4DRegressor
    >>> X = np.random.default_rng(0).normal(size=(12, 1, 30))
    >>> regressor = SktimeS4DRegressor("features").fit(X, np.arange(12) % 2)
    >>> regressor.predict(X).shape
    (12,)
    """

    _tags: ClassVar[dict[str, Any]] = TAGS
    _kind: ClassVar[Kind] = "regression"


def _series(X: Any) -> Any:
    """Data frames (time, channels) as arrays (channels, time)."""
    return [np.asarray(frame).T for frame in X]
