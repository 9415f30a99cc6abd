"""The score of a run as comparisons need it: on a scale of differences, with its cases.

On that scale a score is a number of which more is better and differences mean the same everywhere:
points of accuracy, and for errors ``-100 log(RMSE)``, of which a difference is, for small ones, so
many per cent.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from s4d_torch.data.dataset import Array
from s4d_torch.data.task import TASKS
from s4d_torch.paper.experiments.outcomes import Outcomes
from s4d_torch.paper.recipes import Recipe, printed_number

PAPER_SEEDS = 3  # "2 or 3 seeds": the larger number makes the paper's own numbers decide more
MANY = 1000  # degrees of freedom of what is known
UNLEARNED = 50.0  # per cent: a cross in the paper, of tasks with two classes


class Spread(NamedTuple):
    """A standard deviation, and the degrees of freedom it is known by, whole or not."""

    deviation: float
    freedom: float


@dataclass(frozen=True)
class Score:
    """What one seed of a row reached in a column.

    ``influence`` (n,) is what each case adds to ``level`` beyond the mean, to first order, with
    the ``groups`` that cases come in, where both are known. Otherwise ``sampling`` is the standard
    error that so few cases leave. ``data`` tells cases of other data apart. What has not
    ``learned``, and is no better than one answer to everything, says nothing of how it was made.
    """

    value: float
    """in the paper's unit"""
    level: float
    """on the scale of differences"""
    influence: Array | None = None
    groups: Array | None = None
    sampling: float = 0.0
    data: str = ""
    learned: bool = True

    def __sub__(self, other: "Score") -> "Score":
        """A difference of two scores as a score: what a row loses from one form to another."""
        if self.data != other.data:
            raise ValueError("scores on different data have no difference")
        both, groups = None, self.groups
        if _same_cases(self, other):
            assert self.influence is not None
            both = self.influence - other.influence
        sampling = 0.0
        if both is None:
            groups = None
            sampling = math.hypot(alone(self).deviation, alone(other).deviation)
        level, learned = self.level - other.level, self.learned or other.learned
        return Score(level, level, both, groups, sampling, self.data, learned)


# One score for each seed, by row and column; and that by table.
TableScores = Mapping[str, Mapping[str, Mapping[int, Score]]]
Scores = Mapping[str, TableScores]
# By table and column: rows by whose spread over seeds the column is judged, where there are more
# than its own.
Pools = Mapping[str, Mapping[str, Sequence[Mapping[int, Score]]]]


def score_of(value: float, *, accuracy: bool, outcomes: Outcomes | None = None) -> Score:
    """A score in the paper's unit, per cent or an RMSE, with what became of each case."""
    level = value if accuracy else -100 * math.log(value)
    if outcomes is None:
        return Score(value, level)
    each = outcomes.values.astype(np.float64)
    if accuracy:
        influence = 100 * (each - each.mean())
    else:
        squares = each**2
        influence = -50 * (squares / squares.mean() - 1)  # the derivative of -100 log sqrt(mean)
    return Score(value, level, influence, outcomes.groups)


def score_of_count(value: float, cases: int) -> Score:
    """An accuracy in per cent of so many cases, of which nothing else is known."""
    share = (value / 100 * cases + 1) / (cases + 2)  # none of a few is not never
    return Score(value, value, sampling=100 * math.sqrt(share * (1 - share) / cases))


def sampling_error(influence: Array, groups: Array | None) -> Spread:
    """The standard error of a mean over cases; cases of one group count as one draw.

    Its degrees of freedom are as many as draws of one size would be that make it up: of 46 patients
    of whom one has a third of the error, a few.
    """
    sums = influence - influence.mean()
    if groups is not None:
        sums = np.bincount(np.unique(groups, return_inverse=True)[1], sums)
    many, squares = max(len(sums), 2), sums**2
    total = float(squares.sum())
    if total == 0:
        return Spread(0.0, many - 1)
    error = math.sqrt(total * many / (many - 1)) / len(influence)
    alike = total**2 / float((squares**2).sum())
    return Spread(error, min(max(1.0, alike), many - 1))


def alone(score: Score) -> Spread:
    """The standard error of one score from the cases it is measured on."""
    if score.influence is None:
        return Spread(score.sampling, MANY)
    return sampling_error(score.influence, score.groups)


def paired_error(ours: Mapping[int, Score], theirs: Mapping[int, Score]) -> Spread:
    """The standard error, from the cases, of the mean difference over the seeds of both.

    Case by case where both were measured on the same ones: what is hard for both is no difference.
    Seeds that share their data share its error; other data are other cases, drawn anew.
    """
    by_data: dict[str, list[tuple[Score, Score]]] = {}
    for seed in ours:
        if seed in theirs:
            by_data.setdefault(ours[seed].data, []).append((ours[seed], theirs[seed]))
    return _mean_of_draws([(len(pairs), _error_of(pairs)) for pairs in by_data.values()])


def error_of_mean(scores: Iterable[Score]) -> Spread:
    """The standard error, from the cases, of the mean of several runs."""
    by_data: dict[str, list[Score]] = {}
    for score in scores:
        by_data.setdefault(score.data, []).append(score)
    return _mean_of_draws([(len(some), max(map(alone, some))) for some in by_data.values()])


def _mean_of_draws(draws: Sequence[tuple[int, Spread]]) -> Spread:
    """Of a mean over independent draws of cases, so many runs on each."""
    if len(draws) == 1:
        return draws[0][1]
    runs = sum(count for count, _ in draws)
    parts = [((count / runs * draw.deviation) ** 2, draw.freedom) for count, draw in draws]
    return Spread(math.sqrt(sum(part for part, _ in parts)), satterthwaite(parts))


def satterthwaite(parts: Iterable[tuple[float, float]]) -> float:
    """The degrees of freedom of a sum of variances, each known by its own."""
    parts = list(parts)
    squares = sum(part**2 / freedom for part, freedom in parts)
    return max(1.0, sum(part for part, _ in parts) ** 2 / squares) if squares else MANY


def _error_of(pairs: Sequence[tuple[Score, Score]]) -> Spread:
    """The standard error of the mean difference of runs on the same cases."""
    if all(_same_cases(a, b) for a, b in pairs) and len({_size(a) for a, _ in pairs}) == 1:
        each = [a.influence - b.influence for a, b in pairs]  # type: ignore[operator]
        return sampling_error(np.mean(each, axis=0), pairs[0][0].groups)
    # the cases of all seeds are the same: more seeds do not make them more
    sides = [max(map(alone, side)) for side in zip(*pairs, strict=True)]
    freedom = min(side.freedom for side in sides)
    return Spread(math.hypot(*(side.deviation for side in sides)), freedom)


def _same_cases(a: Score, b: Score) -> bool:
    return a.influence is not None and b.influence is not None and _size(a) == _size(b)


def _size(score: Score) -> int:
    return 0 if score.influence is None else len(score.influence)


def printed_scores(recipe: Recipe) -> TableScores:
    """The numbers that the paper prints, as seeds with the same mean and standard deviation.

    One without a deviation has as many equal seeds; where a whole column has none, numbers spread
    as the widest of the table.
    """
    numbers = {
        row: {column: printed_number(cell) or (UNLEARNED, None) for column, cell in cells.items()}
        for row, cells in recipe.published.items()
    }
    found: dict[str, dict[str, dict[int, Score]]] = {row: {} for row in numbers}
    widest = max((d for row in numbers.values() for _, d in row.values() if d), default=0.0)
    for column in recipe.columns:
        accuracy = TASKS[column.task].metric == "accuracy"
        printed = {row: cells[column.name] for row, cells in numbers.items()}
        usual = 0.0 if any(deviation for _, deviation in printed.values()) else widest
        for row, (mean, deviation) in printed.items():
            values = (mean + (seed - 1) * (deviation or usual) for seed in range(PAPER_SEEDS))
            scores = [score_of(value, accuracy=accuracy) for value in values]
            found[row][column.name] = dict(enumerate(scores))
    return found
