"""How results decide findings: noise, many comparisons, and what a verdict says for itself."""

import pytest

from s4d_torch.paper.claims import FINDINGS, Verdict
from s4d_torch.paper.claims.claim import Rule
from s4d_torch.paper.claims.comparison import Evidence, Gain, Rows, student
from s4d_torch.paper.claims.rules import (
    MAYBE,
    OFTEN,
    Alike,
    AllOf,
    BestWins,
    Better,
    BetterOnAverage,
    Competitive,
    LosesMost,
)
from s4d_torch.paper.recipes import RECIPES, printed_number
from s4d_torch.paper.results import Scores, TableScores

ByColumn = dict[str, list[float]]


def choices(**rows: list[float]) -> TableScores:
    return {row: {"sCIFAR": scores} for row, scores in rows.items()}


def decide(rule: Rule, rows: Rows, scores: TableScores, table: str = "choices") -> Verdict:
    return rule(Evidence(RECIPES[table], scores, rows))


def published() -> Scores:
    """The paper's numbers as if they were three seeds of ours."""
    found: dict[str, dict[str, ByColumn]] = {}
    for name, recipe in RECIPES.items():
        for row, cells in recipe.published.items():
            for column, cell in cells.items():
                mean, spread = printed_number(cell) or (50.0, None)
                three = [mean + sign * (spread or 0) for sign in (-1, 0, 1)]
                found.setdefault(name, {}).setdefault(row, {})[column] = three
    return found


# -- noise -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("freedom", "level", "t"),
    [
        (1, 0.05, 12.7062),
        (2, 0.05, 4.3027),
        (5, 0.05, 2.5706),
        (16, 0.05, 2.1199),
        (30, 0.01, 2.75),
    ],
)
def test_quantiles_of_student(freedom: int, level: float, t: float) -> None:
    assert student(freedom, level) == pytest.approx(t, abs=1e-4)


def test_the_noise_of_a_comparison_is_that_of_the_whole_column() -> None:
    seeds = {"S4D-Inv": [30.0, 30.001], "S4D-Lin": [31.0, 31.001], "S4D-Rand": [20.0, 24.0]}
    evidence = Evidence(RECIPES["initialization"], choices(**seeds))
    [gain] = evidence.gains([("S4D-Lin", "S4D-Inv")], evidence.columns())
    assert gain.points == pytest.approx(1.0)
    # variances 0, 0 and 8, pooled 8/3 with three degrees of freedom
    assert gain.noise() == pytest.approx(3.1824 * (8 / 3) ** 0.5, rel=1e-3)
    assert gain.noise(8) > 1.5 * gain.noise()
    assert str(gain) == "sCIFAR +1.0 ± 5.2"


def test_a_smaller_error_is_better_and_weighs_less() -> None:
    scores = {"S4D-Inv": {"BIDMC (HR)": [2.0]}, "S4D-Rand": {"BIDMC (HR)": [4.0]}}
    evidence = Evidence(RECIPES["initialization"], scores)
    (gain,) = evidence.gains([("S4D-Inv", "S4D-Rand")], evidence.columns())
    assert (gain.points, gain.noise()) == (50, 25)
    assert str(gain) == "BIDMC (HR) +50.0% ± 25.0"


# -- rules -----------------------------------------------------------------------------------------

APART = choices(S4D=[50.0, 50.2], ZOH=[53.0, 53.2])


def test_a_difference_has_to_exceed_its_noise() -> None:
    assert decide(Better(), [("ZOH", "S4D")], APART).holds == "holds"
    assert decide(Better(), [("S4D", "ZOH")], APART).holds == "fails"
    wide = choices(S4D=[48.0, 52.2], ZOH=[51.0, 55.2])
    for pair in (("ZOH", "S4D"), ("S4D", "ZOH")):
        assert decide(Better(), [pair], wide).holds == "not decided"
    assert decide(Better(), [("DSS", "S4D")], APART).effect == "no results to compare"


def test_a_verdict_gives_effect_noise_and_seeds() -> None:
    found = decide(Better(), [("ZOH", "S4D")], APART)
    assert found.effect == "2 seeds; ZOH vs S4D: sCIFAR +3.0 ± 0.6"
    assert found.detail == "Beyond noise 1 of 1 comparisons support it, 0 contradict it."
    uneven = choices(S4D=[50.0], ZOH=[53.0, 53.2])
    assert decide(Better(), [("ZOH", "S4D")], uneven).effect.startswith("1 to 2 seeds; ")


def test_one_supporting_column_is_not_all_of_them() -> None:
    """S4D-Inv2 worse on images and better on heart rates, both near the noise: no verdict."""
    scores: dict[str, ByColumn] = {
        "S4D-Inv": {"sCIFAR": [32.0, 34.6], "BIDMC (HR)": [7.2, 7.8]},
        "S4D-Inv2": {"sCIFAR": [20.5, 20.6], "BIDMC (HR)": [6.2, 6.7]},
        "S4D-Quad": {"sCIFAR": [20.0, 20.2], "BIDMC (HR)": [7.6, 8.3]},
    }
    found = FINDINGS["other-laws"].decide({"initialization": scores})
    assert found.holds == "not decided"
    assert "Beyond noise 2 of 4 comparisons support it, 0 contradict it." in found.detail
    assert "Without results: SC." in found.detail


def test_among_many_comparisons_one_may_look_like_a_difference() -> None:
    rows = ["identity Re(A)", "ReLU Re(A)", "ZOH", "frozen B", "ZOH and softmax", "DSS"]
    scores = {"S4D": [50.0, 51.0], **{row: [50.0, 51.0] for row in rows}}
    scores["ZOH"] = [47.9, 48.9]  # beyond the noise of one comparison, within that of six
    results = choices(**scores)
    assert decide(Better(), [("ZOH", "S4D")], results).holds == "fails"
    assert decide(Better(), [(row, "S4D") for row in rows], results).holds == "not decided"


def test_often_and_maybe_need_fewer() -> None:
    scores = {"S4D": [50.0, 50.2], "ZOH": [53.0, 53.2], "DSS": [50.1, 50.3]}
    pairs = [("ZOH", "S4D"), ("DSS", "S4D")]
    results = choices(**scores)
    assert decide(Better(), pairs, results).holds == "not decided"
    assert decide(Better(share=MAYBE), pairs, results).holds == "holds"
    assert decide(Better(share=OFTEN), [*pairs, ("ZOH", "DSS")], results).holds == "holds"
    turned = [pair[::-1] for pair in pairs]
    assert decide(Better(share=OFTEN), turned, results).holds == "fails"


def test_a_statement_on_every_dataset_waits_for_all() -> None:
    rows = {"S4D-Inv": {"sCIFAR": [50.0, 50.2]}, "S4D-Real": {"sCIFAR": [30.0, 30.2]}}
    pairs = [("S4D-Inv", "S4D-Real")]
    some = decide(Better(), pairs, rows, "initialization")
    assert some.holds == "holds"
    assert some.detail.endswith("Without results: SC, BIDMC.")
    strict = Better(everywhere=True)
    assert decide(strict, pairs, rows, "initialization").holds == "not decided"
    for row, score in (("S4D-Inv", 50.0), ("S4D-Real", 30.0)):
        rows[row] |= {"SC (AR)": [score, score + 0.2], "BIDMC (HR)": [300 / score, 301 / score]}
    # one signal of BIDMC stands for it
    assert decide(strict, pairs, rows, "initialization").holds == "holds"


def test_rows_are_alike_only_where_a_difference_would_have_been_seen() -> None:
    pair = ("ZOH", "S4D")
    once, twice = choices(S4D=[50.0], ZOH=[49.0]), choices(S4D=[50.0, 50.2], ZOH=[49.0, 49.2])
    far = choices(S4D=[50.0], ZOH=[44.0])
    for rule in (Alike(), Competitive()):
        assert decide(rule, [pair], once).holds == "not decided"
        assert decide(rule, [pair], twice).holds == "holds"
        assert decide(rule, [pair], far).holds == "fails"
    assert decide(Better(), [pair[::-1]], once).holds == "not decided"
    assert decide(Competitive(), [pair[::-1]], far).holds == "holds"


def test_the_first_epoch_is_not_the_end_of_training() -> None:
    evidence = Evidence(RECIPES["trainable"], {})
    assert [column.name for column in evidence.columns(["SC"])] == ["SC (AR)"]
    assert all("epoch 1" not in column.name for column in evidence.columns())
    assert evidence.columns(first_epoch=True) == RECIPES["trainable"].columns


def test_parts_of_a_statement_keep_their_verdicts() -> None:
    rule = AllOf(Better(against="S4D"), Alike(against="DSS"))
    found = decide(rule, [("ZOH", "S4D"), ("S4D", "DSS")], APART)
    assert found.holds == "not decided"
    assert found.effect.startswith("holds: 2 seeds; ZOH vs S4D")
    assert found.effect.endswith("/ not decided: no results to compare")


def test_an_average_needs_all_columns_and_counts_a_guess_where_none_is_run() -> None:
    def verdict(ours: ByColumn, theirs: ByColumn) -> Verdict:
        scores = {"S4D-Inv": ours, "Transformer": theirs}
        return decide(BetterOnAverage(by=30.0), [("S4D-Inv", "Transformer")], scores, "lra")

    names = [column.name for column in RECIPES["lra"].columns]
    ours = {name: [80.0, 80.2] for name in names}
    theirs = {name: [46.0, 46.2] for name in names if name != "Path-X"}
    found = verdict(ours, theirs)
    assert found.holds == "holds"
    assert found.effect.startswith("+33.3 ± 0.4 in the mean of 6 of 6 columns; 1 to 2 seeds; S4D-")
    close = {name: [49.8, 50.0] for name in theirs}
    assert verdict(ours, close).holds == "not decided"
    del ours["Retrieval"]
    assert verdict(ours, theirs).holds == "not decided"
    assert verdict(theirs, {}).holds == "not decided"


def test_who_suffers_most_is_judged_by_what_is_lost() -> None:
    """A row that is poor in both forms has lost nothing."""
    rule = LosesMost(("S4-LegT", "S4-FouT"), datasets=("SC",))
    pairs = FINDINGS["finite-windows-suffer"].rows

    def verdict(**rows: tuple[float, float]) -> str:
        scores = {
            f"{row.replace('_', '-')}, {end}": {"SC (AR)": [score, score + 0.2]}
            for row, both in rows.items()
            for end, score in zip(("trained", "frozen"), both, strict=True)
        }
        return decide(rule, pairs, scores, "trainable").holds

    assert verdict(S4_LegT=(90, 60), S4_FouT=(90, 65), S4_LegS=(90, 80)) == "holds"
    assert verdict(S4_LegT=(60, 60), S4_FouT=(60, 60), S4_LegS=(90, 80)) == "fails"
    assert verdict(S4_LegT=(90, 60), S4_LegS=(90, 80)) == "not decided"


def test_the_best_rows_meet_column_by_column() -> None:
    rule = BestWins(several=2, datasets=("Text", "Image"))
    groups = [("S4D-Inv", "S4D-Lin"), ("S4-LegS",)]

    def verdict(text: float, image: float) -> str:
        rows = {"S4D-Inv": (80.0, 60.0), "S4D-Lin": (60.0, 80.0), "S4-LegS": (text, image)}
        scores = {
            row: {name: [x, x + 0.2] for name, x in zip(("Text", "Image"), both, strict=True)}
            for row, both in rows.items()
        }
        return decide(rule, groups, scores, "lra").holds

    assert verdict(70, 70) == "holds"
    assert verdict(70, 80) == "not decided"
    assert verdict(70, 90) == "fails"


# -- findings with rules of their own --------------------------------------------------------------


def test_half_the_sampling_rate_is_judged_by_what_is_lost() -> None:
    kept, fallen = ([60.0, 61.0], [57.0, 58.5]), ([50.0, 52.0], [30.0, 31.0])

    def verdict(**rows: tuple[list[float], list[float]]) -> str:
        scores = {row: {"16000 Hz": full, "8000 Hz": half} for row, (full, half) in rows.items()}
        return FINDINGS["zero-shot-resampling"].decide({"speech-rates": scores}).holds

    assert verdict(**{"S4D-Inv": kept}, ConvNet=fallen) == "holds"
    assert verdict(**{"S4D-Inv": fallen}, ConvNet=fallen) == "fails"
    assert verdict(**{"S4D-Inv": kept}, ConvNet=kept) == "fails"
    uncertain = ([60.0, 60.0], [59.0, 50.0])
    assert verdict(**{"S4D-Inv": uncertain}, ConvNet=fallen) == "not decided"
    assert verdict(**{"S4D-Inv": kept}) == verdict() == "not decided"


@pytest.mark.parametrize(
    ("inv", "legs", "lin", "holds"),
    [
        (90.0, 88.0, 50.0, "holds"),
        (90.0, 88.0, 85.0, "fails"),
        (90.0, 50.0, 50.0, "fails"),
        (90.0, 88.0, 54.8, "not decided"),
        (51.0, 50.0, 50.0, "not decided"),
    ],
)
def test_path_x_is_learned_beyond_noise(inv: float, legs: float, lin: float, holds: str) -> None:
    scores = {"S4D-Inv": inv, "S4D-LegS": legs, "S4D-Lin": lin}
    rows = {row: {"Path-X": [score, score + 0.4]} for row, score in scores.items()}
    found = FINDINGS["path-x-needs-the-start"].decide({"lra": rows})
    assert found.holds == holds
    assert found.effect.startswith("2 seeds; S4D-Inv ")


@pytest.mark.parametrize(
    ("name", "holds"),
    [
        ("softmax-or-vandermonde", "holds"),
        ("training-b-helps", "not decided"),  # +0.33 on images, with deviations of 0.2 and 0.4
        ("bilinear-or-zoh", "fails"),  # 17 % of the RMSE of SpO2
        ("free-real-part", "holds"),
        ("zero-shot-resampling", "holds"),
        ("arena-competitive", "holds"),
        ("arena-beats-transformer", "holds"),
        ("path-x-needs-the-start", "holds"),
        ("path-x-softmax-hurts", "holds"),
        ("path-x-training-b-helps", "not decided"),
    ],
)
def test_the_rules_on_the_papers_own_numbers(name: str, holds: str) -> None:
    assert FINDINGS[name].decide(published()).holds == holds


def test_a_gain_without_seeds_to_tell_has_coarse_noise() -> None:
    assert Gain(("a", "b"), "c", 1.0, None, 0, (1, 1)).noise() == 5.0
