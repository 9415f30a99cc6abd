"""Labels, columns and file names that would drive a terminal are shown, and do nothing else."""

import io
import sys
from pathlib import Path

import pytest
from rich.table import Table
from rich.text import Text

from s4d_torch._progress import visible
from s4d_torch.cli import main
from s4d_torch.cli.common.display import VisibleConsole

RED, TITLE, TURNED = "\x1b[31mred", "\x1b]0;title\x07", "\u202eturned"
SHOWN = r"\x1b[31mred"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("escapes")
    rows = [
        f"{case},{(case % 2) * 2 - 1 + t / 10},{(RED, TURNED)[case % 2]}"
        for case in range(24)
        for t in range(5)
    ]
    table = folder / f"{TITLE}.csv"
    table.write_text("\n".join([f"id,x{TITLE},label", *rows]) + "\n", encoding="utf-8")
    sizes = ("--model.d-model", "4", "--model.n-layers", "1", "--model.d-state", "4")
    options = ("--epochs", "2", "--method.no-bidirectional", "--out", str(folder / "run"))
    assert main(["train", str(table), *sizes, *options]) == 0
    return folder


@pytest.mark.parametrize(
    "arguments",
    [
        ("train", "{table}", "--dry-run"),
        ("info", "{run}"),
        ("info", "{table}"),
        ("evaluate", "{run}"),
        ("predict", "{run}", "{table}"),
        ("predict", "{run}", "{table}absent"),
        ("stream", "{run}", "-"),
        ("export", "{run}"),
    ],
    ids=" ".join,
)
def test_commands(
    arguments: tuple[str, ...],
    run: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"1\n2\n-1\n")))
    capsys.readouterr()
    table = str(run / f"{TITLE}.csv")
    main([each.format(table=table, run=run / "run") for each in arguments])
    printed = "".join(capsys.readouterr())
    assert printed
    assert visible(printed) == printed
    if arguments[0] in ("evaluate", "stream"):
        assert r"\x1b[31" in printed or r"\u202et" in printed  # a long label may be cut


def test_the_card_of_an_export(run: Path) -> None:
    assert main(["export", str(run / "run")]) == 0
    card = (run / "run" / "export-onnx" / "README.md").read_text(encoding="utf-8")
    assert SHOWN in card
    assert visible(card) == card


def test_a_terminal_keeps_its_own_colours() -> None:
    shown = io.StringIO()
    console = VisibleConsole(file=shown, force_terminal=True, color_system="standard", width=60)
    table = Table("name")
    table.add_row(RED)
    console.print(table, Text(RED))
    text = shown.getvalue()
    assert text.count(SHOWN) == 2
    assert "\x1b[1m" in text  # bold, by rich itself
    assert "\x1b[31m" not in text


def test_what_no_file_takes_is_shown_too() -> None:
    assert visible("a\nb\tc\udcff\x9b") == "a\nb\tc\\udcff\\x9b"
