"""How results decide findings: noise, many comparisons, and what a verdict says for itself."""

import pytest

from s4d_torch.paper.claims import decisions
from s4d_torch.paper.claims.all import FINDINGS
from s4d_torch.paper.claims.claim import DECISIONS, Results
from s4d_torch.paper.claims.comparison import Gain, gains, student
from s4d_torch.paper.claims.rules import (
    MAYBE,
    OFTEN,
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

Scores = dict[str, list[float]]


def choices(**rows: list[float]) -> Results:
    return {"choices": {row: {"sCIFAR": scores} for row, scores in rows.items()}}


def published() -> Results:
    """The paper's numbers as if they were three seeds of ours."""
    found: dict[str, dict[str, Scores]] = {}
    for name, recipe in RECIPES.items():
        for row, cells in recipe.published.items():
            for column, cell in cells.items():
                mean, _, spread = cell.replace("✗", "50").strip(")").partition(" (")
                m, s = float(mean), float(spread or 0)
                found.setdefault(name, {}).setdefault(row, {})[column] = [m - s, m, m + s]
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
    results = {"initialization": {row: {"sCIFAR": found} for row, found in seeds.items()}}
    [gain] = gains(results, "initialization", [("S4D-Lin", "S4D-Inv")])
    assert gain.points == pytest.approx(1.0)
    # variances 0, 0 and 8, pooled 8/3 with three degrees of freedom
    assert gain.noise() == pytest.approx(3.1824 * (8 / 3) ** 0.5, rel=1e-3)
    assert gain.noise(8) > 1.5 * gain.noise()
    assert str(gain) == "sCIFAR +1.0 ± 5.2"


def test_a_smaller_error_is_better_and_weighs_less() -> None:
    scores = {"S4D-Inv": {"BIDMC (HR)": [2.0]}, "S4D-Rand": {"BIDMC (HR)": [4.0]}}
    (gain,) = gains({"initialization": scores}, "initialization", [("S4D-Inv", "S4D-Rand")])
    assert (gain.points, gain.noise()) == (50, 25)
    assert str(gain) == "BIDMC (HR) +50.0% ± 25.0"


# -- rules -----------------------------------------------------------------------------------------

APART = choices(S4D=[50.0, 50.2], ZOH=[53.0, 53.2])


def test_a_difference_has_to_exceed_its_noise() -> None:
    assert better("choices", ("ZOH", "S4D"))(APART).holds == "holds"
    assert better("choices", ("S4D", "ZOH"))(APART).holds == "fails"
    wide = choices(S4D=[48.0, 52.2], ZOH=[51.0, 55.2])
    for pair in (("ZOH", "S4D"), ("S4D", "ZOH")):
        assert better("choices", pair)(wide).holds == "not decided"
    assert better("choices", ("DSS", "S4D"))(APART).effect == "no results to compare"


def test_a_verdict_gives_effect_noise_and_seeds() -> None:
    found = better("choices", ("ZOH", "S4D"))(APART)
    assert found.effect == "2 seeds; ZOH vs S4D: sCIFAR +3.0 ± 0.6"
    assert found.detail == "Beyond noise 1 of 1 comparisons support it, 0 contradict it."
    uneven = choices(S4D=[50.0], ZOH=[53.0, 53.2])
    assert better("choices", ("ZOH", "S4D"))(uneven).effect.startswith("1 to 2 seeds; ")


def test_one_supporting_column_is_not_all_of_them() -> None:
    """S4D-Inv2 worse on images and better on heart rates, both near the noise: no verdict."""
    scores: dict[str, Scores] = {
        "S4D-Inv": {"sCIFAR": [32.0, 34.6], "BIDMC (HR)": [7.2, 7.8]},
        "S4D-Inv2": {"sCIFAR": [20.5, 20.6], "BIDMC (HR)": [6.2, 6.7]},
        "S4D-Quad": {"sCIFAR": [20.0, 20.2], "BIDMC (HR)": [7.6, 8.3]},
    }
    found = DECISIONS["other-laws"]({"initialization": scores})
    assert found.holds == "not decided"
    assert "Beyond noise 2 of 4 comparisons support it, 0 contradict it." in found.detail
    assert "Without results: SC." in found.detail


def test_among_many_comparisons_one_may_look_like_a_difference() -> None:
    rows = ["identity Re(A)", "ReLU Re(A)", "ZOH", "frozen B", "ZOH and softmax", "DSS"]
    scores = {"S4D": [50.0, 51.0], **{row: [50.0, 51.0] for row in rows}}
    scores["ZOH"] = [47.9, 48.9]  # beyond the noise of one comparison, within that of six
    results = choices(**scores)
    alone = better("choices", ("ZOH", "S4D"))
    among = better("choices", *((row, "S4D") for row in rows))
    assert alone(results).holds == "fails"
    assert among(results).holds == "not decided"


def test_often_and_maybe_need_fewer() -> None:
    scores = {"S4D": [50.0, 50.2], "ZOH": [53.0, 53.2], "DSS": [50.1, 50.3]}
    pairs = [("ZOH", "S4D"), ("DSS", "S4D")]
    results = choices(**scores)
    assert better("choices", *pairs)(results).holds == "not decided"
    assert better("choices", *pairs, share=MAYBE)(results).holds == "holds"
    assert better("choices", *pairs, ("ZOH", "DSS"), share=OFTEN)(results).holds == "holds"
    turned = [pair[::-1] for pair in pairs]
    assert better("choices", *turned, share=OFTEN)(results).holds == "fails"


def test_a_statement_on_every_dataset_waits_for_all() -> None:
    rows = {"S4D-Inv": {"sCIFAR": [50.0, 50.2]}, "S4D-Real": {"sCIFAR": [30.0, 30.2]}}
    pair = ("S4D-Inv", "S4D-Real")
    some = better("initialization", pair)({"initialization": rows})
    assert some.holds == "holds"
    assert some.detail.endswith("Without results: SC, BIDMC.")
    strict = better("initialization", pair, everywhere=True)
    assert strict({"initialization": rows}).holds == "not decided"
    for row, score in (("S4D-Inv", 50.0), ("S4D-Real", 30.0)):
        rows[row] |= {"SC (AR)": [score, score + 0.2], "BIDMC (HR)": [300 / score, 301 / score]}
    assert strict({"initialization": rows}).holds == "holds"  # one signal of BIDMC stands for it


def test_rows_are_alike_only_where_a_difference_would_have_been_seen() -> None:
    pair = ("ZOH", "S4D")
    once, twice = choices(S4D=[50.0], ZOH=[49.0]), choices(S4D=[50.0, 50.2], ZOH=[49.0, 49.2])
    for rule in (alike("choices", pair), competitive("choices", pair)):
        assert rule(once).holds == "not decided"
        assert rule(twice).holds == "holds"
        assert rule(choices(S4D=[50.0], ZOH=[44.0])).holds == "fails"
    assert better("choices", pair[::-1])(once).holds == "not decided"
    assert competitive("choices", pair[::-1])(choices(S4D=[50.0], ZOH=[44.0])).holds == "holds"


def test_the_first_epoch_is_not_the_end_of_training() -> None:
    assert [column.name for column in ends("trainable", "SC")] == ["SC (AR)"]
    assert all("epoch 1" not in column.name for column in ends("trainable"))


def test_parts_of_a_statement_keep_their_verdicts() -> None:
    rule = all_of(better("choices", ("ZOH", "S4D")), alike("choices", ("DSS", "S4D")))
    found = rule(APART)
    assert found.holds == "not decided"
    assert found.effect.startswith("holds: 2 seeds; ZOH vs S4D")
    assert found.effect.endswith("/ not decided: no results to compare")


def test_an_average_needs_all_columns_and_counts_a_guess_where_none_is_run() -> None:
    rule = better_on_average("lra", ("S4D-Inv", "Transformer"), by=30.0)
    names = [column.name for column in RECIPES["lra"].columns]
    ours = {name: [80.0, 80.2] for name in names}
    theirs = {name: [46.0, 46.2] for name in names if name != "Path-X"}
    found = rule({"lra": {"S4D-Inv": ours, "Transformer": theirs}})
    assert found.holds == "holds"
    assert found.effect.startswith("+33.3 ± 0.4 in the mean of 6 of 6 columns; 1 to 2 seeds; S4D-")
    close = {name: [49.8, 50.0] for name in theirs}
    assert rule({"lra": {"S4D-Inv": ours, "Transformer": close}}).holds == "not decided"
    del ours["Retrieval"]
    assert rule({"lra": {"S4D-Inv": ours, "Transformer": theirs}}).holds == "not decided"
    assert rule({"lra": {"S4D-Inv": theirs, "Transformer": {}}}).holds == "not decided"


def test_who_suffers_most_is_judged_by_what_is_lost() -> None:
    """A row that is poor in both forms has lost nothing."""
    [column] = ends("trainable", "SC")
    rule = suffer_most("trainable", ("trained", "frozen"), ("S4-LegT", "S4-FouT"), column)

    def verdict(**rows: tuple[float, float]) -> str:
        scores = {
            f"{row.replace('_', '-')}, {end}": {"SC (AR)": [score, score + 0.2]}
            for row, both in rows.items()
            for end, score in zip(("trained", "frozen"), both, strict=True)
        }
        return rule({"trainable": scores}).holds

    assert verdict(S4_LegT=(90, 60), S4_FouT=(90, 65), S4_LegS=(90, 80)) == "holds"
    assert verdict(S4_LegT=(60, 60), S4_FouT=(60, 60), S4_LegS=(90, 80)) == "fails"
    assert verdict(S4_LegT=(90, 60), S4_LegS=(90, 80)) == "not decided"


def test_the_best_rows_meet_column_by_column() -> None:
    columns = ends("lra", "Text", "Image")
    rule = best_wins("lra", ("S4D-Inv", "S4D-Lin"), ("S4-LegS",), 2, columns)

    def verdict(text: float, image: float) -> str:
        rows = {"S4D-Inv": (80.0, 60.0), "S4D-Lin": (60.0, 80.0), "S4-LegS": (text, image)}
        scores = {
            row: {name: [x, x + 0.2] for name, x in zip(("Text", "Image"), both, strict=True)}
            for row, both in rows.items()
        }
        return rule({"lra": scores}).holds

    assert verdict(70, 70) == "holds"
    assert verdict(70, 80) == "not decided"
    assert verdict(70, 90) == "fails"


# -- findings with rules of their own --------------------------------------------------------------


def test_half_the_sampling_rate_is_judged_by_what_is_lost() -> None:
    kept, fallen = ([60.0, 61.0], [57.0, 58.5]), ([50.0, 52.0], [30.0, 31.0])

    def verdict(**rows: tuple[list[float], list[float]]) -> str:
        scores = {row: {"16000 Hz": full, "8000 Hz": half} for row, (full, half) in rows.items()}
        return decisions.half_the_rate_is_enough({"speech-rates": scores}).holds

    assert verdict(S4D=kept, ConvNet=fallen) == "holds"
    assert verdict(S4D=fallen, ConvNet=fallen) == "fails"
    assert verdict(S4D=kept, ConvNet=kept) == "fails"
    assert verdict(S4D=([60.0, 60.0], [59.0, 50.0]), ConvNet=fallen) == "not decided"
    assert verdict(S4D=kept) == verdict() == "not decided"


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
    found = decisions.path_x_needs_the_start({"lra": rows})
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
