"""Runs beside each other: the options that differ, their scores with intervals, their curves."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from s4d_torch._extras import missing_package
from s4d_torch.training.config import NOTHING, flat_options
from s4d_torch.training.metrics import METRICS
from s4d_torch.training.saved.listing import RunRecord, read_run


def seed_spread(summaries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Mean, standard deviation and range of the test scores of runs that differ in their seed."""
    metric = summaries[0]["metric"]
    scores = [float(summary["test"][metric]) for summary in summaries]
    return {
        "metric": metric,
        "seeds": [summary["seed"] for summary in summaries],
        "test": scores,
        "mean": fmean(scores),
        "deviation": stdev(scores) if len(scores) > 1 else math.nan,
        "least": min(scores),
        "most": max(scores),
    }


def differing_options(records: Sequence[RunRecord]) -> dict[str, list[Any]]:
    """The options in which runs differ, with the value of each run; None where it has none."""
    each = [dict(flat_options(record.config)) for record in records]
    names = dict.fromkeys(name for options in each for name in options)
    values = {name: [options.get(name, NOTHING) for options in each] for name in names}
    return {
        name: [None if value is NOTHING else value for value in row]
        for name, row in values.items()
        if any(value != row[0] for value in row)
    }


def read_runs(folders: Sequence[Path]) -> list[RunRecord]:
    """The runs in these folders; one that is damaged is an error here."""
    records = [read_run(folder) for folder in folders]
    for record in records:
        if record.status == "damaged":
            raise ValueError(f"{record.folder} cannot be compared: {record.problem}")
    return records


def draw_curves(records: Sequence[RunRecord], out: Path) -> None:
    """The training loss and the validation score of each run by epoch, into an svg, png or pdf."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_package("pictures", "matplotlib", "plots") from error
    figure = Figure((10, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    for record in records:
        epochs = [int(row["epoch"]) for row in record.rows]
        for axes, column in ((left, "train_loss"), (right, f"validation_{record.metric}")):
            points = [_number(row.get(column)) for row in record.rows]
            axes.plot(epochs, points, label=str(record.folder), marker="." * (len(epochs) < 3))
    metrics = sorted({str(record.metric) for record in records})
    left.set(title="training loss", xlabel="epoch")
    right.set(title=f"validation: {', '.join(metrics)}", xlabel="epoch")
    if all(x > 0 for record in records for x in (_number(r["train_loss"]) for r in record.rows)):
        left.set_yscale("log")
    right.legend(fontsize="small")
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out)


def shown_score(record: RunRecord, name: str) -> str:
    """A test score with its interval, where there is one: ``93.75 % (79.9 to 98.3)``."""
    value = record.test.get(name)
    if value is None:
        return "-"
    show = METRICS[name].show if name in METRICS else "{:.4g}".format
    if name != record.metric or record.interval is None:
        return show(value)
    low, high = (show(x) for x in record.interval)
    return f"{show(value)} ({low} to {high})"


def _number(text: Any) -> float:
    try:
        return float(text)
    except (TypeError, ValueError):
        return math.nan
