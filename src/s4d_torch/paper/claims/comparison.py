"""Two rows of a table compared: the difference of their means, and how much of it may be chance.

A difference counts in points of accuracy, or in per cent of an RMSE, positive where the first row
is better. Its *noise* is half of the 95 % interval of Student: the standard error times a quantile
that grows as seeds get fewer. The spread over seeds is taken from all rows of the column together,
since that of two runs alone says little. Where no row has two seeds, the noise is set to five
points.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from s4d_torch.data.task import TASKS
from s4d_torch.paper.recipes import Column, Recipe
from s4d_torch.paper.results import TableScores

LEVEL = 0.05  # how often chance alone looks like a difference
FLOOR = 0.5  # points of noise at least
COARSE = 5.0  # points of noise where no row has two seeds to tell
PER_CENT = 5.0  # of an RMSE weigh as much as a point of accuracy: errors differ more

Rows = Sequence[Sequence[str]]
"""the rows a finding is about: pairs to compare, or groups"""


@dataclass(frozen=True)
class Gain:
    """How much better the first row is; ``error``, a standard error, is None without two seeds."""

    rows: tuple[str, str]
    column: str
    points: float
    error: float | None
    freedom: int
    seeds: tuple[int, int]
    unit: float = 1.0
    """what weighs as much as a point of accuracy"""

    def noise(self, comparisons: int = 1) -> float:
        """What chance alone exceeds once in twenty times, in the largest of so many comparisons."""
        if self.error is None:
            return COARSE * self.unit
        return max(FLOOR * self.unit, student(self.freedom, LEVEL / comparisons) * self.error)

    def __str__(self) -> str:
        sign = "" if self.unit == 1 else "%"
        return f"{self.column} {self.points:+.1f}{sign} ± {self.noise():.1f}"


@dataclass(frozen=True)
class Evidence:
    """What a rule judges by: the scores of a table, and the rows that a finding is about."""

    recipe: Recipe
    scores: TableScores
    rows: Rows = ()

    def values(self, row: str, column: str) -> Sequence[float]:
        """The scores of a cell, one for each seed."""
        return self.scores.get(row, {}).get(column, ())

    def columns(self, datasets: Sequence[str] = (), *, first_epoch: bool = False) -> list[Column]:
        """Those of trained models, of all datasets or those named; after one epoch if asked."""
        return [
            column
            for column in self.recipe.columns
            if (first_epoch or column.value != "first-epoch")
            and (not datasets or dataset(column.name) in datasets)
        ]

    def spread(self, column: str) -> tuple[float, int]:
        """The standard deviation over seeds, from all rows, and its degrees of freedom."""
        return pooled(self.values(row, column) for row in self.scores)

    def gains(self, pairs: Rows, columns: Sequence[Column]) -> list[Gain]:
        """All comparisons for which both rows have scores."""
        return [
            self._gain(better, worse, column)
            for better, worse in pairs
            for column in columns
            if self.values(better, column.name) and self.values(worse, column.name)
        ]

    def _gain(self, better: str, worse: str, column: Column) -> Gain:
        ours, theirs = self.values(better, column.name), self.values(worse, column.name)
        accuracy = TASKS[column.task].metric == "accuracy"
        scale = 1.0 if accuracy else -100 / statistics.fmean(theirs)
        spread, freedom = self.spread(column.name)
        error = spread * math.sqrt(1 / len(ours) + 1 / len(theirs)) * abs(scale)
        points = scale * (statistics.fmean(ours) - statistics.fmean(theirs))
        noise, seeds = (error if freedom else None, freedom), (len(ours), len(theirs))
        unit = 1.0 if accuracy else PER_CENT
        return Gain((better, worse), column.name, points, *noise, seeds, unit)


def dataset(column: str) -> str:
    """``BIDMC`` of ``BIDMC (HR)``: each of its signals can stand for it."""
    return column.split(",")[0].split(" (")[0]


def pooled(rows: Iterable[Sequence[float]]) -> tuple[float, int]:
    """The standard deviation over seeds, from all rows together, and its degrees of freedom."""
    several = [values for values in rows if len(values) > 1]
    freedom = sum(len(values) - 1 for values in several)
    squares = sum((len(values) - 1) * statistics.variance(values) for values in several)
    return (math.sqrt(squares / freedom), freedom) if freedom else (0.0, 0)


def noise_of_mean(count: int, spread: float, freedom: int) -> float:
    """What chance alone does to the mean of so many seeds, as :func:`pooled` gives the rest."""
    if not freedom:
        return COARSE
    return max(FLOOR, student(freedom, LEVEL) * spread / math.sqrt(count))


@cache
def student(freedom: int, level: float) -> float:
    """The ``t`` with ``P(|T| > t) = level`` for ``freedom`` degrees."""
    low, high = 0.0, 1.0
    while _inside(high, freedom) < 1 - level:
        high *= 2
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _inside(middle, freedom) < 1 - level else (low, middle)
    return high


def _inside(t: float, freedom: int) -> float:
    """``P(|T| <= t)``: Abramowitz and Stegun 26.7.3 and 26.7.4, finite sums for whole degrees."""
    angle = math.atan(t / math.sqrt(freedom))
    odd = freedom % 2
    term, total = (math.cos(angle) if odd else 1.0), 0.0
    for k in range(2 + odd, freedom + 1, 2):
        total += term
        term *= (k - 1) / k * math.cos(angle) ** 2
    if odd:
        return 2 / math.pi * (angle + math.sin(angle) * total)
    return math.sin(angle) * total


def describe(found: Sequence[Gain]) -> str:
    """``2 seeds; S4D vs ZOH: sCIFAR +0.1 ± 1.2, SC (AR) -0.3 ± 2.0``, pair by pair."""
    by_pair: dict[tuple[str, str], list[Gain]] = {}
    for gain in found:
        by_pair.setdefault(gain.rows, []).append(gain)
    parts = (f"{a} vs {b}: {', '.join(map(str, many))}" for (a, b), many in by_pair.items())
    return "; ".join([count_seeds(n for gain in found for n in gain.seeds), *parts])


def count_seeds(counts: Iterable[int]) -> str:
    """``2 seeds``, or ``1 to 3 seeds``."""
    fewest, most = min(counts := list(counts)), max(counts)
    if fewest < most:
        return f"{fewest} to {most} seeds"
    return f"{most} seed{'s' * (most > 1)}"
