"""Classifier and regressor in scikit-learn style, over the same training loop."""

from s4d_torch._extras import missing_package

try:
    import sklearn  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "sklearn":
        raise
    raise missing_package("estimators", "scikit-learn", "estimators") from error

from s4d_torch.estimators.classifier import S4DClassifier
from s4d_torch.estimators.forecasting import S4DForecaster
from s4d_torch.estimators.regressor import S4DRegressor

__all__ = ["S4DClassifier", "S4DRegressor", "S4DForecaster"]
