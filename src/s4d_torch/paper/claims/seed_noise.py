"""How much rows of a task differ from seed to seed: each by itself, moderated by all of them.

Two or three runs say little of how far others would be, and rows do not spread alike: a start that
is hardly learned may differ by half from seed to seed where others differ by a few per cent. So the
variance of a row is its own, drawn towards the usual one of all rows, by as much as variances of
rows are alike: with ``d`` degrees of freedom of its own and ``d0`` of the others',

    v = (d0 v0 + d s^2) / (d0 + d),

where ``v0`` and ``d0`` are found from the mean and the variance of ``log s^2`` over rows (the
moderated t-statistic of Smyth 2004, Statistical Applications in Genetics and Molecular Biology 3).
A seed may move all rows alike; what it does to them in the mean is taken off first, without a fifth
of them at either end, which may spread far more than the others.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from s4d_torch.paper.scores import Score, Spread

FEWEST = 4  # rows from which variances can be compared
LEAST = 1e-3  # of the usual variance: two runs that happen to agree are not exact


@dataclass(frozen=True)
class SeedNoise:
    """What is known of the rows of a task."""

    shifts: Mapping[int, float]
    """what a seed does to rows in the mean"""
    usual: Spread
    """of one row; its degrees of freedom are ``d0``, by which a row's own is drawn towards it"""
    total: float
    """degrees of freedom of all rows together"""
    rows: int

    def of(self, row: Mapping[int, Score]) -> Spread:
        """The moderated deviation of a row, and its degrees of freedom."""
        own, prior = _residual(row, self.shifts, self.rows), self.usual
        if not self.total:
            return Spread(0.0, 0)
        if own.freedom < 1:
            return Spread(prior.deviation, min(prior.freedom, self.total))
        freedom = prior.freedom + own.freedom
        both = prior.freedom * prior.deviation**2 + own.freedom * own.deviation**2
        return Spread(math.sqrt(both / freedom), min(freedom, self.total))

    def between(self, ours: Mapping[int, Score], theirs: Mapping[int, Score]) -> Spread:
        """The deviation of the difference of two rows, by Satterthwaite's degrees of freedom."""
        a, b = self.of(ours), self.of(theirs)
        variances = a.deviation**2, b.deviation**2
        if not a.freedom or not b.freedom:
            return Spread(0.0, 0)
        if not any(variances):
            return Spread(0.0, min(a.freedom, b.freedom))
        parts = variances[0] ** 2 / a.freedom + variances[1] ** 2 / b.freedom
        freedom = sum(variances) ** 2 / parts
        return Spread(math.sqrt(sum(variances)), max(1, min(math.floor(freedom), self.total)))


def seed_noise(rows: Sequence[Mapping[int, Score]]) -> SeedNoise:
    """What the rows that have several seeds say together."""
    several = [row for row in rows if len(row) > 1]
    shifts = _shifts(several)
    found = [_residual(row, shifts, len(several)) for row in several]
    total = sum(each.freedom for each in found) - max(len(shifts) - 1, 0)
    if total < 1:
        return SeedNoise(shifts, Spread(0.0, 0), 0, len(several))
    mean = sum(each.freedom * each.deviation**2 for each in found) / sum(x.freedom for x in found)
    # where all variances are one, d0 is infinite: a row's own hardly counts
    pooled = Spread(math.sqrt(mean), 10 * total)
    usual = moderator(found) if len(found) >= FEWEST and mean > 0 else None
    return SeedNoise(shifts, usual or pooled, total, len(several))


def moderator(found: Sequence[Spread]) -> Spread | None:
    """``v0`` and ``d0`` by the moments of ``log s^2``; None where variances differ no more than by
    chance, so that all of them are one.
    """
    usual = statistics.median(each.deviation**2 for each in found)
    least = LEAST * (usual or statistics.fmean(each.deviation**2 for each in found))
    halves = torch.tensor([each.freedom / 2 for each in found], dtype=torch.float64)
    squares = torch.tensor([max(each.deviation**2, least) for each in found], dtype=torch.float64)
    logs = squares.log() - halves.digamma() + halves.log()
    excess = float(logs.var() - halves.polygamma(1).mean())
    if excess <= 0:
        return None
    half = _inverse_trigamma(excess)
    log = float(logs.mean()) + float(torch.tensor(half).digamma()) - math.log(half)
    return Spread(math.exp(log / 2), max(1, round(2 * half)))


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


def _inverse_trigamma(value: float) -> float:
    """``x`` with ``trigamma(x) = value``, by halving on a logarithmic scale: it falls with x."""
    low, high = 1e-3, 1e3
    while high / low > 1 + 1e-6:
        middle = math.sqrt(low * high)
        above = float(torch.tensor(middle, dtype=torch.float64).polygamma(1)) > value
        low, high = (middle, high) if above else (low, middle)
    return high
