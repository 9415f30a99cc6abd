"""Options that several commands have, what they lead to, and how a wrong one is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import torch
import tyro

from s4d_torch.cli.common.parsing import CommandError, UsageError
from s4d_torch.data import TASKS, DataFolder, Dataset, default_root, find_task
from s4d_torch.training import Config
from s4d_torch.training.processes import local_device
from s4d_torch.training.run import load_dataset


def shown(metavar: str, default: str) -> Any:
    """How the help shows an option whose default is None."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=f"(default: {default})")


Switch = Annotated[bool, tyro.conf.FlagCreatePairsOff]
"""An option that is off unless its flag is there."""
RunPath = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
"""The folder of a run."""
Device = Annotated[str, tyro.conf.arg(metavar="NAME")]
"""The name of a device, or auto."""
DataDir = Annotated[Path | None, shown("FOLDER", "$S4D_TORCH_DATA, or a cache")]
"""The folder of all data."""


def data_folder(
    data_dir: Path | None, *, download: bool = True, mirror: str | None = None
) -> DataFolder:
    """The folder that --data-dir names, or the usual one."""
    root = default_root() if data_dir is None else data_dir.expanduser()
    return DataFolder(root, download, mirror)


def check_at_least_one(command: object, *names: str) -> None:
    """Refuse options, where given, that are below 1."""
    for name in names:
        value = getattr(command, name)
        if value is not None and value < 1:
            raise UsageError(f"--{name.replace('_', '-')} must be at least 1, got {value}")


def check_above_zero(command: object, *names: str) -> None:
    """Refuse options, where given, that are not finite numbers above 0."""
    for name in names:
        value = getattr(command, name)
        if value is not None and not 0 < value < float("inf"):
            raise UsageError(f"--{name.replace('_', '-')} must be above 0, got {value}")


def check_device(name: str) -> None:
    """Refuse a device that is not there."""
    try:
        torch.empty(1, device=local_device(name))
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"--device {name}: {reason}; use cpu, or leave it out") from error


def task_and_options(name: str) -> tuple[Any, Any]:
    """A task and its options by name or by path, which a run remembers in full."""
    try:
        path = Path(name).expanduser()
        return find_task(name if name in TASKS or not path.exists() else str(path.resolve()))
    except OSError:
        raise
    except ValueError as error:
        raise UsageError(str(error)) from error


def load_data(config: Config, folder: DataFolder) -> Dataset:
    """The data of a config; what is wrong with a user's file is no error of the program's."""
    try:
        return load_dataset(TASKS[config.task], config.data, config, folder)
    except TypeError as error:
        raise CommandError(str(error)) from error
