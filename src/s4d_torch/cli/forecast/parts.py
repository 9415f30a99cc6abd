"""A table cut into what is learned from and what is known of the future; forecasts as a table."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from s4d_torch._files import write_atomically
from s4d_torch.cli.common.parsing import CommandError
from s4d_torch.data.missing_values import interpolate
from s4d_torch.data.user_files.time_table import TimeTable


@dataclass(frozen=True)
class Parts:
    """A table cut where its targets end: y, X and times up to there, X_future after it."""

    y: Any
    X: Any
    X_future: Any
    times: Any
    time: str
    filled: Any

    @staticmethod
    def of(asked: Any, table: TimeTable) -> Parts:
        targets = table.columns(asked.target)
        there = np.flatnonzero(~np.isnan(targets).all(1))
        if not len(there):
            raise CommandError(f"{asked.table} has no value in {', '.join(asked.target)}")
        end = int(there[-1]) + 1
        y, after = targets[:end], len(targets) - end
        if after and not asked.known:
            raise CommandError(
                f"{asked.table}: the last {after} rows have no value in "
                f"{', '.join(asked.target)}; remove them, or name columns that are --known there"
            )
        if asked.known and after < asked.horizon:
            raise CommandError(
                f"{asked.table} ends too early: {', '.join(asked.known)} is known for {after} rows "
                f"after the targets, the horizon is {asked.horizon}; add rows with empty targets"
            )
        filled = interpolate(y.T).T
        beside = table.columns([*asked.past, *asked.known])
        return Parts(
            y=filled if asked.missing == "interpolate" else y,
            X=beside[:end] if beside.shape[1] else None,
            X_future=table.columns(asked.known)[end:] if asked.known else None,
            times=None if table.times is None else table.times[:end],
            time=table.time or "row",
            filled=filled,
        )


def write_csv(
    file: Path, parts: Parts, step: Any, targets: Sequence[str], mean: Any, spread: Any, levels: Any
) -> None:
    """A row for each step: its time, then for each target the mean and the quantiles."""
    rows = len(parts.y)
    stamps: list[Any] = list(range(rows, rows + len(mean)))
    if step is not None:
        times = step.after(parts.times[-1], len(mean))
        dates = times.dtype.kind == "M"
        stamps = [str(t.astype("M8[s]")).replace("T", " ") if dates else int(t) for t in times]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [f"{target}{end}" for target in targets for end in ("", *(f"_q{x:g}" for x in levels))]
    writer.writerow([parts.time, *names])
    for i, stamp in enumerate(stamps):
        cells = [x for j in range(len(targets)) for x in (mean[i, j], *spread[i, j])]
        writer.writerow([stamp, *(f"{x:.7g}" for x in cells)])
    write_atomically({file: text.getvalue().encode()})
