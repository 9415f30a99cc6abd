"""Statements about groups of rows, averages over columns, and several statements together."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from s4d_torch.paper.claims import comparison
from s4d_torch.paper.claims.claim import Holds, Need, Rule, Verdict
from s4d_torch.paper.claims.comparison import Evidence, Gain, count_seeds, describe
from s4d_torch.paper.claims.rules.pairwise import NOTHING
from s4d_torch.paper.recipes import Column
from s4d_torch.paper.scores import Score, Spread, alone

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
