"""The command ``s4d``: each subcommand is a dataclass whose fields are its options."""

import os
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from s4d_torch._interruption import Interrupted, command_begins
from s4d_torch._progress import visible
from s4d_torch._registry import unknown
from s4d_torch.cli.common.parsing import CommandError, UsageError, is_first_process

# s4d NAME is the class Name of the module of that name; a command is imported when it is called.
COMMANDS = (
    *(
        "train",
        "evaluate",
        "predict",
        "forecast",
        "stream",
        "generate",
        "info",
        "tasks",
        "runs",
        "models",
    ),
    *("compare", "explore", "paper", "convert", "export", "bench", "demo", "figure", "methods"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command: 0 if all went well, 1 if it cannot be done, 2 if misused, 130 if stopped."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            _run(given)
        except SystemExit as stop:  # --help, or misuse that has been explained
            return int(stop.code or 0)
        except UsageError as error:
            return _complain(error, 2, by_all=False)
        except BrokenPipeError:  # nobody reads on, as with | head
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        except (CommandError, ImportError, OSError) as error:
            return _complain(error, 1)
        except ValueError as error:
            return _complain(error, 1, by_all=False)
        except Interrupted as stop:
            return _complain(stop, 130, by_all=False)
        except KeyboardInterrupt:
            return 130
        except RuntimeError as error:
            if not _is_divergence(error):
                raise
            return _complain(error, 1, by_all=False)
    return 0


def _run(given: list[str]) -> None:
    if not given:
        raise UsageError(f"name a command: {', '.join(COMMANDS)}; 's4d --help' says what they do")
    if given[0].startswith("-"):
        _answer(*given)
        return
    command = _parse(given)
    from s4d_torch.cli.common.console import VisibleConsole  # rich is slow to import, too

    # before the command begins: a Ctrl-C within torch's own import would leave a traceback
    import_module("s4d_torch.training")
    command_begins()
    command.run(VisibleConsole(quiet=not is_first_process()))


def _answer(flag: str, *values: str) -> None:
    """What is asked of ``s4d`` itself, which only the script to complete with needs torch for."""
    from s4d_torch.cli.common import front

    flag, equals, value = flag.partition("=")
    values = (value, *values) if equals else values
    if flag in ("-h", "--help"):
        front.show_help({name: front.summary(name) for name in COMMANDS})
    elif flag == "--version" and not values:
        print(front.versions())
    elif flag == "--print-completion":
        _print_completion(" ".join(values))
    elif flag in front.FLAGS:
        raise UsageError(f"{flag} stands alone, got {' '.join(values)!r} after it")
    else:
        where = "those of a command come after its name, and 's4d COMMAND --help' lists them"
        raise UsageError(f"{unknown('option', flag, front.FLAGS)}; {where}")


def _print_completion(shell: str) -> None:
    from s4d_torch.cli.completion import SHELLS, script

    if not shell:
        raise UsageError(f"--print-completion: name a shell: {', '.join(SHELLS)}")
    if shell not in SHELLS:
        raise UsageError(f"--print-completion: {unknown('shell', shell, SHELLS)}")
    print(script(shell, {name: _command(name) for name in COMMANDS}), end="")


def _parse(given: list[str]) -> Any:
    """The command as it is called for, ready to run."""
    name, *rest = given
    if name in ("help", "version"):
        raise UsageError(f"there is no command {name!r}; did you mean 's4d --{name}'?")
    if name not in COMMANDS:
        raise UsageError(unknown("command", name, COMMANDS))
    command = _command(name)
    if hasattr(command, "parse"):  # its flags depend on its arguments
        return command.parse(rest)
    import tyro

    return tyro.cli(command, prog=f"s4d {name}", args=rest, config=(tyro.conf.FlagCreatePairsOff,))


def _command(name: str) -> Any:
    return getattr(import_module(f"s4d_torch.cli.{name}"), name.capitalize())


def _is_divergence(error: RuntimeError) -> bool:
    """Of a training run, whose modules are loaded then: to import them here would take seconds."""
    training = sys.modules.get("s4d_torch.training")
    return training is not None and isinstance(error, training.DivergenceError)


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
