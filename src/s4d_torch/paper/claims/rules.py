"""The rules by which results decide a finding of the paper's experiments.

A finding is a statement about pairs of rows, and each pair is compared in each column, as
:mod:`.comparison` says. A comparison *supports* the statement or *contradicts* it
only beyond noise. That rows are alike is supported where the whole interval of their difference
lies within ``MARGIN``: two points, or 10 % of an RMSE, about what the paper's own choices differ
by; that one is far better, where it is by more than that. The statement fails where one comparison
contradicts it; among many, one does so by chance, and the noise it has to exceed grows with their
number. It holds where all comparisons support it. One that speaks of many ("often") holds where so
many support it, and fails where more contradict it; one that speaks of every dataset waits for all
of them. Anything between is not decided; then the verdict says how many seeds would decide it, if
they spread as those at hand do.
"""

import math
import statistics
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from s4d_torch.paper.claims import comparison
from s4d_torch.paper.claims.claim import Holds, Need, Rule, Verdict
from s4d_torch.paper.claims.comparison import (
    Evidence,
    Gain,
    Rows,
    count_seeds,
    dataset,
    describe,
)
from s4d_torch.paper.recipes import Column
from s4d_torch.paper.scores import Score, Spread, alone

MARGIN = 2.0  # points that count as no noticeable difference
ALMOST_ALL, OFTEN, MAYBE = 0.75, 0.5, 0.0  # more than this share of the comparisons
GUESS = 50.0  # per cent: what the arena's average counts where a model learned nothing
NOTHING = Verdict("not decided", "no results to compare")


@dataclass(frozen=True, kw_only=True)
class Pairwise(ABC):
    """Compares each pair of rows in each column; in those of trained models, unless told more."""

    datasets: tuple[str, ...] = ()
    """only these"""
    against: str = ""
    """only the pairs with this second row"""
    first_epoch: bool = False
    """the columns after one epoch too"""
    share: float = 1.0
    """of the comparisons that have to support it"""
    everywhere: bool = False
    """on every dataset"""
    margin: float = MARGIN
    """what counts as no noticeable difference, in points"""

    @abstractmethod
    def supports(self, gain: Gain, noise: float) -> bool:
        """Whether one comparison speaks for the finding, beyond its ``noise``."""

    @abstractmethod
    def contradicts(self, gain: Gain, noise: float) -> bool:
        """Beyond ``noise``, which is that of as many comparisons as there are."""

    @abstractmethod
    def enough(self, gain: Gain) -> tuple[float, bool]:
        """The noise below which a comparison, as it stands, would decide, and whether for it."""

    def __call__(self, evidence: Evidence) -> Verdict:
        columns = evidence.columns(self.datasets, first_epoch=self.first_epoch)
        pairs = [pair for pair in evidence.rows if self.against in ("", pair[1])]
        return self.decide(evidence.gains(pairs, columns), columns, pairs)

    def decide(self, found: Sequence[Gain], columns: Sequence[Column], pairs: Rows) -> Verdict:
        """The verdict of many comparisons; it does not hold while one of them is missing."""
        if not found:
            return NOTHING
        # one of many that is enough was picked among them
        tries = {True: len(found) if self.share == MAYBE else 1, False: len(found)}
        pro = [gain for gain in found if self.supports(gain, gain.noise(tries[True]))]
        con = [gain for gain in found if self.contradicts(gain, gain.noise(tries[False]))]
        still_open = [gain for gain in found if gain not in pro and gain not in con]
        effect, unseen, lacking = describe(found), *_missing(found, columns, pairs)
        counts = f"{len(pro)} of {len(found)} comparisons support it, {len(con)} contradict it"
        detail = f"Beyond noise {counts}."
        if unseen:
            detail += f" Without results: {', '.join(unseen)}."
        if con if self.share == 1 else len(con) > len(pro):
            return Verdict("fails", effect, detail, deciding=tuple(con), unseen=unseen)
        waits_for = (*lacking, *(unseen if self.everywhere else ()))
        enough = len(pro) == len(found) if self.share == 1 else len(pro) > self.share * len(found)
        if enough and len(pro) > len(con) and not waits_for:
            return Verdict("holds", effect, detail, deciding=tuple(pro), unseen=unseen)
        needs = []
        for gain in still_open:
            noise, for_it = self.enough(gain)
            wanted = gain.seeds_until(noise, tries[for_it])
            contrary = self.share == 1 and not for_it
            needs.append(Need(gain.rows, gain.column, gain.seeds, wanted, contrary))
        shown = tuple(still_open or found)
        return Verdict("not decided", effect, detail, tuple(needs), shown, waits_for, unseen)


def _missing(
    found: Sequence[Gain], columns: Sequence[Column], pairs: Rows
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The datasets without any comparison, and the pairs that others lack."""
    seen = {(tuple(gain.rows), dataset(gain.column)) for gain in found}
    begun = {name for _, name in seen}
    names = list(dict.fromkeys(dataset(column.name) for column in columns))
    lacking = (
        f"{pair[0]} and {pair[1]} on {name}"
        for name in names
        if name in begun
        for pair in pairs
        if (tuple(pair), name) not in seen
    )
    return tuple(name for name in names if name not in begun), tuple(lacking)


class Better(Pairwise):
    """The first row of each pair is better."""

    def supports(self, gain: Gain, noise: float) -> bool:
        return gain.points > noise

    def contradicts(self, gain: Gain, noise: float) -> bool:
        return gain.points < -noise

    def enough(self, gain: Gain) -> tuple[float, bool]:
        return abs(gain.points), gain.points > 0


class FarBetter(Pairwise):
    """The first row of each pair is better by more than the margin: the other is poor.

    The whole interval of the difference has to lie above the margin, or below.
    """

    def supports(self, gain: Gain, noise: float) -> bool:
        return gain.points - noise > self.margin * gain.unit

    def contradicts(self, gain: Gain, noise: float) -> bool:
        return gain.points + noise < self.margin * gain.unit

    def enough(self, gain: Gain) -> tuple[float, bool]:
        beyond = gain.points - self.margin * gain.unit
        return abs(beyond), beyond > 0


class Alike(Pairwise):
    """The rows of each pair differ little: the whole interval of the difference is within the
    margin. What is beyond noise, and as it stands beyond the margin, is a noticeable difference.
    """

    def supports(self, gain: Gain, noise: float) -> bool:
        return abs(gain.points) + noise < self.margin * gain.unit

    def contradicts(self, gain: Gain, noise: float) -> bool:
        return abs(gain.points) > max(noise, self.margin * gain.unit)

    def enough(self, gain: Gain) -> tuple[float, bool]:
        within = self.margin * gain.unit - abs(gain.points)
        return (within, True) if within > 0 else (abs(gain.points), False)


class Competitive(Pairwise):
    """The first row of each pair is not behind by more than the margin."""

    def supports(self, gain: Gain, noise: float) -> bool:
        return gain.points - noise > -self.margin * gain.unit

    def contradicts(self, gain: Gain, noise: float) -> bool:
        return gain.points < -max(noise, self.margin * gain.unit)

    def enough(self, gain: Gain) -> tuple[float, bool]:
        within = self.margin * gain.unit + gain.points
        return (within, True) if within > 0 else (-gain.points, False)


@dataclass(frozen=True)
class LosesMost(Better):
    """The models named lose most from the first row of a pair to the second, on one dataset."""

    models: tuple[str, ...]

    def __call__(self, evidence: Evidence) -> Verdict:
        [column] = evidence.columns(self.datasets)
        lost = {}
        for pair in evidence.rows:
            if found := _lost(evidence, pair, column):
                lost[pair[0].rpartition(",")[0]] = found
        every = [pair[0].rpartition(",")[0] for pair in evidence.rows]
        pairs = list(product(self.models, (name for name in every if name not in self.models)))
        scores = {name: {column.name: each} for name, each in lost.items()}
        losses = replace(evidence, scores=scores, pools={})
        return self.decide(losses.gains(pairs, [column]), [column], pairs)


def _lost(evidence: Evidence, rows: Sequence[str], column: Column) -> dict[int, Score]:
    """What is lost from the first row to the second, seed by seed."""
    before, after = (evidence.cell(row, column.name) for row in rows)
    return {seed: before[seed] - after[seed] for seed in before if seed in after}


class AllOf:
    """All rules hold; one that fails decides, one without results leaves it open."""

    def __init__(self, *rules: Rule) -> None:
        self.rules = rules

    def __call__(self, evidence: Evidence) -> Verdict:
        verdicts = [rule(evidence) for rule in self.rules]
        effect = " / ".join(f"{verdict.holds}: {verdict.effect}" for verdict in verdicts)
        for holds in ("fails", "not decided", "holds"):
            if decisive := [verdict for verdict in verdicts if verdict.holds == holds]:
                parts: dict[str, Any] = {
                    name: tuple(each for verdict in decisive for each in getattr(verdict, name))
                    for name in ("needs", "deciding", "missing", "unseen")
                }
                return Verdict(holds, effect, **parts)
        return NOTHING


@dataclass(frozen=True)
class BetterOnAverage:
    """The first row is ``by`` points better in the mean; as in the paper, no run is a guess."""

    by: float

    def __call__(self, evidence: Evidence) -> Verdict:
        [(_, other)] = evidence.rows
        columns = evidence.recipe.columns
        if theirs := evidence.scores.get(other):
            seeds = sorted({seed for cell in theirs.values() for seed in cell})
            guess = {seed: Score(GUESS, GUESS) for seed in seeds}
            without = [c.name for c in columns if (other, c.name) in evidence.recipe.without]
            scores = {**evidence.scores, other: {**dict.fromkeys(without, guess), **theirs}}
            evidence = replace(evidence, scores=scores)
        if not (found := evidence.gains(evidence.rows, columns)):
            return NOTHING
        mean = statistics.fmean(gain.points for gain in found)
        noise = math.sqrt(sum(gain.noise() ** 2 for gain in found)) / len(found)
        effect = f"{mean:+.1f} ± {noise:.1f} in the mean of {len(found)} of {len(columns)} columns"
        effect = f"{effect}; {describe(found)}"
        deciding, seen = tuple(found), {gain.column for gain in found}
        missing = tuple(column.name for column in columns if column.name not in seen)
        if missing or abs(mean - self.by) < noise:
            return Verdict("not decided", effect, deciding=deciding, missing=missing)
        return Verdict("holds" if mean > self.by else "fails", effect, deciding=deciding)


@dataclass(frozen=True)
class BestWins:
    """In ``several`` columns the best of the first group of rows beats the best of the second."""

    several: int
    datasets: tuple[str, ...] = ()

    def __call__(self, evidence: Evidence) -> Verdict:
        ours, theirs = evidence.rows
        columns = evidence.columns(self.datasets)
        found: list[Gain] = []
        for column in columns:
            best = [_best(evidence, rows, column) for rows in (ours, theirs)]
            found += evidence.gains([best], [column])
        if len(found) < self.several:
            return NOTHING
        # each is the best of several rows: as many comparisons are made in silence
        tries = len(found) * len(ours) * len(theirs)
        wins = [sum(gain.points > noise * gain.noise(tries) for gain in found) for noise in (1, -1)]
        effect, detail = describe(found), f"Beyond noise {wins[0]} of {len(columns)} columns."
        lost = wins[1] < self.several and len(found) == len(columns)
        holds: Holds = "holds" if wins[0] >= self.several else "fails" if lost else "not decided"
        return Verdict(holds, effect, detail, deciding=tuple(found))


def _best(evidence: Evidence, rows: Sequence[str], column: Column) -> str:
    """The row with the best mean; the first where none has results."""
    cells = {row: evidence.cell(row, column.name).values() for row in rows}
    means = {row: statistics.fmean(x.level for x in cell) for row, cell in cells.items() if cell}
    return max(means, key=lambda row: means[row], default=rows[0])


def _on_their_sides(
    scores: Mapping[str, Mapping[int, Score]],
    column: str,
    spread: Spread,
    limit: float,
    above: Sequence[str],
    words: str,
) -> Verdict:
    """The rows ``above`` have a mean above the limit, beyond noise, and the others below."""
    beyond = {
        row: Gain(
            (row, row),
            column,
            statistics.fmean(score.level for score in each.values()) - limit,
            spread,
            max(map(alone, each.values())),
            len(each),
        )
        for row, each in scores.items()
    }
    shown = (
        words.format(row=row, mean=gain.points + limit, noise=gain.noise())
        for row, gain in beyond.items()
    )
    effect = "; ".join([count_seeds(map(len, scores.values())), *shown])
    needs = []
    for row, gain in beyond.items():
        right, distance = (gain.points > 0) == (row in above), abs(gain.points)
        tries = 1 if right else len(beyond)
        if not right and distance > gain.noise(tries):
            return Verdict("fails", effect)
        if not right or distance <= gain.noise():
            wanted = gain.seeds_until(distance, tries)
            needs.append(Need(gain.rows, column, gain.seeds, wanted))
    return Verdict("not decided" if needs else "holds", effect, needs=tuple(needs))


@dataclass(frozen=True)
class AboveChance:
    """The first group of rows learns a task of two classes, the second does not."""

    column: str
    margin: float
    """points above a guess that count as having learned"""

    def __call__(self, evidence: Evidence) -> Verdict:
        rows = [row for group in evidence.rows for row in group]
        scores = {row: evidence.cell(row, self.column) for row in rows}
        if not all(scores.values()):
            return Verdict("not decided", f"needs {self.column} with {', '.join(scores)}")
        above = {
            row: {seed: replace(score, level=score.level - GUESS) for seed, score in cell.items()}
            for row, cell in scores.items()
        }
        words = "{row} {mean:+.1f} ± {noise:.1f} from a guess"
        spread = comparison.pooled(evidence.values(row, self.column) for row in evidence.scores)
        verdict = _on_their_sides(above, self.column, spread, self.margin, evidence.rows[0], words)
        best = max(score.level for cell in above.values() for score in cell.values())
        if best < self.margin:
            return Verdict("not decided", verdict.effect, "Nothing was learned at this scale.")
        return verdict


@dataclass(frozen=True)
class LosesLittle:
    """From column to column only the second group of rows loses more than ``limit`` points."""

    limit: float

    def __call__(self, evidence: Evidence) -> Verdict:
        lost = {}
        for row in (row for rows in evidence.rows for row in rows):
            before, after = (evidence.cell(row, c.name) for c in evidence.recipe.columns)
            found = {seed: before[seed] - after[seed] for seed in before if seed in after}
            if found:  # of the same runs
                lost[row] = found
        if not lost:
            return NOTHING
        levels = ([score.level for score in cell.values()] for cell in lost.values())
        first = evidence.recipe.columns[0].name
        words, spread = "{row} loses {mean:.1f} ± {noise:.1f}", comparison.pooled(levels)
        verdict = _on_their_sides(lost, first, spread, self.limit, evidence.rows[1], words)
        absent = tuple(row for rows in evidence.rows for row in rows if row not in lost)
        return replace(verdict, holds="not decided", missing=absent) if absent else verdict
