"""The command `s4d bench`: what it runs, writes and refuses."""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from s4d_torch.bench import (
    QUICK,
    WORKS,
    Case,
    Measurement,
    Sizes,
    Stopwatch,
    machine,
    page,
    report,
    run_works,
    works,
)
from s4d_torch.bench.contenders import BACKWARD, FORWARD, LRNNX, MAMBA, OURS, S5
from s4d_torch.cli import main

CASE = Case(FORWARD, batch=1, length=256, d_model=128, d_state=64)
IN_PROCESS = [name for name in WORKS if name not in ("memory", "curve", "import")]
SETTINGS = {"d_model": 128, "d_state": 64, "quick": False}


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Output as in a pipe 100 columns wide, wherever the tests run; memory is given back."""
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(works, "keep_freed_memory", lambda: True)  # for good, if it were done


def facts(**more: str) -> dict[str, object]:
    return {**machine(), "cpu": "a processor", "keeps_freed_memory": True, **more}


def test_a_quick_run_writes_tables_json_and_targets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "results"
    arguments = ["--quick", "--repeats", "2", "--work", ",".join(IN_PROCESS), "--out", str(out)]
    assert main(["bench", *arguments]) == 0
    shown = capsys.readouterr().out
    assert "Targets (quick" in shown
    content = json.loads((out / "bench.json").read_text("utf-8"))
    names = {"schema", "command", "machine", "settings", "notes", "targets", "records"}
    assert set(content) == names
    assert content["command"].startswith("s4d bench --work train,")
    assert content["machine"]["keeps_freed_memory"]
    assert content["settings"]["d_model"] == QUICK.d_model
    assert {record["work"] for record in content["records"]} == set(IN_PROCESS)
    failed = {r["contender"] for r in content["records"] if r["note"].startswith("failed")}
    assert failed <= {S5, MAMBA, LRNNX}  # packages of others, which may warn: an error in tests
    measured = [t for t in content["targets"] if t["measured"] is not None]
    assert len(measured) >= 6
    assert all(t["met"] in ("aim", "yes", "no") for t in measured)
    assert "| work | measured | bar | aim | met |" in (out / "targets.md").read_text("utf-8")

    written = tmp_path / "page.md"
    parts = ["\n".join(page.markers(part)) for part in page.PARTS]
    written.write_text("before\n" + "\nbetween\n".join(parts) + "\nafter\n", "utf-8")
    assert main(["bench", "--show", str(out / "bench.json"), "--markdown", str(written)]) == 0
    text = written.read_text("utf-8")
    assert text.startswith(f"before\n{page.markers('summary')[0]}\n**Quick sizes")
    assert text.endswith(f"{page.markers('tables')[1]}\nafter\n")
    assert "`s4d bench --work train," in text
    assert text.index("| work | measured |") < text.index("between") < text.index("**Training step")


def test_runs_become_one_and_the_later_measurement_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = facts(commit="a" * 40)
    slow, fast = (Measurement("growth", OURS, CASE, t) for t in (2.0, 1.0))
    other = Measurement("memory", OURS, replace(CASE, way=BACKWARD), bytes=1)
    first = report.BenchReport("first", here, SETTINGS, [slow, other], ["a note"])
    second = report.BenchReport("second", {**here, "commit": "b" * 40}, SETTINGS, [fast])
    both = first.followed_by(second)
    assert both.records == [other, fast]
    assert both.notes == ["a note"]
    assert both.command == "first; second"
    assert f"at commit {'a' * 12}, {'b' * 12}:" in page.facts(both)

    elsewhere = report.BenchReport("third", {**here, "cpu": "another"}, SETTINGS, [fast])
    for name, run in (("first", first), ("third", elsewhere)):
        run.save(tmp_path / f"{name}.json")
    assert main(["bench", "--show", *(str(tmp_path / f"{n}.json") for n in ("first", "third"))])
    assert "differ in cpu cannot be one: a processor, another" in capsys.readouterr().err


def test_a_run_is_read_as_it_was_saved(tmp_path: Path) -> None:
    records = [Measurement("train", OURS, replace(CASE, layers=4, threads=2), 1.0, 1.1, 3.0, 5)]
    run = report.BenchReport("s4d bench", facts(), SETTINGS, records, ["a note"])
    run.save(tmp_path / "bench.json")
    assert report.BenchReport.load(tmp_path / "bench.json") == run


def test_pages_without_markers_and_foreign_files_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign = tmp_path / "foreign.json"
    foreign.write_text("[]", "utf-8")
    assert main(["bench", "--show", str(foreign)]) == 1
    assert "foreign.json was not written by this version" in capsys.readouterr().err
    empty = tmp_path / "page.md"
    empty.write_text("nothing", "utf-8")
    with pytest.raises(OSError, match="must hold the lines"):
        page.insert(empty, {"summary": "text"})


# ---- devices ----------------------------------------------------------------------------------


def test_a_device_that_is_missing_is_an_error_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = "mps" if not torch.backends.mps.is_available() else "cuda"
    assert main(["bench", "--quick", "--device", missing, "--out", str(tmp_path / "x")]) != 0
    assert f"device '{missing}' is not to be found by torch" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_what_only_a_processor_can_run_is_left_out_elsewhere_with_a_note(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def run(sizes: Sizes, watch: Stopwatch) -> Iterator[list[Measurement]]:
        asked.append(sizes.device)
        yield from ()

    names = list(WORKS)
    here = {n: replace(WORKS[n], run=run) for n in names}
    monkeypatch.setattr(works, "WORKS", here)
    found = run_works(names, replace(QUICK, device="mps"), quick=True)
    left_out = [name for name in names if WORKS[name].cpu_only]
    assert set(left_out) == {"step", "import", "loading", "jax"}
    assert len(asked) == len(names) - len(left_out)
    assert [note.split("'")[1] for note in found.notes] == left_out
    assert "'jax' was left out on mps: JAX is compared on the CPU." in page.tables_markdown(found)


def test_the_page_of_the_docs_has_its_markers() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "performance.md").read_text("utf-8")
    places = [text.index(mark) for part in page.PARTS for mark in page.markers(part)]
    assert places == sorted(places)


def test_the_command_does_not_load_numba_before_it_is_needed() -> None:
    """`s4d train --help` has to stay fast."""
    code = "import sys, s4d_torch.cli.train; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
