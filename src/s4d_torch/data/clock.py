"""A clock: when samples came, and the gaps between them as multiples of the usual one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[Any]
FIRST = 1.0  # the gap before the first sample of a sequence, of which nothing is known
SECOND = 1_000_000  # microseconds: dates are that exact, their seconds as numbers are not


@dataclass(frozen=True)
class Clock:
    """Gaps in steps of the training data: ``r_k = (t_k - t_{k-1}) / step``, and ``r_0 = 1``.

    ``step`` is the median gap of the training cases, in seconds where times are ``dates``, else in
    their own unit; ``column`` is where a table has the times.
    """

    step: float
    column: str = ""
    dates: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.step < np.inf:
            raise ValueError(f"a clock needs a step above 0, got {self.step}")

    def gaps(self, times: Times) -> Times:
        """(..., length) in double precision; times have to rise."""
        gaps = np.full(np.shape(times), FIRST)
        gaps[..., 1:] = _differences(times, self.dates) / self.step
        return gaps

    @property
    def unit(self) -> str:
        """``60 s``, or ``0.5`` of a time in an unknown unit."""
        return f"{self.step:g}{' s' if self.dates else ''}"

    @staticmethod
    def of(cases: Iterable[Times], column: str = "", *, dates: bool = False) -> Clock:
        """The clock of training cases, (length,) times each."""
        gaps = [_differences(times, dates) for times in cases]
        each = np.concatenate(gaps) if gaps else np.empty(0)
        if not len(each):
            raise ValueError(
                "no training case has two samples, so that there is no gap between times to "
                "measure in; leave the times out, or add samples"
            )
        return Clock(float(np.median(each)), column, dates)


def _differences(times: Times, dates: bool) -> Times:
    found = np.diff(np.asarray(times, dtype=np.float64), axis=-1)
    return np.round(found * SECOND) / SECOND if dates else found


def check_times(times: Times, where: str) -> None:
    """Times (length,) of one sequence: finite, and each after the one before."""
    bad = ~np.isfinite(times)
    if bad.any():
        i = int(np.argmax(bad))
        raise ValueError(f"{where}: time {i} is {times[i]} (counted from 0); expected a number")
    late = np.diff(times) <= 0
    if late.any():
        i = int(np.argmax(late)) + 1
        what = "is that of the sample before" if times[i] == times[i - 1] else "goes back"
        advice = "merge such samples" if times[i] == times[i - 1] else "sort the samples by time"
        raise ValueError(
            f"{where}: time {i}, {times[i]:.15g}, {what} (counted from 0; before it comes "
            f"{times[i - 1]:.15g}); {advice}"
        )
