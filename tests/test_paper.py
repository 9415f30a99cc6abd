"""The paper as commands: tables from results, verdicts from tables, a page that works by itself."""

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pytest

from s4d_torch.cli import main
from s4d_torch.data.dataset import Signature
from s4d_torch.nn.method import METHODS
from s4d_torch.paper.chart import ticks
from s4d_torch.paper.claims import DECISIONS, FINDINGS
from s4d_torch.paper.decisions import alike, better, competitive, gains
from s4d_torch.paper.experiment import Result, read_result
from s4d_torch.paper.recipes import RECIPES
from s4d_torch.paper.report import make_report
from s4d_torch.paper.scales import REDUCTIONS, ablation, describe, large, reduction
from s4d_torch.paper.static import choices, hyperparameters
from s4d_torch.paper.tables import cell
from s4d_torch.paper.watch import label
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
                            "wall_seconds": 36.0,
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


@pytest.mark.parametrize("scale", ["full", "small", "tiny"])
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


def test_reductions_only_take_away() -> None:
    for scale, tasks in REDUCTIONS.items():
        for task in tasks:
            full, reduced = large(task, "full"), large(task, scale)
            assert reduced.model.d_model <= full.model.d_model
            assert reduced.model.n_layers <= full.model.n_layers
            assert reduced.training.epochs <= full.training.epochs
            assert describe(full, reduced).count("n_layers") == 1
    few = describe(ablation("sc35", "full"), ablation("sc35", "tiny"))
    assert few == (
        "words down/left/right/up, sample_rate 8000, n_layers 2, d_model 16, d_state 32, "
        "pooling mean, epochs 8, train_size 800, eval_size 400"
    )
    with pytest.raises(ValueError, match="did you mean 'tiny'"):
        reduction("scifar", "tiney")


def test_columns_of_one_task_share_their_runs() -> None:
    recipe = RECIPES["speech-rates"]
    first, second = recipe.columns
    keys = [recipe.experiment("S4D-Inv", c, "tiny", 0).key for c in (first, second)]
    assert keys[0] == keys[1]


def test_static_tables_come_from_the_code() -> None:
    assert [row[0] for row in choices().rows] == ["S4D", "S4", "DSS"]
    rows = {row[0]: row for row in hyperparameters().rows}
    assert rows["Path-X"][1:5] == ["6", "256", "64", "BN"]
    assert rows["Path-X"][-1] == "(0.0001, 0.01)"


# ---- cells and verdicts -----------------------------------------------------------------------


def test_a_cell_has_mean_spread_and_difference(tmp_path: Path) -> None:
    write_results(tmp_path)
    recipe = RECIPES["speech-rates"]
    found = cell(recipe, "S4-LegS", recipe.columns[1], tmp_path, "tiny", [0, 1, 2])
    assert found.values == pytest.approx((25.0, 25.1))
    assert (found.missing, found.failed) == (1, 0)
    assert found.difference == pytest.approx(25.05 - 91.32)
    assert found.show(2) == "25.05 (0.07)"


def test_a_damaged_result_counts_as_missing(tmp_path: Path) -> None:
    (tmp_path / "abc.json").write_text("{")
    assert read_result(tmp_path, "abc") is None


@pytest.mark.parametrize("name", ["initialization", "trainable", "choices", "speech-rates"])
def test_labels_tell_the_runs_of_a_table_apart(name: str) -> None:
    labels = [label(each.config.to_json()) for each in RECIPES[name].experiments("tiny", [0, 1])]
    assert len(set(labels)) == len(labels)


def test_the_results_in_the_docs_are_those_of_the_recipes() -> None:
    kept = Path(__file__).parents[1] / "docs/paper/results"
    runs = [each for name in RECIPES for each in RECIPES[name].experiments("tiny", [0, 1])]
    assert {path.stem for path in kept.iterdir()} <= {each.key for each in runs}


TABLE = {"choices": {"S4D": {"sCIFAR": [50.0, 50.2]}, "ZOH": {"sCIFAR": [51.0, 51.2]}}}


def test_gains_are_positive_where_the_first_row_is_better() -> None:
    (gain,) = gains(TABLE, "choices", [("ZOH", "S4D")])
    assert gain.points == pytest.approx(1.0)
    assert gain.noise == 0.5
    assert better("choices", ("ZOH", "S4D"))(TABLE).holds == "holds"
    assert better("choices", ("S4D", "ZOH"))(TABLE).holds == "fails"
    assert better("choices", ("ZOH", "S4D"), by=5.0)(TABLE).holds == "fails"
    assert alike("choices", ("ZOH", "S4D"))(TABLE).holds == "holds"
    assert competitive("choices", ("S4D", "ZOH"))(TABLE).holds == "holds"
    assert better("choices", ("DSS", "S4D"))(TABLE).holds == "not decided"


def test_a_smaller_error_is_better() -> None:
    errors = {
        "initialization": {"S4D-Inv": {"BIDMC (HR)": [2.0]}, "S4D-Rand": {"BIDMC (HR)": [4.0]}}
    }
    (gain,) = gains(errors, "initialization", [("S4D-Inv", "S4D-Rand")])
    assert gain.points == 50


def test_every_finding_has_a_rule() -> None:
    assert set(DECISIONS) == set(FINDINGS)


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


# ---- the report -------------------------------------------------------------------------------


def test_the_report_shows_ours_beside_the_papers(tmp_path: Path) -> None:
    write_results(tmp_path)
    document = make_report(tmp_path, "tiny", [0, 1])
    text = document.markdown(tmp_path)
    assert "| S4-LegS | 50.10 (0.14) | 96.08 (0.15) | -45.98 |" in text
    assert "| row | sCIFAR |\n" in text  # of the choices, which the paper does not print
    assert "d_model 32" in text
    assert "not comparable with the paper's" in text
    assert "Not run at this scale: trainable-b, discretization" in text
    assert "28 runs, 0.3 hours" in text


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
    page = (tmp_path / "report.html").read_text()
    assert "http" not in re.sub(r"https?://www\.w3\.org\S*", "", page)
    assert main(["paper", "run", "choises", *out]) == 2
    assert "did you mean 'choices'" in capsys.readouterr().err


SCRIPT = """
<script>
addEventListener("load", () => {
  const table = [...document.querySelectorAll("table")].find(
    t => t.caption.textContent.includes("Speech Commands"));
  const button = table.querySelectorAll("th button")[1];
  const column = () => [...table.tBodies[0].rows].map(r => parseFloat(r.cells[1].textContent));
  button.click(); const up = column(); button.click(); const down = column();
  const sorted = up.every((x, i) => !i || up[i - 1] <= x) && up[0] === down[down.length - 1];
  document.title = "sorted:" + sorted + " charts:" + document.querySelectorAll("svg.chart").length
    + " wide:" + (document.documentElement.scrollWidth > innerWidth);
});
</script>
"""


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs the browser chromium")
@pytest.mark.parametrize("size", ["1200,900", "390,844"])
def test_the_page_works_in_a_browser(tmp_path: Path, size: str) -> None:
    write_results(tmp_path)
    page = tmp_path / "report.html"
    page.write_text(make_report(tmp_path, "tiny", [0, 1]).page().html() + SCRIPT)
    done = subprocess.run(
        [
            *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"),
            *(f"--window-size={size}", "--dump-dom", page.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "<title>sorted:true charts:2 wide:false</title>" in done.stdout
    assert "CONSOLE" not in done.stderr
