"""What `s4d` answers at once: help and version without torch, and names that are mistyped."""

import inspect
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import get_args

import pytest

from s4d_torch import __version__
from s4d_torch.cli import COMMANDS, _command, main
from s4d_torch.cli.common import front
from s4d_torch.cli.runs import Sort
from s4d_torch.training.saved.listing import SORTS

SLOW = {"torch", "numpy", "numba"}


def imported(*command: str) -> set[str]:
    """The packages that a fresh process imports, as Python itself tells."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *command], capture_output=True, text=True
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    assert lines
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in lines}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--version"],
        ["--help"],
        ["-h"],
        [],
        ["trian"],
        ["--print-completion", "zhs"],
        ["runs", "--help"],
        ["compare", "--help"],
        ["explore", "--help"],
        ["methods", "--help"],
    ],
    ids=" ".join,
)
def test_no_torch_is_loaded(arguments: list[str]) -> None:
    assert not imported("-m", "s4d_torch", *arguments) & SLOW


def test_the_installed_command_loads_no_torch_either() -> None:
    """It imports `s4d_torch.cli` and calls `main`, as this does."""
    code = "import sys; sys.argv = ['s4d', '--help']; from s4d_torch.cli import main; main()"
    assert not imported("-c", code) & SLOW


def test_the_package_is_the_same_in_a_command_and_elsewhere() -> None:
    """Elsewhere torch comes with it, and the operators that saved programs of torch may name."""
    code = (
        "import sys; sys.argv = [{name!r}]; import s4d_torch; early = 'torch' in sys.modules;"
        "print(early, [getattr(s4d_torch, name).__name__ for name in ('S4D', 'Run', 'Stream')])"
    )
    for name, early in (("s4d", False), ("script.py", True)):
        done = subprocess.run(
            [sys.executable, "-c", code.format(name=name)], capture_output=True, text=True
        )
        assert done.stdout == f"{early} ['S4D', 'Run', 'Stream']\n"


def test_the_package_of_somebody_else_is_no_command(tmp_path: Path) -> None:
    code = "import signal, sys, s4d_torch\nfrom s4d_torch._interruption import is_command\n"
    code += "print(is_command(), 'torch' in sys.modules, signal.getsignal(signal.SIGINT).__name__)"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "__init__.py").write_text(code)
    (tmp_path / "other" / "__main__.py").touch()
    done = subprocess.run(
        [sys.executable, "-m", "other"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout == "False True default_int_handler\n"


def test_the_policy_of_threads_is_there_when_torch_is_loaded() -> None:
    """By whatever command: OpenMP reads it once."""
    code = (
        "import os, sys, runpy\n"
        "class Notice:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'torch': print(os.environ.get('OMP_WAIT_POLICY'), flush=True)\n"
        "sys.meta_path.insert(0, Notice())\n"
        "sys.argv = ['s4d', 'methods']\n"
        "runpy.run_module('s4d_torch', run_name='__main__')"
    )
    environment = {k: v for k, v in os.environ.items() if k != "OMP_WAIT_POLICY"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[0] == "passive"


def test_help_has_a_line_for_each_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["--help"]) == 0
    lines = [" ".join(line.strip("│ \n").split()) for line in capsys.readouterr().out.splitlines()]
    for name in COMMANDS:
        documented = (inspect.getdoc(_command(name)) or "").partition("\n\n")[0].replace("\n", " ")
        assert front.summary(name) == documented
        assert f"• {name} {documented}" in lines
    for flag in front.FLAGS:
        assert any(flag in line for line in lines)


def test_without_its_source_a_command_is_imported_for_its_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = front.summary("runs")
    monkeypatch.setattr(front, "__file__", os.path.join("elsewhere", "common", "front.py"))
    assert front.summary("runs") == known


def test_version_names_what_computes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["--version"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == f"s4d-torch {__version__}"
    assert shown[1:] == [f"{name} {version(name)}" for name in ("torch", "numba")]
    monkeypatch.setattr(front, "COMPUTE", ("s4d-no-such-package",))
    assert front.versions() == f"s4d-torch {__version__}"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["trian"], "unknown command 'trian'; did you mean 'train'? choose one of: train, "),
        (["help"], "did you mean 's4d --help'?"),
        (["version"], "did you mean 's4d --version'?"),
        (["--hlep"], "unknown option '--hlep'; did you mean '--help'?"),
        (["--verison"], "did you mean '--version'?"),
        (["--tyro-print-completion", "bash"], "did you mean '--print-completion'?"),
        (["--epochs", "3", "train"], "those of a command come after its name"),
        (["--version", "now"], "--version stands alone, got 'now' after it"),
        (["runs", "--jsno"], "--json"),
        (["runs", "--sort", "size"], "parameters"),
        (["train", "digits", "--epoch", "3"], "--training.epochs"),
        (
            ["evaluate", "--spilt", "test", "run"],
            "unknown option '--spilt'; did you mean '--split'?",
        ),
        (["train", "--causl", "digits"], "unknown option '--causl'; did you mean '--causal'?"),
        (["train", "--presett=paper", "digits"], "unknown option '--presett'; did you mean"),
        (["info", "digits", "--data.split-sed", "1"], "--data.split-seed"),
        (["paper", "rnu"], "run"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_mistyped_gets_a_suggestion(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert told in shown.err
    assert shown.out == ""


def test_runs_are_sorted_by_what_they_can_be_sorted_by() -> None:
    assert get_args(Sort) == SORTS
