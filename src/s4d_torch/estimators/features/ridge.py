"""Ridge regression on many standardised features, its penalty by leaving out one case at a time.

With the centred, standardised features Z (n, p), the kernel K = Z Z^T and centred targets Y,

    c = (K + alpha I)^-1 Y        prediction  z Z^T c + mean        e_i = c_i / h_i

where e_i is the error on case i of a fit to all the others, and h_i the diagonal of
``(K + alpha I)^-1`` without the part of the mean, which is not penalised, 1 / (n alpha). One
eigendecomposition serves all penalties. With more cases than features the same is written with
Z^T Z (p, p).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from s4d_torch.data.dataset import Array

PENALTIES = np.logspace(-3, 5, 17)
COLUMNS = 1024  # features at once in double precision
TINY = 1e-300


class Scores(NamedTuple):
    """Of one penalty: what predicts, and the targets as predicted with each case left out."""

    penalty: float
    error: float
    solution: Array
    left_out: Array


@dataclass(frozen=True)
class Ridge:
    """``features @ weights + offset``, (cases, outputs), on features as they are."""

    weights: Array
    offset: Array
    penalty: float

    def __call__(self, features: Array) -> Array:
        found = np.tile(self.offset, (len(features), 1))
        for columns in _blocks(features.shape[1]):
            found += features[:, columns].astype(np.float64) @ self.weights[columns]
        return found


def fit_ridge(features: Array, targets: Array, penalties: Array = PENALTIES) -> tuple[Ridge, Array]:
    """The ridge with the least squared error on cases left out, and what it predicts for them.

    features (n, p) float32, targets (n, outputs). A feature that never changes has no weight.
    """
    n, p = features.shape
    center, scale = _moments(features)
    mean = targets.mean(0)
    Y = targets - mean
    blocks = [(columns, center[columns], scale[columns]) for columns in _blocks(p)]

    def standard(block: tuple[slice, Array, Array]) -> Array:
        columns, shift, width = block
        return np.asarray((features[:, columns] - shift) * width)

    if n <= p:
        kernel = np.zeros((n, n))
        for block in blocks:
            Z = standard(block)
            kernel += Z @ Z.T
        best = _best(_dual(kernel, Y, penalties))
        weights = np.concatenate([standard(block).T @ best.solution for block in blocks])
    else:
        Z = np.concatenate([standard(block) for block in blocks], axis=1)
        best = _best(_primal(Z, Y, penalties))
        weights = best.solution
    weights *= scale[:, None]
    return Ridge(weights, mean - center @ weights, best.penalty), best.left_out + mean


def _blocks(columns: int) -> list[slice]:
    return [slice(first, first + COLUMNS) for first in range(0, columns, COLUMNS)]


def _moments(features: Array) -> tuple[Array, Array]:
    """Mean and inverse spread of each feature, 0 for one that never changes."""
    center = features.mean(0, dtype=np.float64)
    spread = np.concatenate(
        [(features[:, c] - center[c]).std(0) for c in _blocks(features.shape[1])]
    )
    varied = spread > 1e-6 * np.maximum(1e-6, np.abs(center))
    return center, np.where(varied, 1 / np.where(varied, spread, 1), 0.0)


def _best(scores: list[Scores]) -> Scores:
    return min(scores, key=lambda each: each.error)


def _dual(kernel: Array, Y: Array, penalties: Array) -> list[Scores]:
    n = len(kernel)
    values, vectors = np.linalg.eigh(kernel)
    values, projected, squares = np.maximum(values, 0), vectors.T @ Y, vectors**2
    scores = []
    for penalty in penalties:
        inverse = 1 / (values + penalty)
        c = vectors @ (inverse[:, None] * projected)
        h = np.maximum(squares @ inverse - 1 / (n * penalty), TINY)
        errors = c / h[:, None]
        scores.append(Scores(float(penalty), _mean_square(errors), c, Y - errors))
    return scores


def _primal(Z: Array, Y: Array, penalties: Array) -> list[Scores]:
    n = len(Z)
    values, vectors = np.linalg.eigh(Z.T @ Z)
    values, turned = np.maximum(values, 0), Z @ vectors
    projected, squares = turned.T @ Y, turned**2
    scores = []
    for penalty in penalties:
        inverse = 1 / (values + penalty)
        w = vectors @ (inverse[:, None] * projected)
        leverage = squares @ inverse + 1 / n
        errors = (Y - Z @ w) / np.maximum(1 - leverage, TINY)[:, None]
        scores.append(Scores(float(penalty), _mean_square(errors), w, Y - errors))
    return scores


def _mean_square(errors: Array) -> float:
    return float(np.mean(np.square(errors)))
