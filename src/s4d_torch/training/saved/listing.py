"""Runs in a folder: what each is, how far it came, and how it did; damaged ones are named."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from s4d_torch.training.metrics import METRICS as SCORES
from s4d_torch.training.reports.intervals import wilson
from s4d_torch.training.saved.run_folder import (
    BEST,
    CONFIG,
    DIVERGED,
    METRICS,
    SUMMARY,
    RunFolder,
)

Status = Literal["finished", "started", "diverged", "damaged"]
SIGNS = (CONFIG, SUMMARY, METRICS)  # a folder with one of these is that of a run, perhaps damaged
SORTS = ("when", "folder", "test", "parameters", "status")


@dataclass(frozen=True)
class RunRecord:
    """One run, as far as its folder tells."""

    folder: Path
    status: Status
    when: datetime
    """of the last thing that was written"""
    problem: str = ""
    """what is wrong with a damaged one"""
    task: str = ""
    data: str = ""
    """the user's own file, where it is one"""
    metric: str = ""
    epochs: int | None = None
    epochs_done: int = 0
    best_epoch: int | None = None
    validation: float | None = None
    test: Mapping[str, float] = field(default_factory=dict)
    interval: tuple[float, float] | None = None
    """95 % interval of the test score"""
    parameters: int | None = None
    seed: int | None = None
    seconds: float | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    rows: list[dict[str, str]] = field(default_factory=list)

    @property
    def score(self) -> float | None:
        """The test score by which the run is judged."""
        return self.test.get(self.metric)

    @property
    def done(self) -> str:
        """The epochs that are done; of a model that comes without its curves nobody knows."""
        return "-" if self.status == "finished" and not self.rows else f"{self.epochs_done}"

    def to_json(self) -> dict[str, Any]:
        left_out = ("config", "rows")
        told = {name: value for name, value in vars(self).items() if name not in left_out}
        return told | {"folder": str(self.folder), "when": self.when.isoformat()}


def list_runs(root: str | os.PathLike[str], sort: str = "when") -> list[RunRecord]:
    """All runs in a folder and below, the newest last, or by another of ``SORTS``."""
    if not Path(root).is_dir():
        raise FileNotFoundError(f"there is no folder {root}; runs are kept in 'runs', or in --out")
    return sorted(_records(Path(root)), key=_key(sort))


def read_run(folder: Path) -> RunRecord:
    """A run by its folder; one that cannot be read has the status ``damaged`` and says why."""
    when = _last_written(folder)
    try:
        return _read(folder, when)
    except Exception as error:  # any file of it may hold anything
        said = str(error) or type(error).__name__
        if not isinstance(error, OSError | ValueError):
            said = f"a file is not as a run writes it ({type(error).__name__}: {said})"
        return RunRecord(folder, "damaged", when, problem=said)


def _read(folder: Path, when: datetime) -> RunRecord:
    where = RunFolder(folder)
    if not (folder / CONFIG).is_file():
        raise FileNotFoundError(f"no {CONFIG}")
    config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    rows, summary = where.rows(), where.summary()
    training = config["training"]
    known = {
        "task": str(config["task"]),
        "data": str((config["data"] or {}).get("path") or ""),
        "epochs": int(training["epochs"]),
        "epochs_done": len(rows),
        "seed": training["seed"],
        "config": {name: part for name, part in config.items() if name != "changed"},
        "rows": rows,
    }
    if summary is None:
        status: Status = "diverged" if (folder / DIVERGED).exists() else "started"
        return RunRecord(folder, status, when, **known)
    if not (folder / BEST).is_dir():
        raise FileNotFoundError(f"no {BEST}, the folder of its weights")
    return RunRecord(
        folder,
        "finished",
        when,
        **known,
        metric=summary["metric"],
        best_epoch=summary["best_epoch"],
        validation=summary["validation"],
        test=summary["test"],
        interval=interval_of_test(summary),
        parameters=summary["parameters"],
        seconds=summary["seconds"],
    )


def interval_of_test(summary: Mapping[str, Any]) -> tuple[float, float] | None:
    """Of the score that judges the run; only that of an accuracy follows from the score alone."""
    metric, cases = summary["metric"], summary.get("test_cases")
    if metric in (known := summary.get("test_intervals") or {}):
        low, high = known[metric]
        return float(low), float(high)
    if metric != "accuracy" or not cases or summary.get("test_groups"):
        return None
    return wilson(round(summary["test"][metric] * cases), cases)


def _records(root: Path) -> Iterator[RunRecord]:
    for place, folders, files in os.walk(root):
        folders.sort()
        if any(name in files for name in SIGNS):
            record = read_run(Path(place))
            if record.status != "damaged":
                folders.clear()  # a run holds no others
            yield record


def _last_written(folder: Path) -> datetime:
    times = [folder / name for name in (CONFIG, METRICS, SUMMARY, DIVERGED)]
    newest = max((x.stat().st_mtime for x in times if x.exists()), default=0.0)
    return datetime.fromtimestamp(newest).astimezone()


def _key(sort: str) -> Any:
    def by_score(record: RunRecord) -> tuple[Any, ...]:
        if record.score is None:
            return (1, "", 0.0)
        up = record.metric in SCORES and SCORES[record.metric].higher_is_better
        return (0, record.metric, -record.score if up else record.score)

    keys = {
        "when": lambda record: record.when,
        "folder": lambda record: str(record.folder),
        "test": by_score,
        "parameters": lambda record: record.parameters or 0,
        "status": lambda record: (record.status, record.when),
    }
    return keys[sort]
