"""Which rule decides which finding; :mod:`.rules` says how the rules judge."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

import s4d_torch.paper.recipes.task_tables  # noqa: F401  (registers the tables by task)
from s4d_torch.paper.claims.claim import DECISIONS, Results, Verdict
from s4d_torch.paper.claims.comparison import COARSE, FLOOR, LEVEL, count_seeds, pooled, student
from s4d_torch.paper.claims.rules import (
    ALMOST_ALL,
    MAYBE,
    OFTEN,
    Rule,
    alike,
    all_of,
    best_wins,
    better,
    better_on_average,
    competitive,
    ends,
    suffer_most,
)
from s4d_torch.paper.recipes.tables import RECIPES

MUCH = 10.0  # points lost at half the sampling rate; the paper: models 5, networks 70 and more
CHANCE = 5.0  # points above a guess that count as having learned

LAWS = ("S4D-Inv", "S4D-Lin")
DIAGONAL = [("S4D-LegS", "S4-LegS"), ("S4D-Inv", "S4-LegS"), ("S4D-Lin", "S4-FouT")]
TRAINED = [(f"{ours}, trained", f"{theirs}, trained") for ours, theirs in DIAGONAL]
FROZEN = [(f"{law}, trained", f"{law}, frozen") for law in LAWS]
ARENA = ("ListOps", "Text", "Retrieval", "Image", "Pathfinder")
SPEECH = RECIPES["speech-rates"].columns
SPEECH_AR = ends("trainable", "SC")

RULES: dict[str, Rule] = {
    "softmax-or-vandermonde": alike(
        "trainable-b",
        ("frozen B, softmax", "frozen B, Vandermonde"),
        ("trained B, softmax", "trained B, Vandermonde"),
    ),
    "training-b-helps": better(
        "trainable-b",
        ("trained B, softmax", "frozen B, softmax"),
        ("trained B, Vandermonde", "frozen B, Vandermonde"),
        everywhere=True,
    ),
    "bilinear-or-zoh": alike(
        "discretization",
        *((f"zoh, {part}", f"bilinear, {part}") for part in ("exp", "none", "ReLU")),
    ),
    "free-real-part": better(
        "discretization",
        ("bilinear, none", "bilinear, exp"),
        ("zoh, none", "zoh, exp"),
        share=MAYBE,
    ),
    "imaginary-scale": better(
        "initialization",
        *((law, f"{law}, Im x {factor}") for law in LAWS for factor in ("0.01", "100")),
        everywhere=True,
    ),
    "random-imaginary": better("initialization", *((law, f"{law}, random Im") for law in LAWS)),
    "random-real": better(
        "initialization", *((law, f"{law}, random Re") for law in LAWS), everywhere=True
    ),
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
    "diagonal-is-competitive": competitive("trainable", *TRAINED, everywhere=True),
    "frozen-a-and-b": all_of(
        better("trainable", *FROZEN, columns=SPEECH_AR),
        alike("trainable", *FROZEN, columns=ends("trainable", "sCIFAR")),
        alike("trainable", *FROZEN, columns=ends("trainable", "BIDMC")),
    ),
    "finite-windows-suffer": suffer_most(
        "trainable", ("trained", "frozen"), ("S4-LegT", "S4-FouT"), SPEECH_AR[0]
    ),
    "dplr-learns-faster": better(
        "trainable",
        ("S4-LegS, trained", "S4D-LegS, trained"),
        columns=RECIPES["trainable"].columns,
        share=OFTEN,
    ),
    "large-diagonal-is-competitive": competitive("large", *DIAGONAL, share=ALMOST_ALL),
    "speech-ar-is-competitive": competitive("speech-ar", *DIAGONAL),
    "speech-beats-convnets": all_of(
        competitive("speech-rates", ("S4D-Inv", "ConvNet"), columns=SPEECH[:1]),
        better("speech-rates", ("S4D-Inv", "ResNet-18"), columns=SPEECH[:1]),
    ),
    "arena-competitive": competitive(
        "lra", *DIAGONAL, columns=ends("lra", *ARENA), everywhere=True
    ),
    "arena-outperforms": best_wins(
        "lra",
        ("S4D-LegS", "S4D-Inv", "S4D-Lin"),
        ("S4-LegS", "S4-FouT"),
        several=2,
        columns=RECIPES["lra"].columns,
    ),
    "arena-beats-transformer": better_on_average("lra", ("S4D-Inv", "Transformer"), by=30.0),
    "path-x-free-real-part": alike("pathx-ablation", ("identity Re(A)", "S4D")),
    "path-x-bilinear-or-zoh": alike("pathx-ablation", ("ZOH", "S4D")),
    "path-x-training-b-helps": better("pathx-ablation", ("S4D", "frozen B")),
    "path-x-softmax-hurts": better(
        "pathx-ablation",
        ("ZOH", "ZOH and softmax"),
        *((row, "DSS") for row in RECIPES["pathx-ablation"].rows if row != "DSS"),
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
    rows = {row: each.get("Path-X", ()) for row, each in results.get("lra", {}).items()}
    wanted = {"S4D-Inv": True, "S4D-LegS": True, "S4D-Lin": False}
    if not all(rows.get(row) for row in wanted):
        return Verdict("not decided", "needs Path-X with all three starts")
    above = {row: statistics.fmean(rows[row]) - 50 for row in wanted}
    noise = {row: _noise_of_mean(rows[row], rows) for row in wanted}
    shown = (f"{row} {above[row]:+.1f} ± {noise[row]:.1f} from a guess" for row in wanted)
    effect = "; ".join([count_seeds(len(rows[row]) for row in wanted), *shown])
    if max(above.values()) < CHANCE:
        return Verdict("not decided", effect, "Nothing was learned at this scale.")
    clear = [row for row in wanted if abs(above[row] - CHANCE) > noise[row]]
    wrong = [row for row in clear if (above[row] > CHANCE) != wanted[row]]
    if wrong:
        return Verdict("fails", effect)
    return Verdict("holds" if clear == list(wanted) else "not decided", effect)


def half_the_rate_is_enough(results: Results) -> Verdict:
    """State space models lose little at half the sampling rate, convolutional networks much."""
    lost = {
        row: [full - half for full, half in zip(*(scores[c.name] for c in SPEECH), strict=True)]
        for row, scores in results.get("speech-rates", {}).items()
        if all(scores.get(column.name) for column in SPEECH)  # of the same runs, seed by seed
    }
    ours = [row for row in lost if row.startswith("S4")]
    nets = [row for row in lost if row not in ours]
    if not ours or not nets:
        return Verdict("not decided", "needs state space models and networks at both rates")
    mean = {row: statistics.fmean(values) for row, values in lost.items()}
    noise = {row: _noise_of_mean(values, lost) for row, values in lost.items()}
    shown = (f"{row} loses {mean[row]:.1f} ± {noise[row]:.1f}" for row in lost)
    effect = "; ".join([count_seeds(map(len, lost.values())), *shown])
    if all(mean[row] + noise[row] < MUCH for row in ours) and all(
        mean[row] - noise[row] > MUCH for row in nets
    ):
        return Verdict("holds", effect)
    wrong = [row for row in ours if mean[row] - noise[row] > MUCH]
    wrong += [row for row in nets if mean[row] + noise[row] < MUCH]
    return Verdict("fails" if wrong else "not decided", effect)


def _noise_of_mean(values: Sequence[float], rows: Mapping[str, Sequence[float]]) -> float:
    """What chance alone does to the mean of a row, judged by the spread of all rows."""
    spread, freedom = pooled(rows.values())
    if not freedom:
        return COARSE
    return max(FLOOR, student(freedom, LEVEL) * spread / math.sqrt(len(values)))


RULES["path-x-needs-the-start"] = path_x_needs_the_start
RULES["zero-shot-resampling"] = half_the_rate_is_enough
for _name, _rule in RULES.items():
    DECISIONS.register(_name, _rule)
