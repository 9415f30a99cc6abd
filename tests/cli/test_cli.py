"""The command `s4d`: what it prints, and how it ends."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from s4d_torch import METHODS, __version__
from s4d_torch.cli import main
from s4d_torch.cli.demo import Demo
from s4d_torch.explore.side_by_side import spoken_models
from s4d_torch.ssm.discretization import DISCRETIZATIONS
from s4d_torch.ssm.initialization import INITIALIZATIONS


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Output as in a pipe 80 columns wide, on one thread, wherever the tests run."""
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("OMP_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith(f"s4d-torch {__version__}\n")


def test_help_names_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"• {command} " in shown for command in ("bench", "demo", "figure", "methods"))


def test_methods_shows_every_method_and_choice(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods"]) == 0
    words = capsys.readouterr().out.replace(",", " ").split()
    for name in (*METHODS, *DISCRETIZATIONS, *INITIALIZATIONS, "discretization"):
        assert name in words


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "bench, demo, figure, methods"),
        (["dmo"], "bench, demo, figure, methods"),
        (["bench", "--work", "kernal"], "did you mean 'kernel'?"),
        (["bench", "--repeats", "0"], "repeats must be at least 1, got 0"),
        (["bench", "--lengths", "64,0"], "lengths must be numbers above 0"),
        (["demo", "--epochs", "0"], "epochs must be at least 1, got 0"),
        (["demo", "--epochs", "many"], "--epochs"),
        (["demo", "--epoch", "3"], "--epochs INT"),
        (["figure", "kernels"], "--out PATH"),
        (["figure", "kernel", "--out", "x.png"], "kernels"),
        (["figure", "kernels", "--out", "x.jpg"], "out must end in one of .png, .svg, .pdf"),
    ],
)
def test_misuse_ends_with_2_and_says_what_is_expected(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert told in shown.err
    assert shown.out == ""


def test_figure_writes_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "kernels.svg"
    assert main(["figure", "kernels", "--out", str(out)]) == 0
    assert out.read_text("utf-8").startswith("<?xml")
    assert capsys.readouterr().out.startswith("wrote ")


def test_what_cannot_be_done_ends_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    assert main(["figure", "kernels", "--out", str(tmp_path / "file" / "x.png")]) == 1
    assert capsys.readouterr().err.startswith("s4d: ")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["figure", "kernels", "--out", str(tmp_path / "x.png")]) == 1
    assert "pip install 's4d-torch[plots]'" in capsys.readouterr().err


def test_demo_prints_lines_and_a_table_and_writes_a_page(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page = tmp_path / "demo.html"
    assert main(["demo", "--quick", "--out", str(page)]) == 0
    shown = capsys.readouterr().out
    lines, written = shown.splitlines(), page.read_text()
    for name in spoken_models(1, seed=0):
        assert sum(line.startswith(f"{name} ") and "epoch  1 " in line for line in lines) == 1
        assert sum(line.startswith(f"│ {name} ") and "%" in line for line in lines) == 1
        assert f"<td>{name}</td>" in written
    assert sum(line.startswith("  heard ") for line in lines) == 5
    # accuracy over time, a word as it comes in, kernels before and after
    assert written.count('<svg class="chart"') == 4
    assert '<audio controls src="data:audio/wav;base64,UklGR' in written
    assert "http" not in written  # opens without a network
    assert "\x1b" not in shown


def test_demo_shows_live_bars_in_a_terminal(tmp_path: Path) -> None:
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=100)
    Demo(quick=True, out=tmp_path / "demo.html").run(console)
    shown = output.getvalue()
    assert "loss" not in shown
    assert "━" in shown
    assert "validation" in shown


def test_module_is_the_command_and_keeps_threads_calm() -> None:
    """OpenMP reads its policy when torch is loaded, so it has to be set before that."""
    environment = {k: v for k, v in os.environ.items() if k != "OMP_WAIT_POLICY"}
    code = (
        "import atexit, os, runpy, sys; assert 'torch' not in sys.modules;"
        "sys.argv = ['s4d', '--version'];"
        "atexit.register(lambda: print(os.environ['OMP_WAIT_POLICY']));"
        "runpy.run_module('s4d_torch', run_name='__main__')"  # as python -m does
    )
    result = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert result.stdout.startswith(f"s4d-torch {__version__}\n")
    assert result.stdout.endswith("\npassive\n")
