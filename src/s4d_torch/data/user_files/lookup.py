"""The task a name or a path stands for: a registered one, or a reader of the user's own files."""

import re
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from s4d_torch._registry import UnknownNameError, did_you_mean, unknown
from s4d_torch.data.files.sound import SUFFIXES
from s4d_torch.data.folder import MissingDataError
from s4d_torch.data.task import TASKS, Task
from s4d_torch.data.user_files.ucr import train_files

READ = ".npz or .npy arrays, a .csv or .tsv table, .ts series, or a folder of sounds by class"

BY_SUFFIX = {".npz": "arrays", ".npy": "arrays", ".csv": "table", ".tsv": "table"}


def find_task(name_or_path: str) -> tuple[Task[Any], Any]:
    """A task and its options: ``"digits"``, or ``"my/data.csv"``, which is read as a table.

    A registered name comes first; ``./digits`` is a path.
    """
    if name_or_path in TASKS:
        task = TASKS[name_or_path]
        needed = [f.name for f in fields(task.options) if f.default is f.default_factory is MISSING]
        if needed:
            raise ValueError(
                f"{task.name!r} reads your own files and needs {', '.join(needed)}; name the file "
                f"or folder itself: {READ}"
            )
        return task, task.options()
    path = Path(name_or_path).expanduser()
    if not path.exists():
        if path.suffix or path.name != name_or_path:  # meant as a path
            hint = did_you_mean(path.name, [each.name for each in path.parent.glob("*")])
            raise MissingDataError(f"there is no file or folder {name_or_path}{hint}")
        what = unknown("task", name_or_path, TASKS)
        raise UnknownNameError(f"{what}; or name a path to your own data: {READ}")
    name = _reader(path)
    return TASKS[name], TASKS[name].options(path=str(path) if name == "ucr" else path)


def _reader(path: Path) -> str:
    """The name of the task that reads such a file or folder."""
    if path.is_dir():
        if train_files(path):
            return "ucr"
        if any(file.suffix.lower() in SUFFIXES for file in path.glob("*/**/*")):
            return "audio-folder"
        raise ValueError(
            f"the folder {path} has neither *_TRAIN.ts files nor folders of sounds "
            f"({', '.join(SUFFIXES)}) by class; expected {READ}"
        )
    suffix = path.suffix.lower()
    if re.search(r"_(TRAIN|TEST)$", path.stem) or suffix == ".ts":
        return "ucr"
    if suffix not in BY_SUFFIX:
        raise ValueError(f"{path} cannot be read; expected {READ}")
    return BY_SUFFIX[suffix]
