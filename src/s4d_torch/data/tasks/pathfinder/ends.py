"""Which ends of two curves get the dots, so that only the course of the curves tells the label.

Two curves have four pairs of ends on different curves (label 0) and two on one curve (label 1).
The kinds look different: the ends of one curve tend to be nearer, or to point the same way. So a
pair is kept only with the probability that makes both kinds look alike: with p(x) the density of
what is seen of a pair among those of its own kind, q(x) that among the other kind, and
min(1, q(x) / p(x)) the probability, min(p, q) remains of both. A logistic regression on pilot
scenes, with all products of two features, estimates log p / q.

Pairs of both kinds are chosen from the same scene, whatever the label will be: nothing else in an
image can depend on it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from s4d_torch.data.dataset import Array

# Ends 0 and 1 belong to the first curve, 2 and 3 to the second.
PAIRS = np.array([[0, 2], [0, 3], [1, 2], [1, 3], [0, 1], [2, 3]])
DIFFERENT, SAME = PAIRS[:4], PAIRS[4:]
RIDGE = 1.0
NEWTON_STEPS = 12


def describe(points: Array, inward: Array, size: float) -> Array:
    """What is seen of each of ``PAIRS``, (..., 6, 7).

    Of ends at ``points`` (..., 4, 2), from which the curve leaves in directions ``inward``
    (..., 4, 2): how far apart they are, how much each curve heads for the other end, the lesser
    first, how much they head the same way, how far the ends are from the centre of the image, the
    nearer first, and how far the middle between them is.
    """
    a, b = (points[..., PAIRS[:, side], :] / size - 0.5 for side in (0, 1))
    leave_a, leave_b = (inward[..., PAIRS[:, side], :] for side in (0, 1))
    distance = np.linalg.norm(b - a, axis=-1)
    towards = (b - a) / distance[..., None]
    heads = np.stack([(leave_a * towards).sum(-1), -(leave_b * towards).sum(-1)], axis=-1)
    off_centre = np.stack([np.linalg.norm(a, axis=-1), np.linalg.norm(b, axis=-1)], axis=-1)
    parallel = (leave_a * leave_b).sum(-1)
    middle = np.linalg.norm(a + b, axis=-1) / 2
    return np.stack(
        [
            distance,
            heads.min(-1),
            heads.max(-1),
            parallel,
            off_centre.min(-1),
            off_centre.max(-1),
            middle,
        ],
        axis=-1,
    )


@dataclass(frozen=True)
class Odds:
    """Log odds that a pair of ends belongs to one curve: z' weights z, z = (1, standardised)."""

    shift: Array
    scale: Array
    weights: Array

    def __call__(self, seen: Array) -> Array:
        return np.einsum("...i,ij,...j->...", z := self._z(seen), self.weights, z)

    def _z(self, seen: Array) -> Array:
        ones = np.ones((*seen.shape[:-1], 1))
        return np.concatenate([ones, (seen - self.shift) / self.scale], axis=-1)

    @staticmethod
    def fit(seen: Array) -> Odds:
        """From what is seen of all pairs of many scenes, (n, 6, 7)."""
        flat = seen.reshape(-1, seen.shape[-1])
        # Rounded, so that no machine's way of adding up can change which pair is kept.
        shift, scale = np.round(flat.mean(axis=0), 4), np.round(flat.std(axis=0), 4)
        z = Odds(shift, scale, np.zeros(0))._z(flat)
        i, j = np.triu_indices(z.shape[1])
        products = z[:, i] * z[:, j]
        same = np.tile(np.arange(len(PAIRS)) >= len(DIFFERENT), len(seen))
        counts = np.where(same, len(DIFFERENT) / len(SAME), 1.0)  # both kinds weigh the same
        beta = np.zeros(len(i))
        for _ in range(NEWTON_STEPS):  # by einsum: threads of a matrix library take longer
            p = 1 / (1 + np.exp(-np.einsum("ni,i->n", products, beta).clip(-30, 30)))
            gradient = np.einsum("ni,n->i", products, counts * (same - p)) - RIDGE * beta
            weighted = products * (counts * p * (1 - p))[:, None]
            curvature = np.einsum("ni,nj->ij", weighted, products)
            beta += np.linalg.solve(curvature + RIDGE * np.eye(len(i)), gradient)
        weights = np.zeros((z.shape[1], z.shape[1]))
        weights[i, j] = np.round(beta, 3)
        return Odds(shift, scale, weights)


def choose_ends(seen: Array, odds: Odds, random: np.random.Generator) -> tuple[Array, Array] | None:
    """A pair of ends on different curves and one on the same, or None if this scene offers none.

    ``seen`` is (6, 7), of one scene.
    """
    log_odds = odds(seen)
    log_odds[: len(DIFFERENT)] *= -1  # that a pair is of its own kind
    kept = random.random(len(PAIRS)) < np.exp(-np.maximum(log_odds, 0))
    different, same = DIFFERENT[kept[: len(DIFFERENT)]], SAME[kept[len(DIFFERENT) :]]
    if len(different) == 0 or len(same) == 0:
        return None
    return different[random.integers(len(different))], same[random.integers(len(same))]
