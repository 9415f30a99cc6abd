"""The header of lines of numbers: the columns of a run by their names."""

import csv
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from s4d_torch._registry import did_you_mean
from s4d_torch.data.dataset import Signature
from s4d_torch.data.missing_values import number_of
from s4d_torch.data.user_files.columns import order_of, shown, usual_column
from s4d_torch.data.user_files.rows import Decimals, delimiter_of

Lines = Iterator[tuple[int, str]]


def read_header(lines: Lines, signature: Signature) -> tuple["Header | None", Lines]:
    """The header, if there is one, and the lines below it."""
    first = next(lines, None)
    header = None if first is None else Header.of(first[1], signature)
    return header, lines if first is None or header else chain([first], lines)


class Header(NamedTuple):
    """How the lines below a header are read: where the channels of the run stand in them.

    For a run with a clock the time stands before them, first in ``order``.
    """

    decimals: Decimals
    order: list[int]
    width: int

    @staticmethod
    def of(line: str, signature: Signature) -> "Header | None":
        """None if the line is a sample."""
        names, channels = cells_of(line, delimiter_of(line)), signature.channels
        is_header = all(number_of(name) is None or name in channels for name in names)
        if signature.tokens or not is_header:
            return None
        where = "the header of standard input"
        time = usual_column("time", [name for name in names if name not in channels])
        if signature.clock is not None:
            time = signature.clock.column or time or "time"
            if time not in names:
                hint = did_you_mean(time, names) or f"; it has {shown(names)}"
                raise ValueError(
                    f"{where} has no column {time!r} with the times of samples, which the run is "
                    f"told{hint}"
                )
        told = signature.clock is not None
        aside = {time, signature.target or None} if channels else {time if told else None}
        kept = [i for i in range(len(names)) if names[i] not in aside]
        order = (
            order_of([names[i] for i in kept], channels, where) if channels else range(len(kept))
        )
        first = [names.index(time)] if told and time is not None else []
        return Header(Decimals(delimiter_of(line)), [*first, *(kept[i] for i in order)], len(names))

    def cells(self, line: str, where: str) -> list[str]:
        cells = self.decimals.with_points(cells_of(line, self.decimals.delimiter), where)
        if len(cells) != self.width:
            raise ValueError(f"{where} has {len(cells)} values; the header has {self.width}")
        return [cells[i] for i in self.order]


def cells_of(line: str, delimiter: str) -> list[str]:
    """The cells of a line, apart by the delimiter or, where it has none, by spaces."""
    if delimiter not in line:
        return line.split()
    return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter))]
