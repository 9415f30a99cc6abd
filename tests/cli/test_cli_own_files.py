"""A user's own tables and folders from end to end: columns by name, cases by name, bad files."""

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from s4d_torch import _progress
from s4d_torch.cli import main
from s4d_torch.data.store import signature_from
from s4d_torch.training import Run
from s4d_torch.training.saved.checkpoint import newest_step
from s4d_torch.training.saved.run_folder import SIGNATURE, RunFolder

SMALL = (
    *("--model.d-model", "8", "--model.d-state", "4", "--model.n-layers", "1"),
    *("--threads", "1", "--quiet"),
)


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Output as in a wide pipe, and as many threads afterwards as before."""
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "300")
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def sensors(order: tuple[str, ...], cases: int = 60, seed: int = 0) -> str:
    """A pump that fails gets hotter; its pressure and its speed say nothing."""
    random = np.random.default_rng(seed)
    rows = [",".join(["pump", *order, "state"])]
    for i in range(cases):
        fails = bool(random.integers(2))
        for t in range(10):
            cells = {
                "pressure": 5 + random.normal(),
                "heat": 50 + 3 * t * fails + random.normal(),
                "speed": 900 + 30 * random.normal(),
            }
            values = [f"{cells[name]:.3f}" for name in order]
            rows.append(",".join([f"p{i}", *values, "failing" if fails else "ok"]))
    return "\n".join(rows) + "\n"


TRAINED, OTHER = ("pressure", "heat", "speed"), ("speed", "pressure", "heat")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("own")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("S4D_TORCH_DATA", str(root / "data"))
        yield root


@pytest.fixture(scope="module")
def pumps(folder: Path) -> str:
    """A run that looks back only, and has learned."""
    (folder / "pumps.csv").write_text(sensors(TRAINED))
    names = ["--data.case", "pump", "--data.target", "state", "--method.no-bidirectional"]
    out = str(folder / "run")
    training = ["--epochs", "15", "--lr", "0.02", "--out", out]
    assert main(["train", str(folder / "pumps.csv"), *names, *SMALL, *training]) == 0
    return out


def objects(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def predicted(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main(["predict", *arguments, "--json"]) == 0
    return objects(capsys)


def test_reordered_columns_are_predicted_the_same(
    pumps: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, order in (("same.csv", TRAINED), ("other.csv", OTHER)):
        (tmp_path / name).write_text(sensors(order, cases=5, seed=1))
    same = predicted(capsys, pumps, str(tmp_path / "same.csv"))
    other = predicted(capsys, pumps, str(tmp_path / "other.csv"))
    assert [each["case"] for each in same] == ["p0", "p1", "p2", "p3", "p4"]
    assert {each["file"] for each in same} == {str(tmp_path / "same.csv")}
    for a, b in zip(same, other, strict=True):
        assert a["probabilities"] == pytest.approx(b["probabilities"])
    assert main(["predict", pumps, str(tmp_path / "other.csv")]) == 0
    assert " p3 " in capsys.readouterr().out


def test_reordered_columns_are_evaluated_the_same(
    pumps: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other.csv").write_text(sensors(OTHER, seed=2))
    capsys.readouterr()
    arguments = ["evaluate", pumps, "--task", str(tmp_path / "other.csv"), "--split", "all"]
    assert main([*arguments, "--json"]) == 0
    (found,) = objects(capsys)
    assert found["scores"]["accuracy"] > 0.9
    (tmp_path / "other.csv").write_text(sensors(OTHER).replace("heat", "temperature"))
    assert main(arguments) == 1
    told = capsys.readouterr().err
    assert "'heat' is missing; 'temperature' is none of its columns" in told
    assert "The run reads 'pressure', 'heat', 'speed'" in told
    assert "here are 'speed', 'pressure', 'temperature'" in told


def test_a_stream_goes_by_its_header(
    pumps: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "one.csv").write_text(sensors(TRAINED, cases=1, seed=3))
    (expected,) = predicted(capsys, pumps, str(tmp_path / "one.csv"))
    header, *rows = [line.split(",") for line in sensors(TRAINED, cases=1, seed=3).splitlines()]

    def streamed(names: list[str], between: str, comma: bool = False) -> dict[str, Any]:
        lines = [between.join(names)] if names[0] else []
        for t, row in enumerate(rows):
            cells = dict(zip(header, row, strict=True)) | {"time": str(t)}
            text = between.join(cells[name] for name in (names if names[0] else TRAINED))
            lines.append(text.replace(".", ",") if comma else text)
        given = io.BytesIO("\n".join(lines).encode())
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(given))
        assert main(["stream", pumps, "--json"]) == 0
        return objects(capsys)[-2]

    for names in (["heat", "speed", "pressure"], ["time", "speed", "heat", "pressure", "state"]):
        for between, comma in ((",", False), (";", True), ("\t", False)):
            found = streamed(names, between, comma)
            assert found["probabilities"] == pytest.approx(expected["probabilities"], abs=1e-5)
    found = streamed([""], " ")  # without a header, by position
    assert found["probabilities"] == pytest.approx(expected["probabilities"], abs=1e-5)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"heat,speed\n1,2\n")))
    assert main(["stream", pumps]) == 1
    told = capsys.readouterr().err
    assert "'pressure' is missing. The run reads 'pressure', 'heat', 'speed'; here are" in told


def test_export_cards_name_the_columns(
    pumps: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", pumps, "--to", "pt2", "--out", str(tmp_path / "made")]) == 0
    card = (tmp_path / "made" / "README.md").read_text()
    assert "- features, in this order: 0: pressure, 1: heat, 2: speed" in card
    assert "# your data: 'pressure', 'heat', 'speed'" in card
    assert "- what is predicted: state" in card
    facts = json.loads((tmp_path / "made" / "export.json").read_text())
    assert facts["data"]["channels"] == list(TRAINED)


def test_runs_without_names_go_by_position(
    pumps: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As those from before names were kept."""
    (tmp_path / "one.csv").write_text(sensors(TRAINED, cases=2, seed=3))
    expected = predicted(capsys, pumps, str(tmp_path / "one.csv"))
    file = Path(pumps) / SIGNATURE
    before = file.read_text()
    described = json.loads(before)
    del described["channels"], described["target"], described["sha256"]
    file.write_text(json.dumps(described))
    try:
        assert predicted(capsys, pumps, str(tmp_path / "one.csv")) == expected
        (tmp_path / "new.csv").write_text(sensors(TRAINED, cases=2, seed=3).replace("heat", "t1"))
        (found, _) = predicted(capsys, pumps, str(tmp_path / "new.csv"))
        assert found["probabilities"] == expected[0]["probabilities"]
        assert newest_step(RunFolder(pumps).checkpoints) is not None
        # the same data, whose names are known by now
        known = json.loads(before)
        del known["sha256"]
        data = RunFolder(pumps).data()
        assert data is not None
        RunFolder(pumps).describe(signature_from(known), data)
        assert json.loads(file.read_text())["channels"] == list(TRAINED)
    finally:
        file.write_text(before)


def test_a_folder_is_predicted_and_bad_files_are_named(
    pumps: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "new"
    (place / "deep").mkdir(parents=True)
    (place / "a.csv").write_text(sensors(OTHER, cases=2, seed=4))
    (place / "b.csv").write_text(sensors(("heat", "speed"), cases=1))
    (place / "deep" / "c.npy").write_bytes(b"no array")
    np.save(place / "deep" / "d.npy", np.zeros((10, 3)))
    (place / "notes.txt").touch()
    (place / ".hidden.csv").touch()
    capsys.readouterr()
    assert main(["predict", pumps, str(place), "--json"]) == 1
    printed = capsys.readouterr()
    found = [json.loads(line) for line in printed.out.splitlines()]
    assert [each["case"] for each in found if "class" in each] == ["p0", "p1", "deep/d.npy"]
    bad = {Path(each["file"]).name: each["error"] for each in found if "error" in each}
    assert list(bad) == ["b.csv", "c.npy"]
    assert "'pressure' is missing" in bad["b.csv"]
    assert "2 of 4 files could not be predicted from" in printed.err
    assert "2 files are not read: .hidden.csv; notes.txt" in printed.err
    files = [str(place / name) for name in ("a.csv", "b.csv", "nowhere.csv")]
    assert main(["predict", pumps, *files]) == 1
    printed = capsys.readouterr()
    assert " p1 " in printed.out
    assert "2 of 3 files could not be predicted from" in printed.err
    assert "there is no file" in printed.err
    (tmp_path / "empty").mkdir()
    assert main(["predict", pumps, str(tmp_path / "empty")]) == 1
    assert "has no file that can be predicted from" in capsys.readouterr().err


def test_wide_tables_from_end_to_end(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    random = np.random.default_rng(0)
    steps = [f"t{i}" for i in range(12)]
    rows = [";".join(["id", *steps, "label"])]
    for i in range(40):
        series = (i % 2) * np.arange(12) + random.normal(size=12)
        cells = [f"{value:.3f}".replace(".", ",") for value in series]
        rows.append(";".join([f"w{i}", *cells, ("flat", "up")[i % 2]]))
    (folder / "wide.csv").write_text("\n".join(rows))
    out = str(tmp_path / "run")
    assert main(["train", str(folder / "wide.csv"), *SMALL, "--epochs", "2", "--out", out]) == 0
    assert Run.load(out).signature.target == "label"
    (tmp_path / "new.csv").write_text("\n".join(rows[:3]))
    found = predicted(capsys, out, str(tmp_path / "new.csv"))
    assert [each["case"] for each in found] == ["w0", "w1"]
    back = [";".join(reversed(row.split(";"))) for row in rows[:3]]
    (tmp_path / "new.csv").write_text("\n".join(back))
    again = predicted(capsys, out, str(tmp_path / "new.csv"))
    assert [each["probabilities"] for each in again] == [each["probabilities"] for each in found]


def test_long_work_says_how_far_it_is(
    pumps: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "new.csv").write_text(sensors(TRAINED, cases=40))
    commands = [
        ("predicting", ["predict", pumps, str(tmp_path / "new.csv")]),
        ("evaluating", ["evaluate", pumps, "--split", "all"]),
    ]
    for _, command in commands:
        capsys.readouterr()
        assert main(command) == 0
        assert capsys.readouterr().err == ""  # it was soon done
    monkeypatch.setattr(_progress, "LINES_EVERY", 0.0)
    for what, command in commands:
        assert main(command) == 0
        printed = capsys.readouterr()
        assert f"{what}: 16 of " in printed.err or f"{what}: 32 of " in printed.err
        assert what not in printed.out
        assert main([*command, "--json"]) == 0
        assert capsys.readouterr().err == ""
