"""A table whose rows are moments: columns of numbers, and the time of each row."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from s4d_torch._registry import did_you_mean
from s4d_torch.data.dataset import Array
from s4d_torch.data.missing_values import number_of
from s4d_torch.data.user_files.columns import shown, usual_column
from s4d_torch.data.user_files.rows import read_rows

EMPTY = ("", "nan", "na", "n/a", "null", "none", "-", "?")
LIKELY_TIMES = ("datetime", "date_time", "ds")  # besides the usual names


@dataclass(frozen=True)
class TimeTable:
    """``values`` (rows, columns) with NaN where a cell is empty; ``times`` (rows,) if any.

    Times are datetime64 or whole numbers. ``time`` is the name of their column.
    """

    names: tuple[str, ...]
    values: Array
    times: Array | None
    time: str

    def columns(self, names: Sequence[str]) -> Array:
        """(rows, names)."""
        return self.values[:, [self.names.index(name) for name in names]]


def read_time_table(file: Path, columns: Sequence[str], time: str = "") -> TimeTable:
    """These columns of a csv or tsv file with a header, and its times.

    ``time`` names their column; by itself one called time, date, timestamp or the like.
    """
    if not file.is_file():
        raise FileNotFoundError(f"no file {str(file)!r}; name a table, .csv or .tsv, with a header")
    rows = read_rows(file)
    header = [name.strip() for name in next(rows, (1, []))[1]]
    for name in [*columns, *([time] if time else [])]:
        if name not in header:
            raise ValueError(
                f"{file} has no column {name!r}{did_you_mean(name, header)}; it has {shown(header)}"
            )
        if header.count(name) > 1:
            raise ValueError(f"{file}:1: the column {name!r} is there twice; rename one")
    time = time or _time_column(header, columns) or ""
    places = [header.index(name) for name in columns]
    when = header.index(time) if time else None
    values, stamps = [], []
    for line, cells in rows:
        where = f"{file}:{line}"
        if len(cells) != len(header):
            raise ValueError(f"{where}: {len(cells)} cells, the header has {len(header)}")
        values.append([_number(cells[i], header[i], where) for i in places])
        if when is not None:
            stamps.append(_moment(cells[when], where))
    if not values:
        raise ValueError(f"{file} has a header and no rows")
    times = _times(stamps, file) if when is not None else None
    return TimeTable(tuple(columns), np.array(values, dtype=np.float64), times, time)


def _time_column(header: Sequence[str], taken: Sequence[str]) -> str | None:
    likely = [name for name in header if name.lower() in LIKELY_TIMES]
    found = usual_column("time", header) or (likely[0] if likely else None)
    return None if found in taken else found


def _number(cell: str, name: str, where: str) -> float:
    if cell.strip().lower() in EMPTY:
        return np.nan
    number = number_of(cell)
    if number is None:
        raise ValueError(f"{where}: {cell!r} in column {name!r} is not a number")
    return number


def _moment(cell: str, where: str) -> datetime | int:
    number = number_of(cell)
    if number is not None:
        if not float(number).is_integer():
            raise ValueError(f"{where}: time {cell!r}; expected a whole number or an ISO date")
        return int(number)
    try:
        moment = datetime.fromisoformat(cell.strip())
    except ValueError:
        raise ValueError(
            f"{where}: time {cell!r}; expected an ISO date (2024-12-31 23:59) or a whole number"
        ) from None
    return moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment


def _times(stamps: Sequence[datetime | int], file: Path) -> Array:
    numbers = [isinstance(stamp, int) for stamp in stamps]
    if any(numbers) != all(numbers):
        raise ValueError(f"{file}: some times are dates and some are numbers; use one of the two")
    return np.array(stamps, dtype=np.int64 if all(numbers) else "M8[ns]")
