"""A table in wide form: one row for each case, its values over time in as many columns."""

from collections.abc import Iterator

import numpy as np

from s4d_torch.data.dataset import Array, Dataset
from s4d_torch.data.missing_values import interpolate
from s4d_torch.data.store import Scratch
from s4d_torch.data.user_files.assembly import dataset_of, stored
from s4d_torch.data.user_files.columns import step_order
from s4d_torch.data.user_files.table_reader import TableReader
from s4d_torch.data.user_files.targets import MISSING, read_targets


def read_wide_table(table: TableReader, scratch: Scratch) -> Dataset:
    lines: dict[str, int] = {}
    texts: list[str] = []
    groups: list[str] = []

    def series() -> Iterator[Array]:
        for line, row in table.rows():
            name = f"line {line}"
            if table.columns["case"] is not None:
                name = table.text(line, row, "case")
            if name in lines:
                raise ValueError(
                    f"{table.file}:{line}: case {name!r} is in line {lines[name]} already; in a "
                    "wide table each case has one row (for one row for each time, say "
                    "--data.layout long)"
                )
            lines[name] = line
            texts.append(table.text(line, row, "target"))
            if table.columns["group"] is not None:
                groups.append(table.text(line, row, "group"))
            yield _series(table, steps, line, row)
        if not lines:
            raise ValueError(f"{table.file} has a header but no rows")

    steps = [table.values[i] for i in in_order([table.header[i] for i in table.values])]
    sequences, names = stored(series(), scratch), list(lines)
    targets = read_targets(texts, table.options.kind, lambda i: f"{table.file}:{lines[names[i]]}")
    return dataset_of(
        {"train": sequences},
        targets,
        table.options,
        cases=names,
        target=table.name("target"),
        groups=groups or None,
    )


def in_order(names: list[str]) -> list[int]:
    """The steps by the numbers in their names, if they have any, else as they come."""
    return step_order(names) or list(range(len(names)))


def _series(table: TableReader, steps: list[int], line: int, row: list[str]) -> Array:
    """(length, 1); empty cells at the end only fill up a shorter series."""
    held = len(steps)
    while held and row[steps[held - 1]].strip().lower() in MISSING:
        held -= 1
    if not held:
        raise ValueError(f"{table.file}:{line}: a case without a series; leave it out")
    numbers = np.array([table.value(line, row, i) for i in steps[:held]], np.float32)
    return interpolate(numbers)[:, None]
