"""Random S4D features: frozen state spaces, pooled into numbers that a ridge learns from.

``bank`` draws the filters, ``pooling`` runs series through them (``pooling_code`` are its loops as
machine code) and ``ridge`` learns; around them a transformer, a classifier and a regressor.
"""

from s4d_torch.estimators.features.classifier import S4DFeatureClassifier
from s4d_torch.estimators.features.regressor import S4DFeatureRegressor
from s4d_torch.estimators.features.transformer import S4DFeatures

__all__ = ["S4DFeatureClassifier", "S4DFeatureRegressor", "S4DFeatures"]
