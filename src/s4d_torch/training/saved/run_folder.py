"""The folder of a run: its config, its data, its scores, and who may write there."""

import csv
import io
import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from s4d_torch._files import append_synced, locked, unfinished, write_atomically
from s4d_torch._version import __version__
from s4d_torch.data import fingerprint
from s4d_torch.data.dataset import Signature
from s4d_torch.data.task import TASKS
from s4d_torch.nn.baselines import load_model
from s4d_torch.nn.pretrained import CONFIG as MODEL_CONFIG
from s4d_torch.nn.pretrained import WEIGHTS, Pretrained
from s4d_torch.training.config import Config, differences
from s4d_torch.training.saved.changes import sort_changes
from s4d_torch.training.saved.checkpoint import newest_step
from s4d_torch.training.saved.reading import (
    read_json,
    read_rows,
    read_signature,
    read_summary,
    reading,
    sealed,
)

CONFIG, SIGNATURE, ENVIRONMENT = "run.json", "signature.json", "environment.json"
DATA = "data.json"
METRICS, SUMMARY, BEST, LOCK = "metrics.csv", "summary.json", "best", ".lock"
DIVERGED = "diverged.json"
CHANGED = "changed"  # in run.json: what was changed on the way, and after which step


class OtherConfigError(ValueError):
    """A folder that holds a run of another config or on other data; the message shows which."""


class RunFolder:
    """``run.json`` (the config), ``signature.json`` (the data as the model sees it), ``data.json``
    (its fingerprint), ``metrics.csv`` (a row per epoch), ``checkpoints/``, ``best/`` (weights to
    use), ``summary.json`` once the run is done, ``diverged.json`` where it stopped for numbers that
    are not finite.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.checkpoints = self.path / "checkpoints"
        self.best = self.path / BEST

    def claim(self, config: Config) -> None:
        """Take the folder for this config; refused if it holds a run of another."""
        self.check(config)
        for leftover in self._unfinished():
            leftover.unlink()
        if not (self.path / CONFIG).exists():
            self.path.mkdir(parents=True, exist_ok=True)
            self.write_json(CONFIG, config.to_json())
        elif changes := self.changes(config):
            self._take_up(config, changes)
        (self.path / DIVERGED).unlink(missing_ok=True)  # it has another go

    def changes(self, config: Config) -> list[str]:
        """The options of the run that ``config`` changes and may change: see ``sort_changes``."""
        if not (self.path / CONFIG).exists():
            return []
        return self._sorted_changes(config)[0]

    def _sorted_changes(self, config: Config) -> tuple[list[str], list[str]]:
        described = config.to_json()
        old = read_json(self.path / CONFIG)
        kept = {name: old[name] for name in described if name in old}
        return sort_changes(kept, described, diverged=(self.path / DIVERGED).exists())

    def _take_up(self, config: Config, changes: Sequence[str]) -> None:
        """Go on with changed options; run.json remembers since when, and the scores until then."""
        old, summary = read_json(self.path / CONFIG), self.summary()
        entry = {"after_step": newest_step(self.checkpoints) or 0, "options": list(changes)}
        if summary is not None:
            entry["test"] = summary["test"]
        # The summary goes first: a run that is killed here is still the old one, to be tested.
        (self.path / SUMMARY).unlink(missing_ok=True)
        record = [*old.get(CHANGED, []), entry]
        self.write_json(CONFIG, {**old, **config.to_json(), CHANGED: record})

    def write_divergence(self, step: int, message: str) -> None:
        """The run has stopped for numbers that are not finite; its optimiser may change now."""
        self.write_json(DIVERGED, {"step": step, "message": message})

    def check(self, config: Config) -> None:
        """Refuse a folder that :meth:`claim` would refuse, and leave it as it is."""
        if self.path.exists() and not self.path.is_dir():
            raise NotADirectoryError(f"{self.path} is a file; name a folder for the run")
        if (self.path / CONFIG).exists():
            if refused := self._sorted_changes(config)[1]:
                listed = "".join(f"\n  {change}" for change in refused)
                raise OtherConfigError(
                    f"{self.path} holds a run of another config:{listed}\n"
                    "run the same command again to go on with it, or name another folder (--out)"
                )
        elif self.path.exists() and (
            {entry.name for entry in self.path.iterdir()}
            - {LOCK, *(leftover.name for leftover in self._unfinished())}
        ):
            raise FileExistsError(
                f"{self.path} is not empty and holds no run; name a new folder (--out)"
            )

    def config(self) -> Config:
        if not (self.path / CONFIG).is_file():
            raise FileNotFoundError(
                f"{self.path} holds no run: no {CONFIG}; name the folder that s4d train made"
            )
        described = read_json(self.path / CONFIG)
        if isinstance(task := described.get("task"), str) and task not in TASKS:
            raise ValueError(
                f"{self.path} holds a run of the task {task!r}, which nothing here has registered; "
                "import the module that does, or go through it, as in 'python mytask.py evaluate "
                f"{self.path.name}'; registered are {', '.join(TASKS)}"
            )
        with reading(self.path / CONFIG):
            return Config.from_json(described)

    def signature(self) -> Signature:
        if not (self.path / SIGNATURE).is_file():
            raise FileNotFoundError(f"{self.path} has no {SIGNATURE}: its run never got started")
        return read_signature(self.path / SIGNATURE)

    def data(self) -> dict[str, Any] | None:
        """The fingerprint of the data; None of runs from before it was kept."""
        path = self.path / DATA
        if not path.exists():
            return None
        found = read_json(path)
        if not all(isinstance(split, dict) for split in found.values()):
            raise ValueError(
                f"{path} is damaged: expected an object for each split; remove it to go on without "
                "comparing the data"
            )
        return found

    @property
    def begun(self) -> bool:
        """Whether there is something that a run has learned."""
        return (self.path / SUMMARY).exists() or newest_step(self.checkpoints) is not None

    def check_data(self, signature: Signature, data: Mapping[str, Any]) -> None:
        """Refuse data other than that on which the run has begun: its scores would not be those."""
        if not self.begun or not (self.path / SIGNATURE).exists():
            return
        changes = fingerprint.changes(self.data() or data, data)
        changes += _signature_changes(self.signature(), signature)
        if changes:
            listed = "".join(f"\n  {change:.200}" for change in changes)
            raise OtherConfigError(
                f"the data has changed since the run in {self.path} began:{listed}\n"
                "put it back to go on with the run, name another folder (--out), or remove this "
                "one to begin anew"
            )

    def describe(self, signature: Signature, data: Mapping[str, Any]) -> None:
        """Write down the data, also as the model sees it, and the surroundings of the run."""
        self.check_data(signature, data)
        self.write_json(SIGNATURE, sealed(finite(asdict(signature))))
        self.write_json(DATA, data)
        self.write_json(ENVIRONMENT, environment())

    def _unfinished(self) -> list[Path]:
        """Files that a killed process was writing."""
        names = (CONFIG, SIGNATURE, DATA, ENVIRONMENT, METRICS, SUMMARY, DIVERGED)
        weights = [self.best / name for name in (WEIGHTS, MODEL_CONFIG)]
        return unfinished([*(self.path / name for name in names), *weights])

    def rows(self) -> list[dict[str, str]]:
        """The rows of ``metrics.csv``; a last line that was cut off is left out."""
        path = self.path / METRICS
        return read_rows(path) if path.exists() else []

    def keep_rows(self, until: int) -> None:
        """Forget the rows after step ``until``: they are about to be written again."""
        rows = [row for row in self.rows() if int(row["step"]) <= until]
        if rows:
            self._write(METRICS, _csv_text(rows, header=True))
        else:
            (self.path / METRICS).unlink(missing_ok=True)

    def add_row(self, row: Mapping[str, Any]) -> None:
        rows = self.rows()
        if rows and rows[0].keys() != row.keys():  # there are more metrics now, or fewer
            self._write(METRICS, _csv_text([*rows, row], header=True))
        else:
            append_synced(self.path / METRICS, _csv_text([row], header=not rows))

    def summary(self) -> dict[str, Any] | None:
        """Scores and times of a finished run; None while it is not."""
        path = self.path / SUMMARY
        return read_summary(path) if path.exists() else None

    def best_model(self) -> Pretrained | None:
        """A model with the best weights so far; None before the first epoch is done."""
        return load_model(self.best) if self.best.is_dir() else None

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        self._write(name, json.dumps(finite(content), indent=2) + "\n")

    def _write(self, name: str, text: str) -> None:
        write_atomically({self.path / name: text.encode()})

    def locked(self) -> AbstractContextManager[None]:
        """Keep others out; the lock goes with the process, however it ends."""

        def refuse() -> None:
            raise BlockingIOError(
                f"another process is training in {self.path}; wait for it, or name another "
                "folder (--out)"
            )

        return locked(self.path / LOCK, refuse)


def _signature_changes(before: Signature, now: Signature) -> list[str]:
    """As far as another machine would compute them from the same data."""
    old, new = (_each_number(asdict(each), lambda x: float(f"{x:.5g}")) for each in (before, now))
    for name in ("channels", "target"):
        if not old[name]:  # from before there were names
            new[name] = old[name]
    return differences(old, new)


def finite(value: Any) -> Any:
    """For JSON, which has no name for NaN and infinity: None in their places."""
    return _each_number(value, lambda x: x if math.isfinite(x) else None)


def _each_number(value: Any, change: Callable[[float], Any]) -> Any:
    """JSON with each float changed."""
    if isinstance(value, Mapping):
        return {str(key): _each_number(each, change) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_each_number(each, change) for each in value]
    return change(value) if isinstance(value, float) else value


def environment() -> dict[str, Any]:
    """Versions and machine, so that a result can be understood later."""
    packages = ("torch", "numpy", "numba", "safetensors")
    return {
        "command": sys.argv,
        "s4d_torch": __version__,
        "commit": _commit(),
        "code": _code(),
        "python": platform.python_version(),
        **{name: _version(name) for name in packages},
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of this package, where it runs from a checkout."""

    def git(*command: str) -> str:
        git = ("git", "-C", str(Path(__file__).parent), *command)
        return subprocess.run(git, capture_output=True, text=True, timeout=10, check=True).stdout

    try:
        git("ls-files", "--error-unmatch", Path(__file__).name)
        return git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*").strip() or None
    except (OSError, subprocess.SubprocessError):
        return None


@cache
def _code() -> str:
    """A digest of the package's source, which tells apart what a commit does not."""
    root, digest = Path(__file__).parents[2], sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root).as_posix()}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _csv_text(rows: Sequence[Mapping[str, Any]], *, header: bool) -> str:
    text = io.StringIO()
    columns = dict.fromkeys(name for row in rows for name in row)
    writer = csv.DictWriter(text, list(columns), lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
