"""What `s4d bench` shows: tables and the picture."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from s4d_torch.bench import Case, Measurement, machine, page, plot, report, tables
from s4d_torch.bench.contenders import BACKWARD, OURS, TRAINING
from s4d_torch.cli import main

CASE = Case(BACKWARD, batch=1, length=256, d_model=128, d_state=64)


def curve(*names: str) -> list[Measurement]:
    return [
        Measurement(
            *("curve", name, replace(CASE, length=length)),
            seconds=(2 * place + 1) * length * 1e-6,
            bytes=1000 * length,
        )
        for place, name in enumerate(names or (OURS, "nn.LSTM", "another"))
        for length in (256, 1024)
    ]


def test_a_picture_needs_two_lengths(tmp_path: Path) -> None:
    assert plot.draw(curve(), tmp_path / "new" / "x.png")
    assert (tmp_path / "new" / "x.png").stat().st_size > 10_000
    assert not plot.draw(curve()[:1], tmp_path / "y.png")
    assert not (tmp_path / "y.png").exists()


def test_a_legend_has_eight_lines_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[list[str]] = []
    original = plot._lines
    monkeypatch.setattr(plot, "_lines", lambda *a: (drawn.append(a[1]), original(*a)))
    assert plot.draw(curve(OURS, *(f"rival {n}" for n in range(12))), tmp_path / "x.png")
    assert [len(names) for names in drawn] == [8, 8]
    assert drawn[0][0] == OURS


def test_without_matplotlib_there_is_a_sentence_and_no_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    saved = tmp_path / "bench.json"
    settings = {"d_model": 128, "d_state": 64, "quick": False}
    facts = {**machine(), "keeps_freed_memory": True}
    report.BenchReport("s4d bench", facts, settings, curve()).save(saved)
    written = tmp_path / "page.md"
    marks = [mark for part in page.PARTS for mark in page.markers(part)]
    written.write_text("\n".join(marks), "utf-8")
    assert main(["bench", "--show", str(saved), "--markdown", str(written)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "no picture: pictures need matplotlib" in shown
    assert "![" not in written.read_text("utf-8")


def test_cells_show_the_ratio_to_ours_and_absent_packages_one_line() -> None:
    records = [*curve(), Measurement("curve", "Foo", CASE, note="foo is not installed")]
    (grid,) = tables.grids(records)
    assert grid.title == "layer against length, forward+backward, batch 1, 1 thread"
    assert grid.columns == ["L=256", "L=1024"]
    assert [row[0][0] for row in grid.rows] == [OURS, "nn.LSTM", "another"]
    assert grid.rows[2][1] == ("1.28 ms, 0.244 MB", "5x, 1x")
    assert tables.absentees(records) == ["foo is not installed."]
    there = Measurement("layer", "Foo", CASE, seconds=1.0)  # in another run
    assert tables.absentees([*records, there]) == []


def test_shapes_of_models_are_columns_and_threads_tables() -> None:
    small, large = (
        Case(TRAINING, 32, 64, 32, 32, layers=4),
        Case(TRAINING, 16, 1024, 128, 64, layers=4),
    )
    records = [
        Measurement("train", OURS, replace(case, threads=n), 1.0)
        for case in (small, large)
        for n in (1, 2)
    ]
    one, two = tables.grids(records)
    assert one.title == "training step of a whole model, 1 thread"
    assert two.title == "training step of a whole model, 2 threads"
    assert one.columns == ["4 x 32 x 32, batch 32, L=64", "4 x 128 x 64, batch 16, L=1024"]
    assert tables.race_lines(records[:2]) == [
        "train training step 4 x 32 x 32, batch 32, L=64",
        f"  {OURS}, 1 thread: 1 s (best of 0)",
        f"  {OURS}, 2 threads: 1 s (best of 0)",
    ]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(2.5, "2.5 s"), (0.0125, "12.5 ms"), (3.2e-5, "32 us"), (1e-7, "0.1 us"), (4321.0, "4321 s")],
)
def test_times_are_shown_in_a_unit_that_fits(seconds: float, shown: str) -> None:
    assert tables.show_time(seconds) == shown
