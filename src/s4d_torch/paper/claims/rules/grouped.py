"""Statements about groups of rows, averages over columns, and several statements together."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from s4d_torch.paper.claims import comparison
from s4d_torch.paper.claims.claim import Holds, Need, Rule, Verdict, sentences
from s4d_torch.paper.claims.comparison import (
    Evidence,
    Gain,
    common_seeds,
    count_draws,
    count_seeds,
    describe,
)
from s4d_torch.paper.claims.rules.pairwise import NOTHING, UNLEARNED, Competitive
from s4d_torch.paper.recipes import Column
from s4d_torch.paper.scores import Score, Spread, error_of_mean

GUESS = 50.0  # per cent: what the arena's average counts where a model learned nothing


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
                    for name in ("needs", "deciding", "missing", "unseen", "aside", "beside")
                }
                return Verdict(holds, effect, sentences(*(v.detail for v in decisive)), **parts)
        return NOTHING


@dataclass(frozen=True)
class BetterOnAverage:
    """The first row is ``by`` points better in the mean; as in the paper, no run is a guess."""

    by: float

    def __call__(self, evidence: Evidence) -> Verdict:
        [(ours, other)], columns = evidence.rows, evidence.recipe.columns
        guessed = {
            column.name: {
                seed: Score(GUESS, GUESS, data=score.data)
                for seed, score in evidence.cell(ours, column.name).items()
            }
            for column in columns
            if (other, column.name) in evidence.recipe.without
        }
        if theirs := evidence.scores.get(other):
            evidence = replace(evidence, scores={**evidence.scores, other: {**guessed, **theirs}})
        if not (found := evidence.gains(evidence.rows, columns)):
            return NOTHING
        mean, noise = statistics.fmean(gain.points for gain in found), _noise_of_mean(found)
        effect = f"{mean:+.1f} ± {noise:.1f} in the mean of {len(found)} of {len(columns)} columns"
        effect = f"{effect}; {describe(found)}"
        deciding, seen = tuple(found), {gain.column for gain in found}
        missing = tuple(column.name for column in columns if column.name not in seen)
        supposed = [name for name in guessed if name in seen and name not in (theirs or {})]
        detail = f"{other} is taken to guess on {', '.join(supposed)}." if supposed else ""
        if missing or abs(mean - self.by) < noise:
            needs = () if missing else self._needs(found, mean)
            return Verdict("not decided", effect, detail, needs, deciding, missing)
        return Verdict("holds" if mean > self.by else "fails", effect, detail, deciding=deciding)

    def _needs(self, found: Sequence[Gain], mean: float) -> tuple[Need, ...]:
        """As many seeds of each column as would make the mean certain enough."""
        counts = range(max(2, *(gain.seeds for gain in found)), comparison.MOST_SEEDS + 1)
        enough = (n for n in counts if _noise_of_mean(found, n) < abs(mean - self.by))
        wanted, contrary = next(enough, None), mean < self.by
        return tuple(Need(gain.rows, gain.column, gain.seeds, wanted, contrary) for gain in found)


def _noise_of_mean(found: Sequence[Gain], seeds: int | None = None) -> float:
    return math.sqrt(sum(gain.noise(seeds=seeds) ** 2 for gain in found)) / len(found)


@dataclass(frozen=True)
class BestWins:
    """In ``several`` columns the best of the first group of rows beats the best of the second."""

    several: int
    datasets: tuple[str, ...] = ()

    def __call__(self, evidence: Evidence) -> Verdict:
        ours, theirs = evidence.rows
        columns = evidence.columns(self.datasets)
        found = _best_against_best(evidence, columns)
        if len(found) < self.several:
            return NOTHING
        # each is the best of several rows: as many comparisons are made in silence
        tries = len(found) * len(ours) * len(theirs)
        wins = [sum(gain.points > noise * gain.noise(tries) for gain in found) for noise in (1, -1)]
        effect, detail = describe(found), f"Beyond noise {wins[0]} of {len(columns)} columns."
        lost = wins[1] < self.several and len(found) == len(columns)
        holds: Holds = "holds" if wins[0] >= self.several else "fails" if lost else "not decided"
        if holds != "not decided":
            return Verdict(holds, effect, detail, deciding=tuple(found))
        needs = tuple(
            Need(gain.rows, gain.column, gain.seeds, wanted, contrary=gain.points < 0)
            for gain in found
            if abs(gain.points) <= gain.noise(tries)
            for wanted in [gain.seeds_until(abs(gain.points), tries)]
        )
        seen, short = {gain.column for gain in found}, self.several - wins[0]
        missing = tuple(column.name for column in columns if column.name not in seen)
        return Verdict(holds, effect, detail, needs, tuple(found), missing, short=short)


@dataclass(frozen=True)
class BestCompetitive(Competitive):
    """In each column the best of the first group of rows is not behind the best of the second."""

    def __call__(self, evidence: Evidence) -> Verdict:
        columns = evidence.columns(self.datasets)
        return self.decide(_best_against_best(evidence, columns), columns, [])


def _best_against_best(evidence: Evidence, columns: Sequence[Column]) -> list[Gain]:
    """How much better the best of the first group is, column by column, where that of the second
    is known: all of its rows have results.
    """
    found: list[Gain] = []
    for column in columns:
        if all(evidence.cell(row, column.name) for row in evidence.rows[1]):
            best = [_best(evidence, rows, column) for rows in evidence.rows]
            found += evidence.gains([best], [column])
    return found


def _best(evidence: Evidence, rows: Sequence[str], column: Column) -> str:
    """The row with the best mean; the first where none has results."""
    cells = {row: evidence.cell(row, column.name).values() for row in rows}
    means = {row: statistics.fmean(x.level for x in cell) for row, cell in cells.items() if cell}
    return max(means, key=lambda row: means[row], default=rows[0])


def _on_their_sides(
    scores: Mapping[str, Mapping[int, Score]],
    column: str,
    spread: Spread,
    limits: Mapping[str, float],
    above: Sequence[str],
    words: str,
) -> Verdict:
    """The rows ``above`` have a mean above their limits, beyond noise, and the others below."""
    beyond = {
        row: Gain(
            (row, row),
            column,
            statistics.fmean(score.level for score in each.values()) - limits[row],
            spread,
            error_of_mean(each.values()),
            len(each),
            draws=count_draws(each),
        )
        for row, each in scores.items()
    }
    shown = (
        words.format(row=row, mean=gain.points + limits[row], noise=gain.noise())
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
            needs.append(Need(gain.rows, column, gain.seeds, wanted, contrary=not right))
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
        limits = dict.fromkeys(rows, self.margin)
        verdict = _on_their_sides(above, self.column, spread, limits, evidence.rows[0], words)
        best = max(score.level for cell in above.values() for score in cell.values())
        if best < self.margin:
            return Verdict("not decided", verdict.effect, sentences(UNLEARNED), unlearned=True)
        return verdict


@dataclass(frozen=True)
class LosesLittle:
    """From column to column the first group of rows loses less than ``little`` per cent of its
    score, and the second more than ``most``.
    """

    little: float
    most: float

    def __call__(self, evidence: Evidence) -> Verdict:
        lost, limits = {}, {}
        for rows, limit in zip(evidence.rows, (self.little, self.most), strict=True):
            for row in rows:
                before, after = (evidence.cell(row, c.name) for c in evidence.recipe.columns)
                limits[row] = limit
                if found := {s: _share(before[s], after[s]) for s in common_seeds(before, after)}:
                    lost[row] = found  # of the same runs
        if not lost:
            return NOTHING
        levels = ([score.level for score in cell.values()] for cell in lost.values())
        first = evidence.recipe.columns[0].name
        words, spread = "{row} loses {mean:.1f}% ± {noise:.1f}", comparison.pooled(levels)
        verdict = _on_their_sides(lost, first, spread, limits, evidence.rows[1], words)
        absent = tuple(row for row in limits if row not in lost)
        return replace(verdict, holds="not decided", missing=absent) if absent else verdict


def _share(before: Score, after: Score) -> Score:
    """What is lost, in per cent of what there was."""
    lost, unit = before - after, 100 / before.level
    influence = None if lost.influence is None else unit * lost.influence
    return replace(
        lost, level=unit * lost.level, influence=influence, sampling=unit * lost.sampling
    )
