"""A classifier for time series in scikit-learn's way: fit, predict, cross-validate, save.

Handwritten digits, read as a series of 64 pixels, so that nothing has to be downloaded.
"""

# %% Series: (cases, time), (cases, channels, time), or a list of (channels, time) of any lengths
from pathlib import Path
from tempfile import TemporaryDirectory

from sklearn.datasets import load_digits
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import GridSearchCV, train_test_split

from s4d_torch.estimators import S4DClassifier

X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(X, y, train_size=900, stratify=y, random_state=0)

# %% A small model, so that this takes seconds; without arguments it is larger, and better
model = S4DClassifier(d_model=32, n_layers=2, epochs=20, random_state=0).fit(X, y)
print(f"S4D   {100 * model.score(X_test, y_test):.1f} %")
print(f"ridge {100 * RidgeClassifier().fit(X, y).score(X_test, y_test):.1f} %")
print("probabilities", model.predict_proba(X_test[:2]).round(2).max(axis=1))

# %% The size of the state, chosen by cross-validation like any other parameter
search = GridSearchCV(
    S4DClassifier(d_model=16, n_layers=1, epochs=25, random_state=0),
    {"d_state": [2, 32]},
    cv=2,
)
search.fit(X[:300], y[:300])
print("chosen:", search.best_params_, "scores", search.cv_results_["mean_test_score"].round(2))

# %% Series of different lengths: the last rows of some images are missing
ragged = [series[None, : 64 - 8 * (place % 3)] for place, series in enumerate(X_test)]
print(f"with missing rows {100 * model.score(ragged, y_test):.1f} %")

# %% Saved without pickle, and read again
with TemporaryDirectory() as folder:
    model.save(Path(folder) / "digits")
    again = S4DClassifier.load(Path(folder) / "digits")
print("the same after reading:", (again.predict(X_test) == model.predict(X_test)).all())
