"""Times as files hold them: numbers, or dates in ISO form, never both."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from s4d_torch.data.clock import check_times
from s4d_torch.data.dataset import Array
from s4d_torch.data.missing_values import number_of

NUMBER, DATE, ZONED = "a number", "a date without a time zone", "a date with a time zone"


class TimeReader:
    """Reads cells one by one; the first decides what the others have to be.

    Numbers as they are; dates in seconds since 1970, those without a time zone as if in UTC, which
    the differences between them do not show. Dates with and without a zone in one column would be
    hours off each other and are refused.
    """

    def __init__(self, *, dates: bool | None = None) -> None:
        """``dates`` is what a run was trained on, if it is one that reads."""
        self.wanted, self.first, self.place = dates, "", ""

    @property
    def dates(self) -> bool:
        return self.first in (DATE, ZONED)

    def read(self, cell: str, where: str) -> float:
        number, date = number_of(cell), None
        if number is None:
            date = _date(cell, where)
        elif not math.isfinite(number):
            raise ValueError(f"{where}: time {cell!r}; expected a finite number")
        kind = NUMBER if date is None else ZONED if date.tzinfo else DATE
        if kind != self.first:
            self._begin(kind, cell, where)
        if date is None:
            assert number is not None
            return number
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()

    def _begin(self, kind: str, cell: str, where: str) -> None:
        if self.first:
            raise ValueError(
                f"{where}: time {cell.strip()!r} is {kind}, but {self.first} came before "
                f"({self.place}); expected all of one form"
            )
        if self.wanted is not None and self.wanted != (kind != NUMBER):
            trained = "dates" if self.wanted else "numbers"
            raise ValueError(
                f"{where}: time {cell.strip()!r} is {kind}, and the run was trained with times "
                f"that are {trained}; give them in that form"
            )
        self.first, self.place = kind, where


def _date(cell: str, where: str) -> datetime:
    try:
        return datetime.fromisoformat(cell.strip())
    except ValueError:
        raise ValueError(
            f"{where}: time {cell!r}; expected a number or an ISO date (2024-12-31T23:59)"
        ) from None


def numeric_times(times: Array, name: str) -> tuple[Array, bool]:
    """Numbers or datetime64 in double precision, and whether they are dates, then in seconds."""
    if times.dtype.kind == "M":
        exact = times.astype("M8[us]")
        seconds = exact.astype(np.int64) / 1e6
        return np.where(np.isnat(exact), np.nan, seconds), True
    if times.dtype.kind not in "iuf":
        raise ValueError(f"{name} holds {times.dtype}; expected numbers or datetime64")
    return times.astype(np.float64), False


def read_times(
    times: Any, lengths: Sequence[int], *, dates: bool | None = None
) -> tuple[list[Array], bool]:
    """Times of sequences of these lengths, in double precision, and whether they are dates.

    ``times`` is (length,) for one, (n, length), or a list of (length,); each has to come after the
    one before. ``dates`` is whether a model was trained with dates.
    """
    rows = times.to_numpy() if hasattr(times, "to_numpy") else times
    if len(lengths) == 1 and len(rows) and np.ndim(rows[0]) == 0:
        rows = [rows]
    if len(rows) != len(lengths):
        raise ValueError(f"times of {len(rows)} sequences; expected those of {len(lengths)}")
    found = []
    for i, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        numbers, are_dates = numeric_times(np.asarray(row), f"times[{i}]")
        if dates is not None and are_dates != dates:
            before, here = ("dates", "numbers") if dates else ("numbers", "dates")
            raise ValueError(f"times[{i}] are {here}, those before were {before}; give one of them")
        dates = are_dates
        if numbers.shape != (length,):
            raise ValueError(
                f"times[{i}] has shape {numbers.shape}; expected a time for each of the {length} "
                "samples"
            )
        check_times(numbers, f"times[{i}]")
        found.append(numbers)
    return found, bool(dates)
