"""Two rows of a table compared: the difference of their means, and how much of it may be chance.

A difference counts in points of accuracy, or in per cent of an RMSE (100 times the logarithm of a
ratio), positive where the first row is better. Rows are compared seed by seed, since runs of one
seed share their data and its order. Two things make a difference uncertain: runs of other seeds
would differ, and so would other test cases. The spread over seeds is that of all rows of the table
that spread alike, or a row's own where it is wilder (see :mod:`.seed_noise`); where the table has
few rows, those of all tables with the same task and setting, though they share less of what a seed
does. It is not less than that of the differences themselves. The error of the test cases is found
case by case (see :mod:`s4d_torch.paper.scores`); where each seed has test cases of its own, the
spread over seeds has their error in it. The *noise* of a difference is half of its 95 % interval of
Student. One seed has no noise that could be known, and decides nothing.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from s4d_torch.data.task import TASKS
from s4d_torch.data.tasks.speech import FOLDS
from s4d_torch.paper.claims.quantiles import student
from s4d_torch.paper.claims.seed_noise import FEWEST, seed_noise
from s4d_torch.paper.recipes import Column, Recipe
from s4d_torch.paper.scores import Score, Spread, TableScores, paired_error, satterthwaite

LEVEL = 0.05  # how often chance alone looks like a difference
PER_CENT = 5.0  # of an RMSE weigh as much as a point of accuracy: errors differ more
MOST_SEEDS = 100  # beyond, an estimate of how many would decide is of no use

Rows = Sequence[Sequence[str]]
"""the rows a finding is about: pairs to compare, or groups"""


@dataclass(frozen=True)
class Gain:
    """How much better the first row is, over ``seeds``; ``cases`` is the error of the test set."""

    rows: tuple[str, str]
    column: str
    points: float
    spread: Spread
    cases: Spread
    seeds: int
    unit: float = 1.0
    """what weighs as much as a point of accuracy"""
    draws: int = 1
    """different sets of test cases among the seeds"""

    def noise(self, comparisons: int = 1, seeds: int | None = None) -> float:
        """What chance alone exceeds once in twenty times, in the largest of so many comparisons.

        With ``seeds`` that of as many, if they spread as these do. Never less than seeds or cases
        would leave by themselves: what is known better beside what is known badly does not make
        the sum certain.
        """
        seeds = self.seeds if seeds is None else seeds
        if seeds < 2 or not self.spread.freedom or math.isinf(self.cases.deviation):
            return math.inf
        freedom = self.spread.freedom * max(1, (seeds - 1) // max(self.seeds - 1, 1))
        by_case = self.cases.deviation**2 * self.draws / self._draws_of(seeds)
        parts = [(self.spread.deviation**2 / seeds, freedom), (by_case, self.cases.freedom)]
        if self.draws == 1:
            parts.append((sum(part for part, _ in parts), satterthwaite(parts)))
        level = LEVEL / comparisons
        return max(
            student(max(1.0, known), level) * math.sqrt(variance) for variance, known in parts
        )

    def _draws_of(self, seeds: int) -> int:
        """Of so many seeds; there are no more folds than these."""
        return 1 if self.draws == 1 else max(self.draws, min(seeds, FOLDS))

    def seeds_until(self, noise: float, comparisons: int = 1) -> int | None:
        """How many seeds it takes for the noise to fall below this; None: no number does.

        Of one seed nobody knows: two are the next step.
        """
        if (self.seeds < 2 or not self.spread.freedom) and math.isfinite(self.cases.deviation):
            return self.seeds + 1
        counts = range(max(2, self.seeds), MOST_SEEDS + 1)
        return next((n for n in counts if self.noise(comparisons, n) < noise), None)

    @property
    def interval(self) -> str:
        """``+0.4 ± 0.9``, ``-3.1% ± 7.2`` of an RMSE, or why there is none."""
        sign, noise = "" if self.unit == 1 else "%", self.noise()
        unknown = "test error unknown" if math.isinf(self.cases.deviation) else "one seed"
        shown = f"± {noise:.1f}" if math.isfinite(noise) else f"({unknown})"
        return f"{self.points:+.1f}{sign} {shown}"

    def __str__(self) -> str:
        return f"{self.column} {self.interval}"


@dataclass(frozen=True)
class Evidence:
    """What a rule judges by: the scores of a table, and the rows that a finding is about.

    ``paired`` are scores whose seeds mean something; those that a paper prints have none. ``pools``
    are, by column, rows by whose spread over seeds it is judged, where the table has too few.
    """

    recipe: Recipe
    scores: TableScores
    rows: Rows = ()
    paired: bool = True
    pools: Mapping[str, Sequence[Mapping[int, Score]]] = field(default_factory=dict)

    def cell(self, row: str, column: str) -> Mapping[int, Score]:
        """The scores of a cell by seed."""
        return self.scores.get(row, {}).get(column, {})

    def values(self, row: str, column: str) -> Sequence[float]:
        """The same as numbers, in the paper's unit."""
        return [score.value for score in self.cell(row, column).values()]

    def columns(self, datasets: Sequence[str] = (), *, first_epoch: bool = False) -> list[Column]:
        """Those of trained models, of all datasets or those named; after one epoch if asked."""
        return [
            column
            for column in self.recipe.columns
            if (first_epoch or column.value != "first-epoch")
            and (not datasets or dataset(column.name) in datasets)
        ]

    def gains(self, pairs: Rows, columns: Sequence[Column]) -> list[Gain]:
        """All comparisons for which both rows have scores of a seed."""
        found = []
        for better, worse in pairs:
            for column in columns:
                cells = self.cell(better, column.name), self.cell(worse, column.name)
                if gain := self.gain((better, worse), column, *cells):
                    found.append(gain)
        return found

    def were_run(self, pairs: Rows, columns: Sequence[Column]) -> bool:
        """Whether both rows of a pair have results of a seed, whatever came of them."""
        cells = ([self.cell(row, c.name) for row in pair] for pair in pairs for c in columns)
        return any(set(ours) & set(theirs) for ours, theirs in cells)

    def gain(
        self,
        rows: tuple[str, str],
        column: Column,
        ours: Mapping[int, Score],
        theirs: Mapping[int, Score],
    ) -> Gain | None:
        """One comparison; None without a seed that both have, of the same data.

        And None where neither has learned anything: that two guesses are alike is no finding.
        """
        common = common_seeds(ours, theirs)
        ours, theirs = ({seed: side[seed] for seed in common} for side in (ours, theirs))
        if not any(score.learned for side in (ours, theirs) for score in side.values()):
            return None
        each = [ours[seed].level - theirs[seed].level for seed in common]
        spread = self.spread(column.name, ours, theirs)
        unit = 1.0 if TASKS[column.task].metric == "accuracy" else PER_CENT
        known = paired_error(ours, theirs), len(each), unit, count_draws(ours)
        return Gain(rows, column.name, statistics.fmean(each), spread, *known)

    def spread(self, column: str, ours: Mapping[int, Score], theirs: Mapping[int, Score]) -> Spread:
        """Of the difference between two rows, from seed to seed."""
        every: Sequence[Mapping[int, Score]] = [self.cell(row, column) for row in self.scores]
        if sum(len(row) > 1 for row in every) < FEWEST:
            every = self.pools.get(column) or every
        if not self.paired:
            return pooled_unpaired(every)
        found = seed_noise(every).between(ours, theirs)
        if len(ours) < 2 or not found.freedom:
            return found
        own = statistics.stdev(ours[seed].level - theirs[seed].level for seed in ours)
        return Spread(max(own, found.deviation), found.freedom)


def common_seeds(ours: Mapping[int, Score], theirs: Mapping[int, Score]) -> list[int]:
    """Those of which both have a score on the same data."""
    return [seed for seed in ours if seed in theirs and ours[seed].data == theirs[seed].data]


def count_draws(scores: Mapping[int, Score]) -> int:
    """Different sets of test cases among runs of several seeds."""
    return len({score.data for score in scores.values()})


def dataset(column: str) -> str:
    """``BIDMC`` of ``BIDMC (HR)``: each of its signals can stand for it."""
    return column.split(",")[0].split(" (")[0]


def pooled_unpaired(rows: Iterable[Mapping[int, Score]]) -> Spread:
    """The same from the spread within each row, where seeds of rows have nothing in common.

    Rows that are printed without a deviation say nothing of it.
    """
    values = ([score.level for score in row.values()] for row in rows)
    found = pooled(each for each in values if max(each, default=0.0) > min(each, default=0.0))
    return Spread(math.sqrt(2) * found.deviation, found.freedom)


def pooled(rows: Iterable[Sequence[float]]) -> Spread:
    """The standard deviation over seeds within rows, from all of them together."""
    several = [values for values in rows if len(values) > 1]
    freedom = sum(len(values) - 1 for values in several)
    squares = sum((len(values) - 1) * statistics.variance(values) for values in several)
    return Spread(math.sqrt(squares / freedom), freedom) if freedom else Spread(0.0, 0)


def describe(found: Sequence[Gain]) -> str:
    """``2 seeds; S4D vs ZOH: sCIFAR +0.1 ± 1.2, SC (AR) -0.3 ± 2.0``, pair by pair."""
    by_pair: dict[tuple[str, str], list[Gain]] = {}
    for gain in found:
        by_pair.setdefault(gain.rows, []).append(gain)
    parts = (f"{a} vs {b}: {', '.join(map(str, many))}" for (a, b), many in by_pair.items())
    return "; ".join([count_seeds(gain.seeds for gain in found), *parts])


def count_seeds(counts: Iterable[int]) -> str:
    """``2 seeds``, or ``1 to 3 seeds``."""
    fewest, most = min(counts := list(counts)), max(counts)
    if fewest < most:
        return f"{fewest} to {most} seeds"
    return f"{most} seed{'s' * (most > 1)}"
