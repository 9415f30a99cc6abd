"""Which column of a table is what, and its cells as text and numbers."""

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from s4d_torch._registry import did_you_mean
from s4d_torch.data.missing_values import LARGEST, Missing, number_of
from s4d_torch.data.splits import Holdout
from s4d_torch.data.task import check_choices
from s4d_torch.data.user_files.columns import USUAL_NAMES, are_steps, usual_column
from s4d_torch.data.user_files.rows import WITH_COMMA, is_nameless, read_rows
from s4d_torch.data.user_files.targets import HOW_TO_FILL, MISSING, ChosenKind

Layout = Literal["auto", "long", "wide"]
AS_WIDE = "say layout='wide' (--data.layout wide)"
TO_INTERPOLATE = "say missing='interpolate' (--data.missing interpolate)"


@dataclass(frozen=True)
class TableOptions(Holdout):
    """Sequences in a CSV file, one row for each case and time, or one for each case."""

    path: Path
    """the .csv or .tsv file, with a header"""
    case: str = ""
    """column that tells cases apart; by itself: id, case, series, ..."""
    time: str = ""
    """column that puts the rows of a case in order; by itself: time, t, ...; may be absent"""
    time_column: str = ""
    """the same, and the model is told how much time is between rows, which need not be evenly
    spaced; without it they are taken as such"""
    target: str = ""
    """column to predict; by itself: target, label, class, y"""
    values: tuple[str, ...] = ()
    """columns to read; by itself: all others"""
    kind: ChosenKind = "auto"
    """auto: names and whole numbers are classes, other numbers are predicted as numbers"""
    layout: Layout = "auto"
    """long: a row is a sample; wide: a row is a case and its columns are steps in time; auto: wide
    if the columns are numbered (t0, t1, ...) and no case has two rows"""
    missing: Missing = "error"
    """missing values are refused, or interpolated in time"""
    groups: str = ""
    """column that says what a case comes from (a speaker, a machine); none is in two splits"""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choices(self, kind=ChosenKind, layout=Layout, missing=Missing)
        if self.time_column and self.time not in ("", self.time_column):
            raise ValueError(
                f"time {self.time!r} and time_column {self.time_column!r}: rows have one time; "
                "name time_column alone if the model is to be told of it, else time"
            )
        if self.time_column and self.layout == "wide":
            raise ValueError(
                f"time_column {self.time_column!r} is for tables with a row for each case and "
                "time; a wide table has no such column"
            )


class TableReader:
    """A file with a header: ``columns`` holds the position of its case, time and target.

    ``values`` are the positions of the columns to read; if it is ``timed``, the model is told how
    much time is between rows.
    """

    def __init__(self, file: Path, options: TableOptions) -> None:
        self.file, self.options = file, options
        self.header = [name.strip() for name in next(read_rows(file), (1, []))[1]]
        self._check_header()
        self.columns = {part: self._column(part) for part in USUAL_NAMES}
        self.timed = bool(options.time_column)
        if self.timed:
            self.columns["time"] = self._index(options.time_column)
        self.columns["group"] = self._index(options.groups) if options.groups else None
        if options.layout == "wide":
            self.columns["time"] = None
        if self.columns["target"] is None:
            raise self._unknown("target")
        if self.columns["case"] == self.columns["target"]:
            raise ValueError(f"{file}:1: the case and the target are one column; name them apart")
        if options.groups and options.groups in map(self.name, USUAL_NAMES):
            raise ValueError(
                f"{file}:1: the groups (column {options.groups!r}) are the case, the time or the "
                "target; name another column (--data.groups)"
            )
        self.values = self._value_columns(options.values)
        self.layout = self._layout() if options.layout == "auto" else options.layout
        if self.layout == "long" and self.columns["case"] is None:
            raise self._unknown("case")

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """(line, cells) of all rows below the header."""
        for line, row in islice(read_rows(self.file), 1, None):
            if len(row) != len(self.header):
                raise ValueError(
                    f"{self.file}:{line}: {len(row)} fields, but the header has {len(self.header)}"
                )
            yield line, row

    def name(self, part: str) -> str:
        column = self.columns[part]
        return "" if column is None else self.header[column]

    def text(self, line: int, row: list[str], part: str) -> str:
        """The case, the target or the group of a row."""
        column = self.columns[part]
        assert column is not None
        text = row[column].strip()
        if text.lower() in MISSING:
            raise ValueError(
                f"{self.file}:{line}: the {part} (column {self.header[column]!r}) is missing "
                f"({text!r}); {HOW_TO_FILL}"
            )
        return text

    def value(self, line: int, row: list[str], column: int) -> float:
        """A number that float32 can hold; NaN where one is missing and will be interpolated."""
        cell, number = row[column], number_of(row[column])
        if number is not None and -LARGEST <= number <= LARGEST:
            return number
        where = f"{self.file}:{line}: column {self.header[column]!r}"
        if cell.strip().lower() in MISSING:
            if self.options.missing == "interpolate":
                return math.nan
            raise ValueError(f"{where} has no value ({cell!r}); fill it first, or {TO_INTERPOLATE}")
        if number is not None and not math.isnan(number):
            raise ValueError(f"{where} has {cell}, which is too large for float32")
        advice = "name the columns to read (--data.values) if this is none of them"
        if WITH_COMMA.fullmatch(cell):
            advice = "expected a decimal point, or cells that are separated by semicolons"
        raise ValueError(f"{where} has {cell!r}, which is no number; {advice}")

    def is_empty(self, row: list[str]) -> bool:
        """Whether a row has no value at all: nothing was measured at its time."""
        return all(row[i].strip().lower() in MISSING for i in self.values)

    def _layout(self) -> Layout:
        case, steps = self.columns["case"], are_steps([self.header[i] for i in self.values])
        if self.columns["time"] is not None or (case is None and not steps):
            return "long"
        if case is not None and self._some_case_has_two_rows(case):
            return "long"
        return "wide" if steps else "long"

    def _some_case_has_two_rows(self, column: int) -> bool:
        met: set[str] = set()
        for _, row in self.rows():
            if row[column] in met:
                return True
            met.add(row[column])
        return False

    def _check_header(self) -> None:
        if not any(self.header):
            raise ValueError(f"{self.file} is empty; expected a header and rows")
        named = [name for name in self.header if not is_nameless(name)]
        twice = next((name for name in named if named.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"{self.file}:1: column {twice!r} is there twice")

    def _column(self, part: str) -> int | None:
        if name := getattr(self.options, part):
            return self._index(name)
        found = usual_column(part, self.header)
        return None if found is None else self.header.index(found)

    def _unknown(self, part: str) -> ValueError:
        names = ", ".join(USUAL_NAMES[part])
        advice = f" If each row is a case, its columns steps in time, {AS_WIDE}"
        return ValueError(
            f"{self.file}:1: which column is the {part}? None of {', '.join(self.header)} is "
            f"named {names}; name it (--data.{part}). A table in long form has one row for each "
            f"case and time.{advice if part == 'case' else ''}"
        )

    def _index(self, name: str) -> int:
        if name not in self.header:
            hint = did_you_mean(name, self.header) or f"; it has {', '.join(self.header)}"
            raise ValueError(f"{self.file}:1: there is no column {name!r}{hint}")
        return self.header.index(name)

    def _value_columns(self, names: tuple[str, ...]) -> list[int]:
        used = set(self.columns.values())
        columns = [self._index(name) for name in names] or self._remaining(used)
        if not columns:
            raise ValueError(f"{self.file}:1: no column is left for values")
        overlap = next((i for i in columns if i in used), None)
        if overlap is not None:
            raise ValueError(
                f"{self.file}:1: column {self.header[overlap]!r} cannot be a value too; it is the "
                f"{next(part for part, i in self.columns.items() if i == overlap)}"
            )
        return columns

    def _remaining(self, used: set[int | None]) -> list[int]:
        others = [i for i in range(len(self.header)) if i not in used]
        named = [i for i in others if not is_nameless(self.header[i])]
        left_out = [i + 1 for i in others if i not in named]
        if named and left_out:
            # numbers of rows in a file sorted by class would tell the class
            warnings.warn(
                f"{self.file}:1: column {', '.join(map(str, left_out))} has no name, as those in "
                "which pandas writes the numbers of rows, and is not read",
                stacklevel=2,
            )
        return named
