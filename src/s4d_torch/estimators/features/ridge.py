"""Ridge regression on many standardised features, its penalty by leaving out one case at a time.

With the centred, standardised features Z (n, p), the kernel K = Z Z^T and centred targets Y,

    c = (K + alpha I)^-1 Y        prediction  z Z^T c + mean        e_i = c_i / h_i

where e_i is the error on case i of a fit to all the others, and h_i the diagonal of
``(K + alpha I)^-1`` without the part of the mean, which is not penalised, 1 / (n alpha). One
eigendecomposition serves all penalties. With more cases than features the same is written with
Z^T Z (p, p).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from s4d_torch.data.dataset import Array

PENALTIES = np.logspace(-3, 5, 17)
BLOCK = 1024  # features or cases at once in double precision
TINY = 1e-300


Solution = tuple[Array, Array, float]  # weights, predictions of cases left out, the penalty


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
    solve = _dual if n <= p else _primal
    weights, left_out, penalty = solve(
        _Standard(features, center, scale), targets - mean, penalties
    )
    weights *= scale[:, None]
    return Ridge(weights, mean - center @ weights, penalty), left_out + mean


@dataclass(frozen=True)
class _Standard:
    """Standardised features in double precision, a block of them at a time."""

    features: Array
    center: Array
    scale: Array

    def columns(self) -> Iterator[Array]:
        for block in _blocks(self.features.shape[1]):
            yield (self.features[:, block] - self.center[block]) * self.scale[block]

    def rows(self) -> Iterator[tuple[slice, Array]]:
        for block in _blocks(len(self.features)):
            yield block, (self.features[block] - self.center) * self.scale


def _dual(Z: _Standard, Y: Array, penalties: Array) -> Solution:
    n = len(Y)
    kernel = np.zeros((n, n))
    for block in Z.columns():
        kernel += block @ block.T
    values, vectors = np.linalg.eigh(kernel)
    inverses = 1 / (np.maximum(values, 0)[:, None] + penalties)  # (n, penalties)
    projected = vectors.T @ Y
    h = np.maximum(vectors**2 @ inverses - 1 / (n * penalties), TINY)
    solutions = [vectors @ (inverse[:, None] * projected) for inverse in inverses.T]
    errors = [c / each[:, None] for c, each in zip(solutions, h.T, strict=True)]
    best = _least(errors)
    weights = np.concatenate([block.T @ solutions[best] for block in Z.columns()])
    return weights, Y - errors[best], float(penalties[best])


def _primal(Z: _Standard, Y: Array, penalties: Array) -> Solution:
    n, p = Z.features.shape
    gram, crossed = np.zeros((p, p)), np.zeros((p, Y.shape[1]))
    for rows, block in Z.rows():
        gram += block.T @ block
        crossed += block.T @ Y[rows]
    values, vectors = np.linalg.eigh(gram)
    inverses = 1 / (np.maximum(values, 0)[:, None] + penalties)  # (p, penalties)
    projected = vectors.T @ crossed
    errors = [np.empty_like(Y) for _ in penalties]
    for rows, block in Z.rows():
        turned = block @ vectors
        rest = np.maximum(1 - 1 / n - turned**2 @ inverses, TINY)  # one minus the leverage
        for i, inverse in enumerate(inverses.T):
            found = turned @ (inverse[:, None] * projected)
            errors[i][rows] = (Y[rows] - found) / rest[:, i : i + 1]
    best = _least(errors)
    weights = vectors @ (inverses[:, best, None] * projected)
    return weights, Y - errors[best], float(penalties[best])


def _least(errors: list[Array]) -> int:
    return int(np.argmin([np.square(each).mean() for each in errors]))


def _blocks(size: int) -> list[slice]:
    return [slice(first, first + BLOCK) for first in range(0, size, BLOCK)]


def _moments(features: Array) -> tuple[Array, Array]:
    """Mean and inverse spread of each feature, 0 for one that never changes."""
    center = features.mean(0, dtype=np.float64)
    spread = np.concatenate(
        [(features[:, c] - center[c]).std(0) for c in _blocks(features.shape[1])]
    )
    varied = spread > 1e-6 * np.maximum(1e-6, np.abs(center))
    return center, np.where(varied, 1 / np.where(varied, spread, 1), 0.0)
