"""What ``s4d`` answers without a command: its help and version. Imports neither torch nor tyro."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from s4d_torch._version import __version__
from s4d_torch.cli.completion.words import TOP

DESCRIPTION = (
    "Diagonal state space models for PyTorch. "
    "'s4d COMMAND --help' shows the options of a command, and more of what it does."
)
FLAGS = tuple(option.flag for option in TOP)
COMPUTE = ("torch", "numba")  # what results and speed depend on


def show_help(summaries: Mapping[str, str]) -> None:
    """Flags and commands, with a line for each."""
    from rich.panel import Panel
    from rich.table import Table

    from s4d_torch.cli.common.console import VisibleConsole

    options = {}
    for option in TOP:
        label = "-h, --help" if option.flag == "--help" else option.flag
        choices = f" {{{','.join(option.values.names)}}}" if option.values else ""
        options[label + choices] = option.about
    commands = {f"• {name}": summary for name, summary in summaries.items()}
    console = VisibleConsole(highlight=False, markup=False)
    usage = " ".join(f"[{label.removesuffix(', --help')}]" for label in options)
    console.print(f"usage: s4d {usage} COMMAND ...\n\n{DESCRIPTION}\n")
    for title, rows in {"options": options, "commands": commands}.items():
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(style="bold", no_wrap=True)
        for name, text in rows.items():
            table.add_row(name, text)
        console.print(Panel(table, title=title, title_align="left", border_style="dim"))


def versions() -> str:
    """This package's, and those of what computes, as they are installed: nothing is imported."""
    from importlib.metadata import PackageNotFoundError, version

    lines = [f"s4d-torch {__version__}"]
    for package in COMPUTE:
        try:
            lines.append(f"{package} {version(package)}")
        except PackageNotFoundError:  # there may be no record of it; this is not the place to ask
            continue
    return "\n".join(lines)


def summary(command: str) -> str:
    """What a command does: the first sentence of its class, from the source.

    To import all commands would take seconds.
    """
    name, commands = command.capitalize(), Path(__file__).parents[1]
    room = commands / command / "__init__.py"
    try:
        source = (room if room.is_file() else commands / f"{command}.py").read_text("utf-8")
        text = source.partition(f"\nclass {name}:\n")[2].split('"""')[1]
    except (OSError, IndexError):  # a package without its source
        text = getattr(import_module(f"s4d_torch.cli.{command}"), name).__doc__
    return " ".join(text.partition("\n\n")[0].split())
