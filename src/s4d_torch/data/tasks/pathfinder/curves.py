"""Dashed curves that avoid each other, grown dash by dash on a grid of cells; by numba.

A place is one number, row * side + column, so that a shape is an array of offsets, the same
everywhere. A curve is a chain of places, one direction of a fixed set between each and the next.

``marks`` holds a number for each cell: ``FREE``, ``FOREIGN`` where no dash may go, and 2 j where
dash j of the curve that grows now came first. So dash k asks whether cells lie above 2 (k - 2):
it keeps clear of all dashes of its own curve but the one it follows. And the last dashes can be
taken back, because cells that others marked before have kept their numbers.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit

from s4d_torch.data.dataset import Array
from s4d_torch.ssm.compiled.code_cache import cached_njit

ANGLES = np.arange(96) * (2 * np.pi / 96)  # that a dash may take: steps of 3.75 degrees
UNITS = np.stack([np.sin(ANGLES), np.cos(ANGLES)], axis=1)  # (directions, 2): rows, columns
FREE, FOREIGN = 32767, -32768  # of int16
START = 1  # marks the surroundings of a curve's first end: closed to its dashes from the fourth on
NO_ROOM_AHEAD = 0.03  # weight of a turn after which the next dash could not go straight on
STEPS_BACK = 4  # dashes taken back from a curve that got stuck
START_TRIES = 20
GROW_TRIES = 6  # times the dashes of a curve: dashes to place before it is given up
SECOND_TRIES = 8  # curves to grow beside a first one before that is given up too
FIRST_TRIES = 200
SHORT_TRIES = 3

compiled = njit(nogil=True)
entry = cached_njit(nogil=True)  # what Python calls


class Ground(NamedTuple):
    """Shapes as offsets of places, (directions, points), or (1, points) where they have none."""

    side: int
    margin: int  # cells around the image that no shape reaches beyond, FOREIGN from the start
    lines: Array  # from a place to the next one
    lines_ahead: Array  # from there straight on to the one after
    strips: Array  # all that is too near to a line for another curve
    end: Array  # all that is too near to the end of a long curve, where a dot may sit
    end_test: Array  # where nothing may be marked if an end is to have so much room
    turns: Array  # differences of direction between a dash and the next, (turns,)
    turn_weights: Array


@dataclass(frozen=True)
class CellGrid:
    """An image as cells, some per pixel: ``empty`` holds the marks of one without curves."""

    cells: int
    ground: Ground
    empty: Array

    def positions(self, places: Array) -> Array:
        """Places (n,) as rows and columns in pixels, (n, 2)."""
        cells = np.stack(np.divmod(places, self.ground.side), axis=-1)
        return (cells - self.ground.margin + 0.5) / self.cells

    @staticmethod
    def make(
        size: int, *, pitch: float, clearance: float, end_room: float, border: float, turn: float
    ) -> "CellGrid":
        """Lengths in pixels, ``pitch`` from place to place; turns are below ``turn`` in radians.

        ``end_room`` is what an end needs beyond ``clearance``.
        """
        cells = max(2, round(96 / size))
        margin = int(np.ceil((2 * pitch + clearance + end_room) * cells)) + 1
        side = size * cells + 2 * margin

        def lines(start: float, stop: float) -> Array:
            distances = np.linspace(start, stop, 2 * int(np.ceil(stop - start)) + 1)
            points = np.rint(UNITS[:, None] * distances[:, None] * cells).astype(np.int64)
            return points @ np.array([side, 1])

        def disc(radius: float) -> Array:
            edge = int(np.ceil(radius * cells))
            rows, columns = np.mgrid[-edge : edge + 1, -edge : edge + 1]
            return (rows * side + columns)[np.hypot(rows, columns) <= radius * cells][None]

        along, near = lines(0, pitch), disc(clearance)
        strips = [np.unique(np.add.outer(line, near)) for line in along]
        longest = max(map(len, strips))
        bends = np.minimum(ANGLES, 2 * np.pi - ANGLES)
        turns = np.flatnonzero(bends < turn - 1e-6)
        ground = Ground(
            side=side,
            margin=margin,
            lines=along,
            lines_ahead=lines(pitch, 2 * pitch),
            strips=np.stack([np.pad(strip, (0, longest - len(strip)), "edge") for strip in strips]),
            end=disc(clearance + end_room),
            end_test=disc(end_room),
            turns=turns,
            turn_weights=np.cos(bends[turns] / turn * (np.pi / 2)) ** 2,
        )
        empty = np.full((side, side), FOREIGN, dtype=np.int16)
        edge = margin + int(np.ceil(border * cells))
        empty[edge:-edge, edge:-edge] = FREE
        return CellGrid(cells, ground, empty.ravel())


@compiled
def mark(marks, place, shapes, row, old, new):  # type: ignore[no-untyped-def]
    """Cells marked ``old`` become ``new``."""
    for i in range(shapes.shape[1]):
        if marks[place + shapes[row, i]] == old:
            marks[place + shapes[row, i]] = new


@compiled
def has_room(marks, place, shapes, row, limit):  # type: ignore[no-untyped-def]
    """Whether all cells are above ``limit``."""
    for i in range(shapes.shape[1]):  # noqa: SIM110  compiles to a plain loop
        if marks[place + shapes[row, i]] <= limit:
            return False
    return True


@compiled
def choose(ground, random, marks, place, heading, limit, last):  # type: ignore[no-untyped-def]
    """A direction with room for a dash, gentle turns being likelier; -1 if there is none."""
    directions = len(ground.lines)
    total = 0.0
    weights = np.zeros(directions)
    for choice in range(directions if heading < 0 else len(ground.turns)):
        direction = choice if heading < 0 else (heading + ground.turns[choice]) % directions
        if has_room(marks, place, ground.lines, direction, limit):
            weight = 1.0 if heading < 0 else ground.turn_weights[choice]
            if not last and not has_room(marks, place, ground.lines_ahead, direction, limit):
                weight *= NO_ROOM_AHEAD
            weights[direction] = weight
            total += weight
    if total == 0:
        return -1
    left = random.random() * total
    chosen = -1
    for direction in range(directions):
        if weights[direction] > 0 and left >= 0:
            chosen = direction
            left -= weights[direction]
    return chosen


@compiled
def find_start(ground, random, marks, dots, centre, reach):  # type: ignore[no-untyped-def]
    """A free place within ``reach`` rows and columns of ``centre``; -1 if none is found.

    With ``dots``, a place that may be the end of a long curve.
    """
    low, high = ground.margin, ground.side - ground.margin
    row, column = centre // ground.side, centre % ground.side
    top, left = max(row - reach, low), max(column - reach, low)
    rows, columns = min(row + reach, high) - top, min(column + reach, high) - left
    for _ in range(START_TRIES):
        place = (top + int(random.random() * rows)) * ground.side
        place += left + int(random.random() * columns)
        room = not dots or has_room(marks, place, ground.end_test, 0, FOREIGN)
        if room and marks[place] == FREE:
            return place
    return -1


@compiled
def grow(ground, random, marks, dots, centre, reach, places, headings):  # type: ignore[no-untyped-def]
    """Fill in places (n + 1,) and headings (n,) of a curve and mark it FOREIGN; False if stuck.

    It starts within ``reach`` of ``centre``. ``dots`` keeps its ends further from everything.
    """
    dashes = len(headings)
    places[0] = find_start(ground, random, marks, dots, centre, reach)
    if places[0] < 0:
        return False
    if dots:
        mark(marks, places[0], ground.end, 0, FREE, START)
    k = 0
    for _ in range(GROW_TRIES * dashes):
        before = headings[k - 1] if k else -1
        heading = choose(ground, random, marks, places[k], before, 2 * (k - 2), k + 1 == dashes)
        if heading >= 0:
            headings[k] = heading
            places[k + 1] = places[k] + ground.lines[heading, -1]
            mark(marks, places[k], ground.strips, heading, FREE, 2 * k)
            k += 1
            if k < dashes:
                continue
            # The last dashes are near their own end and do not count.
            if not dots or has_room(marks, places[k], ground.end_test, 0, 2 * (k - 4)):
                break
        for j in range(k - 1, max(k - STEPS_BACK, 0) - 1, -1):
            mark(marks, places[j], ground.strips, headings[j], 2 * j, FREE)
        k = max(k - STEPS_BACK, 0)
    done = k == dashes
    for j in range(k - 1, -1, -1):
        mark(marks, places[j], ground.strips, headings[j], 2 * j, FOREIGN if done else FREE)
    if dots:
        mark(marks, places[0], ground.end, 0, START, FOREIGN if done else FREE)
        if done:
            mark(marks, places[k], ground.end, 0, FREE, FOREIGN)
    return done


@entry
def grow_long(ground, random, empty, marks, places, headings):  # type: ignore[no-untyped-def]
    """Two curves in an empty image, places (2, n + 1) and headings (2, n); False if none fit.

    The second starts somewhere around the first, so that short ones do not lie far apart.
    ``empty`` and ``marks`` are (cells,); the latter is filled in.
    """
    middle = len(marks) // 2
    around = headings.shape[1] * ground.lines[0, -1] // 2
    for _ in range(FIRST_TRIES):
        marks[:] = empty
        if grow(ground, random, marks, True, middle, ground.side, places[0], headings[0]):
            for _ in range(SECOND_TRIES):
                centre = places[0, int(random.random() * places.shape[1])]
                if grow(ground, random, marks, True, centre, around, places[1], headings[1]):
                    return True
    return False


@entry
def grow_short(ground, random, marks, places, headings):  # type: ignore[no-untyped-def]
    """One more curve, places (n + 1,) and headings (n,); False if no room is found."""
    middle = len(marks) // 2
    for _ in range(SHORT_TRIES):
        if grow(ground, random, marks, False, middle, ground.side, places, headings):
            return True
    return False
