"""Pathfinder images: two dots, and dashed curves that do or do not join them.

Our own construction of the images of Linsley et al. 2018 ("Learning long-range spatial
dependencies with horizontal gated recurrent units"), with parameters like theirs. Each image holds
two long dashed curves, shorter ones that distract, and single dashes; no curve crosses or touches
another or itself. Two dots sit on ends of the long curves: on both ends of one (label 1), or on
one end of each (label 0).

Only the course of the curves tells the label. A scene is made first, and in it a pair of ends of
each kind; the label then picks one of the two pairs. So ink, layout and number of dashes do not
depend on the label at all. And the pairs are chosen such that both kinds look alike in distance,
position and direction: see :mod:`s4d_torch.data.pathfinder_ends`.

Image i of a seed is the same however many are made, in whatever order, by however many processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numba import njit

from s4d_torch.data.dataset import Array
from s4d_torch.data.pathfinder_curves import FOREIGN, FREE, Ground, grow_long, grow_short
from s4d_torch.data.pathfinder_ends import Odds, choose_ends, describe

DIRECTIONS = 96  # that a dash may take: steps of 3.75 degrees
PILOT_SCENES = 2000
SCENE_TRIES = 200

# Lengths in pixels at three sizes of image, after the Long Range Arena's; straight lines between.
SIZES = (32, 64, 128)
MEASURES = {
    "dash": (1.8, 4.0, 6.0),
    "gap": (1.6, 2.4, 4.5),
    "thickness": (1.0, 1.2, 1.6),
    "dot_radius": (1.4, 2.4, 3.4),
    "clearance": (2.6, 4.4, 7.0),
    "continuity": (1.3, 1.5, 1.6),
}


@dataclass(frozen=True)
class ImageOptions:
    """What the images look like; lengths in pixels. :meth:`at` fills them in for a size."""

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
    contour_length: int = 14
    """dashes of each of the two long curves"""
    distractors: int = 4
    """short curves, fewer where there is no room"""
    distractor_length: int = 4
    """dashes of a short curve"""
    paddles: int = 4
    """single dashes, fewer where there is no room"""
    contrast: float = 0.8
    """brightness of the dashes; that of the dots is 1"""

    def __post_init__(self) -> None:
        for name in MEASURES:
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0; got {getattr(self, name)}")
        whole = f"distractors {self.distractors}, paddles {self.paddles}"
        for holds, rule in (
            (self.size >= SIZES[0], f"size is at least {SIZES[0]} pixels; got {self.size}"),
            (
                self.thickness < self.clearance < self.pitch,
                f"clearance {self.clearance} must be above thickness {self.thickness}, or curves "
                f"touch, and below dash + gap = {self.pitch:g}, or a curve blocks itself",
            ),
            (
                0 < self.distractor_length < self.contour_length,
                f"distractor_length {self.distractor_length} must be at least 1 and below "
                f"contour_length {self.contour_length}",
            ),
            (self.contour_length >= 4, f"contour_length is at least 4; got {self.contour_length}"),
            (min(self.distractors, self.paddles) >= 0, f"counts cannot be negative; got {whole}"),
            (self.continuity >= 1, f"continuity is at least 1; got {self.continuity}"),
            (0 < self.contrast <= 1, f"contrast is above 0 and at most 1; got {self.contrast}"),
        ):
            if not holds:
                raise ValueError(rule)

    @staticmethod
    def at(size: int, **changes: Any) -> ImageOptions:
        """The usual lengths for an image of this size, with ``changes`` to any field."""
        lengths = {name: float(np.interp(size, SIZES, at)) for name, at in MEASURES.items()}
        return ImageOptions(size, **(lengths | changes))

    @property
    def pitch(self) -> float:
        """From dash to dash along a curve."""
        return self.dash + self.gap

    @property
    def end_clearance(self) -> float:
        """Between an end of a long curve, where a dot may sit, and everything else."""
        return self.clearance + self.dot_radius


@dataclass(frozen=True)
class Curve:
    """A chain of n dashes: ``nodes`` (n + 1, 2), rows and columns in pixels, ``along`` (n, 2).

    Dash k lies in the middle of the line from node k to node k + 1, of direction ``along[k]``.
    """

    nodes: Array
    along: Array

    @property
    def ends(self) -> Array:
        """Where a dot may sit, (2, 2)."""
        return self.nodes[[0, -1]]

    @property
    def inward(self) -> Array:
        """The directions from the ends into the curve, (2, 2)."""
        return np.stack([self.along[0], -self.along[-1]])


@dataclass(frozen=True)
class Scene:
    """All that is in an image: the first two ``curves`` are the long ones; ``dots`` is (2, 2)."""

    curves: Sequence[Curve]
    dots: Array
    label: int


@dataclass(frozen=True)
class _Grid:
    """An image as cells: see :mod:`s4d_torch.data.pathfinder_curves`."""

    cells: int
    """per pixel and side"""
    units: Array
    """(directions, 2)"""
    ground: Ground
    empty: Array

    def curve(self, places: Array, headings: Array) -> Curve:
        cells = np.stack(np.divmod(places, self.ground.side), axis=1)
        return Curve((cells - self.ground.margin + 0.5) / self.cells, self.units[headings])


@lru_cache(maxsize=4)
def _grid(options: ImageOptions) -> _Grid:
    cells = max(2, round(128 / options.size))
    margin = int(np.ceil((2 * options.pitch + options.end_clearance) * cells)) + 1
    side = options.size * cells + 2 * margin
    angles = np.arange(DIRECTIONS) * (2 * np.pi / DIRECTIONS)
    units = np.stack([np.sin(angles), np.cos(angles)], axis=1)

    def lines(start: float, stop: float) -> Array:
        distances = np.linspace(start, stop, 2 * int(np.ceil(stop - start)) + 1)
        points = np.rint(units[:, None] * distances[:, None] * cells).astype(np.int64)
        return points @ np.array([side, 1])

    def disc(radius: float) -> Array:
        edge = int(np.ceil(radius * cells))
        rows, columns = np.mgrid[-edge : edge + 1, -edge : edge + 1]
        return (rows * side + columns)[np.hypot(rows, columns) <= radius * cells][None]

    along, near = lines(0, options.pitch), disc(options.clearance)
    strips = [np.unique(np.add.outer(line, near)) for line in along]
    longest = max(map(len, strips))
    bends = np.minimum(angles, 2 * np.pi - angles) * options.continuity
    turns = np.flatnonzero(bends < np.pi / 2)
    ground = Ground(
        side=side,
        margin=margin,
        lines=along,
        lines_ahead=lines(options.pitch, 2 * options.pitch),
        strips=np.stack([np.pad(strip, (0, longest - len(strip)), "edge") for strip in strips]),
        end=disc(options.end_clearance),
        end_test=disc(options.end_clearance - options.clearance),
        turns=turns,
        turn_weights=np.cos(bends[turns]) ** 2,
    )
    empty = np.full((side, side), FOREIGN, dtype=np.int16)
    edge = margin + int(np.ceil((options.dot_radius + 0.5) * cells))  # dots are not cut off
    empty[edge:-edge, edge:-edge] = FREE
    return _Grid(cells, units, ground, empty.ravel())


@lru_cache(maxsize=4)
def _odds(options: ImageOptions) -> Odds:
    random = np.random.Generator(np.random.PCG64(0))
    seen = [_Growth(options, random).long_curves()[1] for _ in range(PILOT_SCENES)]
    return Odds.fit(np.stack(seen))


class _Growth:
    """A scene while it is made."""

    def __init__(self, options: ImageOptions, random: np.random.Generator) -> None:
        self.options, self.random, self.grid = options, random, _grid(options)
        self.marks = np.empty_like(self.grid.empty)

    def long_curves(self) -> tuple[list[Curve], Array]:
        """Two curves, and what is seen of their ends."""
        grid, dashes = self.grid, self.options.contour_length
        places, headings = _room(2, dashes)
        if not grow_long(grid.ground, self.random, grid.empty, self.marks, places, headings):
            raise ValueError(
                f"found no room for two curves of {dashes} dashes in an image of "
                f"{self.options.size} pixels; use a smaller contour_length, clearance, dash or gap"
            )
        curves = [grid.curve(*each) for each in zip(places, headings, strict=True)]
        ends = np.concatenate([curve.ends for curve in curves])
        inward = np.concatenate([curve.inward for curve in curves])
        return curves, describe(ends, inward, self.options.size)

    def short_curve(self, dashes: int) -> list[Curve]:
        """One more curve, if there is room."""
        (place,), (heading,) = _room(1, dashes)
        fits = grow_short(self.grid.ground, self.random, self.marks, place, heading)
        return [self.grid.curve(place, heading)] if fits else []


def _room(curves: int, dashes: int) -> tuple[Array, Array]:
    shape = (curves, dashes)
    return np.zeros((curves, dashes + 1), dtype=np.int64), np.zeros(shape, dtype=np.int64)


def make_scene(options: ImageOptions, seed: int, index: int) -> Scene:
    """Scene ``index`` of ``seed``; its label is 0 for even indices and 1 for odd ones."""
    sequence = np.random.SeedSequence(seed, spawn_key=(index,))
    growth = _Growth(options, np.random.Generator(np.random.PCG64(sequence)))
    for _ in range(SCENE_TRIES):
        curves, seen = growth.long_curves()
        if pairs := choose_ends(seen, _odds(options), growth.random):
            break
    else:
        raise ValueError(f"{options} gives no curves whose ends could be on one or on two")
    ends = np.concatenate([curve.ends for curve in curves])
    short = [options.distractor_length] * options.distractors + [1] * options.paddles
    for dashes in short:
        curves += growth.short_curve(dashes)
    label = index % 2
    return Scene(curves, ends[pairs[label]], label)


def draw(options: ImageOptions, scene: Scene) -> Array:
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

    A pixel's brightness falls within one pixel across the edge of a stroke; where strokes meet,
    the brighter one counts.
    """
    size = len(image)
    for y0, x0, y1, x1 in strokes:
        dy, dx = y1 - y0, x1 - x0
        square = dy * dy + dx * dx
        reach = radius + 1
        for row in range(max(0, int(min(y0, y1) - reach)), min(size, int(max(y0, y1) + reach) + 1)):
            for column in range(
                max(0, int(min(x0, x1) - reach)), min(size, int(max(x0, x1) + reach) + 1)
            ):
                y, x = row + 0.5 - y0, column + 0.5 - x0
                part = min(max((y * dy + x * dx) / square, 0.0), 1.0) if square > 0 else 0.0
                distance = np.sqrt((y - part * dy) ** 2 + (x - part * dx) ** 2)
                value = light * min(max(radius + 0.5 - distance, 0.0), 1.0)
                image[row, column] = max(image[row, column], value)


def make_images(options: ImageOptions, seed: int, start: int, stop: int) -> Array:
    """Images ``start`` to ``stop - 1`` of ``seed``, (n, size * size, 1) of uint8, row by row."""
    images = [draw(options, make_scene(options, seed, index)) for index in range(start, stop)]
    return np.stack(images).reshape(len(images), -1, 1)
