"""The rules by which results decide a finding of the paper's experiments.

A finding is a statement about pairs of rows, and each pair is compared in each column, as
:mod:`.comparison` says. A comparison *supports* the statement or *contradicts* it
only beyond noise. The statement fails where one comparison contradicts it; among many, one does so
by chance, and the noise it has to exceed grows with their number. It holds where all comparisons
support it. One that speaks of many ("often") holds where so many support it, and fails where more
contradict it; one that speaks of every dataset waits for all of them. Anything between is not
decided.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

from s4d_torch.paper.claims.claim import Results, Verdict
from s4d_torch.paper.claims.comparison import Gain, Pair, describe, gains, pooled
from s4d_torch.paper.recipes.tables import RECIPES, Column

LITTLE = 2.0  # points, "no noticeable difference": as much is no contradiction
ALIKE = 5.0  # points that a difference and its noise stay within, where rows count as alike
ALMOST_ALL, OFTEN, MAYBE = 0.75, 0.5, 0.0  # more than this share of the comparisons
GUESS = 50.0  # per cent: what the arena's average counts where a model learned nothing

Rule = Callable[[Results], Verdict]
Supports = Callable[[Gain], bool]
Contradicts = Callable[[Gain, float], bool]
"""Whether a comparison speaks against the statement, beyond the noise of as many as there are."""


# -- columns ---------------------------------------------------------------------------------------


def ends(table: str, *datasets: str) -> list[Column]:
    """The columns of trained models, not those after one epoch; of all datasets or of those."""
    columns = [column for column in RECIPES[table].columns if column.value != "first-epoch"]
    return [column for column in columns if not datasets or dataset(column.name) in datasets]


def dataset(column: str) -> str:
    """``BIDMC`` of ``BIDMC (HR)``: each of its signals can stand for it."""
    return column.split(",")[0].split(" (")[0]


# -- rules -----------------------------------------------------------------------------------------


def _decide(
    found: Sequence[Gain],
    columns: Sequence[Column],
    supports: Supports,
    contradicts: Contradicts,
    share: float = 1.0,
    everywhere: bool = False,
) -> Verdict:
    """The verdict of many comparisons."""
    if not found:
        return Verdict("not decided", "no results to compare")
    wanted = list(dict.fromkeys(dataset(column.name) for column in columns))
    seen = {dataset(gain.column) for gain in found}
    missing = [name for name in wanted if name not in seen]
    yes = sum(map(supports, found))
    no = sum(contradicts(gain, gain.noise(len(found))) for gain in found)
    detail = f"Beyond noise {yes} of {len(found)} comparisons support it, {no} contradict it."
    if missing:
        detail += f" Without results: {', '.join(missing)}."
    effect = describe(found)
    if no if share == 1 else no > yes:
        return Verdict("fails", effect, detail)
    enough = yes == len(found) if share == 1 else yes > share * len(found)
    if enough and not (everywhere and missing):
        return Verdict("holds", effect, detail)
    return Verdict("not decided", effect, detail)


def _compare(
    table: str,
    pairs: Sequence[Pair],
    columns: Sequence[Column] | None,
    supports: Supports,
    contradicts: Contradicts,
    share: float = 1.0,
    everywhere: bool = False,
) -> Rule:
    """The rule that compares each pair in the columns, by default in those of trained models."""
    chosen = ends(table) if columns is None else columns

    def rule(results: Results) -> Verdict:
        found = gains(results, table, pairs, chosen)
        return _decide(found, chosen, supports, contradicts, share, everywhere)

    return rule


def better(
    table: str,
    *pairs: Pair,
    columns: Sequence[Column] | None = None,
    share: float = 1.0,
    everywhere: bool = False,
) -> Rule:
    """The first row of each pair is better."""

    def supports(gain: Gain) -> bool:
        return gain.points > gain.noise()

    def contradicts(gain: Gain, noise: float) -> bool:
        return gain.points < -noise

    return _compare(table, pairs, columns, supports, contradicts, share, everywhere)


def alike(table: str, *pairs: Pair, columns: Sequence[Column] | None = None) -> Rule:
    """The rows of each pair differ little: with its noise, a difference stays within ``ALIKE``."""

    def supports(gain: Gain) -> bool:
        return abs(gain.points) + gain.noise() < ALIKE * gain.unit

    def contradicts(gain: Gain, noise: float) -> bool:
        return abs(gain.points) > max(noise, LITTLE * gain.unit)

    return _compare(table, pairs, columns, supports, contradicts)


def competitive(
    table: str,
    *pairs: Pair,
    columns: Sequence[Column] | None = None,
    share: float = 1.0,
    everywhere: bool = False,
) -> Rule:
    """The first row of each pair is not behind by more than a little."""

    def supports(gain: Gain) -> bool:
        return gain.points - gain.noise() > -ALIKE * gain.unit

    def contradicts(gain: Gain, noise: float) -> bool:
        return gain.points < -max(noise, LITTLE * gain.unit)

    return _compare(table, pairs, columns, supports, contradicts, share, everywhere)


def better_on_average(table: str, pair: Pair, by: float) -> Rule:
    """The first row is more than ``by`` points better in the mean over all columns.

    What is not run of the second row counts as a guess, as it does in the paper.
    """
    columns = RECIPES[table].columns
    guessed = {c.name: [GUESS] for c in columns if (pair[1], c.name) in RECIPES[table].without}

    def rule(results: Results) -> Verdict:
        rows = results.get(table, {})
        if rows.get(pair[1]):
            results = {**results, table: {**rows, pair[1]: {**guessed, **rows[pair[1]]}}}
        if not (found := gains(results, table, [pair], columns)):
            return Verdict("not decided", "no results to compare")
        mean = statistics.fmean(gain.points for gain in found)
        noise = math.sqrt(sum(gain.noise() ** 2 for gain in found)) / len(found)
        effect = f"{mean:+.1f} ± {noise:.1f} in the mean of {len(found)} of {len(columns)} columns"
        effect = f"{effect}; {describe(found)}"
        if len(found) < len(columns) or abs(mean - by) < noise:
            return Verdict("not decided", effect)
        return Verdict("holds" if mean > by else "fails", effect)

    return rule


def all_of(*rules: Rule) -> Rule:
    """All rules hold; one that fails decides, one without results leaves it open."""

    def rule(results: Results) -> Verdict:
        verdicts = [each(results) for each in rules]
        effect = " / ".join(f"{verdict.holds}: {verdict.effect}" for verdict in verdicts)
        for holds in ("fails", "not decided"):
            if any(verdict.holds == holds for verdict in verdicts):
                return Verdict(holds, effect)
        return Verdict("holds", effect)

    return rule


def suffer_most(table: str, change: Pair, rows: Sequence[str], column: Column) -> Rule:
    """``rows`` lose more than any other from the first to the second of a change, as frozen A."""

    def lost(results: Results) -> dict[str, tuple[float, int]]:
        scores = {row: each.get(column.name, ()) for row, each in results.get(table, {}).items()}
        names = dict.fromkeys(row.rpartition(",")[0] for row in scores)
        both = {name: [scores.get(f"{name}, {end}", ()) for end in change] for name in names}
        return {
            name: (statistics.fmean(before) - statistics.fmean(after), min(len(before), len(after)))
            for name, (before, after) in both.items()
            if before and after
        }

    def rule(results: Results) -> Verdict:
        found = lost(results)
        others = [name for name in found if name not in rows]
        if not others or not all(row in found for row in rows):
            return Verdict("not decided", f"needs {' and '.join(rows)} in both forms, and others")
        spread, freedom = pooled(row.get(column.name, ()) for row in results[table].values())
        compared = [
            Gain(
                (row, other),
                column.name,
                found[row][0] - found[other][0],
                # four means make a difference of differences
                spread * math.sqrt(2 / found[row][1] + 2 / found[other][1]) if freedom else None,
                freedom,
                (found[row][1], found[other][1]),
            )
            for row in rows
            for other in others
        ]
        return _decide(
            compared,
            [column],
            lambda gain: gain.points > gain.noise(),
            lambda gain, noise: gain.points < -noise,
        )

    return rule


def best_wins(
    table: str, ours: Sequence[str], theirs: Sequence[str], several: int, columns: Sequence[Column]
) -> Rule:
    """In ``several`` columns or more the best of our rows is better than the best of theirs."""

    def rule(results: Results) -> Verdict:
        found = []
        for column in columns:
            best = [_best(results, table, rows, column) for rows in (ours, theirs)]
            found += gains(results, table, [(best[0], best[1])], [column])
        if len(found) < several:
            return Verdict("not decided", "no results to compare")
        # each is the best of several rows: as many comparisons are made in silence
        tries = len(found) * len(ours) * len(theirs)
        wins = [sum(gain.points > noise * gain.noise(tries) for gain in found) for noise in (1, -1)]
        effect, detail = describe(found), f"Beyond noise {wins[0]} of {len(columns)} columns."
        if wins[0] >= several:
            return Verdict("holds", effect, detail)
        lost = wins[1] < several and len(found) == len(columns)
        return Verdict("fails" if lost else "not decided", effect, detail)

    return rule


def _best(results: Results, table: str, rows: Sequence[str], column: Column) -> str:
    """The row with the best mean; the first where none has results."""
    means = {
        row: statistics.fmean(values)
        for row in rows
        if (values := results.get(table, {}).get(row, {}).get(column.name, ()))
    }
    return max(means, key=lambda row: means[row], default=rows[0])
