"""The header of lines of numbers: the columns of a run by their names."""

import csv
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from s4d_torch.data.dataset import Signature
from s4d_torch.data.missing_values import number_of
from s4d_torch.data.user_files.columns import order_of, usual_column
from s4d_torch.data.user_files.rows import Decimals, delimiter_of

Lines = Iterator[tuple[int, str]]


def read_header(lines: Lines, signature: Signature) -> tuple["Header | None", Lines]:
    """The header, if there is one, and the lines below it."""
    first = next(lines, None)
    header = None if first is None else Header.of(first[1], signature)
    return header, lines if first is None or header else chain([first], lines)


class Header(NamedTuple):
    """How the lines below a header are read: where the channels of the run stand in them."""

    decimals: Decimals
    order: list[int]
    width: int

    @staticmethod
    def of(line: str, signature: Signature) -> "Header | None":
        """None if the line is a sample."""
        names, channels = _apart(line, delimiter_of(line)), signature.channels
        is_header = all(number_of(name) is None or name in channels for name in names)
        if signature.tokens or not is_header:
            return None
        positions = list(range(len(names)))
        if not channels:
            return Header(Decimals(delimiter_of(line)), positions, len(names))
        aside = {usual_column("time", [name for name in names if name not in channels])}
        kept = [i for i in positions if names[i] not in (aside | {signature.target or None})]
        order = order_of([names[i] for i in kept], channels, "the header of standard input")
        return Header(Decimals(delimiter_of(line)), [kept[i] for i in order], len(names))

    def cells(self, line: str, where: str) -> list[str]:
        cells = self.decimals.with_points(_apart(line, self.decimals.delimiter), where)
        if len(cells) != self.width:
            raise ValueError(f"{where} has {len(cells)} values; the header has {self.width}")
        return [cells[i] for i in self.order]


def _apart(line: str, delimiter: str) -> list[str]:
    if delimiter not in line:
        return line.split()
    return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter))]
