"""The command ``s4d``: each subcommand is a dataclass whose fields are its options."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import tyro
from rich.console import Console

from s4d_torch._version import __version__
from s4d_torch.cli.bench import Bench
from s4d_torch.cli.demo import Demo
from s4d_torch.cli.figure import Figure
from s4d_torch.cli.methods import Methods

DESCRIPTION = (
    "Diagonal state space models for PyTorch. "
    "'s4d COMMAND --help' shows the options of a command, 's4d --version' the version."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 if all went well, 1 if it could not be done, 2 if it was misused."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given == ["--version"]:
        print(f"s4d-torch {__version__}")
        return 0
    command: Bench | Demo | Figure | Methods
    try:
        command = tyro.cli(
            Bench | Demo | Figure | Methods,
            prog="s4d",
            description=DESCRIPTION,
            args=given,
            config=(tyro.conf.FlagCreatePairsOff,),
        )
    except SystemExit as stop:  # --help, or misuse that has been explained
        return int(stop.code or 0)
    try:
        command.run(Console())
    except (ImportError, OSError) as error:  # a missing extra, a file that cannot be written
        print(f"s4d: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0
