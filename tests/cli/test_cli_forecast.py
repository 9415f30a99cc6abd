"""``s4d forecast``: a table in; forecasts, a page and a model out."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from s4d_torch import S4DForecaster
from s4d_torch.cli import main

HOURS = np.datetime64("2024-01-01T00", "h") + np.arange(300)
QUICK = ["--horizon", "6", "--window", "24", "--epochs", "0"]


def write(path: Path, rows: int = 300, **columns: list[str]) -> Path:
    """A table with the columns date, load, wind, and others."""
    random = np.random.default_rng(0)
    wind = random.normal(size=rows)
    load = 10 + 3 * np.sin(2 * np.pi * np.arange(rows) / 24) + 0.2 * random.normal(size=rows)
    table = {
        "date": [str(t).replace("T", " ") + ":00" for t in HOURS[:rows]],
        "load": [f"{x:.4f}" for x in load],
        "wind": [f"{x:.4f}" for x in wind],
        **columns,
    }
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(table)
        writer.writerows(zip(*table.values(), strict=True))
    return path


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_forecasts_with_intervals_a_page_and_a_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, out = write(tmp_path / "t.csv"), tmp_path / "out"
    assert main(["forecast", str(table), "--target", "load", *QUICK, "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "seasonal naive" in shown
    assert "forecast.csv" in shown
    rows = read(out / "forecast.csv")
    assert len(rows) == 6
    assert rows[0]["date"] == "2024-01-13 12:00:00"
    low, mean, high = (float(rows[2][name]) for name in ("load_q0.05", "load", "load_q0.95"))
    assert low < mean < high
    assert abs(mean - (10 + 3 * np.sin(2 * np.pi * 302 / 24))) < 0.6
    page = (out / "forecast.html").read_text("utf-8")
    assert page.count('<svg class="chart"') == 3
    assert "90% interval covers" in page
    assert f"--target load --horizon 6 --window 24 --epochs 0 --out {out}</code>" in page
    assert S4DForecaster.load(out / "model").horizon == 6


def test_scores_as_json_and_seasonal_naive_by_the_time_stamps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = write(tmp_path / "t.csv")
    arguments = ["forecast", str(table), "--target", "load", "wind", *QUICK, "--json"]
    assert main([*arguments, "--out", str(tmp_path / "out")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["season"] == 24
    assert [row["method"] for row in found["scores"]] == [
        "S4DForecaster",
        "linear",
        "seasonal naive",
    ]
    assert found["scores"][0]["mse"] < found["scores"][2]["mse"]
    assert {"load", "load_q0.5", "wind_q0.95"} <= read(tmp_path / "out" / "forecast.csv")[0].keys()


def test_columns_that_are_known_go_on_where_the_targets_end(tmp_path: Path) -> None:
    load = [f"{x:.3f}" for x in np.random.default_rng(1).normal(size=294)] + [""] * 6
    table = write(tmp_path / "t.csv", load=load)
    arguments = ["forecast", str(table), "--target", "load", *QUICK, "--out", str(tmp_path / "o")]
    assert main([*arguments, "--known", "wind"]) == 0
    assert read(tmp_path / "o" / "forecast.csv")[0]["date"] == "2024-01-13 06:00:00"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--target", "laod"], "no column 'laod'; did you mean 'load'?"),
        (["--target", "load", "--past", "load"], "a column is named twice"),
        (["--target", "load", "--horizon", "200"], "too few to learn from"),
        (["--target", "load", "--known", "wind"], "ends too early: wind is known for 0 rows"),
        (["--target", "holes"], "missing values (NaN), the first in row 7"),
        (["--target", "words"], "'high' in column 'words' is not a number"),
        (["--target", "short"], "the last 10 rows have no value in short"),
        (["--target", "load", "--tested", "1.5"], "tested must be between 0 and 1"),
        (["--target", "load", "--time", "when"], "no column 'when'"),
        (["--target", "load", "--out", "FILE"], "is a file; name a folder"),
    ],
)
def test_what_cannot_be_done_is_said_before_any_work(
    arguments: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    holes = ["1.5" if i % 50 != 7 else "" for i in range(300)]
    short = ["1"] * 290 + [""] * 10
    table = write(tmp_path / "t.csv", holes=holes, short=short, words=["high"] * 300)
    given = [str(table) if word == "FILE" else word for word in arguments]
    out = [] if "--out" in given else ["--out", str(tmp_path / "out")]
    assert main(["forecast", str(table), "--window", "24", "--epochs", "0", *given, *out]) != 0
    assert told in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


def test_gaps_and_duplicates_in_time_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dates = [str(t).replace("T", " ") + ":00" for t in HOURS]
    for wrong, told in ((dates[5], "occurs twice"), ("gap", "there is a gap"), ("?", "ISO")):
        changed = [*dates[:6], wrong, *dates[7:]]
        if wrong == "gap":
            changed = [*dates[:6], *(str(t).replace("T", " ") + ":00" for t in HOURS[6:] + 1)]
        table = write(tmp_path / "t.csv", date=changed)
        assert main(["forecast", str(table), "--target", "load", *QUICK]) == 1
        assert told in capsys.readouterr().err


def test_holes_are_interpolated_when_asked_for(tmp_path: Path) -> None:
    holes = [f"{i % 24}" if i % 50 != 7 else "" for i in range(300)]
    table = write(tmp_path / "t.csv", holes=holes)
    arguments = ["forecast", str(table), "--target", "holes", *QUICK, "--missing", "interpolate"]
    assert main([*arguments, "--out", str(tmp_path / "out")]) == 0
    assert "nan" not in (tmp_path / "out" / "forecast.csv").read_text("utf-8")
    page = (tmp_path / "out" / "forecast.html").read_text("utf-8")
    assert "nan" not in page.partition("<main>")[2].partition("</main>")[0]


def test_no_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["forecast", "nowhere.csv", "--target", "x"]) == 1
    assert "no file 'nowhere.csv'" in capsys.readouterr().err
