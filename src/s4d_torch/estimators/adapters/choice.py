"""What an adapter wraps: a trained estimator, one of features, or an ensemble of both."""

from typing import Any, ClassVar

from s4d_torch.data.dataset import Kind
from s4d_torch.estimators.classifier import S4DClassifier
from s4d_torch.estimators.features import S4DFeatureClassifier, S4DFeatureRegressor
from s4d_torch.estimators.regressor import S4DRegressor
from s4d_torch.nn import validate

MODELS = ("trained", "features", "ensemble")
TINY = {"n_layers": 1, "d_model": 4, "d_state": 2, "epochs": 2}
FEW = {"n_systems": 4, "n_filters": 4}


class Choice:
    """The options of an adapter, and the estimator that they make.

    ``model`` is "trained", "features" or "ensemble"; ``options`` are those of the estimator, as a
    dict. Missing values are interpolated, unless they say otherwise.
    """

    _kind: ClassVar[Kind]
    n_jobs: int = 1

    def __init__(
        self,
        model: str = "trained",
        options: dict[str, Any] | None = None,
        random_state: Any = None,
    ) -> None:
        self.model = model
        self.options = options
        self.random_state = random_state
        super().__init__()

    def _made(self) -> Any:
        validate.one_of("model", self.model, MODELS)
        classes = self._kind == "classification"
        if self.model == "features":
            kind: type[Any] = S4DFeatureClassifier if classes else S4DFeatureRegressor
        else:
            kind = S4DClassifier if classes else S4DRegressor
        options = {"missing": "interpolate", "n_jobs": self.n_jobs, **(self.options or {})}
        if self.model == "ensemble":
            options["ensemble"] = True
        return kind(random_state=self.random_state, **options)


def test_params() -> list[dict[str, Any]]:
    """Small and quick ones, for the checks of the packages."""
    return [
        {"model": "trained", "options": TINY},
        {"model": "features", "options": FEW},
    ]
