"""Statements about pairs of rows, each compared in each column."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from s4d_torch.paper.claims.claim import Need, Verdict
from s4d_torch.paper.claims.comparison import Evidence, Gain, Rows, common_seeds, dataset, describe
from s4d_torch.paper.recipes import Column
from s4d_torch.paper.scores import Score

MARGIN = 2.0  # points that count as no noticeable difference
ALMOST_ALL, OFTEN, MAYBE = 0.75, 0.5, 0.0  # more than this share of the comparisons
NOTHING = Verdict("not decided", "no results to compare")
UNLEARNED = "nothing was learned at this scale"


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
        found = evidence.gains(pairs, columns)
        verdict = self.decide(found, columns, pairs)
        if found or not evidence.were_run(pairs, columns):
            return verdict
        return replace(verdict, effect=UNLEARNED, unlearned=True)

    def decide(self, found: Sequence[Gain], columns: Sequence[Column], pairs: Rows) -> Verdict:
        """The verdict of many comparisons; it does not hold while one of them is missing."""
        if not found:
            return replace(NOTHING, unseen=tuple(dict.fromkeys(dataset(c.name) for c in columns)))
        # one of many that is enough was picked among them
        tries = {True: len(found) if self.share == MAYBE else 1, False: len(found)}
        pro = [gain for gain in found if self.supports(gain, gain.noise(tries[True]))]
        con = [gain for gain in found if self.contradicts(gain, gain.noise(tries[False]))]
        still_open = [gain for gain in found if gain not in pro and gain not in con]
        aside = self.left_aside(found, still_open)
        effect, unseen, lacking = describe(found), *_missing(found, columns, pairs)
        counts = f"{len(pro)} of {len(found)} comparisons support it, {len(con)} contradict it"
        detail = f"Beyond noise {counts}."
        if aside:
            too_few = dict.fromkeys(gain.column for gain in aside)
            detail += f" Too few test cases to tell: {', '.join(too_few)}."
        if unseen:
            detail += f" Without results: {', '.join(unseen)}."
        known: dict[str, Any] = {"unseen": unseen, "aside": tuple(aside)}
        if con if self.share == 1 else len(con) > len(pro):
            beside = tuple(gain for gain in found if gain not in con)
            return Verdict("fails", effect, detail, deciding=tuple(con), beside=beside, **known)
        # what is said of most datasets, or of all, waits for them
        waits_for = (*lacking, *(unseen if self.everywhere or MAYBE < self.share < 1 else ()))
        telling = len(found) - len(aside)
        most = max(math.floor(self.share * telling), len(con)) + 1
        short = max(0, (telling if self.share == 1 else most) - len(pro))
        if not short and len(pro) > len(con) and not waits_for:
            return Verdict("holds", effect, detail, deciding=(*pro, *con), **known)
        waiting = [gain for gain in still_open if gain not in aside]
        needs = tuple(self._need(gain, tries) for gain in waiting)
        shown, known["short"] = tuple(waiting or found), None if self.share == 1 else short
        return Verdict("not decided", effect, detail, needs, shown, waits_for, **known)

    def left_aside(self, found: Sequence[Gain], still_open: Sequence[Gain]) -> list[Gain]:
        """Open comparisons that cannot tell, where others of the same pair can.

        Their test cases would hide a difference of the margin, and this one, whatever the seeds.
        None that by itself would contradict the statement; and none of a statement on every
        dataset.
        """
        if self.everywhere:
            return []
        blind = [gain for gain in still_open if self._is_blind(gain)]
        told = {gain.rows for gain in found if gain not in blind}
        return [gain for gain in blind if gain.rows in told]

    def _is_blind(self, gain: Gain) -> bool:
        if gain.seeds < 2 or math.isinf(gain.cases.deviation):
            return False  # nobody knows yet
        if self.contradicts(gain, gain.noise()):
            return False
        seen = (self.margin * gain.unit, self.enough(gain)[0])
        return all(gain.seeds_until(noise) is None for noise in seen)

    def _need(self, gain: Gain, tries: Mapping[bool, int]) -> Need:
        """How many seeds would decide an open comparison."""
        noise, for_it = self.enough(gain)
        wanted = gain.seeds_until(noise, tries[for_it])
        return Need(gain.rows, gain.column, gain.seeds, wanted, contrary=not for_it)


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
    return {seed: before[seed] - after[seed] for seed in common_seeds(before, after)}
