"""Text tables row by row: their separators, decimal commas and headers."""

import csv
import re
from collections.abc import Iterator
from pathlib import Path

DELIMITERS = ",;\t"
WITH_COMMA = re.compile(r"\s*[+-]?\d*,\d+([eE][+-]?\d+)?\s*")
WITH_POINT = re.compile(r"\s*[+-]?\d*\.\d+([eE][+-]?\d+)?\s*")


def read_rows(file: Path) -> Iterator[tuple[int, list[str]]]:
    """(line, cells) of all rows that are not blank, the header first.

    Where commas do not separate cells, ``1,5`` is a number, and comes as ``1.5``.
    """
    with file.open(encoding="utf-8-sig", errors="replace") as stream:
        start = next((line for line in stream if line.strip()), "")
    decimals = Decimals(delimiter_of(start))
    with file.open(encoding="utf-8-sig", newline="") as stream:
        rows = csv.reader(stream, delimiter=decimals.delimiter)
        try:
            for row in rows:
                if any(cell.strip() for cell in row):
                    yield rows.line_num, decimals.with_points(row, f"{file}:{rows.line_num}")
        except UnicodeDecodeError as error:
            raise ValueError(f"{file} is not text in UTF-8: {error}; save it as UTF-8") from error
        except csv.Error as error:
            raise ValueError(f"{file}:{rows.line_num}: {error}") from error


def delimiter_of(line: str) -> str:
    """What separates the cells of a header."""
    return max(DELIMITERS, key=line.count)


class Decimals:
    """The decimal commas of a table whose cells are separated otherwise."""

    def __init__(self, delimiter: str) -> None:
        self.delimiter = delimiter
        self._point = self._comma = ""  # where the first number of each kind stands

    def with_points(self, row: list[str], where: str) -> list[str]:
        """The cells with decimal points; a table that has both is refused.

        In it, ``1,234`` might be a thousand.
        """
        if self.delimiter == ",":
            return row
        for cell in row:
            if not self._comma and "," in cell and WITH_COMMA.fullmatch(cell):
                self._comma = f"{cell.strip()!r} ({where})"
            elif not self._point and "." in cell and WITH_POINT.fullmatch(cell):
                self._point = f"{cell.strip()!r} ({where})"
        if self._comma and self._point:
            raise ValueError(
                f"{where}: numbers with a comma, {self._comma}, and with a point, {self._point}; "
                "expected one of the two as the decimal sign: save the table with points only"
            )
        if not self._comma:
            return row
        return [cell.replace(",", ".") if WITH_COMMA.fullmatch(cell) else cell for cell in row]


def is_nameless(column: str) -> bool:
    """Whether pandas has put the numbers of the rows there, now or when it read them back."""
    return not column or column.startswith("Unnamed: ")
