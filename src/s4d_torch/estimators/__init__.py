"""Classifiers and regressors in scikit-learn style: trained by the training loop, or a ridge on
random features.
"""

from s4d_torch._extras import missing_package

try:
    import sklearn  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "sklearn":
        raise
    raise missing_package("estimators", "scikit-learn", "estimators") from error

from s4d_torch.estimators.classifier import S4DClassifier
from s4d_torch.estimators.features import (
    S4DFeatureClassifier,
    S4DFeatureRegressor,
    S4DFeatures,
)
from s4d_torch.estimators.forecasting import S4DForecaster
from s4d_torch.estimators.regressor import S4DRegressor

__all__ = [
    "S4DClassifier",
    "S4DFeatureClassifier",
    "S4DFeatureRegressor",
    "S4DFeatures",
    "S4DForecaster",
    "S4DRegressor",
]
