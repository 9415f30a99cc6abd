"""Pathfinder images: two dots, and dashed curves that do or do not join them.

Our own construction of the images of Linsley et al. 2018 ("Learning long-range spatial
dependencies with horizontal gated recurrent units"), with parameters like theirs. Each image holds
two long dashed curves, shorter ones that distract, and single dashes; no curve crosses or touches
another or itself. Two dots sit on ends of the long curves: on both ends of one (label 1), or on
one end of each (label 0).

Only the course of the curves tells the label. A scene is made first, and in it a pair of ends of
each kind is chosen; the label then picks one of the two pairs. So ink, layout and number of dashes
do not depend on the label at all.

Two curves have four pairs of ends on different curves (label 0) and two on one curve (label 1).
The kinds look different: the ends of one curve tend to be nearer, or to point the same way. So a
pair is kept only with the probability that makes both kinds look alike: with p(x) the density of
what is seen of a pair among those of its own kind, q(x) that among the other kind, and
min(1, q(x) / p(x)) the probability, min(p, q) remains of both. A logistic regression on pilot
scenes, with all products of two features, estimates log p / q.

Image i of a seed is the same however many are made, in whatever order, by however many processes.
A sheet of samples: ``write_png(Path("sheet.png"), contact_sheet())``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from s4d_torch.data.dataset import Array
from s4d_torch.data.tasks.pathfinder.curves import UNITS, CellGrid, grow_long, grow_short
from s4d_torch.data.tasks.pathfinder.scene_options import SIZES, SceneOptions
from s4d_torch.ssm.compiled.code_cache import cached_njit

PILOT_SCENES = 1500
SCENE_TRIES = 2000

# Ends 0 and 1 belong to the first curve, 2 and 3 to the second.
PAIRS = np.array([[0, 2], [0, 3], [1, 2], [1, 3], [0, 1], [2, 3]])
DIFFERENT, SAME = PAIRS[:4], PAIRS[4:]
RIDGE = 1.0
NEWTON_STEPS = 12


class Curve(NamedTuple):
    """A chain of n dashes: ``nodes`` (n + 1, 2), rows and columns in pixels, ``along`` (n, 2).

    Dash k lies in the middle of the line from node k to node k + 1, of direction ``along[k]``.
    """

    nodes: Array
    along: Array


@dataclass(frozen=True)
class Scene:
    """All that is in an image: the first two ``curves`` are the long ones; ``dots`` is (2, 2)."""

    curves: Sequence[Curve]
    dots: Array
    label: int


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
    alike, far = [heads.min(-1), heads.max(-1), parallel], [off_centre.min(-1), off_centre.max(-1)]
    return np.stack([distance, *alike, *far, middle], axis=-1)


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
    def fit(seen: Array) -> "Odds":
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


@lru_cache(maxsize=4)
def _grid(options: SceneOptions) -> CellGrid:
    return CellGrid.make(
        options.size,
        pitch=options.pitch,
        clearance=options.clearance,
        end_room=options.dot_radius,
        border=options.dot_radius + 0.5,  # so that no dot is cut off
        turn=np.pi / 2 / options.continuity,
    )


@lru_cache(maxsize=4)
def _odds(options: SceneOptions) -> Odds:
    random = np.random.Generator(np.random.PCG64(0))
    seen = [_Growth(options, random).long_curves()[2] for _ in range(PILOT_SCENES)]
    return Odds.fit(np.stack(seen))


class _Growth:
    """A scene in the making."""

    def __init__(self, options: SceneOptions, random: np.random.Generator) -> None:
        self.options, self.random, self.grid = options, random, _grid(options)
        self.marks = np.empty_like(self.grid.empty)

    def long_curves(self) -> tuple[list[Curve], Array, Array]:
        """Two curves in an image without others, their ends (4, 2), and what is seen of them."""
        grid, dashes = self.grid, self.options.contour_length
        places, headings = np.zeros((2, dashes + 1), np.int64), np.zeros((2, dashes), np.int64)
        if not grow_long(grid.ground, self.random, grid.empty, self.marks, places, headings):
            raise ValueError(
                f"found no room for two curves of {dashes} dashes in an image of "
                f"{self.options.size} pixels; use a smaller contour_length or continuity, or"
                " shorter clearance, dash or gap"
            )
        nodes, along = grid.positions(places), UNITS[headings]
        ends = nodes[:, [0, -1]].reshape(4, 2)
        inward = (along[:, [0, -1]] * [[1], [-1]]).reshape(4, 2)
        curves = [Curve(*each) for each in zip(nodes, along, strict=True)]
        return curves, ends, describe(ends, inward, self.options.size)

    def short_curve(self, dashes: int) -> list[Curve]:
        """One more curve, if there is room."""
        places, headings = np.zeros(dashes + 1, np.int64), np.zeros(dashes, np.int64)
        if not grow_short(self.grid.ground, self.random, self.marks, places, headings):
            return []
        return [Curve(self.grid.positions(places), UNITS[headings])]


def make_scene(options: SceneOptions, seed: int, index: int, stream: int = 0) -> Scene:
    """Scene ``index`` of a stream of ``seed``; its label is 0 for even indices, 1 for odd ones."""
    sequence = np.random.SeedSequence(seed, spawn_key=(stream, index))
    growth = _Growth(options, np.random.Generator(np.random.PCG64(sequence)))
    for _ in range(SCENE_TRIES):
        curves, ends, seen = growth.long_curves()
        if pairs := choose_ends(seen, _odds(options), growth.random):
            break
    else:
        raise ValueError(
            f"in {SCENE_TRIES} scenes the ends of one curve looked unlike those of two: {options}"
        )
    for dashes in [options.distractor_length] * options.distractors + [1] * options.paddles:
        curves += growth.short_curve(dashes)
    label = index % 2
    return Scene(curves, ends[pairs[label]], label)


def draw(options: SceneOptions, scene: Scene) -> Array:
    """The picture of a scene, (size, size) of uint8, with smooth edges."""
    inset = options.gap / 2
    dashes = [
        np.hstack([curve.nodes[:-1] + inset * curve.along, curve.nodes[1:] - inset * curve.along])
        for curve in scene.curves
    ]
    image = np.zeros((options.size, options.size))
    _paint(image, np.concatenate(dashes), options.thickness / 2, options.contrast)
    _paint(image, np.hstack([scene.dots, scene.dots]), options.dot_radius, 1.0)
    return np.rint(255 * image).astype(np.uint8)


@cached_njit(nogil=True)
def _paint(image, strokes, radius, light):  # type: ignore[no-untyped-def]
    """Strokes (n, 4) from (row, column) to (row, column), with round ends.

    Brightness falls from all to none within one pixel across the edge of a stroke; where strokes
    meet, the brighter one counts.
    """
    size, reach = len(image), radius + 1
    for y0, x0, y1, x1 in strokes:
        dy, dx = y1 - y0, x1 - x0
        square = dy * dy + dx * dx
        top, bottom = max(0, int(min(y0, y1) - reach)), min(size, int(max(y0, y1) + reach) + 1)
        left, right = max(0, int(min(x0, x1) - reach)), min(size, int(max(x0, x1) + reach) + 1)
        for row in range(top, bottom):
            for column in range(left, right):
                y, x = row + 0.5 - y0, column + 0.5 - x0
                part = min(max((y * dy + x * dx) / square, 0.0), 1.0) if square > 0 else 0.0
                distance = np.sqrt((y - part * dy) ** 2 + (x - part * dx) ** 2)
                value = light * min(max(radius + 0.5 - distance, 0.0), 1.0)
                image[row, column] = max(image[row, column], value)


def make_images(
    options: SceneOptions, seed: int, start: int, stop: int, stream: int = 0
) -> tuple[Array, Array]:
    """Images ``start`` to ``stop - 1``, (n, size * size, 1) of uint8, row by row, and labels."""
    scenes = [make_scene(options, seed, index, stream) for index in range(start, stop)]
    images = np.stack([draw(options, scene) for scene in scenes])
    labels = np.array([scene.label for scene in scenes], dtype=np.uint8)
    return images.reshape(len(scenes), -1, 1), labels


def contact_sheet(
    scenes: Sequence[SceneOptions] | None = None, *, columns: int = 6, seed: int = 0
) -> Array:
    """Samples in a grey frame, (height, width) of uint8: for each size a row of either label."""
    chosen = scenes or [SceneOptions.at(size) for size in SIZES]
    tile = max(each.size for each in chosen)
    rows = []
    for options in chosen:
        images = [draw(options, make_scene(options, seed, index)) for index in range(2 * columns)]
        zoom = np.ones((tile // options.size,) * 2, dtype=np.uint8)
        framed = [np.pad(np.kron(image, zoom), 2, constant_values=96) for image in images]
        rows += [np.hstack(framed[label::2]) for label in (0, 1)]
    width = max(row.shape[1] for row in rows)
    return np.vstack([np.pad(row, ((0, 0), (0, width - row.shape[1]))) for row in rows])
