"""A table in long form: one row for each case and time."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from s4d_torch.data.dataset import Array, Dataset
from s4d_torch.data.files.moments import TimeReader
from s4d_torch.data.missing_values import without_gaps
from s4d_torch.data.store import Scratch
from s4d_torch.data.user_files.assembly import Timing, dataset_of, stored
from s4d_torch.data.user_files.table_reader import AS_WIDE, TableReader
from s4d_torch.data.user_files.targets import read_targets

ROWS = 10_000  # parsed before they are written to disk
GAP = 1.5  # times the usual step of a case, and longer: a gap
RATES = 1.1  # times as long a usual step in one case as in another: another sampling rate


def read_long_table(table: TableReader, scratch: Scratch) -> Dataset:
    rows, records = scratch.folder / "rows.tmp", _Records(table)
    with rows.open("wb") as stream:
        for block in records.blocks():
            stream.write(block.tobytes())
    file, names = table.file, list(records.targets)
    if not names:
        raise ValueError(f"{file} has a header but no rows")
    samples = np.memmap(rows, records.dtype, "r")
    if len(samples) == len(names):
        raise ValueError(
            f"{file}: each of its {len(samples)} cases has a single row; expected one row for each "
            f"case and time. If the columns of a row are steps in time, {AS_WIDE}; if cases are "
            "told apart by another column, name it (--data.case)"
        )
    order, notes = _in_order(samples, names, table)
    parts = np.split(order, np.flatnonzero(np.diff(samples["case"][order])) + 1)
    channels = [table.header[i] for i in table.values]
    sequences = stored(
        (
            without_gaps(
                samples["values"][part],
                f"{file}: case {name!r}",
                channels,
                samples["time"][part] if table.timed else None,
            )
            for name, part in zip(names, parts, strict=True)
        ),
        scratch,
    )
    timing = None
    if table.timed:
        when = stored((samples["time"][part] for part in parts), scratch)
        timing = Timing({"train": when}, table.options.time_column, records.times.dates)
    del samples
    rows.unlink()
    texts, lines = zip(*records.targets.values(), strict=True)
    targets = read_targets(texts, table.options.kind, lambda i: f"{file}:{lines[i]}")
    dataset = dataset_of(
        {"train": sequences},
        targets,
        table.options,
        cases=names,
        channels=channels,
        target=table.name("target"),
        groups=[group for group, _ in records.groups.values()] or None,
        timing=timing,
    )
    return replace(dataset, notes=dataset.notes + notes)


def _in_order(
    samples: Array, names: Sequence[str], table: TableReader
) -> tuple[Array, tuple[str, ...]]:
    """The places of the rows to read, by case and time, and what there is to say about them."""
    order = np.lexsort((samples["time"], samples["case"]))
    _refuse_equal_times(samples, order, names, table.file)
    if not table.timed:
        timed = table.columns["time"] is not None
        times, cases = samples["time"][order], samples["case"][order]
        return order, uneven_times(times, cases, names) if timed else ()
    order = order[~np.isnan(samples["values"][order]).all(1)]
    absent = np.setdiff1d(np.arange(len(names)), samples["case"][order])
    if len(absent):
        name = names[int(absent[0])]
        raise ValueError(f"{table.file}: case {name!r} has no value at all; leave it out")
    return order, _unsorted(samples, len(names)) + _dropped_rows(len(samples) - len(order))


def _refuse_equal_times(samples: Array, order: Array, names: Sequence[str], file: Path) -> None:
    times, cases = samples["time"][order], samples["case"][order]
    if len(twice := np.flatnonzero((np.diff(times) == 0) & (np.diff(cases) == 0))):
        first, second = samples["line"][order[twice[0] : twice[0] + 2]]
        raise ValueError(
            f"{file}:{second}: case {names[cases[twice[0]]]!r} has this time "
            f"in line {first} already; expected each time once"
        )


def _unsorted(samples: Array, cases: int) -> tuple[str, ...]:
    """A remark on rows that come in another order than their times."""
    by_case = np.argsort(samples["case"], kind="stable")
    case, time = samples["case"][by_case], samples["time"][by_case]
    back = np.unique(case[1:][(np.diff(case) == 0) & (np.diff(time) < 0)])
    if not len(back):
        return ()
    return (f"the rows of {len(back)} of {cases} cases were not in order, and are sorted by time",)


def _dropped_rows(count: int) -> tuple[str, ...]:
    what = "1 row without a value is" if count == 1 else f"{count} rows without a value are"
    return (f"{what} left out: nothing was measured then",) if count else ()


class _Records:
    """The rows as numbers; ``targets`` and ``groups`` are of the cases met, with their lines."""

    def __init__(self, table: TableReader) -> None:
        self.table = table
        self.targets: dict[str, tuple[str, int]] = {}
        self.groups: dict[str, tuple[str, int]] = {}
        kinds: list[Any] = [("case", "i8"), ("line", "i8"), ("time", "f8")]
        self.dtype = np.dtype([*kinds, ("values", "f4", (len(table.values),))])
        self.times = TimeReader()
        self._numbers: dict[str, int] = {}

    def blocks(self) -> Iterator[Array]:
        """The rows as records, many at a time."""
        rows = (self._record(*row) for row in self.table.rows())
        while block := list(islice(rows, ROWS)):
            yield np.array(block, dtype=self.dtype)

    def _record(self, line: int, row: list[str]) -> tuple[int, int, float, tuple[float, ...]]:
        table, case = self.table, self.table.text(line, row, "case")
        self._keep("target", self.targets, case, line, row)
        if table.columns["group"] is not None:
            self._keep("group", self.groups, case, line, row)
        number = self._numbers.setdefault(case, len(self._numbers))
        column = table.columns["time"]
        where = f"{table.file}:{line}"
        time = float(line) if column is None else self.times.read(row[column], where)
        if table.timed and table.is_empty(row):
            return number, line, time, (math.nan,) * len(table.values)
        return number, line, time, tuple([table.value(line, row, i) for i in table.values])

    def _keep(
        self, part: str, known: dict[str, tuple[str, int]], case: str, line: int, row: list[str]
    ) -> None:
        """What a case has one of, and the line that said so first."""
        text = self.table.text(line, row, part)
        before, first = known.setdefault(case, (text, line))
        if before != text:
            raise ValueError(
                f"{self.table.file}:{line}: case {case!r} has the {part} {text!r} here, but "
                f"{before!r} in line {first}; expected one {part} for each case"
            )


def uneven_times(times: Array, cases: Array, names: Sequence[str]) -> tuple[str, ...]:
    """Remarks on rows sorted by case and time, which are taken as evenly spaced."""
    steps, within = np.diff(times), np.diff(cases) == 0
    of_case = cases[1:][within]
    ends = np.flatnonzero(np.diff(of_case)) + 1
    usual = np.zeros(len(names))
    for part in np.split(np.arange(len(of_case)), ends):
        if len(part):
            usual[of_case[part[0]]] = np.median(steps[within][part])
    gaps = np.flatnonzero(steps[within] > GAP * usual[of_case])
    notes, even = [], "samples are taken as evenly spaced"
    if len(gaps):
        count, widest = len(np.unique(of_case[gaps])), gaps[np.argmax(steps[within][gaps])]
        case, after = of_case[widest], times[:-1][within][widest]
        notes.append(
            f"there are gaps in the times of {count} of {len(names)} cases, the widest in case "
            f"{names[case]!r} after {after:g}: {steps[within][widest]:g} instead of "
            f"{usual[case]:g}; {even}"
        )
    typical = usual[usual > 0]
    if len(typical) and typical.max() > RATES * typical.min():
        notes.append(
            f"cases are sampled at different rates: every {typical.min():g} to every "
            f"{typical.max():g} in time; {even}"
        )
    return tuple(notes)
