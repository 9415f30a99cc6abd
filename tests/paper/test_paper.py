"""The paper as commands: tables from results, verdicts from tables, a page that works by itself."""

import json
import re
import shlex
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from s4d_torch.cli import main
from s4d_torch.data.dataset import Signature
from s4d_torch.data.folder import DataFolder
from s4d_torch.nn.method import METHODS
from s4d_torch.paper.claims import FINDINGS, Finding, judge
from s4d_torch.paper.claims.claim import sentences
from s4d_torch.paper.experiments.cost import Durations
from s4d_torch.paper.experiments.experiment import Result, read_result, write_result
from s4d_torch.paper.experiments.watch import label
from s4d_torch.paper.figures import FIGURES
from s4d_torch.paper.recipes import (
    RECIPES,
    REFERENCE_TABLES,
    SCALES,
    Column,
    ablation,
    describe_reduction,
    large,
    reduction,
    select_experiments,
)
from s4d_torch.paper.recipes.recipe import on_best_data
from s4d_torch.paper.recipes.reference_tables import choices, hyperparameters
from s4d_torch.paper.recipes.scales import REDUCTIONS
from s4d_torch.paper.report import Line, Page, Table, make_report
from s4d_torch.paper.report.chart import legend, line_chart, ticks
from s4d_torch.paper.report.paper_report import _charts, commands_of
from s4d_torch.paper.results import Results
from s4d_torch.training.build import build_model

MADE = ("choices", "speech-rates")


def write_results(folder: Path, names: Sequence[str] = MADE, seeds: Sequence[int] = (0, 1)) -> None:
    """A result for every run of some tables; scores go up with the row and the seed."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        recipe = RECIPES[name]
        for column in recipe.columns:
            for i, row in enumerate(recipe.rows):
                for seed in seeds:
                    experiment = recipe.experiment(row, column, "tiny", seed)
                    score = 0.5 + 0.01 * i + 0.002 * seed
                    result = Result(
                        experiment.key,
                        experiment.config.to_json(),
                        summary={
                            "metric": "accuracy",
                            "test": {"accuracy": score},
                            "validation": score - 0.1,
                            "seconds": 36.0,
                        },
                        rows=[{"epoch": e, "validation_accuracy": score / (3 - e)} for e in (1, 2)],
                        measured=dict.fromkeys(experiment.measures, score / 2),
                        environment={
                            "platform": "a machine",
                            "cores": 2,
                            "torch": "2",
                            "s4d_torch": "0",
                        },
                    )
                    (folder / f"{result.key}.json").write_text(json.dumps(asdict(result)))


# ---- recipes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", RECIPES)
def test_every_table_is_made_of_configs_that_can_be_built(name: str, scale: str) -> None:
    recipe = RECIPES[name]
    experiments = recipe.experiments(scale, [0, 1])
    assert len({e.key for e in experiments}) == len(experiments)
    tasks = {column.task for column in recipe.columns}
    assert len(experiments) <= 2 * len(tasks) * len(recipe.rows)
    for row in recipe.rows:
        config = recipe.experiment(row, recipe.columns[0], "tiny", 0).config
        signature = Signature("classification", 2, 3, 64)
        assert sum(p.numel() for p in build_model(config, signature).parameters()) > 0


@pytest.mark.parametrize("name", RECIPES)
def test_published_numbers_belong_to_rows_and_columns(name: str) -> None:
    recipe = RECIPES[name]
    assert set(recipe.published) <= set(recipe.rows)
    for numbers in recipe.published.values():
        assert set(numbers) <= {column.name for column in recipe.columns}
        for shown in numbers.values():
            assert re.fullmatch(r"✗|(0|[1-9]\d*)\.\d+( \(\d\.\d+\))?", shown)


def test_the_ablation_model_has_the_papers_size() -> None:
    """Around 100 000 parameters; S4 has H more in each layer."""
    signature = Signature("classification", 3, 10, 1024)
    sizes = {}
    for name, method in (("s4d", "S4D-LegS"), ("s4", "S4-LegS")):
        config = RECIPES["trainable"].rows[f"{method}, trained"](ablation("scifar", "full"))
        assert config.method.structure == METHODS[name].structure
        sizes[name] = sum(p.numel() for p in build_model(config, signature).parameters())
    assert 90_000 < sizes["s4d"] < 150_000
    assert 0 < sizes["s4"] - sizes["s4d"] <= 4 * 128


def count_parameters(table: str, row: str, signature: Signature) -> int:
    recipe = RECIPES[table]
    config = recipe.experiment(row, recipe.columns[0], "full", 0).config
    return sum(p.numel() for p in build_model(config, signature).parameters())


@pytest.mark.parametrize(
    ("row", "printed", "narrow"),
    [("S4D-Lin", 306e3, 16), ("ConvNet", 26.2e6, 4), ("ResNet-18", 216e3, 16)],
)
def test_the_models_of_speech_have_the_papers_sizes(row: str, printed: float, narrow: int) -> None:
    count = count_parameters("speech-rates", row, Signature("classification", 1, 35, 16000))
    assert count == pytest.approx(printed, rel=0.006)
    tiny = RECIPES["speech-rates"].experiment(row, RECIPES["speech-rates"].columns[0], "tiny", 0)
    assert (tiny.config.model.d_model, tiny.config.model.n_layers) == (narrow, 2)


@pytest.mark.parametrize("row", RECIPES["pathx-ablation"].rows)
def test_the_models_of_the_path_x_ablations_have_the_papers_size(row: str) -> None:
    """Between 150K and 200K, differing only depending on whether B is trained."""
    count = count_parameters("pathx-ablation", row, Signature("classification", 1, 2, 16384))
    assert 150e3 < count < 200e3


@pytest.mark.parametrize("name", ["trainable-b", "discretization", "initialization", "trainable"])
def test_the_ablations_have_the_papers_three_datasets(name: str) -> None:
    assert {"scifar", "sc35", "bidmc-spo2"} <= {column.task for column in RECIPES[name].columns}


KEPT = Path(__file__).parents[2] / "docs/paper/results"


@pytest.mark.parametrize(("scale", "hours"), [("tiny", 6), ("small", 100)])
@pytest.mark.parametrize("name", RECIPES)
def test_reduced_tables_take_minutes_or_hours(name: str, scale: str, hours: float) -> None:
    """One seed of a table, in hours of one of two processes, judged by the runs that were made."""
    past = Durations([found for path in KEPT.iterdir() if (found := read_result(KEPT, path.stem))])
    assert sum(map(past.of, RECIPES[name].experiments(scale, [0]))) < 3600 * hours


def test_a_cell_that_is_not_run_has_no_experiment() -> None:
    recipe = RECIPES["lra"]
    cells = {(row, column.name) for row, column in recipe.cells()}
    assert len(cells) == len(recipe.rows) * len(recipe.columns) - 1
    left_out = recipe.experiment("Transformer", recipe.columns[-1], "tiny", 0)
    assert left_out.key not in {each.key for each in recipe.experiments("tiny", [0])}


def test_reductions_only_take_away() -> None:
    for scale, tasks in REDUCTIONS.items():
        for task in tasks:
            full, reduced = large(task, "full"), large(task, scale)
            assert reduced.model.d_model <= full.model.d_model
            assert reduced.model.n_layers <= full.model.n_layers
            assert reduced.training.epochs <= full.training.epochs
            assert describe_reduction(full, reduced).count("n_layers") == 1
    few = describe_reduction(ablation("sc35", "full"), ablation("sc35", "tiny"))
    assert few == (
        "words down/left/right/up, sample_rate 8000, n_layers 2, d_model 16, d_state 32, "
        "pooling mean, dt_min 0.002, dt_max 0.2, epochs 8, train_size 800, eval_size 400, "
        "warmup 0.12 of the steps"
    )
    with pytest.raises(ValueError, match="did you mean 'tiny'"):
        reduction("scifar", "tiney")


def test_step_sizes_last_as_long_at_any_sampling_rate() -> None:
    """So that frequencies of A are the same in Hz, which is what Table 3a is about."""
    for make, task in ((ablation, "bidmc-spo2"), (large, "bidmc-hr"), (ablation, "sc35")):
        for scale in ("small", "study", "tiny"):
            full, reduced = make(task, "full"), make(task, scale)
            before, after = (
                [method.dt_max * data.sample_rate, method.dt_min * data.sample_rate]
                for method, data in ((full.method, full.data), (reduced.method, reduced.data))
            )
            assert before == pytest.approx(after)
    rows = RECIPES["initialization"].rows
    assert {rows[row](ablation("bidmc-spo2", "study")).method.dt_max for row in rows} == {0.5}


def test_each_seed_keeps_other_speakers_back_at_scale_study_alone() -> None:
    for name in ("trainable", "large", "speech-rates"):
        for scale, folds in (("full", [None] * 6), ("study", [0, 1, 2, 3, 4, 0])):
            for seed, fold in enumerate(folds):
                runs = (each.config for each in RECIPES[name].experiments(scale, [seed]))
                speech = [config.data.fold for config in runs if config.task == "sc35"]
                assert set(speech) == {fold}


def test_columns_of_one_task_share_their_runs() -> None:
    recipe = RECIPES["speech-rates"]
    first, second = recipe.columns
    keys = [recipe.experiment("S4D-Inv", c, "tiny", 0).key for c in (first, second)]
    assert keys[0] == keys[1]


@pytest.mark.parametrize("scale", ["full", "study"])
def test_no_model_is_trained_twice(scale: str) -> None:
    """What several tables need is one experiment, whatever each of them reads off it."""
    found: dict[str, set[str]] = {}
    for recipe in RECIPES.values():
        for each in recipe.experiments(scale, [0]):
            config = json.dumps([each.config.to_json(), each.rates], sort_keys=True)
            found.setdefault(config, set()).add(each.key)
    assert {len(keys) for keys in found.values()} == {1}


def test_static_tables_come_from_the_code() -> None:
    assert [row[0] for row in choices().rows] == ["S4D", "S4", "DSS"]
    rows = {row[0]: row for row in hyperparameters().rows}
    assert rows["Path-X"][1:5] == ["6", "256", "64", "BN"]
    assert rows["Path-X"][-1] == "(0.0001, 0.01)"


# ---- cells and verdicts -----------------------------------------------------------------------


def half_rate() -> Column:
    return RECIPES["speech-rates"].columns[1]


def test_a_cell_has_mean_spread_and_difference(tmp_path: Path) -> None:
    write_results(tmp_path)
    key = RECIPES["speech-rates"].experiment("S4-FouT", half_rate(), "tiny", 1).key
    (tmp_path / f"{key}.json").unlink()
    cells = Results.read(tmp_path, "tiny", [0, 1, 2]).tables["speech-rates"].cells
    found = cells["S4-LegS"]["8000 Hz"]
    assert found.values == pytest.approx((25.0, 25.1))
    assert (found.missing, found.failed) == (0, 0)  # no run of the table has the third seed
    assert found.difference == pytest.approx(25.05 - 91.32)
    assert str(found) == "25.05 (0.07)"
    assert cells["S4-FouT"]["8000 Hz"].missing == 1


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "null",
        '{"key": "abc", "config": {}}',
        '{"key": "abc", "config": {}, "summary": {"test": 3}}',
        '{"key": "abc", "config": {}, "summary": {"metric": "rmse", "test": {"rmse": 1}}}',
        '{"key": "abc", "config": {}, "from": "another version"}',
    ],
)
def test_a_damaged_result_counts_as_missing(text: str, tmp_path: Path) -> None:
    (tmp_path / "abc.json").write_text(text)
    assert read_result(tmp_path, "abc") is None


def test_a_failure_is_a_result(tmp_path: Path) -> None:
    (tmp_path / "abc.json").write_text('{"key": "abc", "config": {}, "error": "no data"}')
    found = read_result(tmp_path, "abc")
    assert found is not None
    assert found.error == "no data"


@pytest.mark.parametrize("name", ["initialization", "trainable", "choices", "speech-rates"])
def test_labels_tell_the_runs_of_a_table_apart(name: str) -> None:
    labels = [label(each.config.to_json()) for each in RECIPES[name].experiments("tiny", [0, 1])]
    assert len(set(labels)) == len(labels)


def test_the_results_in_the_docs_are_those_of_the_recipes() -> None:
    """A setting that is changed afterwards would leave them behind."""
    runs = [each for recipe in RECIPES.values() for each in recipe.experiments("study", range(10))]
    assert {path.stem for path in KEPT.iterdir()} <= {each.key for each in runs}


@pytest.mark.parametrize("path", sorted(KEPT.iterdir()), ids=lambda path: path.stem)
def test_a_result_in_the_docs_can_be_traced(path: Path) -> None:
    """To a commit, without changes to its code, to its data, and to the cases it was tested on."""
    result = read_result(KEPT, path.stem)
    assert result is not None
    assert result.error is None
    assert re.fullmatch("[0-9a-f]{40}", result.environment["commit"])
    assert result.environment["code"]
    assert set(result.cases) == set(result.constant) == {"validation", "test"}
    for split, described in result.cases.items():
        assert described["count"] == result.data[split]["cases"]


@pytest.mark.parametrize(
    ("low", "high", "whole", "shown"),
    [
        (0.24, 0.336, False, [0.24, 0.26, 0.28, 0.3, 0.32, 0.34]),
        (1, 3, False, [1, 1.5, 2, 2.5, 3]),
        (1, 3, True, [1, 2, 3]),
        (1, 12, True, [0, 3, 6, 9, 12]),
        (1, 1, True, [0, 1, 2]),
    ],
)
def test_axes_have_round_numbers(low: float, high: float, whole: bool, shown: list[float]) -> None:
    assert ticks(low, high, whole=whole) == shown


def test_sixteen_lines_look_different() -> None:
    names = [f"row {i}" for i in range(16)]
    chart = line_chart(
        [Line(name, [1, 2], [0.3, 0.325]) for name in names],
        x_label="epoch",
        y_label="accuracy",
        title="all",
        percent=True,
    )
    for drawn in (chart, legend(names)):
        looks = re.findall(r'class="line (s\d)" stroke-dasharray="([^"]*)"', drawn)
        assert len(looks) == len(set(looks)) == 16
    assert ">32.5%<" in chart  # a tick is not rounded


# ---- the report -------------------------------------------------------------------------------

HEADINGS = (
    "What was run, and what is decided",
    "Findings of the experiments",
    "Claims that need no training",
    "Parameterisation choices (Table 1, where the paper leaves some of S4D open; here its base)",
)


def test_the_report_shows_ours_beside_the_papers(tmp_path: Path) -> None:
    write_results(tmp_path)
    document = make_report(Results.read(tmp_path, "tiny", [0, 1]))
    text = document.markdown(tmp_path)
    assert "| S4-LegS | 50.10 (0.14) | 96.08 (0.15) |" in text
    assert "| difference |" not in text  # of a tiny model from the paper's: it says nothing
    assert "-45.98" not in text
    assert "| row | sCIFAR |\n" in text  # of the choices, which the paper does not print
    assert "d_model 32" in text
    assert "not comparable with the paper's" in text
    assert "Not run at this scale: trainable-b, discretization" in text
    assert "30 runs, 0.3 hours" in text
    assert "30 runs at scale 'tiny', 0.3 hours" in text
    assert "s4d paper run choices --seeds 0 1 --tasks scifar --scale tiny\n" in text
    assert "s4d paper report --scale tiny\n" in text
    cell = Results.read(tmp_path, "tiny", [0, 1]).tables["choices"].cells["ZOH"]["sCIFAR"]
    files = ", ".join(f"{run.key}.json" for run in cell.finished)
    assert f"| choices | ZOH | scifar | {files} |" in text  # where a number comes from
    assert "| InceptionNet | not run | 61.24 (0.69) | not run | 5.18 (0.07) | 481K |" in text
    assert "Table 11" in text  # where a claim is made
    wider = make_report(Results.read(tmp_path, "tiny", [0, 1, 2])).markdown(tmp_path)
    assert "| S4-LegS | 50.10 (0.14) | 96.08 (0.15)" in wider  # no table has the third seed
    assert "scale tiny, seeds 0, 1\n" in wider
    once = Results.read(tmp_path, "tiny", [0])
    drawn = make_report(once, [tmp_path / "fout.png"]).markdown(tmp_path)
    assert "![fout: The basis of FouT (a), a Fourier series" in drawn


def test_verdicts_come_first_and_in_colour(tmp_path: Path) -> None:
    write_results(tmp_path)
    html = make_report(Results.read(tmp_path, "tiny", [0, 1])).html()
    places = [html.index(f">{each}</h2>") for each in HEADINGS]
    assert places == sorted(places)
    assert '<td class="verdict holds">holds</td>' in html
    assert '<td class="verdict fails">fails</td>' in html
    assert '<td class="verdict open">not decided</td>' in html


def test_a_legend_has_at_most_eight_lines(tmp_path: Path) -> None:
    lines = [Line(f"row {i}", [1.0, 2.0], [0.1, 0.2]) for i in range(19)]
    charts = _charts(lines, "accuracy", "All rows", percent=True)
    shown = [chart.html() for chart in charts]
    assert [text.count("<li>") for text in shown] == [6, 6, 7]
    assert "All rows, rows 7 to 12 of 19" in shown[1]
    assert all(sum(f"row {i}</li>" in text for text in shown) == 1 for i in range(19))
    (one,) = _charts(lines[:8], "accuracy", "All rows", percent=True)
    assert "All rows</figcaption>" in one.html()


@pytest.mark.parametrize("part", ["list", "report", "claims"])
def test_each_result_is_read_once(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_results(tmp_path / "results")
    reads: Counter[str] = Counter()
    read_text = Path.read_text

    def counting(path: Path, *arguments: str | None, **options: str | None) -> str:
        reads[path.name] += path.parent.name == "results"
        return read_text(path, *arguments, **options)

    monkeypatch.setattr(Path, "read_text", counting)
    more = ["--no-figures"] if part == "report" else []
    assert main(["paper", part, *more, "--out", str(tmp_path)]) == 0
    files = {path.name for path in (tmp_path / "results").iterdir()}
    assert {name: count for name, count in reads.items() if count} == dict.fromkeys(files, 1)


def test_a_folder_alone_gives_the_verdicts_of_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """The report in the docs was made of all seeds there, at scale study."""
    monkeypatch.setattr("s4d_torch.paper.claims.CLAIMS", {})  # theory has rounding errors
    report = (KEPT.parent / "report.md").read_text(encoding="utf-8")
    verdicts = list(judge(KEPT, "study"))
    assert len(verdicts) == len(FINDINGS)
    for stated, found in verdicts:
        assert isinstance(stated, Finding)
        numbers = sentences(found.effect, found.detail)
        statement = f'{stated.statement} ({stated.where}: "{stated.quote}")'
        assert re.search(
            rf"\| {re.escape(stated.name)} \| {found.holds} \| [^|]* \| "
            rf"{re.escape(f'{statement} | {numbers}')}",
            report,
        )


def test_the_commands_of_a_table_make_its_results(tmp_path: Path) -> None:
    write_results(tmp_path, ["choices"], seeds=(0, 1))
    recipe = RECIPES["choices"]
    third = recipe.experiment("ZOH", recipe.columns[0], "tiny", 4)
    write_result(tmp_path, Result(third.key, third.config.to_json(), error="no memory"))
    results = Results.read(tmp_path)
    made = []
    for command in commands_of(results.tables["choices"]):
        _, _, _, name, *options = shlex.split(command)
        given = {}
        for word in options:
            if word.startswith("--"):
                given[word] = values = []
            else:
                values.append(word)
        seeds = [int(seed) for seed in given["--seeds"]]
        tasks, rows = given["--tasks"], given.get("--rows", ())
        made += select_experiments([RECIPES[name]], "tiny", seeds, tasks=tasks, rows=rows)
    assert sorted(each.key for each in made) == sorted(results.runs)


def test_the_report_says_which_code_made_it(tmp_path: Path) -> None:
    recipe = RECIPES["choices"]
    write_results(tmp_path, ["choices"], seeds=(0, 1))
    keys = [each.key for each in recipe.experiments("tiny", [0, 1])]
    for i, key in enumerate(keys):
        path = tmp_path / f"{key}.json"
        known = json.loads(path.read_text())
        commit = "0123456789abcdef" + "-dirty" * (i == 0)
        known["environment"] |= {"commit": commit, "code": "fedcba"}
        path.write_text(json.dumps(known))
    text = make_report(Results.read(tmp_path)).markdown(tmp_path)
    assert "1 runs by commit 0123456789ab (code fedcba, MODIFIED)." in text
    assert f"{len(keys) - 1} runs by commit 0123456789ab (code fedcba)." in text


def test_a_baseline_that_has_learned_nothing_decides_nothing(tmp_path: Path) -> None:
    recipe = RECIPES["lra"]
    text = next(column for column in recipe.columns if column.name == "Text")
    for row, scores in (("S4D-Inv", (0.8, 0.81)), ("Transformer", (0.51, 0.52))):
        for seed, score in enumerate(scores):
            each = recipe.experiment(row, text, "tiny", seed)
            summary = {"metric": "accuracy", "test": {"accuracy": score}, "validation": score}
            constant = {"test": 0.5, "validation": 0.5}
            made = Result(each.key, each.config.to_json(), {**summary, "seconds": 1.0})
            write_result(tmp_path, replace(made, constant=constant))
    table = Results.read(tmp_path).tables["lra"]
    assert str(table.cells["Transformer"]["Text"]) == "51.50 (0.71), not learned"
    assert str(table.cells["S4D-Inv"]["Text"]) == "80.50 (0.71)"
    assert set(table.scores["S4D-Inv"]) == {"Text"}
    assert table.scores["Transformer"] == {}


def test_official_data_is_used_where_it_is(tmp_path: Path) -> None:
    recipe, folder = RECIPES["lra"], DataFolder(tmp_path)
    columns = {column.name: column for column in recipe.columns}
    made = {
        name: recipe.experiment("S4D-Inv", columns[name], "small", 0)
        for name in ("ListOps", "Pathfinder", "Path-X", "Image")
    }
    for each in made.values():
        assert on_best_data(each, folder) == each
    (tmp_path / "lra_release/lra_release/listops-1000").mkdir(parents=True)
    (tmp_path / "lra_release/pathfinder128").mkdir()
    best = {name: on_best_data(each, folder) for name, each in made.items()}
    assert [name for name in made if best[name] != made[name]] == ["ListOps", "Path-X"]
    assert best["Path-X"].config.data.source == "official"
    # a table shows the official result where there are both
    for each, score in ((made["Path-X"], 0.6), (best["Path-X"], 0.9)):
        summary = {"metric": "accuracy", "test": {"accuracy": score}, "validation": score}
        found = Result(each.key, each.config.to_json(), {**summary, "seconds": 1.0})
        write_result(tmp_path / "results", found)
    table = Results.read(tmp_path / "results", "small").tables["lra"]
    assert table.cells["S4D-Inv"]["Path-X"].values == (90.0,)


def test_the_report_names_what_failed(tmp_path: Path) -> None:
    experiment = RECIPES["choices"].experiment("ZOH", RECIPES["choices"].columns[0], "tiny", 1)
    result = Result(experiment.key, experiment.config.to_json(), error="no memory\nTraceback")
    write_result(tmp_path, result)
    text = make_report(Results.read(tmp_path, "tiny", [0, 1])).markdown(tmp_path)
    assert "scifar S4D-legs discretization=zoh 32x2 seed 1: failed: no memory\n" in text


def test_wide_and_long_tables_are_printed_otherwise() -> None:
    page = Page("tables")
    for columns, rows in ((3, 2), (16, 2), (3, 70)):
        page.add(Table(["name"] * columns, [["1"] * columns] * rows, ""))
    assert re.findall(r'<table class="(.*?)">', page.html()) == ["", "wide", "long"]
    page.add(Table(["dt"], [["(0.001, 0.1)"]], ""))
    assert '<td class="number">(0.001, 0.1)' in page.html()


def test_the_commands_list_run_and_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    out = ["--out", str(tmp_path)]
    write_results(tmp_path / "results")
    assert main(["paper", "list", *out]) == 0
    assert re.search(r"choices.* 14 of 14", capsys.readouterr().out)
    assert main(["paper", "report", "--no-figures", *out]) == 0
    assert (tmp_path / "report.md").is_file()
    assert "## Figures" not in (tmp_path / "report.md").read_text()
    drawn = Path(__file__).parents[2] / "docs/paper/figures/legs.png"
    (tmp_path / "figures").mkdir()
    shutil.copy(drawn, tmp_path / "figures")
    assert main(["paper", "report", "--no-figures", *out]) == 0
    assert "](figures/legs.png)" in (tmp_path / "report.md").read_text()  # as it was drawn
    page = (tmp_path / "report.html").read_text()
    assert "http" not in re.sub(r"https?://www\.w3\.org\S*", "", page)
    assert main(["paper", "run", "choises", *out]) == 2
    assert "did you mean 'choices'" in capsys.readouterr().err
    assert main(["paper", "run", "choices", "--rows", "ZOHH", *out]) == 2
    assert "unknown row 'ZOHH'; did you mean 'ZOH'" in capsys.readouterr().err
    assert main(["paper", "run", "choices", "--tasks", "scifer", *out]) == 2
    assert "did you mean 'scifar'" in capsys.readouterr().err


def test_all_results_are_reported_wherever_they_lie(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_results(tmp_path, ["choices"], seeds=(0, 1))  # not in a folder of results
    write_results(tmp_path / "results", ["choices"], seeds=(2,))
    (tmp_path / "other.json").write_text('{"name": "no result"}')
    report = ["paper", "report", "--no-figures", "--out", str(tmp_path)]
    assert main(report) == 0
    assert "21 of the 21 results" in capsys.readouterr().out
    assert "seeds 0, 1, 2\n" in (tmp_path / "report.md").read_text()
    assert main([*report, "--seeds", "1"]) == 0
    said = capsys.readouterr().out
    assert "7 of the 21 results" in said
    assert "left out, as --seeds does not name them: seeds 0, 2" in said
    assert main([*report, "--scale", "small"]) == 0
    said = capsys.readouterr().out
    assert "0 of the 21 results" in said
    assert "left out, as they belong to no table at scale small: 21" in said
    assert main(["paper", "claims", "--out", str(tmp_path)]) == 0
    assert "3 seeds" in capsys.readouterr().out


def test_a_grid_that_failed_ends_as_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = next(iter(RECIPES["choices"].rows))
    names = ("paper", "run", "choices", "--rows", row, "--seeds", "0", "--workers", "1")
    folders = ("--out", str(tmp_path), "--data-dir", str(tmp_path / "no data"))
    (tmp_path / "no data").write_text("a file, where the folder of the data should be")
    for _ in range(2):  # in the second call it has failed before
        assert main([*names, *folders]) == 1
        said = capsys.readouterr().err
        assert "1 of 1 experiments failed, the first one " in said
        (result,) = (tmp_path / "results").glob("*.json")
        assert f"{result.stem} (scifar S4D-" in said
        assert "--retry-failed runs them again" in said


def test_a_finished_grid_has_no_script_for_slurm(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_results(tmp_path / "results")
    assert main(["paper", "run", "choices", "--engine", "slurm", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "nothing to submit: all 14 experiments are done" in said.err


def test_what_the_list_shows_can_be_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Static tables are printed, figures are drawn in every format."""
    out = ["--out", str(tmp_path)]
    assert main(["paper", "list", *out]) == 0
    listed = capsys.readouterr().out
    assert all(
        re.search(rf"^ +{name} ", listed, re.M) for name in (*RECIPES, *REFERENCE_TABLES, *FIGURES)
    )
    assert main(["paper", "run", "methods", *out]) == 0
    assert "cauchy" in capsys.readouterr().out
    assert main(["paper", "run", "fout", *out]) == 0
    made = {path.name for path in (tmp_path / "figures").iterdir()}
    assert made == {"fout.png", "fout.svg", "fout.pdf"}


SCRIPT = """
<script>
addEventListener("load", () => {
  const table = [...document.querySelectorAll("table")].find(
    t => t.caption.textContent.includes("Speech Commands"));
  const button = table.querySelectorAll("th button")[1];
  const column = () => [...table.tBodies[0].rows].map(r => parseFloat(r.cells[1].textContent));
  button.click(); const up = column(); button.click(); const down = column();
  const count = up.filter(x => !isNaN(x)).length;
  const below = [up, down].every(all => all.every((x, i) => isNaN(x) === i >= count));
  const sorted = up.every((x, i) => !i || !(up[i - 1] > x)) && up[0] === down[count - 1]
    && below && count < up.length;
  document.title = "sorted:" + sorted + " charts:" + document.querySelectorAll("svg.chart").length
    + " wide:" + (document.documentElement.scrollWidth > innerWidth);
});
</script>
"""


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs the browser chromium")
@pytest.mark.parametrize("size", ["1200,900", "390,844"])
def test_the_page_works_in_a_browser(tmp_path: Path, size: str) -> None:
    write_results(tmp_path)
    speech = RECIPES["speech-rates"]
    failed = speech.experiment("ConvNet", speech.columns[0], "tiny", 0).key
    other = speech.experiment("ConvNet", speech.columns[0], "tiny", 1).key
    for key in (failed, other):  # a cell without a number stays below, whichever way it is sorted
        config = json.loads((tmp_path / f"{key}.json").read_text())["config"]
        write_result(tmp_path, Result(key, config, error="no memory"))
    page = tmp_path / "report.html"
    page.write_text(make_report(Results.read(tmp_path, "tiny", [0, 1])).html() + SCRIPT)
    done = subprocess.run(
        [
            *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"),
            *(f"--window-size={size}", "--dump-dom", page.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    # the choices are in three tables, Speech Commands is in two
    assert "<title>sorted:true charts:5 wide:false</title>" in done.stdout
    assert "CONSOLE" not in done.stderr
