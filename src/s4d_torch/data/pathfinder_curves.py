"""Dashed curves that avoid each other, grown dash by dash on a grid of cells; by numba.

A place is one number, row * side + column, so that a shape is an array of offsets, the same
everywhere. A curve is a chain of places, one direction of a fixed set between each and the next.

``marks`` holds a number for each cell: ``FREE``, ``FOREIGN`` where no dash may go, and 2 j where
dash j of the curve that grows now came first. So dash k asks whether a cell lies above 2 (k - 2):
it keeps clear of all dashes of its own curve but the one it follows. And the last dashes can be
taken back, because cells that others marked before have kept their numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from s4d_torch.data.dataset import Array

FREE, FOREIGN = 32767, -32768  # of int16
START = 1  # marks the surroundings of a curve's first end: closed to all but its dashes 0, 1, 2
NO_ROOM_AHEAD = 0.03  # weight of a turn after which the next dash could not go straight on
STEPS_BACK = 4  # dashes taken back from a curve that got stuck
START_TRIES = 20
GROW_TRIES = 6  # times the dashes of a curve: dashes to place before it is given up
SECOND_TRIES = 8  # curves to grow beside a first one before that is given up too
FIRST_TRIES = 200
SHORT_TRIES = 3

compiled = njit(nogil=True)
entry = njit(nogil=True, cache=True)  # what Python calls


class Ground(NamedTuple):
    """Shapes as offsets of places; row d of ``lines`` and the like belongs to direction d."""

    side: int
    margin: int
    """cells around the image, FOREIGN from the start, that no shape reaches beyond"""
    lines: Array
    """(directions, points): from a place to the next one"""
    lines_ahead: Array
    """and from there straight on to the one after"""
    strips: Array
    """(directions, points): all that is too near to such a line for another curve"""
    end: Array
    """all that is too near to the end of a long curve, where a dot may sit"""
    end_test: Array
    """cells whose strips would reach into ``end``"""
    turns: Array
    """differences of direction between a dash and the next"""
    turn_weights: Array


@compiled
def mark(marks, place, shapes, row, old, new):  # type: ignore[no-untyped-def]
    """Cells marked ``old`` become ``new``."""
    for i in range(shapes.shape[1]):
        if marks[place + shapes[row, i]] == old:
            marks[place + shapes[row, i]] = new


@compiled
def has_room(marks, place, shapes, row, limit):  # type: ignore[no-untyped-def]
    """Whether all cells are above ``limit``."""
    for i in range(shapes.shape[1]):
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
def find_start(ground, random, marks, dots):  # type: ignore[no-untyped-def]
    """A free place; with ``dots``, one that may be the end of a long curve; -1 if none is found."""
    width = ground.side - 2 * ground.margin
    for _ in range(START_TRIES):
        row = ground.margin + int(random.random() * width)
        column = ground.margin + int(random.random() * width)
        place = row * ground.side + column
        if marks[place] == FREE and (not dots or has_room(marks, place, ground.end_test, 0, FOREIGN)):
            return place
    return -1


@compiled
def grow(ground, random, marks, dots, places, headings):  # type: ignore[no-untyped-def]
    """Fill in places (n + 1,) and headings (n,) of a curve and mark it FOREIGN; False if stuck.

    ``dots`` keeps the ends further away from everything.
    """
    dashes = len(headings)
    places[0] = find_start(ground, random, marks, dots)
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
            # The last dashes are near their own end and do not count.
            room = not dots or has_room(marks, places[k], ground.end_test, 0, 2 * (k - 4))
            if k == dashes and room:
                break
        if heading < 0 or k == dashes:
            keep = max(k - STEPS_BACK, 0)
            while k > keep:
                k -= 1
                mark(marks, places[k], ground.strips, headings[k], 2 * k, FREE)
    done = k == dashes
    for j in range(k):
        mark(marks, places[j], ground.strips, headings[j], 2 * j, FOREIGN if done else FREE)
    if dots:
        mark(marks, places[0], ground.end, 0, START, FOREIGN if done else FREE)
        if done:
            mark(marks, places[k], ground.end, 0, FREE, FOREIGN)
    return done


@entry
def grow_long(ground, random, empty, marks, places, headings):  # type: ignore[no-untyped-def]
    """Two curves in an empty image, places (2, n + 1) and headings (2, n); False if none fit.

    ``empty`` and ``marks`` are (cells,); the latter is filled in.
    """
    for _ in range(FIRST_TRIES):
        marks[:] = empty
        if grow(ground, random, marks, True, places[0], headings[0]):
            for _ in range(SECOND_TRIES):
                if grow(ground, random, marks, True, places[1], headings[1]):
                    return True
    return False


@entry
def grow_short(ground, random, marks, places, headings):  # type: ignore[no-untyped-def]
    """One more curve, places (n + 1,) and headings (n,); False if no room is found."""
    for _ in range(SHORT_TRIES):
        if grow(ground, random, marks, False, places, headings):
            return True
    return False
