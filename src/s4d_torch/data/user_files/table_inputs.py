"""Tables to predict from: their cases, with the columns that a run was trained on, by name."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from s4d_torch.data.dataset import Array, Signature
from s4d_torch.data.missing_values import number_of, without_gaps
from s4d_torch.data.user_files.columns import are_steps, order_of, usual_column
from s4d_torch.data.user_files.rows import is_nameless, read_rows, read_time
from s4d_torch.data.user_files.targets import MISSING
from s4d_torch.data.user_files.wide_table import in_order

Row = tuple[int, list[str]]


def read_cases(file: Path, signature: Signature, options: Any) -> list[tuple[str, Array]]:
    """(name, values) of each case; without a header, columns count by their position."""
    rows = list(read_rows(file))
    if not rows:
        raise ValueError(f"{file} is empty")
    table = _Table(file, [name.strip() for name in rows[0][1]], signature, options)
    body = rows[1:] if table.named else rows
    for line, row in body:
        if len(row) != len(table.header):
            raise ValueError(f"{file}:{line}: {len(row)} cells; expected {len(table.header)}")
    return table.wide_cases(body) if table.is_wide else table.long_cases(body)


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
        self.is_wide = layout == "wide" or (layout == "auto" and likely)
        self.values = others if self.is_wide else self._value_columns(others)

    def long_cases(self, rows: Sequence[Row]) -> list[tuple[str, Array]]:
        cases: dict[str, list[tuple[float, list[float]]]] = {}
        places = [self.header.index(name) for name in self.values]
        case = self.header.index(self.case) if self.case else None
        for line, row in rows:
            time = float(line)
            if self.time:
                time = read_time(row[self.header.index(self.time)], f"{self.file}:{line}")
            name = "" if case is None else row[case].strip()
            numbers = [self._number(line, row, i) for i in places]
            cases.setdefault(name, []).append((time, numbers))
        found = []
        for name, samples in cases.items():
            values = np.array([numbers for _, numbers in sorted(samples, key=lambda each: each[0])])
            found.append((name, self._filled(values, name)))
        return found

    def wide_cases(self, rows: Sequence[Row]) -> list[tuple[str, Array]]:
        places = [self.header.index(self.values[i]) for i in in_order(self.values)]
        found = []
        for line, row in rows:
            name = row[self.header.index(self.case)].strip() if self.case else f"line {line}"
            held = len(places)
            while held and row[places[held - 1]].strip().lower() in MISSING:
                held -= 1
            values = np.array([[self._number(line, row, i)] for i in places[:held]])
            found.append((name, self._filled(values.reshape(held, 1), name)))
        return found

    def _filled(self, values: Array, name: str) -> Array:
        return without_gaps(values, f"{self.file}: case {name!r}") if self.fills else values

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
        if not names or (not signature.channels and len(header) == signature.features):
            return "", "", header
        found: dict[str, str] = {}
        for part in ("case", "time", "target"):
            chosen = getattr(self.options, part, "")
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
