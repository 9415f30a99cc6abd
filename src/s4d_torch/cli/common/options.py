"""Options that several commands have, what they lead to, and how a wrong one is refused."""

from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch

from s4d_torch._progress import note
from s4d_torch.cli.common.parsing import CommandError, UsageError, is_first_process, misuse
from s4d_torch.data import TASKS, DataFolder, Dataset, default_root, find_task
from s4d_torch.data.summary import DataSummary, summarize
from s4d_torch.training import Config, Run
from s4d_torch.training.distributed import local_device
from s4d_torch.training.run import load_dataset
from s4d_torch.training.saved import packaged


def data_folder(
    data_dir: Path | None, *, download: bool = True, mirror: str | None = None
) -> DataFolder:
    """The folder that --data-dir names, or the usual one."""
    root = default_root() if data_dir is None else data_dir.expanduser()
    return DataFolder(root, download, mirror)


def named_folder(folder: str | Path) -> Path:
    """The folder of a run, or of a model that comes with the package, and then that is said.

    Else a name typed in another place than that of one's own run would be answered by ours.
    """
    path = Path(folder).expanduser()
    if packaged.is_packaged(path):
        if is_first_process():
            note(f"{folder}: the model that comes with the package; no run of that name is here")
    elif not path.exists() and (near := get_close_matches(str(folder), packaged.names(), 1)):
        raise UsageError(
            f"there is no run in {folder}; did you mean {near[0]!r}, a model of the package?"
        )
    return packaged.find(path)


def load_named(folder: str) -> Run:
    """The run that :func:`named_folder` finds."""
    return Run.load(named_folder(folder))


def check_options(
    command: Any, *, at_least_one: Sequence[str] = (), above_zero: Sequence[str] = ()
) -> None:
    """Refuse numbers, where given, that are out of bounds, and a device that is not there."""
    for name in (*at_least_one, *above_zero):
        value, least = getattr(command, name), "at least 1" if name in at_least_one else "above 0"
        fits = value is None or (value >= 1 if name in at_least_one else 0 < value < float("inf"))
        if not fits:
            raise UsageError(f"--{name.replace('_', '-')} must be {least}, got {value}")
    device = getattr(command, "device", "cpu")
    try:
        torch.empty(1, device=local_device(device))
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"--device {device}: {reason}; use cpu, or leave it out") from error


def task_and_options(name: str) -> tuple[Any, Any]:
    """A task and its options by name or by path, which a run remembers in full."""
    with misuse():
        path = Path(name).expanduser()
        return find_task(name if name in TASKS or not path.exists() else str(path.resolve()))


def load_data(config: Config, folder: DataFolder) -> Dataset:
    """The data of a config; what is wrong with a user's file is no error of the program's."""
    try:
        return load_dataset(TASKS[config.task], config.data, config, folder)
    except TypeError as error:
        raise CommandError(str(error)) from error


def load_summary(config: Config, folder: DataFolder) -> DataSummary | None:
    """What the data of a config holds; None where it would take long to make it first."""
    preview = TASKS[config.task].preview
    if preview is not None and preview(config.data) is not None:
        return None
    return summarize(load_data(config, replace(folder, download=False)))
