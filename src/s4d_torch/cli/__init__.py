"""The command ``s4d``: each subcommand is a dataclass whose fields are its options."""

import os
import sys
import warnings
from collections.abc import Sequence
from functools import reduce
from importlib import import_module
from operator import or_
from typing import Any

import tyro

from s4d_torch._interruption import command_begins
from s4d_torch._progress import visible
from s4d_torch._registry import unknown
from s4d_torch._version import __version__
from s4d_torch.cli.common.display import VisibleConsole
from s4d_torch.cli.common.parsing import CommandError, UsageError, is_first_process
from s4d_torch.training import DivergenceError, Interrupted

DESCRIPTION = (
    "Diagonal state space models for PyTorch. "
    "'s4d COMMAND --help' shows the options of a command, 's4d --version' the version."
)
# s4d NAME is the class Name of the module of that name; a command is imported when it is called.
COMMANDS = (
    *("train", "evaluate", "predict", "stream", "generate", "info", "tasks", "runs"),
    *("compare", "explore", "paper", "convert", "export", "bench", "demo", "figure", "methods"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command: 0 if all went well, 1 if it cannot be done, 2 if misused, 130 if stopped."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given == ["--version"]:
        print(f"s4d-torch {__version__}")
        return 0
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            command = _parse(given)
            command_begins()
            command.run(VisibleConsole(quiet=not is_first_process()))
        except SystemExit as stop:  # --help, or misuse that has been explained
            return int(stop.code or 0)
        except UsageError as error:
            return _complain(error, 2, by_all=False)
        except BrokenPipeError:  # nobody reads on, as with | head
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        except (CommandError, ImportError, OSError) as error:
            return _complain(error, 1)
        except (DivergenceError, ValueError) as error:
            return _complain(error, 1, by_all=False)
        except Interrupted as stop:
            return _complain(stop, 130, by_all=False)
        except KeyboardInterrupt:
            return 130
    return 0


def _parse(given: list[str]) -> Any:
    """The command as it is called for, ready to run."""
    if not given:
        raise UsageError(f"name a command: {', '.join(COMMANDS)}; 's4d --help' says what they do")
    if given[0].startswith("-"):  # --help and the like
        everything: Any = reduce(or_, (_command(name) for name in COMMANDS))
        return tyro.cli(everything, prog="s4d", description=DESCRIPTION, args=given)
    name, *rest = given
    if name not in COMMANDS:
        raise UsageError(unknown("command", name, COMMANDS))
    command = _command(name)
    if hasattr(command, "parse"):  # its flags depend on its arguments
        return command.parse(rest)
    return tyro.cli(command, prog=f"s4d {name}", args=rest, config=(tyro.conf.FlagCreatePairsOff,))


def _command(name: str) -> Any:
    return getattr(import_module(f"s4d_torch.cli.{name}"), name.capitalize())


def _complain(error: BaseException, code: int, *, by_all: bool = True) -> int:
    """Say what is wrong; of what all processes find, only the first one speaks."""
    if is_first_process():
        print(visible(f"s4d: {error}"), file=sys.stderr)
    elif by_all:
        print(visible(f"s4d, process {os.environ['RANK']}: {error}"), file=sys.stderr)
    return code


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """A warning is for the user, who does not want the line of code it comes from."""
    if is_first_process():
        print(visible(f"s4d: {message}"), file=sys.stderr)
