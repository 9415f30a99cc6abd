"""A table in long form: one row for each case and time."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from s4d_torch.data.dataset import Array, Dataset
from s4d_torch.data.missing_values import without_gaps
from s4d_torch.data.store import Scratch
from s4d_torch.data.user_files.assembly import dataset_of, stored
from s4d_torch.data.user_files.rows import read_time
from s4d_torch.data.user_files.table_reader import AS_WIDE, TableReader
from s4d_torch.data.user_files.targets import read_targets

ROWS = 10_000  # parsed before they are written to disk


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
    order = np.lexsort((samples["time"], samples["case"]))
    times, cases = samples["time"][order], samples["case"][order]
    if len(twice := np.flatnonzero((np.diff(times) == 0) & (np.diff(cases) == 0))):
        first, second = samples["line"][order[twice[0] : twice[0] + 2]]
        raise ValueError(
            f"{file}:{second}: case {names[cases[twice[0]]]!r} has this time "
            f"in line {first} already; expected each time once"
        )
    parts = np.split(order, np.flatnonzero(np.diff(cases)) + 1)
    channels = [table.header[i] for i in table.values]
    sequences = stored(
        (
            without_gaps(samples["values"][part], f"{file}: case {name!r}", channels)
            for name, part in zip(names, parts, strict=True)
        ),
        scratch,
    )
    del samples
    rows.unlink()
    texts, lines = zip(*records.targets.values(), strict=True)
    targets = read_targets(texts, table.options.kind, lambda i: f"{file}:{lines[i]}")
    return dataset_of(
        {"train": sequences},
        targets,
        table.options,
        cases=names,
        channels=channels,
        target=table.name("target"),
    )


class _Records:
    """The rows as numbers; ``targets`` are those of the cases met, with their lines."""

    def __init__(self, table: TableReader) -> None:
        self.table = table
        self.targets: dict[str, tuple[str, int]] = {}
        kinds: list[Any] = [("case", "i8"), ("line", "i8"), ("time", "f8")]
        self.dtype = np.dtype([*kinds, ("values", "f4", (len(table.values),))])
        self._numbers: dict[str, int] = {}

    def blocks(self) -> Iterator[Array]:
        """The rows as records, many at a time."""
        rows = (self._record(*row) for row in self.table.rows())
        while block := list(islice(rows, ROWS)):
            yield np.array(block, dtype=self.dtype)

    def _record(self, line: int, row: list[str]) -> tuple[int, int, float, tuple[float, ...]]:
        table = self.table
        case, target = table.text(line, row, "case"), table.text(line, row, "target")
        known, first = self.targets.setdefault(case, (target, line))
        if known != target:
            raise ValueError(
                f"{table.file}:{line}: case {case!r} has the target {target!r} here, but {known!r} "
                f"in line {first}; expected one target for each case"
            )
        number = self._numbers.setdefault(case, len(self._numbers))
        column = table.columns["time"]
        time = float(line) if column is None else read_time(row[column], f"{table.file}:{line}")
        return number, line, time, tuple([table.value(line, row, i) for i in table.values])
