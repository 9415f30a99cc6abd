"""The linear map from a window to the future, in closed form."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from s4d_torch.data.dataset import Array, Split
from s4d_torch.estimators.forecasting.network import CENTERS

PENALTIES = np.logspace(-5, 2, 22)  # times the mean square of what windows hold
AT_ONCE = 2048  # windows


class LinearMap(NamedTuple):
    """``y = m + A (x - m)`` with A (horizon, window) and m the ``center`` of the window."""

    weight: Array
    center: str
    penalty: float


class _Moments(NamedTuple):
    """Sums over windows: X'X (window, window), X'Y (window, horizon), the sum and number of Y^2."""

    xx: Array
    xy: Array
    yy: float
    numbers: int

    def error(self, A: Array) -> float:
        """Mean squared error of ``Y = X A``, A (window, horizon)."""
        found = np.vdot(A, self.xx @ A) - 2 * np.vdot(A, self.xy) + self.yy
        return float(found) / max(1, self.numbers)


def solve(train: Split, validation: Split | None, window: int) -> LinearMap:
    """Least squares with a penalty on A; center and penalty are those best in validation.

    The penalty draws forecasts to the center: the mean of a window, or its last value. Without a
    validation split, the mean and a penalty of 0.01.
    """
    best: tuple[float, LinearMap] | None = None
    for center in CENTERS if validation is not None else CENTERS[:1]:
        learned = _moments(train, window, center)
        judge = None if validation is None else _moments(validation, window, center)
        values, vectors = np.linalg.eigh(learned.xx)
        turned = vectors.T @ learned.xy
        unit = max(float(values.mean()), 1e-12)  # so that a penalty means the same everywhere
        for penalty in PENALTIES if judge is not None else (0.01,):
            A = vectors @ (turned / (np.maximum(values, 0) + penalty * unit)[:, None])
            error = 0.0 if judge is None else judge.error(A)
            if best is None or error < best[0]:
                best = error, LinearMap(A.T, center, float(penalty))
    assert best is not None
    return best[1]


def _moments(split: Split, window: int, center: str) -> _Moments:
    horizon = split.targets.shape[1]
    xx, xy = np.zeros((window, window)), np.zeros((window, horizon))
    yy = 0.0
    stored = split.inputs[0].values
    for first in range(0, len(split), AT_ONCE):
        rows = split.index[first : first + AT_ONCE]
        x = np.asarray(stored[rows, :window, 0])
        y = np.asarray(split.targets[rows], dtype=x.dtype)
        shift = x.mean(1, keepdims=True) if center == "mean" else x[:, -1:]
        x, y = x - shift, y - shift
        xx += x.T @ x
        xy += x.T @ y
        yy += float(np.square(y, dtype=np.float64).sum())
    return _Moments(xx, xy, yy, len(split) * horizon)
