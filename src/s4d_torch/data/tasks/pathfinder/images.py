"""Pathfinder images: two dots, and dashed curves that do or do not join them.

Our own construction of the images of Linsley et al. 2018 ("Learning long-range spatial
dependencies with horizontal gated recurrent units"), with parameters like theirs. Each image holds
two long dashed curves, shorter ones that distract, and single dashes; no curve crosses or touches
another or itself. Two dots sit on ends of the long curves: on both ends of one (label 1), or on
one end of each (label 0).

Only the course of the curves tells the label. A scene is made first, and in it a pair of ends of
each kind is chosen; the label then picks one of the two pairs. So ink, layout and number of dashes
do not depend on the label at all. And the pairs are chosen such that both kinds look alike in
distance, position and direction: see :mod:`s4d_torch.data.tasks.pathfinder.ends`.

Image i of a seed is the same however many are made, in whatever order, by however many processes.
A sheet of samples: ``write_png(Path("sheet.png"), contact_sheet())``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numba import njit

from s4d_torch.data.dataset import Array
from s4d_torch.data.tasks.pathfinder.curves import UNITS, Grid, grow_long, grow_short
from s4d_torch.data.tasks.pathfinder.ends import Odds, choose_ends, describe

VERSION = 1  # of the images; a change of anything that changes them takes the next number
PILOT_SCENES = 1500
SCENE_TRIES = 2000

# At three sizes of image, after the Long Range Arena's; straight lines between. But curves keep
# further apart here than the dashes of a curve, so that an eye can follow each of them.
SIZES = (32, 64, 128)
MEASURES = {
    "dash": (1.8, 4.0, 6.0),
    "gap": (1.6, 2.4, 4.5),
    "thickness": (1.0, 1.2, 1.6),
    "dot_radius": (1.4, 2.4, 3.4),
    "clearance": (2.6, 4.4, 7.0),
    "continuity": (1.3, 1.5, 1.6),
}
COUNTS = {"distractors": (4, 6, 8), "paddles": (4, 5, 6)}


@dataclass(frozen=True)
class SceneOptions:
    """What is in an image; lengths in pixels. :meth:`at` fills them in for a size."""

    size: int
    """of the square image"""
    dash: float
    """length of a dash"""
    gap: float
    """from the end of a dash to the next dash of its curve"""
    thickness: float
    """of a dash"""
    dot_radius: float
    """of the two dots"""
    clearance: float
    """between the centre lines of different curves, at least"""
    continuity: float
    """a curve turns by less than 90 degrees / continuity from dash to dash"""
    distractors: int
    """short curves, fewer where there is no room"""
    paddles: int
    """single dashes, fewer where there is no room"""
    contour_length: int = 14
    """dashes of each of the two long curves"""
    distractor_length: int = 4
    """dashes of a short curve"""
    contrast: float = 0.8
    """brightness of the dashes; that of the dots is 1"""

    def __post_init__(self) -> None:
        for name in MEASURES:
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)}")
        few = f"distractors {self.distractors}, paddles {self.paddles}"
        for holds, rule in (
            (self.size >= SIZES[0], f"size must be at least {SIZES[0]} pixels, got {self.size}"),
            (
                self.thickness < self.clearance < self.pitch,
                f"clearance {self.clearance} must be above thickness {self.thickness}, or curves "
                f"touch, and below dash + gap = {self.pitch:g}, or a curve blocks itself",
            ),
            (self.contour_length >= 4, f"contour_length must be 4 or more: {self.contour_length}"),
            (
                0 < self.distractor_length < self.contour_length,
                f"distractor_length {self.distractor_length} must be at least 1 and below "
                f"contour_length {self.contour_length}",
            ),
            (min(self.distractors, self.paddles) >= 0, f"counts must not be negative: {few}"),
            (self.continuity >= 1, f"continuity must be at least 1, got {self.continuity}"),
            (0 < self.contrast <= 1, f"contrast must be in (0, 1], got {self.contrast}"),
        ):
            if not holds:
                raise ValueError(rule)

    @staticmethod
    def at(size: int, **changes: Any) -> SceneOptions:
        """The usual measures for an image of this size, with ``changes`` to any field."""
        usual = {name: float(np.interp(size, SIZES, at)) for name, at in MEASURES.items()}
        counts = {name: round(np.interp(size, SIZES, at)) for name, at in COUNTS.items()}
        return SceneOptions(size, **(usual | counts | changes))

    @property
    def pitch(self) -> float:
        """From dash to dash along a curve."""
        return self.dash + self.gap


@dataclass(frozen=True)
class Curve:
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


@lru_cache(maxsize=4)
def _grid(options: SceneOptions) -> Grid:
    return Grid.make(
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


@njit(nogil=True, cache=True)
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
