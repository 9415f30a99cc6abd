"""Tables to predict from: their cases, with the columns that a run was trained on, by name."""

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from s4d_torch._registry import did_you_mean
from s4d_torch.data.clock import Clock
from s4d_torch.data.dataset import Array, Signature
from s4d_torch.data.files.moments import TimeReader
from s4d_torch.data.missing_values import number_of, without_gaps
from s4d_torch.data.user_files.columns import are_steps, order_of, shown, usual_column
from s4d_torch.data.user_files.rows import is_nameless, read_rows
from s4d_torch.data.user_files.targets import MISSING
from s4d_torch.data.user_files.wide_table import in_order

Row = tuple[int, list[str]]


class Case(NamedTuple):
    """What a file has of one case; ``times`` (length,) where the run is told them."""

    name: str
    values: Array
    times: Array | None = None


def read_cases(file: Path, signature: Signature, options: Any) -> list[Case]:
    """The cases of a table; without a header, columns count by their position."""
    rows = list(read_rows(file))
    if not rows:
        raise ValueError(f"{file} is empty")
    table = _Table(file, [name.strip() for name in rows[0][1]], signature, options)
    body = rows[1:] if table.named else rows
    for line, row in body:
        if len(row) != len(table.header):
            raise ValueError(f"{file}:{line}: {len(row)} cells; expected {len(table.header)}")
    return table.wide_cases(body) if table.is_wide else table.long_cases(body)


class _Sample(NamedTuple):
    time: float
    line: int
    numbers: list[float]


class _Table:
    def __init__(
        self, file: Path, first: Sequence[str], signature: Signature, options: Any
    ) -> None:
        self.file, self.signature, self.options = file, signature, options
        self.named = None in map(number_of, first) or set(first) == set(signature.channels)
        self.header = list(first) if self.named else [str(i + 1) for i in range(len(first))]
        self.fills = getattr(options, "missing", "error") == "interpolate"
        self.case, self.time, others = self._roles()
        layout, channels = getattr(options, "layout", "auto"), signature.channels
        likely = signature.features == 1 and not channels and are_steps(others)
        likely = likely and signature.clock is None  # a wide table has no times
        self.is_wide = layout == "wide" or (layout == "auto" and likely)
        self.values = others if self.is_wide else self._value_columns(others)

    def long_cases(self, rows: Sequence[Row]) -> list[Case]:
        cases: dict[str, list[_Sample]] = {}
        places = [self.header.index(name) for name in self.values]
        case = self.header.index(self.case) if self.case else None
        when = self.header.index(self.time) if self.time else None
        clock = self.signature.clock
        reader = TimeReader(dates=None if clock is None else clock.dates)
        for line, row in rows:
            where = f"{self.file}:{line}"
            time = float(line) if when is None else reader.read(row[when], where)
            name = "" if case is None else row[case].strip()
            samples = cases.setdefault(name, [])
            if clock is not None and all(row[i].strip().lower() in MISSING for i in places):
                continue  # nothing was measured then
            numbers = [self._number(line, row, i) for i in places]
            samples.append(_Sample(time, line, numbers))
        return [self._in_time(name, samples) for name, samples in cases.items()]

    def _in_time(self, name: str, samples: list["_Sample"]) -> Case:
        """A case in the order of its times."""
        samples = sorted(samples, key=lambda each: each.time)
        values = np.array([each.numbers for each in samples]).reshape(-1, len(self.values))
        if self.signature.clock is None:
            return Case(name, self._filled(values, name))
        for before, after in pairwise(samples):
            if before.time == after.time:
                raise ValueError(
                    f"{self.file}:{after.line}: case {name!r} has this time in line {before.line} "
                    "already; expected each time once"
                )
        times = np.array([each.time for each in samples])
        return Case(name, self._filled(values, name, times), times)

    def wide_cases(self, rows: Sequence[Row]) -> list[Case]:
        places = [self.header.index(self.values[i]) for i in in_order(self.values)]
        found = []
        for line, row in rows:
            name = row[self.header.index(self.case)].strip() if self.case else f"line {line}"
            held = len(places)
            while held and row[places[held - 1]].strip().lower() in MISSING:
                held -= 1
            values = np.array([[self._number(line, row, i)] for i in places[:held]])
            found.append(Case(name, self._filled(values.reshape(held, 1), name)))
        return found

    def _filled(self, values: Array, name: str, times: Array | None = None) -> Array:
        where = f"{self.file}: case {name!r}"
        return without_gaps(values, where, times=times) if self.fills and len(values) else values

    def _number(self, line: int, row: Sequence[str], column: int) -> float:
        cell, number = row[column], number_of(row[column])
        if number is None:
            if self.fills and cell.strip().lower() in MISSING:
                return math.nan
            where = f"{self.file}:{line}: column {self.header[column]!r} has"
            raise ValueError(f"{where} {cell!r}, which is no number")
        return number

    def _roles(self) -> tuple[str, str, list[str]]:
        """The columns of the case and the time ("" if there is none), and those that are left."""
        signature, header = self.signature, self.header
        names = [name for name in header if name not in signature.channels]
        clock = signature.clock
        if clock is None and (
            not names or (not signature.channels and len(header) == signature.features)
        ):
            return "", "", header
        found: dict[str, str] = {}
        for part in ("case", "time", "target"):
            chosen = getattr(self.options, part, "")
            if part == "time" and clock is not None:
                found[part] = self._time_column(clock, names)
                continue
            found[part] = chosen or usual_column(part, names) or ""
            if chosen and chosen not in header and part != "target":
                raise ValueError(
                    f"{self.file}: the table has no column {chosen!r}; it has {', '.join(header)}"
                )
        if getattr(self.options, "layout", "auto") == "wide":
            found["time"] = ""
        if signature.target:
            found["target"] = signature.target
        used = {*found.values(), getattr(self.options, "groups", "")}
        others = [name for name in header if name not in used and not is_nameless(name)]
        return found["case"], found["time"], others

    def _time_column(self, clock: Clock, names: Sequence[str]) -> str:
        """Where the times are that a run with a clock has to be told."""
        if not self.named:
            raise ValueError(
                f"{self.file} has no header, and the run is told the times of samples; name the "
                f"columns, that of the times {clock.column or 'time'!r}"
            )
        found = clock.column or usual_column("time", names) or ""
        if found not in self.header:
            hint = did_you_mean(clock.column or "time", self.header)
            raise ValueError(
                f"{self.file} has no column {clock.column or 'time'!r} with the times of samples, "
                f"which the run is told{hint or f'; it has {shown(self.header)}'}"
            )
        return found

    def _value_columns(self, others: list[str]) -> list[str]:
        """The columns that the run reads, in its order."""
        channels, chosen = self.signature.channels, list(getattr(self.options, "values", ()))
        if self.named and channels:
            # whoever named the columns to read has a table with others
            found = [name for name in others if name in channels] if chosen else others
            return [found[i] for i in order_of(found, channels, str(self.file))]
        values = chosen if chosen and self.named else others
        for name in values:
            if name not in self.header:
                listed = ", ".join(self.header)
                raise ValueError(f"{self.file}: the table has no column {name!r}; it has {listed}")
        if len(values) != self.signature.features:
            raise ValueError(
                f"{self.file} has {len(values)} columns of values ({', '.join(values)}); the run "
                f"was trained on {self.signature.features}"
            )
        return values
