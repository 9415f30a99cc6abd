"""How results decide findings: noise, many comparisons, and what a verdict says for itself."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from s4d_torch.paper.claims import FINDINGS, Verdict
from s4d_torch.paper.claims.claim import Need, Rule
from s4d_torch.paper.claims.comparison import Evidence, Gain, Rows
from s4d_torch.paper.claims.deciding import next_experiments
from s4d_torch.paper.claims.quantiles import student
from s4d_torch.paper.claims.rules import (
    ALMOST_ALL,
    MAYBE,
    OFTEN,
    Alike,
    AllOf,
    BestCompetitive,
    BestWins,
    Better,
    BetterOnAverage,
    Competitive,
    FarBetter,
    LosesMost,
    Pairwise,
)
from s4d_torch.paper.experiments.experiment import Result
from s4d_torch.paper.experiments.outcomes import Outcomes
from s4d_torch.paper.recipes import RECIPES
from s4d_torch.paper.results import Cell, Results
from s4d_torch.paper.scores import (
    Score,
    Spread,
    TableScores,
    paired_error,
    printed_scores,
    sampling_error,
    score_of,
    score_of_count,
)

ByColumn = dict[str, list[float]]


def choices(**rows: list[float]) -> dict[str, ByColumn]:
    return {row: {"sCIFAR": scores} for row, scores in rows.items()}


def by_seed(table: dict[str, ByColumn]) -> TableScores:
    """Lists of scores, seed by seed, as scores of a table."""
    return {
        row: {
            column: {
                seed: score_of(x, accuracy=not column.startswith("BIDMC"))
                for seed, x in enumerate(values)
            }
            for column, values in cells.items()
        }
        for row, cells in table.items()
    }


def decide(rule: Rule, rows: Rows, scores: dict[str, ByColumn], table: str = "choices") -> Verdict:
    return rule(Evidence(RECIPES[table], by_seed(scores), rows))


# -- noise -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("freedom", "level", "t"),
    [
        (1, 0.05, 12.7062),
        (1.5, 0.05, 6.0167),
        (2, 0.05, 4.3027),
        (5, 0.05, 2.5706),
        (16, 0.05, 2.1199),
        (30, 0.01, 2.75),
    ],
)
def test_quantiles_of_student(freedom: float, level: float, t: float) -> None:
    assert student(freedom, level) == pytest.approx(t, abs=1e-4)


def test_runs_are_compared_seed_by_seed() -> None:
    """One seed is lucky for every row; what is left is the difference."""
    seeds = {"S4D-Inv": [30.0, 35.0], "S4D-Lin": [31.1, 35.9], "S4D-Rand": [20.0, 25.4]}
    evidence = Evidence(RECIPES["initialization"], by_seed(choices(**seeds)))
    [gain] = evidence.gains([("S4D-Lin", "S4D-Inv")], evidence.columns())
    assert gain.points == pytest.approx(1.0)
    # differences 1.1 and 0.9, 10 and 9.6, 11.1 and 10.5: variances 0.02, 0.08 and 0.18
    assert gain.spread.deviation == pytest.approx((0.28 / 3) ** 0.5, rel=0.05)
    assert gain.spread.freedom == 2  # three rows of two seeds, less a mean of each row and seed
    assert gain.noise() == pytest.approx(4.3027 * (0.14 / 3) ** 0.5, rel=0.05)
    assert gain.noise(8) > 1.5 * gain.noise()
    assert str(gain) == "sCIFAR +1.0 ± 0.9"


def test_seeds_are_matched_by_their_names() -> None:
    scores = by_seed(choices(S4D=[50.0, 60.0, 70.0], ZOH=[51.0, 61.1, 71.0]))
    late = {seed: score for seed, score in scores["ZOH"]["sCIFAR"].items() if seed}
    evidence = Evidence(RECIPES["choices"], {**scores, "ZOH": {"sCIFAR": late}})
    [gain] = evidence.gains([("ZOH", "S4D")], evidence.columns())
    assert (gain.seeds, gain.points) == (2, pytest.approx(1.05))


def test_a_smaller_error_is_better_by_a_ratio() -> None:
    scores = by_seed({"S4D-Inv": {"BIDMC (HR)": [2.0]}, "S4D-Rand": {"BIDMC (HR)": [4.0]}})
    evidence = Evidence(RECIPES["initialization"], scores)
    (gain,) = evidence.gains([("S4D-Inv", "S4D-Rand")], evidence.columns())
    assert gain.points == pytest.approx(100 * np.log(2))
    assert str(gain) == "BIDMC (HR) +69.3% (one seed)"


def test_one_seed_decides_nothing() -> None:
    far = choices(S4D=[90.0], ZOH=[20.0])
    for rule in (Better(), Alike(), Competitive()):
        for pair in (("ZOH", "S4D"), ("S4D", "ZOH")):
            assert decide(rule, [pair], far).holds == "not decided"


# -- the error of the test cases -------------------------------------------------------------------


def right(count: int, share: float, seed: int = 0) -> Outcomes:
    return Outcomes(np.random.default_rng(seed).random(count) < share)


def scored(outcomes: Outcomes) -> Score:
    return score_of(100 * outcomes.values.mean(), accuracy=True, outcomes=outcomes)


def test_few_cases_are_noise_that_no_seed_takes_away() -> None:
    few = right(80, 0.8)
    same = {seed: scored(few) for seed in range(4)}
    other = {seed: scored(right(80, 0.8, seed=1)) for seed in range(4)}
    assert paired_error(same, same).deviation == 0  # the same cases right and wrong
    binomial = 100 * (2 * 0.8 * 0.2 / 80) ** 0.5
    assert paired_error(same, other).deviation == pytest.approx(binomial, rel=0.2)
    assert score_of_count(80.0, 80).sampling == pytest.approx(100 * (0.16 / 80) ** 0.5, rel=0.02)
    gain = Gain(("a", "b"), "c", 1.0, Spread(0.1, 10), Spread(binomial, 79), 4)
    assert gain.noise() > 1.9 * binomial
    assert gain.seeds_until(1.0) is None
    exact = Gain(("a", "b"), "c", 1.0, Spread(1.0, 10), Spread(0.0, 1), 2)
    assert exact.seeds_until(0.5) == 16


def test_windows_of_one_patient_count_as_one() -> None:
    """Ten patients of a hundred windows, all of a patient as far off."""
    patients = np.arange(1000) // 100
    errors = np.random.default_rng(0).random(10)[patients] + 0.5
    alone = Outcomes(errors, None), Outcomes(np.ones(1000), None)
    known = Outcomes(errors, patients), Outcomes(np.ones(1000), patients)
    found = []
    for pair in (alone, known):
        a, b = (score_of(1.0, accuracy=False, outcomes=each) for each in pair)
        found.append(paired_error({0: a}, {0: b}))
    assert 9 < found[1].deviation / found[0].deviation < 11
    assert found[1].freedom < 10 < 100 < found[0].freedom


def test_few_patients_with_most_of_the_error_leave_little_to_judge_by() -> None:
    patients = np.arange(5000) // 100
    errors = np.where(patients < 2, 5.0, 0.1) * np.random.default_rng(0).standard_normal(5000)
    a, b = (
        {0: score_of(1.0, accuracy=False, outcomes=Outcomes(each, patients))}
        for each in (errors, errors[::-1])
    )
    assert paired_error(a, b).freedom <= 4


def test_a_row_that_spreads_far_more_has_more_noise() -> None:
    """Among rows within a point, one that moves by twelve from seed to seed."""
    rng = np.random.default_rng(0)
    rows = {name: list(50 + 0.3 * rng.standard_normal(2)) for name in RECIPES["choices"].rows}
    rows["DSS"] = [40.0, 52.0]
    evidence = Evidence(RECIPES["choices"], by_seed(choices(**rows)))
    usual, wild = evidence.gains([("ZOH", "S4D"), ("DSS", "S4D")], evidence.columns())
    assert usual.noise() < 2 < 20 < wild.noise()


def test_the_spread_comes_from_all_tables_with_the_same_setting() -> None:
    rng = np.random.default_rng(0)
    table = {f"row {i}": list(50 + rng.standard_normal(2)) for i in range(12)}
    pool = [cells["sCIFAR"] for cells in by_seed(choices(**table)).values()]
    scores = by_seed(choices(S4D=[50.0, 50.5], ZOH=[53.0, 53.7]))
    pair, columns = [("ZOH", "S4D")], RECIPES["choices"].columns
    [alone] = Evidence(RECIPES["choices"], scores).gains(pair, columns)
    [known] = Evidence(RECIPES["choices"], scores, pools={"sCIFAR": pool}).gains(pair, columns)
    assert alone.spread.freedom == 1
    assert known.spread.freedom > 4


@pytest.mark.parametrize(
    ("rows", "factor", "most"), [(16, 1.0, 0.09), (16, 4.0, 0.2), (5, 1.0, 0.09), (7, 1.0, 0.09)]
)
def test_intervals_cover_what_they_should(rows: int, factor: float, most: float) -> None:
    """Rows of equal worth, some of which may spread more: few are told apart."""
    rng = np.random.default_rng(0)
    names = list(RECIPES["initialization"].rows)[:rows]
    columns = RECIPES["initialization"].columns[:1]
    deviations = np.where(np.arange(rows) < rows // 4, factor, 1.0)[:, None]
    false = 0
    for _ in range(200):
        drawn = 50 + rng.standard_normal(2) + deviations * rng.standard_normal((rows, 2))
        table = dict(zip(names, drawn.tolist(), strict=True))
        evidence = Evidence(RECIPES["initialization"], by_seed(choices(**table)))
        [gain] = evidence.gains([(names[0], names[-1])], columns)
        false += abs(gain.points) > gain.noise()
    assert false / 200 < most


def test_other_cases_with_each_seed_are_more_cases() -> None:
    """Seeds that share their cases share their error; what is drawn anew adds to it."""
    ours, theirs = (scored(right(100, 0.8, seed=side)) for side in (0, 1))

    def error(draws: int) -> Spread:
        data = [f"fold {seed % draws}" for seed in range(4)]
        sides = [
            {seed: replace(one, data=data[seed]) for seed in range(4)} for one in (ours, theirs)
        ]
        return paired_error(*sides)

    same, halves, folds = error(1), error(2), error(4)
    assert same.deviation == pytest.approx(2 * folds.deviation)
    assert same.deviation == pytest.approx(math.sqrt(2) * halves.deviation)
    assert folds.freedom == pytest.approx(4 * same.freedom, rel=0.1)


@pytest.mark.parametrize("cases", [50, 400])
def test_intervals_over_folds_cover_what_they_should(cases: int) -> None:
    """Rows of equal worth on other cases with each seed, which are as hard for all of them."""
    rng = np.random.default_rng(0)
    names = list(RECIPES["initialization"].rows)[:8]
    columns = RECIPES["initialization"].columns[:1]
    false, widths = 0, []
    for _ in range(150):
        table: dict[str, dict[str, dict[int, Score]]] = {name: {"sCIFAR": {}} for name in names}
        for seed in range(3):
            easy = rng.normal(1, 1.5, cases)  # by this much a case is right
            for name in names:
                found = Outcomes(easy + rng.normal(0, 0.1) + rng.normal(0, 1, cases) > 0)
                table[name]["sCIFAR"][seed] = replace(scored(found), data=f"fold {seed}")
        evidence = Evidence(RECIPES["initialization"], table)
        [gain] = evidence.gains([(names[0], names[-1])], columns)
        assert gain.draws == 3
        false += abs(gain.points) > gain.noise()
        widths.append(gain.noise() / replace(gain, draws=1).noise())
        assert gain.noise(seeds=5) < gain.noise()
    assert false / 150 < 0.09
    assert np.mean(widths) < 0.9  # what is in the spread already is not counted again


def test_scores_on_other_data_have_no_difference() -> None:
    ours, other = (replace(score_of(60.0, accuracy=True), data=data) for data in ("a", "b"))
    with pytest.raises(ValueError, match="different data"):
        ours - other


def test_what_only_guessed_was_run_all_the_same() -> None:
    guess = {seed: replace(score_of(50.0, accuracy=True), learned=False) for seed in (0, 1)}
    scores = {row: {"sCIFAR": guess} for row in ("ZOH", "S4D")}
    evidence = Evidence(RECIPES["choices"], scores, [("ZOH", "S4D")])
    assert Alike()(evidence).standing == "nothing learned"
    one = replace(evidence, scores={"S4D": {"sCIFAR": guess}})
    assert Alike()(one).standing == "not run"


def test_one_run_that_guessed_does_not_speak_for_the_others() -> None:
    made = {seed: result(seed, 0.5 if seed else 0.1) for seed in (0, 1, 2)}
    cell = Cell(RECIPES["choices"].columns[0], tuple(made.values()), None)
    assert {seed: score.learned for seed, score in cell.scores.items()} == {
        0: False,
        1: True,
        2: True,
    }
    assert not cell.learned


def result(seed: int, accuracy: float) -> Result:
    """Of a run on images, of which one answer to all has a tenth right."""
    config = {"training": {"seed": seed}, "model": {"architecture": "ssm"}}
    summary = {"test": {"accuracy": accuracy}, "validation": accuracy, "metric": "accuracy"}
    cases = {split: right(1000, accuracy).to_json() for split in ("validation", "test")}
    constant = {"validation": 0.1, "test": 0.1}
    return Result(str(seed), config, summary, cases=cases, constant=constant)


def test_guesses_and_other_data_are_not_compared() -> None:
    guess = {seed: replace(score_of(50.0, accuracy=True), learned=False) for seed in (0, 1)}
    other = {seed: replace(score_of(60.0, accuracy=True), data="other") for seed in (0, 1)}
    column = RECIPES["choices"].columns[0]
    for cells in ((guess, guess), (guess, other)):
        scores = {row: {"sCIFAR": cell} for row, cell in zip(("ZOH", "S4D"), cells, strict=True)}
        evidence = Evidence(RECIPES["choices"], scores)
        assert evidence.gains([("ZOH", "S4D")], [column]) == []


def test_the_influence_of_a_case_on_an_rmse_is_its_derivative() -> None:
    errors = np.random.default_rng(0).standard_normal(500)
    rmse = np.sqrt((errors**2).mean())
    whole = score_of(rmse, accuracy=False, outcomes=Outcomes(errors))
    assert whole.influence is not None
    without = -100 * np.log(np.sqrt((errors[1:] ** 2).mean()))
    assert whole.level - without == pytest.approx(whole.influence[0] / 500, rel=0.01)


def score_by_cases(splits: dict[str, Outcomes]) -> Score:
    """Of a run with these outcomes, in a column that shows an accuracy on validation."""
    summary = {"metric": "accuracy", "validation": 0.5, "test": {"accuracy": 0.6}}
    run = Result("", {"training": {"seed": 0}, "model": {"architecture": "ssm"}}, summary)
    run = replace(run, cases={name: x.to_json() for name, x in splits.items()})
    return Cell(RECIPES["trainable"].columns[0], (run,), None).scores[0]


def test_validation_and_test_cases_count_together() -> None:
    splits = {"validation": right(500, 0.5), "test": right(1000, 0.6, seed=1)}
    together = score_by_cases(splits)
    assert together.influence is not None
    assert len(together.influence) == 1500
    right_ones = sum(int(x.values.sum()) for x in splits.values())
    assert together.level == pytest.approx(100 * right_ones / 1500)
    assert together.value == together.level


def test_speakers_are_known_by_the_same_number_in_both_splits() -> None:
    """A speaker in both is one; numbers of earlier releases meant others in each split."""
    speakers = {"validation": np.repeat([0, 3], 50), "test": np.repeat([3, 7], 50)}
    known = {name: right(100, 0.5, seed=len(name)) for name in speakers}
    splits = {name: replace(x, groups=speakers[name]) for name, x in known.items()}
    together = score_by_cases(splits)
    assert together.groups is not None
    np.testing.assert_array_equal(together.groups, np.repeat([0, 3, 3, 7], 50))
    assert together.influence is not None
    sums = [together.influence[together.groups == n].sum() for n in (0, 3, 7)]
    spread = sampling_error(together.influence, together.groups)
    assert spread.deviation == pytest.approx(np.sqrt(np.square(sums).sum() * 3 / 2) / 200)
    assert spread.freedom <= 2
    earlier = {name: replace(x, joint=False) for name, x in splits.items()}
    apart = score_by_cases(earlier)
    assert apart.influence is not None
    assert len(apart.influence) == 100


def test_outcomes_survive_a_file() -> None:
    for outcomes in (
        right(13, 0.5),
        Outcomes(np.linspace(-3, 3, 7), np.arange(7) // 2),
        Outcomes(np.linspace(-3, 3, 7), np.arange(7) // 2, joint=False),
    ):
        read = Outcomes.from_json(json.loads(json.dumps(outcomes.to_json())))
        assert read.values.dtype == outcomes.values.dtype
        np.testing.assert_allclose(read.values, outcomes.values, atol=2e-3)
        assert (read.groups is None) == (outcomes.groups is None)
        assert read.joint == outcomes.joint
    damaged = {**right(13, 0.5).to_json(), "count": 99}
    with pytest.raises(ValueError, match="outcomes of 99 cases expected"):
        Outcomes.from_json(damaged)


# -- rules -----------------------------------------------------------------------------------------

APART = choices(S4D=[50.0, 50.2, 50.1], ZOH=[53.0, 53.1, 53.2])


def test_a_difference_has_to_exceed_its_noise() -> None:
    assert decide(Better(), [("ZOH", "S4D")], APART).holds == "holds"
    assert decide(Better(), [("S4D", "ZOH")], APART).holds == "fails"
    wide = choices(S4D=[48.0, 52.2], ZOH=[54.0, 52.2])
    for pair in (("ZOH", "S4D"), ("S4D", "ZOH")):
        assert decide(Better(), [pair], wide).holds == "not decided"
    assert decide(Better(), [("DSS", "S4D")], APART).effect == "no results to compare"


def test_a_verdict_gives_effect_noise_and_seeds() -> None:
    found = decide(Better(), [("ZOH", "S4D")], APART)
    assert found.effect == "3 seeds; ZOH vs S4D: sCIFAR +3.0 ± 0.2"
    assert found.detail == "Beyond noise 1 of 1 comparisons support it, 0 contradict it."
    uneven = choices(S4D=[50.0, 50.3], ZOH=[53.0], DSS=[53.0, 53.2])
    pairs = [("ZOH", "S4D"), ("DSS", "S4D")]
    assert decide(Better(), pairs, uneven).effect.startswith("1 to 2 seeds; ")


def test_an_open_verdict_says_what_it_takes() -> None:
    close = choices(S4D=[50.0, 50.5, 49.9], ZOH=[50.9, 50.2, 50.9])
    found = decide(Better(), [("ZOH", "S4D")], close)
    [need] = found.needs
    assert (need.rows, need.column, need.seeds) == (("ZOH", "S4D"), "sCIFAR", 3)
    assert need.wanted is not None
    assert 4 < need.wanted < 20
    seeds = f"About {need.wanted} seeds would decide it, if differences stay as seen."
    assert found.what_it_takes == seeds
    assert decide(Better(), [("ZOH", "S4D")], APART).what_it_takes == ""
    hopeless = Verdict("not decided", "", needs=(replace(need, wanted=None),))
    assert hopeless.what_it_takes == (
        "No number of seeds decides it with the test cases of sCIFAR, if differences stay as seen."
    )


def test_an_open_verdict_stands_for_something() -> None:
    pair = [("ZOH", "S4D")]

    def standing(rule: Rule, **rows: list[float]) -> str:
        return decide(rule, pair, choices(**rows)).standing

    assert standing(Better(), S4D=[50.0, 50.2], ZOH=[53.0, 53.1]) == "holds"
    assert standing(Better()) == "not run"
    assert standing(Better(), S4D=[50.0, 50.5], ZOH=[50.9, 50.6]) == "open for more seeds"
    waiting = Verdict(
        "not decided", "", missing=("SC",), deciding=decide(Better(), pair, APART).deciding
    )
    assert waiting.standing == "open for more runs"
    hopeless = Verdict("not decided", "", needs=(Need(("a", "b"), "c", 2, None),))
    assert hopeless.standing == "open whatever the seeds"


def test_one_that_contradicts_would_be_enough() -> None:
    """Seeds that no number of which would support it do not count where one tends against it."""
    needs = (
        Need(("a", "b"), "c", 2, None),
        Need(("d", "e"), "c", 2, 9, contrary=True),
        Need(("f", "g"), "c", 2, 5, contrary=True),
    )
    found = Verdict("not decided", "", needs=needs, missing=("SC",))  # which it does not wait for
    assert found.what_it_takes == "About 5 seeds would decide it, if differences stay as seen."
    smaller = replace(found, reserve="no model is large here").what_it_takes
    assert smaller.startswith("About 5 seeds would show that it does not hold at this scale, ")
    assert Verdict("not decided", "", needs=needs[:1]).seeds_wanted is None
    close = choices(S4D=[50.0, 50.5, 49.9], ZOH=[50.9, 50.2, 50.9])
    [need] = decide(Better(), [("S4D", "ZOH")], close).needs
    assert need.contrary


def test_what_is_said_of_many_waits_for_the_nearest() -> None:
    """Two more of four have to support it: the second that would."""
    needs = (
        Need(("a", "b"), "c", 2, None),
        Need(("d", "e"), "c", 2, 9),
        Need(("f", "g"), "c", 2, 5),
        Need(("h", "i"), "c", 2, 3, contrary=True),
    )
    assert Verdict("not decided", "", needs=needs, short=1).seeds_wanted == 5
    assert Verdict("not decided", "", needs=needs, short=2).seeds_wanted == 9
    assert Verdict("not decided", "", needs=needs, short=3).seeds_wanted is None
    enough = Verdict("not decided", "", needs=needs, missing=("SC",), short=0)
    deciding = decide(Better(), [("ZOH", "S4D")], APART).deciding
    assert replace(enough, deciding=deciding).standing == "open for more runs"
    assert enough.what_it_takes == "It needs results of SC."
    wide = choices(S4D=[50.0, 50.2], ZOH=[53.0, 53.1], DSS=[50.2, 50.3], **{"frozen B": [50, 50.3]})
    pairs = [(row, "S4D") for row in ("ZOH", "DSS", "frozen B")]
    assert decide(Better(share=OFTEN), pairs, wide).short == 1
    assert decide(Better(share=MAYBE), pairs, wide).holds == "holds"


@pytest.mark.parametrize("seeds", [2, 3, 4, 30, 100])
@pytest.mark.parametrize("deviation", [0.0, 0.1, 1.0, 10.0])
def test_what_is_certain_does_not_hide_what_is_not(deviation: float, seeds: int) -> None:
    """The error of three patients is not made smaller by many seeds beside it, nor vice versa."""
    cases, spread = Spread(1.0, 2.0), Spread(deviation, 27)
    both = Gain(("a", "b"), "c", 1.0, spread, cases, seeds).noise()
    by_cases = Gain(("a", "b"), "c", 1.0, Spread(0.0, 27), cases, seeds).noise()
    by_seeds = Gain(("a", "b"), "c", 1.0, spread, Spread(0.0, 2.0), seeds).noise()
    assert both >= max(by_cases, by_seeds)
    assert by_cases == pytest.approx(student(2.0, 0.05))


def test_a_second_look_is_wrong_about_once_in_nine_times() -> None:
    """Rows that are alike, looked at with two, three and four seeds until they seem to differ."""
    draw, wrong, others = np.random.default_rng(0), 0, range(2, 10)
    for _ in range(400):
        levels = draw.normal(size=(10, 4))
        for seeds in (2, 3, 4):
            known = [list(row[:seeds] + 60) for row in levels]
            scores = choices(S4D=known[0], ZOH=known[1], **{str(i): known[i] for i in others})
            if decide(Better(), [("ZOH", "S4D")], scores).holds != "not decided":
                wrong += 1
                break
    assert 0.05 < wrong / 400 < 0.13


def test_after_one_seed_nobody_knows_how_many_it_takes() -> None:
    found = decide(Better(), [("ZOH", "S4D")], choices(S4D=[50.0], ZOH=[50.9]))
    [need] = found.needs
    assert (need.seeds, need.wanted) == (1, 2)  # so that --decide goes on
    assert found.what_it_takes == "One seed decides nothing; a second says how many would."


def test_a_verdict_shows_what_made_it() -> None:
    scores = choices(S4D=[50.0, 50.2], ZOH=[53.0, 53.1], DSS=[47.0, 47.3])
    better = ("ZOH", "S4D")
    assert [gain.rows for gain in decide(Better(), [better], scores).deciding] == [better]
    worse = ("DSS", "S4D")
    [contrary] = decide(Better(), [better, worse], scores).deciding
    assert contrary.rows == worse
    assert contrary.interval.startswith("-3.0 ± ")
    unequal = decide(AllOf(Better(against="S4D"), Alike()), [worse, better], scores)
    assert [gain.rows for gain in unequal.deciding] == [worse, worse, better]


def test_further_seeds_are_for_what_they_may_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    close = choices(S4D=[50.0, 50.5], ZOH=[50.9, 50.6])
    results = Results({}, "tiny", (0, 1))
    monkeypatch.setattr(Results, "scores", {"choices": by_seed(close)})
    more = next_experiments(results, ["choices"], 40)
    assert {each.config.method.discretization for each in more} == {"zoh", "bilinear"}
    assert {each.config.training.seed for each in more} == {0, 1, 2}  # no results are there
    assert next_experiments(results, ["choices"], 2) == []
    assert next_experiments(results, ["lra"], 40) == []
    monkeypatch.setattr(Results, "scores", {"choices": by_seed(APART)})
    assert next_experiments(results, ["choices"], 40) == []


def test_no_seed_is_spent_where_another_comparison_keeps_the_finding_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Images would take a seed or two; the test cases of SpO2 hide it whatever the seeds."""
    few = [replace(score_of(x, accuracy=False), sampling=3.0) for x in (0.40, 0.43)]
    images = by_seed(choices(tied=[50.0, 51.5], untied=[50.9, 50.6]))
    both = {
        row: {**images[row], "BIDMC (SpO2)": dict.fromkeys((0, 1), error)}
        for row, error in zip(images, few, strict=True)
    }
    results = Results({}, "tiny", (0, 1))
    monkeypatch.setattr(Results, "pools", {"tying": {}})
    monkeypatch.setattr(Results, "scores", {"tying": both})
    found = FINDINGS["tying-is-harmless"].decide(results.scores)
    assert found.standing == "open whatever the seeds"
    assert any(need.wanted for need in found.needs)
    assert next_experiments(results, ["tying"], 40) == []
    monkeypatch.setattr(Results, "scores", {"tying": images})
    assert {each.config.task for each in next_experiments(results, ["tying"], 40)} == {"scifar"}


def test_further_seeds_are_of_the_rows_that_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """S4D-Inv itself, and not all that begins with its name."""
    values = {"S4D-Inv": [60.0, 60.9], "S4D-Inv, Im x 100": [57.2, 56.2]}
    monkeypatch.setattr(Results, "pools", {"initialization": {}})
    monkeypatch.setattr(Results, "scores", {"initialization": by_seed(choices(**values))})
    more = next_experiments(Results({}, "tiny", (0, 1)), ["initialization"], 40)
    made = {(each.config.method.init, each.config.method.imag_scale) for each in more}
    assert made == {("inv", 1.0), ("inv", 100.0)}
    assert not any(each.config.method.random_imag for each in more)


def test_one_supporting_column_is_not_all_of_them() -> None:
    """S4D-Inv2 worse on images and better on heart rates, both near the noise: no verdict."""
    scores: dict[str, ByColumn] = {
        "S4D-Inv": {"sCIFAR": [32.0, 34.6], "BIDMC (HR)": [7.2, 7.8]},
        "S4D-Inv2": {"sCIFAR": [20.5, 20.6], "BIDMC (HR)": [6.2, 7.4]},
        "S4D-Quad": {"sCIFAR": [20.0, 20.2], "BIDMC (HR)": [7.6, 7.9]},
    }
    found = FINDINGS["other-laws"].decide({"initialization": by_seed(scores)})
    assert found.holds == "not decided"
    assert "Beyond noise 2 of 4 comparisons support it, 0 contradict it." in found.detail
    assert "Without results: SC." in found.detail


def test_among_many_comparisons_one_may_look_like_a_difference() -> None:
    rows = ["identity Re(A)", "ReLU Re(A)", "ZOH", "frozen B", "ZOH and softmax", "DSS"]
    scores = {row: [50.0 + i % 3, 51.0 - i % 2] for i, row in enumerate(["S4D", *rows])}
    scores["ZOH"] = [46.9, 47.9]  # beyond the noise of one comparison, within that of six
    results = choices(**scores)
    assert decide(Better(), [("ZOH", "S4D")], results).holds == "fails"
    assert decide(Better(), [(row, "S4D") for row in rows], results).holds == "not decided"


def test_often_and_maybe_need_fewer() -> None:
    scores = {"S4D": [50.0, 50.2, 50.1], "ZOH": [53.0, 53.1, 53.2], "DSS": [50.1, 50.0, 50.4]}
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
    waiting = decide(strict, pairs, rows, "initialization")
    assert waiting.holds == "not decided"
    assert waiting.what_it_takes == "It needs results of SC, BIDMC."
    for row, score in (("S4D-Inv", 50.0), ("S4D-Real", 30.0)):
        rows[row] |= {"SC (AR)": [score, score + 0.2], "BIDMC (HR)": [300 / score, 301 / score]}
    # one signal of BIDMC stands for it
    assert decide(strict, pairs, rows, "initialization").holds == "holds"


def test_rows_are_alike_only_where_a_difference_would_have_been_seen() -> None:
    pair = ("ZOH", "S4D")
    close = choices(S4D=[50.0, 50.2, 50.1], ZOH=[49.0, 49.3, 49.0])
    noisy = choices(S4D=[50.0, 50.2, 50.1], ZOH=[48.0, 50.3, 49.0])
    at_the_edge = choices(S4D=[50.0, 50.2, 50.1], ZOH=[47.5, 47.8, 47.9])
    far = choices(S4D=[50.0, 50.2, 50.1], ZOH=[44.0, 44.3, 44.0])
    for rule in (Alike(), Competitive()):
        assert decide(rule, [pair], close).holds == "holds"
        assert decide(rule, [pair], noisy).holds == "not decided"
        assert decide(rule, [pair], at_the_edge).holds == "fails"
        assert decide(rule, [pair], far).holds == "fails"
    assert decide(Competitive(), [pair[::-1]], far).holds == "holds"
    errors = {"S4D-Inv": {"BIDMC (HR)": [1.0, 1.01]}, "S4D-Lin": {"BIDMC (HR)": [1.04, 1.05]}}
    pairs = [("S4D-Inv", "S4D-Lin")]
    assert decide(Alike(), pairs, errors, "initialization").holds == "holds"


def test_far_better_is_more_than_beyond_noise() -> None:
    def verdict(*ours: float) -> Verdict:
        return decide(FarBetter(), [("ZOH", "S4D")], choices(S4D=[50.0, 50.2, 50.1], ZOH=[*ours]))

    assert verdict(54.0, 54.3, 54.0).holds == "holds"
    assert verdict(51.0, 51.3, 51.0).holds == "fails"  # better for certain, and not by much
    assert verdict(49.0, 49.3, 49.0).holds == "fails"
    at_the_edge = verdict(51.9, 52.3, 52.0)
    assert at_the_edge.holds == "not decided"
    assert at_the_edge.needs[0].wanted is not None


def test_what_cannot_tell_is_left_aside() -> None:
    """Two datasets, of which one has too few cases to show two points; SC of a few clips."""
    columns = {column.name: column for column in RECIPES["initialization"].columns}
    near, far = ("S4D-Inv", "S4D-Inv2"), ("S4D-Inv", "S4D-Quad")

    def gain(rows: tuple[str, str], column: str, points: float, error: float) -> Gain:
        return Gain(rows, column, points, Spread(0.2, 20), Spread(error, 1000), 2)

    def verdict(rule: Pairwise, *gains: Gain) -> Verdict:
        shown = [columns[name] for name in ("sCIFAR", "SC (AR)")]
        return rule.decide(gains, shown, list(dict.fromkeys(gain.rows for gain in gains)))

    seen = [gain(pair, "sCIFAR", 5.0, 0.2) for pair in (near, far)]
    blind = [gain(pair, "SC (AR)", 1.0, 3.0) for pair in (near, far)]
    assert verdict(Better(), *seen, *blind).holds == "holds"
    assert "Too few test cases to tell: SC (AR)." in verdict(Better(), *seen, *blind).detail
    assert verdict(Better(everywhere=True), *seen, *blind).holds == "not decided"
    assert verdict(Better(), *blind).standing == "open whatever the seeds"
    # of each pair something has to be seen
    assert verdict(Better(), seen[0], *blind, gain(far, "sCIFAR", 1.0, 3.0)).holds == "not decided"
    # many cases: a small difference is open for seeds, and holds it up
    small = gain(near, "SC (AR)", 0.2, 0.2)
    assert verdict(Better(), *seen, small, blind[1]).holds == "not decided"
    # what is seen all the same counts; so does what alone, not among four, speaks against it
    assert verdict(Better(), *seen, blind[0], gain(far, "SC (AR)", -20.0, 3.0)).holds == "fails"
    against = verdict(Better(), *seen, blind[0], gain(far, "SC (AR)", -6.5, 3.0))
    assert (against.holds, against.aside) == ("not decided", (blind[0],))
    # of one seed, or of cases that were not kept, nobody knows whether they can tell
    alone = replace(blind[0], seeds=1)
    unknown = replace(blind[0], cases=Spread(math.inf, 1000))
    for open_one in (alone, unknown):
        assert verdict(Better(), *seen, open_one, blind[1]).holds == "not decided"


def test_the_first_epoch_is_not_the_end_of_training() -> None:
    evidence = Evidence(RECIPES["trainable"], {})
    assert [column.name for column in evidence.columns(["SC"])] == ["SC (AR)"]
    assert all("epoch 1" not in column.name for column in evidence.columns())
    assert evidence.columns(first_epoch=True) == RECIPES["trainable"].columns


def test_parts_of_a_statement_keep_their_verdicts() -> None:
    rule = AllOf(Better(against="S4D"), Alike(against="DSS"))
    found = decide(rule, [("ZOH", "S4D"), ("S4D", "DSS")], APART)
    assert found.holds == "not decided"
    assert found.effect.startswith("holds: 3 seeds; ZOH vs S4D")
    assert found.effect.endswith("/ not decided: no results to compare")


def test_what_is_said_of_most_waits_for_all_datasets() -> None:
    rows = {"S4D-Inv": {"sCIFAR": [50.0, 50.2]}, "S4-LegS": {"sCIFAR": [50.1, 50.1]}}
    pairs, almost_all = [("S4D-Inv", "S4-LegS")], Competitive(share=ALMOST_ALL)
    assert decide(Competitive(), pairs, rows, "large").holds == "holds"
    waiting = decide(almost_all, pairs, rows, "large")
    assert (waiting.holds, waiting.missing) == ("not decided", ("SC", "BIDMC"))
    assert decide(Better(share=MAYBE), [pairs[0][::-1]], rows, "large").missing == ()


def test_an_average_needs_all_columns_and_counts_a_guess_where_none_is_run() -> None:
    def verdict(ours: ByColumn, theirs: ByColumn) -> Verdict:
        scores = {"S4D-Inv": ours, "Transformer": theirs}
        return decide(BetterOnAverage(by=30.0), [("S4D-Inv", "Transformer")], scores, "lra")

    names = [column.name for column in RECIPES["lra"].columns]
    ours = {name: [80.0, 80.2] for name in names}
    theirs = {name: [46.0, 46.4] for name in names if name != "Path-X"}
    found = verdict(ours, theirs)
    assert found.holds == "holds"
    assert found.effect.startswith("+33.3 ± 0.5 in the mean of 6 of 6 columns; 2 seeds; S4D-")
    close = {name: [49.8, 50.2] for name in theirs}
    open_one = verdict(ours, close)
    assert open_one.holds == "not decided"
    assert open_one.standing == "open for more seeds"
    assert open_one.seeds_wanted == 4
    assert open_one.detail == "Transformer is taken to guess on Path-X."
    del ours["Retrieval"]
    assert verdict(ours, theirs).holds == "not decided"
    assert verdict(theirs, {}).holds == "not decided"


def test_a_guess_stands_for_what_was_not_run_on_the_same_data() -> None:
    names = [column.name for column in RECIPES["lra"].columns]
    levels = {"S4D-Inv": 80.0, "Transformer": 40.0}
    scores = {
        row: {
            name: {
                seed: replace(score_of(level + seed, accuracy=True), data=name) for seed in (0, 1)
            }
            for name in names
            if (row, name) not in RECIPES["lra"].without
        }
        for row, level in levels.items()
    }
    evidence = Evidence(RECIPES["lra"], scores, [("S4D-Inv", "Transformer")])
    found = BetterOnAverage(by=30.0)(evidence)
    assert (found.holds, found.missing) == ("holds", ())


def test_the_best_of_a_group_is_compared_with_the_best_of_the_other() -> None:
    scores: dict[str, ByColumn] = {
        "S4D-LegS": {"sCIFAR": [60.0, 60.2], "SC (bidirectional)": [80.0, 80.2]},
        "S4D-Inv": {"sCIFAR": [62.0, 62.2], "SC (bidirectional)": [70.0, 70.2]},
        "S4-LegS": {"sCIFAR": [62.5, 62.7], "SC (bidirectional)": [80.1, 80.2]},
        "S4-FouT": {"sCIFAR": [60.0, 60.1]},
    }
    rows = [("S4D-LegS", "S4D-Inv"), ("S4-LegS", "S4-FouT")]
    found = decide(BestCompetitive(), rows, scores, "large")
    assert (found.holds, found.unseen) == (
        "holds",
        ("SC", "BIDMC"),
    )  # S4-FouT may be the best of SC
    scores["S4-FouT"]["SC (bidirectional)"] = [85.0, 85.1]
    worse = decide(BestCompetitive(), rows, scores, "large")
    assert worse.holds == "fails"
    assert [gain.rows for gain in worse.deciding] == [("S4D-LegS", "S4-FouT")]


def test_a_reduced_scale_does_not_contradict_what_it_cannot_show() -> None:
    rows = {"as it is": {"Image": [50.0, 50.2]}, "no dropout": {"Image": [55.0, 55.1]}}
    scores, finding = {"image-choices": by_seed(rows)}, FINDINGS["image-dropout"]
    assert finding.decide(scores).holds == "fails"
    small = finding.decide(scores, scale="study")
    assert (small.holds, small.standing) == ("not decided", "open at this scale")
    assert "long enough to overfit" in small.what_it_takes
    turned = {"image-choices": by_seed(dict(zip(rows, reversed(rows.values()), strict=True)))}
    assert finding.decide(turned, scale="study").holds == "holds"


def test_who_suffers_most_is_judged_by_what_is_lost() -> None:
    """A row that is poor in both forms has lost nothing."""
    rule = LosesMost(("S4-LegT", "S4-FouT"), datasets=("SC",))
    pairs = FINDINGS["finite-windows-suffer"].rows

    def verdict(**rows: tuple[float, float]) -> str:
        scores = {
            f"{row.replace('_', '-')}, {end}": {"SC (AR)": [score, score + 0.2 * i]}
            for i, (row, both) in enumerate(rows.items())
            for end, score in zip(("trained", "frozen"), both, strict=True)
        }
        return decide(rule, pairs, scores, "trainable").holds

    others = dict.fromkeys(("S4_LegS", "S4D_LegS", "S4D_Inv", "S4D_Lin", "DSS"), (90.0, 80.0))
    assert verdict(S4_LegT=(90, 60), S4_FouT=(90, 65), **others) == "holds"
    assert verdict(S4_LegT=(60, 60), S4_FouT=(60, 60), **others) == "fails"
    assert verdict(S4_LegT=(60, 60), S4_FouT=(60, 60), S4_LegS=(90, 80)) == "fails"
    assert verdict(S4_LegT=(90, 60), S4_FouT=(90, 65), S4_LegS=(90, 80)) == "not decided"
    assert verdict(S4_LegT=(90, 60), S4_LegS=(90, 80)) == "not decided"


def test_the_best_rows_meet_column_by_column() -> None:
    rule = BestWins(several=2, datasets=("Text", "Image"))
    groups = [("S4D-Inv", "S4D-Lin"), ("S4-LegS",)]

    def judge(text: float, image: float) -> Verdict:
        rows = {"S4D-Inv": (80.0, 60.0), "S4D-Lin": (60.0, 80.0), "S4-LegS": (text, image)}
        scores = {
            row: {name: [x, x + 0.2 * i] for name, x in zip(("Text", "Image"), both, strict=True)}
            for i, (row, both) in enumerate(rows.items())
        }
        return decide(rule, groups, scores, "lra")

    def verdict(text: float, image: float) -> str:
        return judge(text, image).holds

    assert verdict(70, 70) == "holds"
    assert verdict(70, 80) == "not decided"
    assert judge(70, 79.8).short == 1  # one column is won, another is to be
    assert [need.column for need in judge(70, 79.8).needs] == ["Image"]
    assert verdict(70, 90) == "fails"
    groups[1] = ("S4-LegS", "S4-FouT")  # of which nothing is known
    assert verdict(70, 70) == "not decided"


# -- findings with rules of their own --------------------------------------------------------------


def test_half_the_sampling_rate_is_judged_by_what_is_lost() -> None:
    kept, fallen = ([60.0, 61.0], [57.0, 58.5]), ([50.0, 52.0], [12.0, 13.0])

    def verdict(**rows: tuple[list[float], list[float]]) -> str:
        scores = {row: {"16000 Hz": full, "8000 Hz": half} for row, (full, half) in rows.items()}
        return FINDINGS["zero-shot-resampling"].decide({"speech-rates": by_seed(scores)}).holds

    good, poor = FINDINGS["zero-shot-resampling"].rows
    rows = {**dict.fromkeys(good, kept), **dict.fromkeys(poor, fallen)}
    assert verdict(**rows) == "holds"
    assert verdict(**rows | {"S4D-Inv": fallen}) == "fails"
    assert verdict(**rows | {"ConvNet": kept}) == "fails"
    some = ([50.0, 52.0], [32.0, 33.0])  # neither little nor most of it
    assert verdict(**rows | {"S4D-Inv": some}) == verdict(**rows | {"ConvNet": some}) == "fails"
    uncertain = ([60.0, 60.0], [59.0, 41.0])
    assert verdict(**rows | {"S4D-Inv": uncertain}) == "not decided"
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
    found = FINDINGS["path-x-needs-the-start"].decide({"lra": by_seed(rows)})
    assert found.holds == holds
    assert found.effect.startswith("2 seeds; S4D-Inv ")


@pytest.mark.parametrize(
    ("name", "holds"),
    [
        ("softmax-or-vandermonde", "not decided"),  # 8.5 % of the RMSE of SpO2, give or take 6
        ("training-b-helps", "not decided"),  # +0.33 on images, with deviations of 0.2 and 0.4
        ("bilinear-or-zoh", "fails"),  # 17 % of the RMSE of SpO2
        ("free-real-part", "holds"),
        ("zero-shot-resampling", "holds"),
        ("arena-competitive", "not decided"),  # S4D-LegS: Retrieval -1.4, Pathfinder -1.1 ± 1
        ("arena-beats-transformer", "holds"),
        ("arena-best-competitive", "not decided"),  # Path-X -3.5, printed without a deviation
        ("better-than-the-original", "holds"),
        ("path-x-needs-the-start", "holds"),
        ("path-x-softmax-hurts", "holds"),
        ("path-x-training-b-helps", "not decided"),
    ],
)
def test_the_rules_on_the_papers_own_numbers(name: str, holds: str) -> None:
    verdict = FINDINGS[name].decide_by_paper()
    assert verdict is not None
    assert verdict.holds == holds


def test_a_number_without_a_deviation_is_not_exact() -> None:
    """It spreads as its column, or where nothing in it has a deviation, as the widest of all."""
    recipe = RECIPES["lra"]
    evidence = Evidence(recipe, printed_scores(recipe), paired=False)
    found = {
        gain.column: gain for gain in evidence.gains([("S4D-Inv", "Transformer")], recipe.columns)
    }
    deviations = (0.13, 0.31, 0.43, 0.20, 0.23)  # of the rows of Text that have one
    spread = (2 * sum(x**2 for x in deviations) / 5) ** 0.5
    assert found["Text"].spread == (pytest.approx(spread), 10)
    assert found["Path-X"].spread.deviation == pytest.approx(2**0.5 * 1.90)


def test_a_picture_of_a_table_gives_no_verdict() -> None:
    assert FINDINGS["random-real"].decide_by_paper() is None
