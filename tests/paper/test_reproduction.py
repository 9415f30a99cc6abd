"""The page for a reviewer: what is confirmed, contradicted and open, made from results alone."""

import json
import re
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from s4d_torch.paper.claims.comparison import Gain
from s4d_torch.paper.experiments.experiment import Result
from s4d_torch.paper.experiments.outcomes import Outcomes
from s4d_torch.paper.recipes import RECIPES
from s4d_torch.paper.report.reproduction import _standing, make_reproduction
from s4d_torch.paper.report.verdicts import overview_blocks
from s4d_torch.paper.results import Results
from s4d_torch.paper.scores import Spread

CASES = 4000
LEVELS = {  # right of CASES
    "S4-LegS, trained": 2800,
    "S4-FouT, trained": 2790,
    "S4D-LegS, trained": 2790,
    "S4D-Inv, trained": 2810,
    "S4D-Lin, trained": 2400,
    "S4D-Inv, frozen": 2805,
}


def write_images(folder: Path, seeds: tuple[int, ...] = (0, 1)) -> Results:
    """Results of Table 3b on images, where S4D-Lin alone is far behind."""
    recipe = RECIPES["trainable"]
    folder.mkdir(parents=True, exist_ok=True)
    for row, right in LEVELS.items():
        for seed in seeds:
            experiment = recipe.experiment(row, recipe.columns[0], "tiny", seed)
            many = right + 4 * seed
            outcomes = Outcomes(np.arange(CASES) < many).to_json()
            result = Result(
                experiment.key,
                experiment.config.to_json(),
                summary={
                    "metric": "accuracy",
                    "test": {"accuracy": many / CASES},
                    "validation": many / CASES,
                    "seconds": 3600.0,
                },
                rows=[{"epoch": 1.0, "validation_accuracy": 0.3}],
                environment={"commit": "0123456789abcdef", "platform": "", "cores": 2},
                cases={"validation": outcomes, "test": outcomes},
                constant={"validation": 0.1, "test": 0.1},
                linear={"validation": 0.4, "test": 0.3} if seed else {},  # of a run on this data
            )
            (folder / f"{result.key}.json").write_text(json.dumps(asdict(result)))
    return Results.read(folder, "tiny")


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("s4d_torch.paper.report.reproduction.CLAIMS", {})  # takes seconds
    return make_reproduction(write_images(tmp_path), "paper/report.md").markdown(tmp_path)


def test_it_begins_with_what_was_run(page: str) -> None:
    first, second = page.split("\n\n")[1:3]
    assert "0 are confirmed, 1 contradicted, 1 not so at this scale" in first
    assert "by 12 runs of 12 hours of one process in all, at scale 'tiny'" in first
    assert "[the whole report](paper/report.md)" in first
    best = "sCIFAR 70.30 (paper 84.78 to 85.37, one answer to all 10.00%)"
    assert second == f"The best rows, in per cent, of vital signs an RMSE: {best}."
    assert page.index("## Open") < page.index("Rows are compared seed by seed")


def test_the_report_says_what_models_learn(tmp_path: Path) -> None:
    [*_, regime] = overview_blocks(write_images(tmp_path))
    [line] = [
        line for line in regime.markdown(tmp_path).splitlines() if line.startswith("| sCIFAR |")
    ]
    assert [cell.strip() for cell in line.strip("|").split("|")] == [
        "sCIFAR",
        "2 x 32, N = 32, 3 epochs",
        "train_size 3000, eval_size 1000, warmup 0.33 of the steps",
        "validation",
        "bilinear, exp 70.30 (0.07)",  # as the first table names it
        "",  # of this scale nothing is demanded
        "84.78 to 85.37",
        "10.00%",
        "40.00%",
    ]


def test_s4d_stands_beside_s4_with_intervals(page: str) -> None:
    [line] = [line for line in page.splitlines() if line.startswith("| sCIFAR |")]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[1] == "2 x 32, N = 32, 3 epochs, 2 seeds"
    assert [cell.split(" ± ")[0] for cell in cells[2:]] == ["-0.2", "+0.2", "-9.8"]
    noise = [float(cell.split(" ± ")[1].split(",")[0]) for cell in cells[2:]]
    assert all(0 < each < 2 for each in noise)
    standings = [cell.partition(", ")[2] for cell in cells[2:]]
    assert standings == ["behind but competitive", "ahead", "behind"]


def test_a_comparison_alone_says_how_it_stands() -> None:
    def standing(points: float, deviation: float, unit: float = 1.0) -> str:
        spread, cases = Spread(deviation, 1000), Spread(0.0, 1000)
        gain = Gain(("S4D-LegS", "S4-LegS"), "sCIFAR", points, spread, cases, 4, unit)
        return _standing(gain).partition(", ")[2]

    assert standing(3.0, 1.0) == "ahead"
    assert standing(0.5, 1.0) == "competitive"
    assert standing(-1.2, 0.5) == "behind but competitive"
    assert standing(-3.0, 1.0) == "behind"
    assert standing(-1.5, 1.0) == "behind"  # at its worst by more than two points
    assert standing(-1.5, 2.0) == "open"
    assert standing(-4.0, 5.0, unit=5.0) == "competitive"  # per cent of an RMSE
    assert standing(1.0, 0.0) == "ahead"


def test_each_finding_is_in_its_part_with_what_decides_it(page: str) -> None:
    parts = {text.partition(":")[0]: text for text in page.split("\n## ")}
    assert parts["Confirmed"].startswith("Confirmed: none")
    assert "S4D-Lin over S4D-Inv, sCIFAR: -10.2 ± " in parts["Contradicted"]
    assert "Not seen on SC; BIDMC" in parts["Contradicted"]  # where nothing was run
    limited = parts["Not so at this scale"]
    assert "- **diagonal-is-competitive**: " in limited
    assert "S4D-Lin, trained over S4-FouT, trained, sCIFAR: -9.8 ± " in limited
    assert "Beside it S4D-LegS, trained over S4-LegS, trained, sCIFAR: -0.2 ± " in limited
    assert "It may still be so: after few epochs whatever learns faster is ahead" in limited
    assert "**Not run yet (35)**: softmax-or-vandermonde, " in parts["Open"]


def test_one_seed_leaves_all_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("s4d_torch.paper.report.reproduction.CLAIMS", {})
    page = make_reproduction(write_images(tmp_path, (0,))).markdown(tmp_path)
    assert "## Confirmed: none" in page
    assert "## Contradicted: none" in page
    assert "diagonal-is-competitive (2 seeds" in page  # then one knows how many more


def test_without_results_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("s4d_torch.paper.report.reproduction.CLAIMS", {})
    page = make_reproduction(Results.read(tmp_path, "study")).markdown(tmp_path)
    assert "Nothing was run at scale 'study' yet." in page


def test_the_page_in_the_docs_is_that_of_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("s4d_torch.paper.report.reproduction.CLAIMS", {})
    docs = Path(__file__).parents[2] / "docs"
    made = make_reproduction(Results.read(docs / "paper/results", "study"), "paper/report.md")
    shown, kept = made.markdown(docs), (docs / "reproduction.md").read_text(encoding="utf-8")
    theory = "What needs no training:"
    assert kept.partition(theory)[0] == shown.partition(theory)[0]
    assert len(re.findall(r"\S*\w\S*", kept)) < 1300  # two screens
