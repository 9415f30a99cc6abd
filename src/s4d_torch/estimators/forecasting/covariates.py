"""What a forecast may know besides its own series: covariates of X, and the calendar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from s4d_torch._registry import unknown
from s4d_torch.data.dataset import Array
from s4d_torch.estimators.forecasting.series import Given, Series
from s4d_torch.estimators.forecasting.timeline import cycles_of, phases


@dataclass(frozen=True)
class Covariates:
    """The columns beside a series: those of the past alone, those known beforehand, the calendar.

    ``shift`` and ``scale`` (columns of X,) put them into standard units; ``cycles`` are those of
    the calendar, two columns each.
    """

    past: tuple[int, ...]
    known: tuple[int, ...]
    shift: Array
    scale: Array
    cycles: tuple[str, ...]

    @staticmethod
    def of(
        y: Given, X: Given | None, past_only: Sequence[Any], calendar: bool, ends: Sequence[int]
    ) -> Covariates:
        """Learned from the rows before ``ends``, one for each series."""
        step, longest = y.step, max(ends)
        cycles = cycles_of(step, longest) if calendar and step is not None else ()
        if X is None:
            if past_only:
                raise ValueError(f"past_only names {list(past_only)!r}, and there is no X")
            return Covariates((), (), np.zeros(0), np.ones(0), cycles)
        past = tuple(_position(name, X.form.columns) for name in past_only)
        known = tuple(i for i in range(X.columns) if i not in past)
        rows = np.concatenate([x.values[:end] for x, end in zip(X.series, ends, strict=True)])
        shift, deviation = rows.mean(0), rows.std(0)
        varied = deviation > 1e-12 * np.abs(shift)
        return Covariates(past, known, shift, np.where(varied, deviation, 1.0), cycles)

    @property
    def columns(self) -> int:
        """How many X has."""
        return len(self.shift)

    @property
    def n_known(self) -> int:
        return len(self.known) + 2 * len(self.cycles)

    def rows(self, x: Array | None, times: Array | None, count: int) -> Array:
        """All columns beside a series, (count, past + known), as the network reads them."""
        parts = [np.zeros((count, 0))]
        if x is not None:
            units = (x - self.shift) / self.scale
            parts += [units[:, list(self.past)], units[:, list(self.known)]]
        return np.concatenate([*parts, self._phases(times, count)], 1)

    def ahead(self, x: Array | None, times: Array | None, horizon: int) -> Array:
        """The known columns, (horizon, known), from those of X that are known."""
        parts = [np.zeros((horizon, 0))]
        if x is not None and self.known:
            chosen = list(self.known)
            parts.append((x[:horizon] - self.shift[chosen]) / self.scale[chosen])
        return np.concatenate([*parts, self._phases(times, horizon)], 1)

    def _phases(self, times: Array | None, count: int) -> Array:
        if not self.cycles:
            return np.zeros((count, 0))
        assert times is not None
        return phases(times, self.cycles)


def check_match(y: Given, X: Given) -> None:
    """Each row of y needs its covariates, at the same time."""
    if X.form.keys != y.form.keys:
        raise ValueError(
            f"y holds {_count(y)} and X {_count(X)}; X needs the series of y, under the same names"
        )
    for series, covariates in zip(y.series, X.series, strict=True):
        check_rows(covariates, len(series), series.times, f"{series.name} has", exact=True)


def check_rows(x: Series, rows: int, times: Array | None, whose: str, *, exact: bool) -> None:
    """Refuse covariates that end too early, or are of another time."""
    if len(x) < rows:
        raise ValueError(
            f"{x.name} ends too early: it has {len(x)} rows, {whose} {rows}; give covariates for "
            "each of them"
        )
    if exact and len(x) > rows:
        raise ValueError(
            f"{x.name} has {len(x)} rows, {whose} {rows}; give those after the end of y to predict"
        )
    if x.times is None or times is None:
        return
    here = x.times[:rows]
    if here.dtype.kind == "M":
        here, times = here.astype("M8[ns]"), times.astype("M8[ns]")
    if (other := here != times).any():
        row = int(np.argmax(other))
        raise ValueError(
            f"{x.name} does not go with the time stamps: row {row} is of {here[row]}, expected "
            f"{times[row]}; index both alike"
        )


def _count(given: Given) -> str:
    keys = given.form.keys
    return "one series" if keys is None else f"{len(keys)} series"


def _position(name: Any, columns: tuple[Any, ...]) -> int:
    if name in columns:
        return columns.index(name)
    raise ValueError(unknown("past_only, which takes a column of X,", name, map(str, columns)))
