"""Time stamps: equally spaced or refused, their continuation, and where in day, week, year."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from s4d_torch.data.dataset import Array

# what a cycle lasts, in seconds; each begins with the year 1970 or, for weeks, on a Monday
CYCLES = {"hour": 3600.0, "day": 86400.0, "week": 7 * 86400.0, "year": 365.2425 * 86400.0}
MOST_SAMPLES = 2.0  # a cycle has more samples than these, or its phase says nothing


class Step(NamedTuple):
    """From one time stamp to the next: ``size`` of a ``unit``.

    Units are ns, M (months, from a day of one to that of another), E (month ends), B (business
    days) and 1 (plain numbers).
    """

    size: int
    unit: str

    @property
    def seconds(self) -> float:
        """What it lasts, about."""
        if self.unit == "1":
            return float(self.size)
        each = {"ns": 1e-9, "M": CYCLES["year"] / 12, "E": CYCLES["year"] / 12}
        return self.size * each.get(self.unit, CYCLES["day"])

    def after(self, last: Any, count: int) -> Array:
        """The ``count`` stamps after ``last``."""
        ahead = self.size * np.arange(1, count + 1)
        if self.unit == "1":
            return np.asarray(last + ahead)
        stamp = np.datetime64(last, "ns")
        if self.unit == "ns":
            return np.asarray(stamp + ahead.astype("m8[ns]"))
        day = stamp.astype("M8[D]")
        clock = stamp - day
        if self.unit == "B":
            return np.asarray(np.busday_offset(day, ahead).astype("M8[ns]") + clock)
        month = day.astype("M8[M]")
        if self.unit == "E":
            ends = (month + ahead + 1).astype("M8[D]") - np.timedelta64(1, "D")
            return np.asarray(ends.astype("M8[ns]") + clock)
        days = day - month.astype("M8[D]")
        return np.asarray(((month + ahead).astype("M8[D]") + days).astype("M8[ns]") + clock)


def read_step(times: Array, name: str) -> Step:
    """The step of equally spaced stamps, datetime64 or whole numbers; others are refused."""
    if times.dtype.kind in "iu":
        steps = np.diff(times.astype(np.int64))
        if len(steps) and (steps == steps[0]).all() and steps[0] > 0:
            return Step(int(steps[0]), "1")
        if not len(steps):
            return Step(1, "1")
        raise _irregular(times, steps, name)
    stamps = times.astype("M8[ns]")
    if np.isnat(stamps).any():
        where = int(np.argmax(np.isnat(stamps)))
        raise ValueError(f"{name}: row {where} has no time stamp; give each row one")
    steps = np.diff(stamps).astype(np.int64)
    if not len(steps):
        return Step(1, "ns")
    if (steps > 0).all():
        if (steps == steps[0]).all():
            return Step(int(steps[0]), "ns")
        if found := _calendar_step(stamps):
            return found
    raise _irregular(stamps, steps, name)


def _calendar_step(stamps: Array) -> Step | None:
    """Months and business days, which are not all equally long."""
    days = stamps.astype("M8[D]")
    if len(np.unique(stamps - days)) > 1:
        return None
    day = np.timedelta64(1, "D")
    for unit, shifted in (("M", days), ("E", days + day)):
        months = shifted.astype("M8[M]")
        steps = np.diff(months).astype(np.int64)
        offsets = np.unique(shifted - months.astype("M8[D]"))
        first = unit == "M" or offsets[0] == np.timedelta64(0, "D")
        if len(offsets) == 1 and first and (steps == steps[0]).all():
            return Step(int(steps[0]), unit)
    if np.is_busday(days).all():
        steps = np.busday_count(days[:-1], days[1:])
        if (steps == 1).all():
            return Step(1, "B")
    return None


def _irregular(times: Array, steps: Array, name: str) -> ValueError:
    if (steps == 0).any():
        row = int(np.argmax(steps == 0))
        return ValueError(
            f"{name}: the time stamp {_show(times[row])} occurs twice, in rows {row} and "
            f"{row + 1}; keep one of them, or give several series as a list or dict"
        )
    if (steps < 0).any():
        row = int(np.argmax(steps < 0))
        return ValueError(
            f"{name}: {_show(times[row + 1])} comes after {_show(times[row])} in row {row + 1}; "
            "sort the rows by time"
        )
    sizes, counts = np.unique(steps, return_counts=True)
    usual = sizes[np.argmax(counts)]  # the most frequent, of equals the smallest
    row = int(np.argmax(steps != usual))
    kind = "is a gap" if steps[row] > usual else "are too close"
    return ValueError(
        f"{name}: between {_show(times[row])} and {_show(times[row + 1])} (row {row + 1}) there "
        f"{kind}: time stamps must be equally spaced; put the missing rows in (in pandas: "
        "y.asfreq(...)) and use missing='interpolate'"
    )


def _show(stamp: Any) -> str:
    if isinstance(stamp, np.datetime64):
        text = str(stamp.astype("M8[s]")).replace("T", " ")
        return text.removesuffix(" 00:00:00")
    return str(stamp)


def cycles_of(step: Step, samples: int) -> tuple[str, ...]:
    """The cycles that can be learned: more than two samples in each, and two of them seen."""
    if step.unit == "1":
        return ()
    return tuple(
        name
        for name, seconds in CYCLES.items()
        if seconds > MOST_SAMPLES * step.seconds and samples * step.seconds >= 2 * seconds
    )


def phases(times: Array, cycles: tuple[str, ...]) -> Array:
    """Sine and cosine of where each stamp is in each cycle, (samples, 2 cycles)."""
    stamps = times.astype("M8[ns]")
    columns = []
    for name in cycles:
        if name == "year":
            year = stamps.astype("M8[Y]")
            parts = (stamps - year) / ((year + 1).astype("M8[ns]") - year)
        else:
            monday = np.datetime64("1970-01-05", "ns")
            seconds = (stamps - monday) / np.timedelta64(1, "s")
            parts = seconds / CYCLES[name] % 1.0
        columns += [np.sin(2 * np.pi * parts), np.cos(2 * np.pi * parts)]
    return np.stack(columns, 1) if columns else np.zeros((len(times), 0))
