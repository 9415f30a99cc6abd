"""How results decide the findings of the paper's experiments.

Two rows are compared column by column. A difference counts in points of accuracy, or in per cent
of an RMSE, positive where the first row is better. It is *noise* up to half a point, or up to
twice its standard error: the spread over seeds, taken from all rows of the column together, since
that of two runs alone says little; where every row has but one seed, up to five points. A statement
that the data support in some columns and contradict in none is taken to hold; one they contradict
somewhere, to fail; if all is noise, nothing is decided. That two rows are alike is supported only
where a difference of five points would have been seen.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from s4d_torch.data.task import TASKS
from s4d_torch.paper.claim import DECISIONS, Results, Verdict
from s4d_torch.paper.recipes import RECIPES

LITTLE = 2.0  # points, or per cent of an RMSE: "no noticeable difference"
FLOOR = 0.5
COARSE = 5.0  # points of noise where no row has two seeds to tell; as much hides a difference
MUCH = 10.0  # points lost at half the sampling rate; the paper: models 5, networks 70 and more
CHANCE = 5.0  # points above a guess that count as having learned

Pair = tuple[str, str]


@dataclass(frozen=True)
class Gain:
    """How much better the first of two rows is in one column."""

    rows: Pair
    column: str
    points: float
    noise: float

    def __str__(self) -> str:
        return f"{self.rows[0]} vs {self.rows[1]}, {self.column}: {self.points:+.1f}"


def gains(results: Results, table: str, pairs: Sequence[Pair], columns: str = "") -> list[Gain]:
    """All comparisons for which both rows have results; ``columns`` picks those that contain it."""
    found = []
    for better, worse in pairs:
        for column in RECIPES[table].columns:
            ours = results.get(table, {}).get(better, {}).get(column.name, ())
            theirs = results.get(table, {}).get(worse, {}).get(column.name, ())
            if not ours or not theirs or columns not in column.name:
                continue
            points = statistics.fmean(ours) - statistics.fmean(theirs)
            scale = 1.0
            if TASKS[column.task].metric != "accuracy":
                scale = -100 / statistics.fmean(theirs)
            noise = COARSE
            if (spread := _spread(results, table, column.name)) is not None:
                error = spread * math.sqrt(1 / len(ours) + 1 / len(theirs))
                noise = max(FLOOR, 2 * error * abs(scale))
            found.append(Gain((better, worse), column.name, points * scale, noise))
    return found


def _spread(results: Results, table: str, column: str) -> float | None:
    """The standard deviation over seeds, pooled over all rows that have several, if any does."""
    rows = [row[column] for row in results[table].values() if len(row.get(column, ())) > 1]
    freedom = sum(len(values) - 1 for values in rows)
    squares = sum((len(values) - 1) * statistics.variance(values) for values in rows)
    return math.sqrt(squares / freedom) if freedom else None


def _show(found: Sequence[Gain]) -> str:
    return "; ".join(map(str, found))


def _decide(supports: int, contradicts: int, effect: str) -> Verdict:
    if contradicts:
        holds: Verdict = Verdict("fails", effect)
    elif supports:
        holds = Verdict("holds", effect)
    else:
        holds = Verdict("not decided", effect or "no results to compare")
    return holds


def better(table: str, *pairs: Pair, columns: str = "", by: float = 0.0) -> Callable[..., Verdict]:
    """The first row of each pair is better, by more than noise and at least ``by`` points."""

    def rule(results: Results) -> Verdict:
        found = gains(results, table, pairs, columns)
        supports = sum(gain.points > max(gain.noise, by) for gain in found)
        contradicts = sum(gain.points < (by or -gain.noise) for gain in found)
        return _decide(supports, contradicts, _show(found))

    return rule


def better_on_average(table: str, pair: Pair, by: float) -> Callable[..., Verdict]:
    """The first row is more than ``by`` points better in the mean over the columns of both."""

    def rule(results: Results) -> Verdict:
        if not (found := gains(results, table, [pair])):
            return Verdict("not decided", "no results to compare")
        mean = statistics.fmean(gain.points for gain in found)
        columns, all_of_them = len(found), len(RECIPES[table].columns)
        effect = f"{mean:+.1f} in the mean of {columns} of {all_of_them} columns; {_show(found)}"
        return Verdict("holds" if mean > by else "fails", effect)

    return rule


def alike(table: str, *pairs: Pair, columns: str = "") -> Callable[..., Verdict]:
    """The rows of each pair differ little, or by less than the noise."""

    def rule(results: Results) -> Verdict:
        found = gains(results, table, pairs, columns)
        differ = [gain for gain in found if abs(gain.points) > max(gain.noise, LITTLE)]
        supports = sum(gain.noise < COARSE and gain not in differ for gain in found)
        return _decide(supports, len(differ), _show(found))

    return rule


def competitive(table: str, *pairs: Pair, columns: str = "") -> Callable[..., Verdict]:
    """The first row of each pair is not behind by more than a little."""

    def rule(results: Results) -> Verdict:
        found = gains(results, table, pairs, columns)
        behind = sum(gain.points < -max(gain.noise, LITTLE) for gain in found)
        supports = sum(gain.points > max(gain.noise - COARSE, -LITTLE) for gain in found)
        return _decide(supports, behind, _show(found))

    return rule


def both(*rules: Callable[..., Verdict]) -> Callable[..., Verdict]:
    """All rules hold; one that fails decides, one without results leaves it open."""

    def rule(results: Results) -> Verdict:
        verdicts = [each(results) for each in rules]
        effect = "; ".join(verdict.effect for verdict in verdicts)
        for holds in ("fails", "not decided"):
            if any(verdict.holds == holds for verdict in verdicts):
                return Verdict(holds, effect)
        return Verdict("holds", effect)

    return rule


LAWS = ("S4D-Inv", "S4D-Lin")
DIAGONAL = [("S4D-LegS", "S4-LegS"), ("S4D-Inv", "S4-LegS"), ("S4D-Lin", "S4-FouT")]
RULES: dict[str, Callable[..., Verdict]] = {
    "softmax-or-vandermonde": alike(
        "trainable-b",
        ("frozen B, softmax", "frozen B, Vandermonde"),
        ("trained B, softmax", "trained B, Vandermonde"),
    ),
    "training-b-helps": better(
        "trainable-b",
        ("trained B, softmax", "frozen B, softmax"),
        ("trained B, Vandermonde", "frozen B, Vandermonde"),
    ),
    "bilinear-or-zoh": alike(
        "discretization",
        *((f"zoh, {part}", f"bilinear, {part}") for part in ("exp", "none", "ReLU")),
    ),
    "free-real-part": better(
        "discretization", ("bilinear, none", "bilinear, exp"), ("zoh, none", "zoh, exp")
    ),
    "imaginary-scale": better(
        "initialization",
        *((law, f"{law}, Im x {factor}") for law in LAWS for factor in ("0.01", "100")),
    ),
    "random-imaginary": better("initialization", *((law, f"{law}, random Im") for law in LAWS)),
    "random-real": better("initialization", *((law, f"{law}, random Re") for law in LAWS)),
    "random-both": better(
        "initialization",
        *(
            (f"{law}, random {part}", f"{law}, random Im and Re")
            for law in LAWS
            for part in ("Im", "Re")
        ),
    ),
    "other-laws": better("initialization", ("S4D-Inv", "S4D-Inv2"), ("S4D-Inv", "S4D-Quad")),
    "rand-is-poor": better("initialization", ("S4D-Inv", "S4D-Rand"), ("S4D-Lin", "S4D-Rand")),
    "real-is-poor": better("initialization", ("S4D-Inv", "S4D-Real"), ("S4D-Lin", "S4D-Real")),
    "diagonal-is-competitive": competitive(
        "trainable", *((f"{ours}, trained", f"{theirs}, trained") for ours, theirs in DIAGONAL)
    ),
    "frozen-a-and-b": both(
        better("trainable", *((f"{x}, trained", f"{x}, frozen") for x in LAWS), columns="SC"),
        *(
            alike("trainable", *((f"{x}, trained", f"{x}, frozen") for x in LAWS), columns=column)
            for column in ("sCIFAR", "BIDMC")
        ),
    ),
    "finite-windows-suffer": better(
        "trainable",
        ("S4-LegS, frozen", "S4-LegT, frozen"),
        ("S4-LegS, frozen", "S4-FouT, frozen"),
        columns="SC",
    ),
    "dplr-learns-faster": better(
        "trainable", ("S4-LegS, trained", "S4D-LegS, trained"), columns="epoch 1"
    ),
    "large-diagonal-is-competitive": competitive("large", *DIAGONAL),
    "speech-ar-is-competitive": competitive("speech-ar", *DIAGONAL),
    "speech-beats-convnets": both(
        competitive("speech-rates", ("S4D-Inv", "ConvNet"), columns="16000 Hz"),
        better("speech-rates", ("S4D-Inv", "ResNet-18"), columns="16000 Hz"),
    ),
    "arena-competitive": both(
        *(
            competitive("lra", *DIAGONAL, columns=column)
            for column in ("ListOps", "Text", "Image", "Pathfinder")
        )
    ),
    "arena-beats-transformer": better_on_average("lra", ("S4D-Inv", "Transformer"), by=30.0),
    "path-x-free-real-part": alike("pathx-ablation", ("identity Re(A)", "S4D")),
    "path-x-bilinear-or-zoh": alike("pathx-ablation", ("ZOH", "S4D")),
    "path-x-training-b-helps": better("pathx-ablation", ("S4D", "frozen B")),
    "path-x-softmax-hurts": better(
        "pathx-ablation", ("S4D", "ZOH and softmax"), ("S4D", "DSS"), ("ZOH", "ZOH and softmax")
    ),
    "choices-matter-little": alike(
        "choices",
        *(
            (row, "S4D")
            for row in ("identity Re(A)", "ReLU Re(A)", "ZOH", "frozen B", "ZOH and softmax")
        ),
    ),
}


def path_x_needs_the_start(results: Results) -> Verdict:
    """S4D-Inv and S4D-LegS above a guess on Path-X, S4D-Lin not."""
    rows = results.get("lra", {})
    scores = {
        row: rows.get(row, {}).get("Path-X", ()) for row in ("S4D-Inv", "S4D-LegS", "S4D-Lin")
    }
    if not all(scores.values()):
        return Verdict("not decided", "needs Path-X with all three starts")
    above = {row: statistics.fmean(x) - 50 for row, x in scores.items()}
    effect = "; ".join(f"{row} {points:+.1f} points from a guess" for row, points in above.items())
    if max(above.values()) < CHANCE:
        return Verdict("not decided", effect, "nothing was learned at this scale")
    learned = {row for row, points in above.items() if points >= CHANCE}
    return Verdict("holds" if learned == {"S4D-Inv", "S4D-LegS"} else "fails", effect)


def half_the_rate_is_enough(results: Results) -> Verdict:
    """State space models lose little at half the sampling rate, convolutional networks much."""
    rows = results.get("speech-rates", {})
    lost = {
        row: statistics.fmean(scores["16000 Hz"]) - statistics.fmean(scores["8000 Hz"])
        for row, scores in rows.items()
        if scores.get("16000 Hz") and scores.get("8000 Hz")
    }
    ours = {row: points for row, points in lost.items() if row.startswith("S4")}
    nets = {row: points for row, points in lost.items() if row not in ours}
    if not ours or not nets:
        return Verdict("not decided", "needs state space models and networks at both rates")
    effect = "; ".join(f"{row} loses {points:.1f}" for row, points in lost.items())
    holds = max(ours.values()) < MUCH < min(nets.values())
    return Verdict("holds" if holds else "fails", effect)


RULES["path-x-needs-the-start"] = path_x_needs_the_start
RULES["zero-shot-resampling"] = half_the_rate_is_enough
for _name, _rule in RULES.items():
    DECISIONS.register(_name, _rule)
