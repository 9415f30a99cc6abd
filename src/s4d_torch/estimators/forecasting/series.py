"""What users call y and X, as series: arrays or pandas objects, one or many; and back again."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from s4d_torch.data.dataset import Array
from s4d_torch.data.missing_values import interpolate, unusable
from s4d_torch.estimators.forecasting.timeline import Step, read_step
from s4d_torch.estimators.panel import plain

FORMS = "(time,) or (time, columns), a pandas Series or DataFrame, or a list or dict of those"


@dataclass(frozen=True)
class Series:
    """One series: values (time, columns) in double precision, and the stamp of each row."""

    name: str
    values: Array
    times: Array | None = None
    step: Step | None = None

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class Form:
    """How the series were given, so that forecasts can be given back alike."""

    keys: tuple[Any, ...] | None
    """of a dict; positions of a list; None for one series alone"""
    kind: str
    """array, Series or DataFrame"""
    flat: bool
    """whether each series is (time,)"""
    columns: tuple[Any, ...]
    is_dict: bool = False
    period: str | None = None
    """of an index of pandas' periods"""

    def give(self, forecasts: Sequence[Array], times: Sequence[Array | None]) -> Any:
        """(horizon, columns) for each series, in the form that the series had."""
        return self._gathered([self._one(x, t) for x, t in zip(forecasts, times, strict=True)])

    def give_quantiles(
        self, found: Sequence[Array], times: Sequence[Array | None], levels: Sequence[float]
    ) -> Any:
        """(horizon, columns, levels) each: (horizon, levels) of a flat series; tables in pandas."""
        given = []
        for values, stamps in zip(found, times, strict=True):
            if self.kind == "array":
                given.append(values[:, 0] if self.flat else values)
                continue
            pandas = sys.modules["pandas"]
            columns: Any = list(levels)
            if not self.flat:
                columns = pandas.MultiIndex.from_product([self.columns, levels])
            table = values.reshape(len(values), -1)
            given.append(pandas.DataFrame(table, index=self._index(stamps), columns=columns))
        return self._gathered(given)

    def _gathered(self, each: list[Any]) -> Any:
        if self.keys is None:
            return each[0]
        return dict(zip(self.keys, each, strict=True)) if self.is_dict else each

    def _one(self, values: Array, times: Array | None) -> Any:
        if self.kind == "array":
            return values[:, 0] if self.flat else values
        pandas, index = sys.modules["pandas"], self._index(times)
        if self.flat:
            return pandas.Series(values[:, 0], index=index, name=self.columns[0])
        return pandas.DataFrame(values, index=index, columns=list(self.columns))

    def _index(self, times: Array | None) -> Any:
        pandas = sys.modules["pandas"]
        index = pandas.Index(times)
        return index.to_period(self.period) if self.period else index


@dataclass(frozen=True)
class Given:
    """Series as they were read, and the form they had."""

    series: list[Series]
    form: Form = field(repr=False)

    @property
    def columns(self) -> int:
        return int(self.series[0].values.shape[1])

    @property
    def step(self) -> Step | None:
        return self.series[0].step


def read(name: str, given: Any, times: Any = None) -> Given:
    """y or X in any of its forms; ``times`` are the stamps of arrays, alike one or many."""
    many = _is_many(given)
    keys: list[Any] = list(given) if isinstance(given, Mapping) else list(range(len(given)))
    each = [given[key] for key in keys] if many else [given]
    if not each:
        raise ValueError(f"{name} holds no series; expected {FORMS}")
    if isinstance(given, Mapping) and isinstance(times, Mapping):
        times = [times.get(key) for key in keys]
    stamps = times if many and times is not None else [times] * len(each)
    if len(stamps) != len(each):
        raise ValueError(f"{name} holds {len(each)} series and times {len(stamps)}; give as many")
    names = [f"{name}[{key!r}]" for key in keys] if many else [name]
    found = [_read_one(*one) for one in zip(names, each, stamps, strict=True)]
    series, forms = [one for one, _ in found], [form for _, form in found]
    _check_alike(name, series)
    form = forms[0]
    if many:
        form = Form(
            tuple(keys), form.kind, form.flat, form.columns, isinstance(given, Mapping), form.period
        )
    return Given(series, form)


def fill(series: Series, missing: str) -> Series:
    """Without missing values, as ``missing`` asks; infinite ones are refused."""
    bad = unusable(series.values)
    if not bad.any():
        return series
    empty = np.isnan(series.values)
    refused = bad & ~empty if missing == "interpolate" else bad
    if refused.any():
        row, column = np.argwhere(refused)[0]
        if empty[row, column]:
            raise ValueError(
                f"{series.name} has missing values (NaN), the first in row {row}, column {column}; "
                "fill them in, or use missing='interpolate'"
            )
        raise ValueError(
            f"{series.name}: row {row}, column {column} is {series.values[row, column]}; values "
            "must be finite numbers"
        )
    if (nothing := empty.all(0)).any():
        raise ValueError(
            f"{series.name} has no value at all in column {int(np.argmax(nothing))}; leave it out"
        )
    filled = interpolate(series.values.T).T
    return Series(series.name, filled, series.times, series.step)


def _is_many(given: Any) -> bool:
    if isinstance(given, Mapping):
        return True
    if isinstance(given, np.ndarray) and given.dtype == object and given.ndim == 1:
        return len(given) > 0 and np.ndim(given[0]) > 0
    if not isinstance(given, list | tuple):
        return False
    return any(len(getattr(one, "shape", ())) for one in given)


def _read_one(name: str, given: Any, times: Any) -> tuple[Series, Form]:
    pandas = sys.modules.get("pandas")
    kind, period, columns = "array", None, None
    if pandas is not None and isinstance(given, pandas.Series | pandas.DataFrame):
        kind = type(given).__name__
        kind = kind if kind in ("Series", "DataFrame") else "DataFrame"
        columns = (given.name,) if kind == "Series" else tuple(given.columns)
        if times is not None:
            raise ValueError(f"{name} has an index of its own; leave times out")
        times, period = _index_times(name, given.index, pandas)
    values = np.asarray(plain(name, given))
    if np.iscomplexobj(values):
        raise ValueError(f"Complex data not supported: {name} is {values.dtype}")
    try:
        values = values.astype(np.float64, order="C")
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} holds more than numbers ({error})") from error
    if values.ndim not in (1, 2) or 0 in values.shape:
        raise ValueError(f"{name} has shape {values.shape}; expected {FORMS}, none of them empty")
    flat = values.ndim == 1
    table = values[:, None] if flat else values
    stamps = None if times is None else _stamps(name, times, len(table))
    step = None if stamps is None else read_step(stamps, name)
    labels = columns if columns is not None else tuple(range(table.shape[1]))
    return Series(name, table, stamps, step), Form(None, kind, flat, labels, period=period)


def _index_times(name: str, index: Any, pandas: Any) -> tuple[Any, str | None]:
    if isinstance(index, pandas.PeriodIndex):
        return index.to_timestamp().to_numpy(), index.freqstr
    if isinstance(index, pandas.DatetimeIndex):
        plain_index = index if index.tz is None else index.tz_convert("UTC").tz_localize(None)
        return plain_index.to_numpy(), None
    if index.dtype.kind in "iu":
        return index.to_numpy(), None
    raise ValueError(
        f"the index of {name} holds {index.dtype}; expected time stamps (pandas.to_datetime makes "
        "them) or whole numbers"
    )


def _stamps(name: str, times: Any, count: int) -> Array:
    stamps = np.asarray(times)
    if stamps.dtype.kind not in "Miu":
        try:
            stamps = stamps.astype("M8[ns]")
        except (TypeError, ValueError) as error:
            raise ValueError(f"{name}: times must be time stamps ({error})") from error
    if stamps.shape != (count,):
        raise ValueError(f"{name} has {count} rows and times {stamps.shape}; give one for each row")
    return stamps


def _check_alike(name: str, series: Sequence[Series]) -> None:
    first = series[0]
    for other in series[1:]:
        if other.values.shape[1] != first.values.shape[1]:
            raise ValueError(
                f"{other.name} has {other.values.shape[1]} columns, {first.name} has "
                f"{first.values.shape[1]}; all series need the same"
            )
        if other.step != first.step:
            raise ValueError(
                f"{other.name} and {first.name} have different steps in time ({other.step}, "
                f"{first.step}); sample all series alike"
            )
