"""How much rows of a task differ from seed to seed: most of them alike, some far more.

Two or three runs of a row say little of how far others would be, so rows are taken together. They
do not all spread alike: a start that is hardly learned may differ by half from seed to seed where
others differ by a few per cent. Rows whose variance chance alone would exceed once in twenty times,
were it that of the others, are *wild*: their variance is their own, or the mean of all wild rows'
if that is more. The others share one, the mean of theirs divided by what is left of a mean without
its largest twentieth. A seed may move all rows alike; what it does to them in the mean is taken off
first, without a fifth of them at either end.

By simulation, chance alone tells rows that spread alike apart in 4 to 7 % of comparisons at the
level of 5 %, whatever some others do. A row that spreads far more than all others, but not between
the two seeds it has, is taken for one of them: it is told apart in up to 17 %, with three seeds in
up to 9 %.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from s4d_torch.paper.claims.quantiles import below_chi_square, chi_square
from s4d_torch.paper.scores import Score, Spread

FEWEST = 4  # rows from which variances can be compared
WILD = 0.05  # how often chance alone makes a row that spreads as the others do seem wild


@dataclass(frozen=True)
class SeedNoise:
    """What is known of the rows of a task."""

    shifts: Mapping[int, float]
    """what a seed does to rows in the mean"""
    usual: Spread
    """of a row that spreads as most of them do"""
    wild: Spread
    """of those that spread far more"""
    rows: int

    def of(self, row: Mapping[int, Score]) -> Spread:
        """The deviation of a row from seed to seed, and its degrees of freedom."""
        own = _residual(row, self.shifts, self.rows)
        if self.wild.freedom and is_wild(own, self.usual.deviation**2):
            return Spread(max(own.deviation, self.wild.deviation), self.wild.freedom)
        return self.usual

    def between(self, ours: Mapping[int, Score], theirs: Mapping[int, Score]) -> Spread:
        """The deviation of the difference of two rows, by Satterthwaite's degrees of freedom."""
        a, b = self.of(ours), self.of(theirs)
        variances = a.deviation**2, b.deviation**2
        if not a.freedom or not any(variances):
            return Spread(0.0, a.freedom)
        if a == b == self.usual:
            freedom = a.freedom  # one number, known once
        else:
            parts = variances[0] ** 2 / a.freedom + variances[1] ** 2 / b.freedom
            freedom = max(1.0, sum(variances) ** 2 / parts)
        return Spread(math.sqrt(sum(variances)), freedom)


def seed_noise(rows: Sequence[Mapping[int, Score]]) -> SeedNoise:
    """What the rows that have several seeds say together."""
    several = [row for row in rows if len(row) > 1]
    shifts = _shifts(several)
    found = [_residual(row, shifts, len(several)) for row in several]
    shared = max(len(shifts) - 1, 0)  # degrees of freedom of what was taken off
    if sum(each.freedom for each in found) - shared < 1:
        return SeedNoise(shifts, Spread(0.0, 0), Spread(0.0, 0), len(several))
    variance, usual = _usual(found)
    wild = [each for each in found if each not in usual]
    freedom = max(1.0, sum(each.freedom for each in usual) - shared)
    of_wild = Spread(math.sqrt(_mean_square(wild)), sum(each.freedom for each in wild))
    return SeedNoise(shifts, Spread(math.sqrt(variance), freedom), of_wild, len(several))


def _usual(found: Sequence[Spread]) -> tuple[float, list[Spread]]:
    """The variance of rows that spread alike, and which they are."""
    usual = list(found)
    variance = statistics.median(
        each.deviation**2 * each.freedom / chi_square(each.freedom, 0.5) for each in found
    )
    if len(found) < FEWEST or variance == 0:
        return _mean_square(found), usual
    for _ in range(len(found)):  # each time fewer or more, until they stay the same
        usual = [each for each in found if not is_wild(each, variance)]
        before, variance = variance, _mean_square(usual) / _part_left(usual)
        if math.isclose(before, variance):
            break
    return variance, [each for each in found if not is_wild(each, variance)]


def is_wild(own: Spread, variance: float) -> bool:
    """Whether a row spreads more than rows of this variance do but once in twenty times."""
    if own.freedom < 1:
        return False
    return own.freedom * own.deviation**2 > variance * chi_square(own.freedom, 1 - WILD)


def _mean_square(spreads: Sequence[Spread]) -> float:
    """The pooled variance; 0 of none."""
    freedom = sum(each.freedom for each in spreads)
    squares = sum(each.freedom * each.deviation**2 for each in spreads)
    return squares / freedom if freedom else 0.0


def _part_left(spreads: Sequence[Spread]) -> float:
    """What the mean of a variance keeps of itself without those that are too large."""
    freedoms = [each.freedom for each in spreads]
    kept = (f * below_chi_square(f + 2, chi_square(f, 1 - WILD)) / (1 - WILD) for f in freedoms)
    return sum(kept) / sum(freedoms)


def _shifts(rows: Sequence[Mapping[int, Score]]) -> dict[int, float]:
    moved: dict[int, list[float]] = {}
    for row in rows:
        mean = statistics.fmean(score.level for score in row.values())
        for seed, score in row.items():
            moved.setdefault(seed, []).append(score.level - mean)
    return {seed: _trimmed(values) for seed, values in moved.items()}


def _trimmed(values: Sequence[float]) -> float:
    """The mean without a fifth at either end.

    A median would take all of its change off the row in the middle, which then seems not to spread.
    """
    cut = len(values) // 5
    return statistics.fmean(sorted(values)[cut : len(values) - cut])


def _residual(row: Mapping[int, Score], shifts: Mapping[int, float], rows: int) -> Spread:
    """The deviation of a row over its seeds, without what they do to all rows."""
    left = [score.level - shifts.get(seed, 0.0) for seed, score in row.items()]
    if len(left) < 2:
        return Spread(0.0, 0)
    # the row took part in what was taken off
    variance = statistics.variance(left) * rows / max(rows - 1, 1)
    return Spread(math.sqrt(variance), len(left) - 1)
