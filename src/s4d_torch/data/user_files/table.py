"""A user's own table: a CSV file in long form, one row for each case and time.

A header line, then rows such as ``case,time,x,y,label``: the case a row belongs to, its time
(optional; without it, rows count in their order), one or more values, and the target of the case,
the same in all its rows. Times are numbers or ISO dates; they only put the rows of a case in
order, and samples are taken as evenly spaced. Rows of different cases may be mixed. A column
without a name, where pandas puts the numbers of the rows, is not read.
"""

import csv
import math
import re
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from s4d_torch._registry import did_you_mean
from s4d_torch.data.dataset import Array, Dataset
from s4d_torch.data.folder import DataFolder, Scratch
from s4d_torch.data.missing_values import LARGEST, number_of
from s4d_torch.data.splits import Holdout
from s4d_torch.data.task import LAPTOP, Task, check_choices, register
from s4d_torch.data.user_files.assembly import dataset_of, existing_file, stored
from s4d_torch.data.user_files.targets import HOW_TO_FILL, MISSING, ChosenKind, read_targets

USUAL_NAMES = {
    "case": ("id", "case", "series", "case_id", "series_id", "sequence"),
    "time": ("time", "t", "timestamp", "date"),
    "target": ("target", "label", "class", "y"),
}
LONG_FORM = "expected one row for each case and time"
DELIMITERS = ",;\t"
ROWS = 10_000  # parsed before they are written to disk


@dataclass(frozen=True)
class TableOptions(Holdout):
    """Sequences in a CSV file, one row for each case and time."""

    path: Path
    """the .csv or .tsv file, with a header"""
    case: str = ""
    """column that tells cases apart; by itself: id, case, series, ..."""
    time: str = ""
    """column that puts the rows of a case in order; by itself: time, t, ...; may be absent"""
    target: str = ""
    """column to predict; by itself: target, label, class, y"""
    values: tuple[str, ...] = ()
    """columns to read; by itself: all others"""
    kind: ChosenKind = "auto"
    """auto: names and whole numbers are classes, other numbers are predicted as numbers"""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choices(self, kind=ChosenKind)


def load_table(options: TableOptions, folder: DataFolder) -> Dataset:
    """The cases of the table, each (time, values), in units of the training cases."""
    file = existing_file(options.path)
    key = asdict(options) | {"path": ""}
    return folder.prepared("table", key, [file], lambda s: _build(options, file, s))


def _build(options: TableOptions, file: Path, scratch: Scratch) -> Dataset:
    rows = scratch.folder / "rows.tmp"
    table = _Table(file, options)
    with rows.open("wb") as stream:
        for block in table.blocks():
            stream.write(block.tobytes())
    if not table.targets:
        raise ValueError(f"{file} has a header but no rows")
    records = np.memmap(rows, table.record, "r")
    if len(records) == len(table.targets):
        raise ValueError(
            f"{file}: each of its {len(records)} cases has a single row; {LONG_FORM}. Put the "
            "columns of a wide table below each other, or save them as an array (.npz)"
        )
    order = np.lexsort((records["time"], records["case"]))
    times, cases = records["time"][order], records["case"][order]
    if len(twice := np.flatnonzero((np.diff(times) == 0) & (np.diff(cases) == 0))):
        first, second = records["line"][order[twice[0] : twice[0] + 2]]
        raise ValueError(
            f"{file}:{second}: case {list(table.targets)[cases[twice[0]]]!r} has this time "
            f"in line {first} already; expected each time once"
        )
    cuts = np.flatnonzero(np.diff(cases)) + 1
    sequences = stored((records["values"][part] for part in np.split(order, cuts)), scratch)
    del records
    rows.unlink()
    names, lines = zip(*table.targets.values(), strict=True)
    targets = read_targets(names, options.kind, lambda i: f"{file}:{lines[i]}")
    return dataset_of({"train": sequences}, targets, options)


class _Table:
    """The rows of a file as numbers; ``targets`` are those of the cases met, with their lines."""

    def __init__(self, file: Path, options: TableOptions) -> None:
        self.file = file
        self.targets: dict[str, tuple[str, int]] = {}
        header = next(read_rows(file), (1, []))[1]
        self.header = [name.strip() for name in header]
        self._check_header()
        chosen = {part: getattr(options, part) for part in USUAL_NAMES}
        self.columns = {part: self._column(part, name) for part, name in chosen.items()}
        if self.columns["case"] == self.columns["target"]:
            raise ValueError(f"{file}:1: the case and the target are one column; name them apart")
        self.values = self._value_columns(options.values)
        kinds: list[Any] = [("case", "i8"), ("line", "i8"), ("time", "f8")]
        self.record = np.dtype([*kinds, ("values", "f4", (len(self.values),))])
        self._numbers: dict[str, int] = {}

    def blocks(self) -> Iterator[Array]:
        """The rows as records, many at a time."""
        rows = (self._record(*row) for row in islice(read_rows(self.file), 1, None))
        while block := list(islice(rows, ROWS)):
            yield np.array(block, dtype=self.record)

    def _record(self, line: int, row: list[str]) -> tuple[int, int, float, tuple[float, ...]]:
        if len(row) != len(self.header):
            raise ValueError(
                f"{self.file}:{line}: {len(row)} fields, but the header has {len(self.header)}"
            )
        case, target = self._text(line, row, "case"), self._text(line, row, "target")
        known, first = self.targets.setdefault(case, (target, line))
        if known != target:
            raise ValueError(
                f"{self.file}:{line}: case {case!r} has the target {target!r} here, but {known!r} "
                f"in line {first}; expected one target for each case"
            )
        number = self._numbers.setdefault(case, len(self._numbers))
        column = self.columns["time"]
        time = float(line) if column is None else read_time(row[column], f"{self.file}:{line}")
        return number, line, time, tuple([self._value(line, row, i) for i in self.values])

    def _text(self, line: int, row: list[str], part: str) -> str:
        column = self.columns[part]
        assert column is not None
        text = row[column].strip()
        if text.lower() in MISSING:
            raise ValueError(
                f"{self.file}:{line}: the {part} (column {self.header[column]!r}) is missing "
                f"({text!r}); {HOW_TO_FILL}"
            )
        return text

    def _value(self, line: int, row: list[str], column: int) -> float:
        """A number that float32 can hold."""
        cell, number = row[column], number_of(row[column])
        if number is not None and -LARGEST <= number <= LARGEST:
            return number
        where = f"{self.file}:{line}: column {self.header[column]!r}"
        if cell.strip().lower() in MISSING:
            raise ValueError(f"{where} has no value ({cell!r}); fill it first")
        if number is not None and not math.isnan(number):
            raise ValueError(f"{where} has {cell}, which is too large for float32")
        advice = "name the columns to read (--data.values) if this is none of them"
        if re.fullmatch(r"\s*[+-]?\d+,\d+\s*", cell):
            advice = "expected a decimal point, not a comma"
        raise ValueError(f"{where} has {cell!r}, which is no number; {advice}")

    def _check_header(self) -> None:
        if not any(self.header):
            raise ValueError(f"{self.file} is empty; expected a header and rows")
        named = [name for name in self.header if not is_nameless(name)]
        twice = next((name for name in named if named.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"{self.file}:1: column {twice!r} is there twice")

    def _column(self, part: str, name: str) -> int | None:
        if name:
            return self._index(name)
        usual, small = USUAL_NAMES[part], [column.lower() for column in self.header]
        if found := next((candidate for candidate in usual if candidate in small), None):
            return small.index(found)
        if part == "time":
            return None
        raise ValueError(
            f"{self.file}:1: which column is the {part}? None of {', '.join(self.header)} is "
            f"named {', '.join(usual)}; name it (--data.{part}). A table is read in long form: "
            f"{LONG_FORM}"
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
    if (time := number_of(cell)) is None:
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


register(
    Task(
        name="table",
        summary="your own CSV file in long form: case, time, values, target",
        options=TableOptions,
        load=load_table,
        metric="accuracy",
        size="your own",
        small=replace(LAPTOP, epochs="auto"),
    )
)
