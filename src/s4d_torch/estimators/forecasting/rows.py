"""Series and covariates as the rows that a network reads, one for each series and target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from s4d_torch.data.dataset import Array
from s4d_torch.estimators.forecasting.covariates import Covariates
from s4d_torch.estimators.forecasting.series import Given, Series
from s4d_torch.estimators.forecasting.timeline import Step


@dataclass(frozen=True)
class Context:
    """The past of all series: what forecasts are made from.

    ``values`` (time, targets) and ``beside`` (time, past + known) of each series, ``shift`` and
    ``scale`` (targets,) of each, and the last time stamp. Networks are equivariant, so units decide
    nothing but how flat a window is before it counts as flat.
    """

    names: tuple[str, ...]
    values: list[Array]
    beside: list[Array]
    shift: list[Array]
    scale: list[Array]
    last: list[np.datetime64 | int | None]
    step: Step | None

    @property
    def targets(self) -> int:
        return int(self.values[0].shape[1])

    def each_row(self) -> list[Array]:
        """Every series and target as an array (time, 1 + past + known), in standard units."""
        rows = []
        for values, beside, shift, scale in zip(
            self.values, self.beside, self.shift, self.scale, strict=True
        ):
            units = (values - shift) / scale
            rows += [np.column_stack([units[:, i], beside]) for i in range(self.targets)]
        return rows

    def rows(self, count: int) -> Array:
        """The last ``count`` samples of all rows, (series targets, count, 1 + past + known)."""
        return np.stack([row[-count:] for row in self.each_row()])

    def physical(self, outputs: Array) -> list[Array]:
        """Outputs (series targets, horizon, kinds) as (horizon, targets, kinds) of each series."""
        found = outputs.reshape(len(self.values), self.targets, *outputs.shape[1:])
        each = zip(found.swapaxes(1, 2), self.shift, self.scale, strict=True)
        return [x * scale[:, None] + shift[:, None] for x, shift, scale in each]

    def future(self, count: int) -> list[Array | None]:
        """The time stamps that follow, of each series."""
        if self.step is None:
            return [None] * len(self.values)
        return [self.step.after(last, count) for last in self.last]

    def check_length(self, window: int) -> None:
        for name, values in zip(self.names, self.values, strict=True):
            if len(values) < window:
                raise ValueError(
                    f"{name} has {len(values)} rows, fewer than the window of {window} that a "
                    f"forecast reads; give more of its past, or fit with window={len(values)}"
                )

    def extended(self, y: Given, X: Given | None, covariates: Covariates) -> Context:
        """With new observations at the end; refused unless they follow."""
        if len(y.series) != len(self.values) or y.columns != self.targets:
            raise ValueError(
                f"y_new holds {len(y.series)} series of {y.columns} targets, fit had "
                f"{len(self.values)} of {self.targets}; give the same"
            )
        counts = {len(series) for series in y.series}
        if len(counts) > 1:
            raise ValueError(
                f"y_new has {min(counts)} to {max(counts)} rows; give as many for every series"
            )
        if covariates.columns != (0 if X is None else X.columns):
            raise ValueError(
                f"X_new has {0 if X is None else X.columns} columns, X had {covariates.columns} in "
                "fit; give the same"
            )
        expected = self.future(len(y.series[0]))
        for series, stamps in zip(y.series, expected, strict=True):
            _check_follows(series, stamps)
        new = make_context(y, X, covariates, expected)
        return replace(
            self,
            values=_joined(self.values, new.values),
            beside=_joined(self.beside, new.beside),
            last=[None if stamps is None else stamps[-1] for stamps in expected],
        )

    def shortened(self, count: int) -> Context:
        """The last ``count`` samples alone."""
        return replace(
            self,
            values=[each[-count:] for each in self.values],
            beside=[each[-count:] for each in self.beside],
        )


def make_context(
    y: Given,
    X: Given | None,
    covariates: Covariates,
    times: Sequence[Array | None] | None = None,
    ends: Sequence[int] | None = None,
) -> Context:
    """From series as they were read; units are those of the samples before ``ends``."""
    stamps = [series.times for series in y.series] if times is None else list(times)
    xs = [None] * len(y.series) if X is None else [series.values for series in X.series]
    ends = [len(series) for series in y.series] if ends is None else ends
    beside = [
        covariates.rows(x, each, len(series))
        for series, x, each in zip(y.series, xs, stamps, strict=True)
    ]
    units = [_units(series.values[:end]) for series, end in zip(y.series, ends, strict=True)]
    return Context(
        tuple(series.name for series in y.series),
        [series.values for series in y.series],
        beside,
        [shift for shift, _ in units],
        [scale for _, scale in units],
        [None if each is None else each[-1] for each in stamps],
        y.step,
    )


def _units(values: Array) -> tuple[Array, Array]:
    """Mean and spread of each column; one that never changes keeps its scale."""
    shift, deviation = values.mean(0), values.std(0)
    varied = deviation > 8 * np.finfo(np.float64).eps * np.abs(shift)
    return shift, np.where(varied, deviation, 1.0)


def _joined(before: list[Array], after: list[Array]) -> list[Array]:
    return [np.concatenate(pair) for pair in zip(before, after, strict=True)]


def _check_follows(series: Series, expected: Array | None) -> None:
    if series.times is None or expected is None:
        return
    found = series.times.astype(expected.dtype)
    if (other := found != expected).any():
        row = int(np.argmax(other))
        raise ValueError(
            f"{series.name} does not follow what came before: row {row} is of {found[row]}, "
            f"expected {expected[row]}; give the rows after the last one, without gaps"
        )
