"""Cells of a CSV file: its rows in whatever way they are separated, numbers, and times."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from s4d_torch.data.own.targets import MISSING

DELIMITERS = ",;\t"
LARGEST = float(np.finfo(np.float32).max)


def read_rows(file: Path) -> Iterator[tuple[int, list[str]]]:
    """(line, cells) of all rows that are not blank, the header first."""
    with file.open(encoding="utf-8-sig", errors="replace") as stream:
        start = next((line for line in stream if line.strip()), "")
    with file.open(encoding="utf-8-sig", newline="") as stream:
        rows = csv.reader(stream, delimiter=max(DELIMITERS, key=start.count))
        try:
            for row in rows:
                if any(cell.strip() for cell in row):
                    yield rows.line_num, row
        except UnicodeDecodeError as error:
            raise ValueError(f"{file} is not text in UTF-8: {error}; save it as UTF-8") from error
        except csv.Error as error:
            raise ValueError(f"{file}:{rows.line_num}: {error}") from error


def is_nameless(column: str) -> bool:
    """Whether pandas has put the numbers of the rows there, now or when it read them back."""
    return not column or column.startswith("Unnamed: ")


def read_time(cell: str, where: str) -> float:
    """A number, or an ISO date in seconds; one without a time zone is in UTC."""
    try:
        time = float(cell)
    except ValueError:
        try:
            date = datetime.fromisoformat(cell.strip())
        except ValueError:
            raise ValueError(
                f"{where}: time {cell!r}; expected a number or an ISO date (2024-12-31T23:59)"
            ) from None
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    if not math.isfinite(time):
        raise ValueError(f"{where}: time {cell!r}; expected a finite number")
    return time


def read_number(cell: str, where: str) -> float:
    """A number that float32 can hold; ``where`` names the file, the line and the column."""
    try:
        number = float(cell)
    except ValueError:
        number = math.nan
    if -LARGEST <= number <= LARGEST:
        return number
    if cell.strip().lower() in MISSING:
        raise ValueError(f"{where} has no value ({cell!r}); fill it first")
    if not math.isnan(number):
        raise ValueError(f"{where} has {cell}, which is too large for float32")
    advice = "name the columns to read (--data.values) if this is none of them"
    if re.fullmatch(r"\s*[+-]?\d+,\d+\s*", cell):
        advice = "expected a decimal point, not a comma"
    raise ValueError(f"{where} has {cell!r}, which is no number; {advice}")
